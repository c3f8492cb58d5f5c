"""seq2seq-attn average: means worked out by hand, in a checkpoint that translates."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import built, composed
from small_checkpoint import SENTENCES, write_checkpoint
from training.test_run import train_here

from seq2seq_attn.checkpoint import average as script
from seq2seq_attn.checkpoint.load import load, read_checkpoint
from seq2seq_attn.checkpoint.published import write_published
from seq2seq_attn.inference.models import load_models
from seq2seq_attn.search.search import TargetVocabulary

BIAS = "model.output.bias"


def with_bias(file: Path, value: float, *, step: int = 1, bleu: float | None = None, **extra: Any) -> Path:
    """A checkpoint whose output bias is one number, with more tensors, and the BLEU of its step if validated."""
    checkpoint = write_checkpoint(file, step=step)
    checkpoint["state_dict"][BIAS].fill_(value)
    checkpoint["state_dict"] |= extra
    if bleu is not None:
        checkpoint["resume"] = {"validated_step": step, "metrics": {"val/bleu": torch.tensor(bleu)}}
    torch.save(checkpoint, file)
    return file


def run_of(folder: Path, bleu: dict[int, float]) -> Path:
    """A run that kept a checkpoint of every step, whose bias is the step."""
    for step, score in bleu.items():
        with_bias(folder / "checkpoints" / f"epoch=0-step={step}.ckpt", float(step), step=step, bleu=score)
    return folder


def mean_bias(*arguments: object) -> float:
    """What the script makes of the biases."""
    output = Path(str(arguments[-1]))
    script.main([*map(str, arguments[:-1]), "--output", str(output)])
    (value,) = set(read_checkpoint(output)["state_dict"][BIAS].tolist())
    return value


def test_the_average_of_two_by_hand_translates(tmp_path: Path) -> None:
    a, b, out = (with_bias(tmp_path / "a.ckpt", 1.0), with_bias(tmp_path / "b.ckpt", 4.0), tmp_path / "new" / "c.ckpt")
    torch.save(write_checkpoint(b, seed=1) | {"global_step": 2}, b)
    script.main([str(a), str(b), "--output", str(out)])
    states = [read_checkpoint(file)["state_dict"] for file in (a, b, out)]
    assert states[2].keys() == states[0].keys()
    for name, mean in states[2].items():
        torch.testing.assert_close(mean, (states[0][name] + states[1][name]) / 2)
    assert (states[2][BIAS] == 0.5).all()
    loaded = load(str(out))
    ids = torch.tensor(loaded.tokenizer.encode_source([SENTENCES[0]]))
    search = built(composed("search.limits.max_length=7").search)
    ((best,),) = search(
        loaded.model, ids, torch.ones_like(ids, dtype=torch.bool), TargetVocabulary.of(loaded.tokenizer)
    )
    assert isinstance(loaded.tokenizer.decode_target([best.token_ids])[0], str)


@pytest.mark.parametrize(("other", "known"), [("one", "one"), ("two", None)])
def test_an_average_and_what_is_published_of_it_tell_the_corpus(tmp_path: Path, other: str, known: str | None) -> None:
    for name, corpus in (("a", "one"), ("b", other)):
        checkpoint = write_checkpoint(tmp_path / f"{name}.ckpt", seed=len(corpus) + ord(name))
        torch.save(checkpoint | {"TranslationDataModule": {"corpus": corpus}}, tmp_path / f"{name}.ckpt")
    average = tmp_path / "average.ckpt"
    script.main([str(tmp_path / "a.ckpt"), str(tmp_path / "b.ckpt"), "--output", str(average)])
    write_published(read_checkpoint(average), tmp_path / "published")
    for given in (average, tmp_path / "published"):
        assert load_models([str(given)], "cpu").corpora == (known,)


def test_means_are_taken_in_float64_and_whole_numbers_are_the_last(tmp_path: Path) -> None:
    values = [2.0**24, 1.0, 1.0]  # float32 would lose the ones
    files = [
        with_bias(tmp_path / f"{n}.ckpt", value, count=torch.tensor([n]), half=torch.tensor([n], dtype=torch.float16))
        for n, value in enumerate(values)
    ]
    assert mean_bias(*files, tmp_path / "out.ckpt") == (2**24 + 2) / 3
    state = read_checkpoint(tmp_path / "out.ckpt")["state_dict"]
    assert state["count"].tolist() == [2]
    assert state["half"].tolist() == [1.0]
    assert state["half"].dtype == torch.float16
    assert state[BIAS].dtype == torch.float32


def test_runs_that_began_with_different_weights_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(name: str, *options: dict[str, Any]) -> str:
        files = [with_bias(tmp_path / name / f"{number}.ckpt", 1.0) for number in range(len(options))]
        for file, more in zip(files, options, strict=True):
            checkpoint = read_checkpoint(file)
            torch.save(checkpoint | {"config": checkpoint["config"] | more}, file)
        script.main([*map(str, files), "--output", str(tmp_path / f"{name}.ckpt")])
        return capsys.readouterr().err

    tuned: dict[str, Any] = {"init_from": {"run": "parent"}}
    assert said("one run", {"seed": 1}, {"seed": 1}) == ""
    assert said("siblings", tuned | {"seed": 1}, tuned | {"seed": 2}) == ""
    assert said("seeds", {"seed": 2}, {"seed": 1}, {"seed": 2}).startswith(
        "these runs began with different weights (seed=1, seed=2), and an average of such models translates badly; "
    )


def test_a_tied_matrix_is_written_once(tmp_path: Path) -> None:
    files = [with_bias(tmp_path / f"{n}.ckpt", float(n)) for n in (1, 3)]
    assert mean_bias(*files, tmp_path / "out.ckpt") == 2.0
    state = read_checkpoint(tmp_path / "out.ckpt")["state_dict"]
    assert state["model.output.weight"].data_ptr() == state["model.embed_target.weight"].data_ptr()


def test_a_run_gives_its_last_or_those_of_best_validation_bleu(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {1: 30.0, 5: 10.0, 8: 20.0, 11: 25.0})
    with_bias(run / "checkpoints" / "last.ckpt", 11.0, step=11, bleu=25.0)
    assert mean_bias(run, "--last", 3, run / "checkpoints" / "average.ckpt") == (5 + 8 + 11) / 3
    assert mean_bias(run, "--best", 2, tmp_path / "best.ckpt") == (1 + 11) / 2
    # an average is none of the run's own
    assert mean_bias(run, "--last", 4, tmp_path / "all.ckpt") == (1 + 5 + 8 + 11) / 4
    assert read_checkpoint(tmp_path / "best.ckpt")["averaged"] == [
        str(run / "checkpoints" / f"epoch=0-step={step}.ckpt") for step in (1, 11)
    ]


def test_validations_without_a_checkpoint_that_belong_to_an_average_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(choice: str, count: int) -> str:
        script.main([str(run), choice, str(count), "--output", str(tmp_path / f"{choice}{count}.ckpt")])
        return capsys.readouterr().err

    run = run_of(tmp_path / "run", {1: 30.0, 5: 10.0, 11: 25.0})
    (run / "config.yaml").write_text("monitor: val/bleu\nmonitor_mode: max\n")
    lines = ["step,train/loss,val/bleu", "0,3.0,30.0", "4,,10.0", "6,,", "7,,nan", "9,2.0,27.0", "10,,25.0", "11,2.0,"]
    (run / "metrics.csv").write_text("".join(f"{line}\n" for line in lines))
    assert said("--last", 2) == (
        f"{run} has no checkpoint of some of its last 2 validations (after step 10), so this is an average of others; "
        "a run keeps them with callback.history.save_top_k=2\n"
    )
    assert "its last 3 validations (after step 8, 10), so" in said("--last", 3)
    assert (
        "its best 2 validations (after step 10), so this is an average of others; a run keeps them with callback.be"
        in (said("--best", 2))
    )
    with_bias(run / "checkpoints" / "kept.ckpt", 9.0, step=9, bleu=27.0)  # within the tenth update
    assert said("--best", 3) == ""


def test_the_best_of_a_monitored_loss_are_the_lowest_whatever_callback_keeps_a_best(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {1: 3.0, 5: 2.5, 8: 2.2, 11: 2.4})
    for file in (run / "checkpoints").iterdir():
        checkpoint = read_checkpoint(file)
        checkpoint["config"] |= {"monitor": "val/bleu", "monitor_mode": "min", "callback": {}}
        torch.save(checkpoint, file)
    assert mean_bias(run, "--best", 2, tmp_path / "best.ckpt") == (8 + 11) / 2


def test_a_figure_that_is_no_number_is_the_worst_in_both_directions(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {1: math.nan, 5: 10.0, 8: math.nan, 11: 20.0})
    assert mean_bias(run, "--best", 2, tmp_path / "high.ckpt") == (5 + 11) / 2
    for file in (run / "checkpoints").iterdir():
        checkpoint = read_checkpoint(file)
        checkpoint["config"] |= {"monitor_mode": "min"}
        torch.save(checkpoint, file)
    assert mean_bias(run, "--best", 2, tmp_path / "low.ckpt") == (5 + 11) / 2


def test_what_was_saved_by_the_clock_is_left_out(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {2: 30.0, 5: 10.0})
    for name, step in (("previous.ckpt", 4), ("last.ckpt", 9)):
        file = with_bias(run / "checkpoints" / name, float(step), step=step, bleu=10.0)
        checkpoint = read_checkpoint(file)
        checkpoint["resume"]["validated_step"] = 2
        torch.save(checkpoint, file)
    assert mean_bias(run, "--last", 2, tmp_path / "validated.ckpt") == (2 + 5) / 2


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit, match="2"):
        script.main([*map(str, arguments)])
    return capsys.readouterr().err.rpartition("error: ")[2]


def test_what_cannot_be_averaged_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path / "run", {2: 30.0, 5: 10.0})
    a, out = run / "checkpoints" / "epoch=0-step=2.ckpt", ["--output", tmp_path / "out.ckpt"]
    write_checkpoint(tmp_path / "words.ckpt", sentences=[*SENTENCES, "grün"])
    write_checkpoint(tmp_path / "conv.ckpt", "model=conv")
    twice = run / "checkpoints" / ".." / "checkpoints" / a.name
    assert "an average is of two files at least, all different" in refused(capsys, a, twice, *out)
    assert f"{a} and {tmp_path / 'words.ckpt'} have different token" in refused(
        capsys, a, tmp_path / "words.ckpt", *out
    )
    assert f"{a} and {tmp_path / 'conv.ckpt'} hold models of diff" in refused(capsys, a, tmp_path / "conv.ckpt", *out)
    write_checkpoint(tmp_path / "back.ckpt", "data.source_language=fr", "data.target_language=en")
    said = refused(capsys, a, tmp_path / "back.ckpt", *out)
    assert f"{tmp_path / 'back.ckpt'} translate en to fr and fr to en; give checkpoints of one run" in said
    short = with_bias(tmp_path / "short.ckpt", 1.0)
    state = torch.load(short, weights_only=True)
    state["state_dict"][BIAS] = state["state_dict"][BIAS][:1]
    torch.save(state, short)
    assert f"{a} and {short} hold weights of different names or shapes" in refused(capsys, a, short, *out)
    del state["state_dict"][BIAS]
    torch.save(state, short)
    assert f"{a} and {short} hold weights of different names or shapes" in refused(capsys, a, short, *out)
    for damaged in ({}, {"validated_step": 5, "metrics": {}}, 5):
        torch.save(torch.load(a, weights_only=True) | {"global_step": 5, "resume": damaged}, run / "damaged.ckpt")
        (tmp_path / "odd").mkdir(exist_ok=True)
        (run / "damaged.ckpt").rename(tmp_path / "odd" / "damaged.ckpt")
        said = refused(capsys, tmp_path / "odd", "--last", 2, *out)
        assert "damaged.ckpt has a damaged state of its training (" in said
        assert "name the files to average instead" in said
    assert "an average is of two files at least, all different" in refused(capsys, a, a, *out)
    assert f"--last and --best choose from one run folder, got {a}" in refused(capsys, a, "--last", 2, *out)
    assert (
        refused(capsys, tmp_path / "no", "--last", 2, *out) == f"{tmp_path / 'no'} does not exist; give a run folder\n"
    )
    with_bias(tmp_path / "never" / "step=3.ckpt", 1.0)
    said = refused(capsys, tmp_path / "never", "--last", 2, *out)
    assert said.startswith(f"{tmp_path / 'never'} has no checkpoint of a validation, and --last and --best choose from")
    few = refused(capsys, run, "--last", 3, *out)
    assert few.startswith(f"--last 3 is not possible: {run} has 2 checkpoints of different validations, and an average")
    assert few.endswith(
        "of two at least; a run keeps its last five with callback.history.save_top_k=5, and its best five with "
        "callback.best_checkpoints.save_top_k=5\n"
    )
    (tmp_path / "file").touch()
    unwritable = tmp_path / "file" / "a.ckpt"
    said = refused(capsys, run, "--last", 2, "--output", unwritable)
    where = f"nothing can be written in {tmp_path / 'file'}"  # said before the checkpoints are read
    assert said == f"{unwritable} cannot be written, since {where}; give another --output\n"
    assert "is there already; give a new file, or delete it" in refused(capsys, run, "--last", 2, "--output", a)
    assert not (tmp_path / "out.ckpt").exists()


@pytest.mark.parametrize("option", ["data", "model"])
def test_a_checkpoint_that_lacks_the_options_to_compare_is_a_sentence(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path / "a.ckpt")
    checkpoint = write_checkpoint(tmp_path / "b.ckpt")
    del checkpoint["config"][option]
    torch.save(checkpoint, tmp_path / "b.ckpt")
    for files in ("ab", "ba"):
        said = refused(capsys, *(tmp_path / f"{name}.ckpt" for name in files), "--output", tmp_path / "out.ckpt")
        assert f"b.ckpt holds no {option}" in said


CALLBACKS = "callback=[seeding,throughput,checkpoint,autosave,history,early_stopping,validation_line]"
HISTORY = (CALLBACKS, "callback.history.save_top_k=5")


@pytest.mark.slow
def test_the_override_that_is_named_keeps_the_last_five(tmp_path: Path) -> None:
    run = tmp_path
    train_here(run, "trainer.max_steps=7", "trainer.val_check_interval=1", *HISTORY)
    names = {file.name for file in (run / "checkpoints").iterdir()}
    assert names == {"best.ckpt", "last.ckpt", "previous.ckpt", *(f"step={step}.ckpt" for step in range(3, 8))}
    files = script.chosen([str(run)], 5, None)
    script.main([str(run), "--best", "2", "--output", str(tmp_path / "average.ckpt")])
    assert [read_checkpoint(file)["global_step"] for file in files] == [3, 4, 5, 6, 7]
    load(str(tmp_path / "average.ckpt"))
