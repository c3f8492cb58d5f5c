"""BLEU by minutes: what a program said is found while it runs, scored alike, and stands on the page."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from scripts.benchmarks import minutes as script
from scripts.benchmarks.draw_minutes import draw, figures
from scripts.benchmarks.peer_data import lines_of
from seq2seq_attn.errors import UserError

OPTIONS = argparse.Namespace(threads=1)
PROGRAM = """
import pathlib, sys, time
for step in (3, 5):
    time.sleep(1.2)
    pathlib.Path(sys.argv[1], f"{step}.hyps").write_text("x")
"""
POINTS = [{"minutes": 1.0, "updates": 20, "bleu": 11.0}, {"minutes": 21.0, "updates": 40, "bleu": 12.0}]
SIZES = {
    "parameters": 2_500_000, "updates": 40, "tokens": 800, "settings": ["experiment=tatoeba_best"],
    "sentences": {"train": 3861, "val": 50, "test": 51},
}  # fmt: skip
SETTINGS = script.PEERS["joeynmt_rnn"].settings | {"seed": 1}


def typed_in(folder: Path, *others: str) -> list[str]:
    return ["--output", str(folder / "minutes.json"), "--runs", str(folder / "runs"), *others]


def ended(bleu: float) -> dict[str, Any]:
    return {"curve": POINTS, "test_bleu": bleu, **SIZES}


def write_data(config: Any, folder: Path) -> tuple[dict[str, Any], dict[str, Side]]:
    folder.mkdir(parents=True)
    splits = {split: Side([[word]]) for split, word in (("train", "c"), ("val", "a"), ("test", "b"))}
    return {"tokens": 800, "lr": 9.0}, splits


class Side:
    def __init__(self, references: list[list[str]]) -> None:
        self.references = references

    def __len__(self) -> int:
        return len(self.references)


@pytest.mark.slow  # it waits for a validation
def test_a_validation_has_the_minutes_at_which_it_came(tmp_path: Path) -> None:
    def found() -> dict[int, float | None]:
        return {int(file.stem): 1.0 for file in tmp_path.glob("*.hyps")}

    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    curve = script.watched(command, tmp_path / "log", OPTIONS, found)
    assert [point["updates"] for point in curve] == [3, 5]
    first, second = (point["minutes"] * 60 for point in curve)
    assert 1 < first < second


def test_a_run_is_kept_when_it_ends_and_none_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "minutes.json"
    started: list[tuple[str, int]] = []

    def trained(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
        started.append((name, seed))
        if len(started) == 3:
            raise KeyboardInterrupt
        return ended(40.0 + seed) if name == "ours" else {**ended(30.0 + seed), "settings": SETTINGS}

    monkeypatch.setattr(script, "trained", trained)
    typed = [
        "--output",
        str(output),
        "--runs",
        str(tmp_path / "runs"),
        "--programs",
        "ours",
        "joeynmt_rnn",
        "--seeds",
        "1",
        "2",
    ]
    with pytest.raises(SystemExit, match="130"):
        script.main(typed)
    script.main(typed)
    assert started == [("ours", 1), ("joeynmt_rnn", 1), ("ours", 2), ("ours", 2), ("joeynmt_rnn", 2)]
    text = output.with_suffix(".md").read_text(encoding="utf-8")
    assert "| ours, recurrent | 2 | 41.5 ± 0.7 | 12.0 ± 0.0 | 11.9 ± 0.0 | 21.0 ± 0.0 | 40 ± 0 | 2.50 |" in text
    assert "| JoeyNMT 2.3, recurrent | 2 | 31.5 ± 0.7 |" in text
    assert "- JoeyNMT 2.3, recurrent: `batch_tokens 8192, dropout 0.2, lr 0.003, embed_init_weight 0.1`." in text
    assert "--data fra.txt --output docs/benchmarks/minutes.json`, which trains" in text
    assert "an update of JoeyNMT" in text.replace("\n  ", " ")
    assert "twice as large as those of OpenNMT-py" in text.replace("\n  ", " ")
    assert output.with_suffix(".png").stat().st_size > 5000


def test_figures_of_other_minutes_or_settings_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "trained", lambda *_: ended(40.0))
    typed = [
        "--output",
        str(tmp_path / "minutes.json"),
        "--runs",
        str(tmp_path / "runs"),
        "--programs",
        "ours",
        "--seeds",
        "1",
    ]
    script.main([*typed, "--minutes", "0.5", "--setting", "lr=0.001"])
    page = (tmp_path / "minutes.md").read_text(encoding="utf-8")
    assert "--data fra.txt --minutes 0.5 --setting lr=0.001 --output docs/benchmarks/minutes.json`" in page
    for others, sentence in (
        (["--minutes", "1", "--setting", "lr=0.001"], "has runs of minutes 0.5, not 1.0; give another --output"),
        (["--minutes", "0.5"], "has runs of setting ['lr=0.001'], not []; give another --output"),
        (
            ["--minutes", "0.5", "--setting", "lr=0.001", "--experiment", "tatoeba_bahdanau"],
            "has runs of experiment tatoeba_best, not tatoeba_bahdanau; give another --output",
        ),
    ):
        with pytest.raises(SystemExit, match=r"^2$"):
            script.main([*typed, *others])
        assert sentence in capsys.readouterr().err


def test_runs_of_a_program_with_other_settings_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {key: value for key, value in SETTINGS.items() if key != "embed_init_weight"}
    monkeypatch.setattr(script, "trained", lambda *_: {**ended(30.0), "settings": old})
    typed = typed_in(tmp_path, "--programs", "joeynmt_rnn")
    script.main([*typed, "--seeds", "1"])
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main([*typed, "--seeds", "1", "2"])
    assert "has runs of joeynmt_rnn with embed_init_weight none, not 0.1; give another" in capsys.readouterr().err
    script.main([*typed, "--seeds", "1"])


def test_runs_of_ours_get_no_further_seeds_by_an_experiment_with_other_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "draw", lambda file: file)
    monkeypatch.setattr(script, "composed", lambda _: OmegaConf.create({"trainer": {"max_epochs": 14}}))
    typed = typed_in(tmp_path, "--programs", "ours", "--seeds")
    for epochs in (14, 15):
        monkeypatch.setattr(script, "trained", lambda *_, epochs=epochs: ended(40.0) | {"epochs": epochs})
        script.main([*typed, str(epochs)])
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main([*typed, "16"])
    assert "has runs of ours with 15 epochs, and experiment=tatoeba_best has 14 today; give" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"settings": SETTINGS | {"batch_tokens": 4096}}, "has runs of joeynmt_rnn with batch_tokens 4096, not 8192"),
        ({"machine": {"processor": "one", "torch": "2.0"}}, "has runs of joeynmt_rnn on one, torch 2.0; give another"),
    ],
)
def test_runs_with_other_batches_or_of_another_machine_get_no_further_seeds(
    changed: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(script, "trained", lambda *_: {**ended(30.0), "settings": SETTINGS})
    typed = typed_in(tmp_path, "--programs", "joeynmt_rnn", "--seeds")
    script.main([*typed, "1"])
    script.main([*typed, "1", "2"])
    file = tmp_path / "minutes.json"
    figures = json.loads(file.read_text(encoding="utf-8"))
    figures["programs"]["joeynmt_rnn"]["2"] |= changed
    file.write_text(json.dumps(figures), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main([*typed, "1", "2", "3"])
    assert sentence in capsys.readouterr().err


def test_programs_of_two_machines_are_not_put_on_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "trained", lambda *_: {**ended(30.0), "settings": SETTINGS})
    script.main(typed_in(tmp_path, "--programs", "ours", "--seeds", "1"))
    monkeypatch.setattr(script, "machine", lambda: {"processor": "another", "torch": "2.0"})
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main(typed_in(tmp_path, "--programs", "joeynmt_rnn", "--seeds", "1"))
    assert "has runs of ours on " in capsys.readouterr().err
    script.main(typed_in(tmp_path, "--programs", "ours", "--seeds", "1"))  # nothing new: the page is written


def test_a_page_says_which_program_has_which_machine_and_describes_no_other_program(tmp_path: Path) -> None:
    one, other = {"processor": "A", "torch": "2"}, {"processor": "A, family 1 model 2", "torch": "2"}
    figures = json.loads(script.OUTPUT.with_name("tatoeba_minutes_bahdanau.json").read_text(encoding="utf-8"))
    (ours,) = figures["programs"]["ours"].values()
    for programs, said, unsaid in (
        ({"ours": {"1": ours | {"machine": one}}}, "A (family and model not recorded), torch 2; commit not", "JoeyNMT"),
        (
            {
                "ours": {"1": ours | {"machine": one}},
                "opennmt_rnn": {"1": {**ours, "settings": SETTINGS, "machine": other, "commit": "c" * 40}},
            },
            "that of ours, recurrent: its minutes, and what it reached in them, are not comparable",
            "JoeyNMT's",
        ),
    ):
        (tmp_path / "figures.json").write_text(json.dumps(figures | {"programs": programs}), encoding="utf-8")
        text = " ".join(draw(tmp_path / "figures.json").read_text(encoding="utf-8").split())
        assert said in text
        assert unsaid not in text.replace("Not trained yet: JoeyNMT 2.3, recurrent; JoeyNMT 2.3, Transformer", "")
    assert "A, family 1 model 2, torch 2; commit `cccccccc`." in text


def test_a_page_has_the_schedules_of_its_runs(tmp_path: Path) -> None:
    figures = json.loads(script.OUTPUT.with_name("tatoeba_minutes_bahdanau.json").read_text(encoding="utf-8"))
    (ours,) = figures["programs"]["ours"].values()
    peer = ended(41.0) | {"settings": SETTINGS | {"decay_after": 2345, "decay_every": 67}}
    programs = {"ours": {"1": ours | {"epochs": 77}}, "opennmt_rnn": {"1": peer | {"machine": ours["machine"]}}}
    (tmp_path / "figures.json").write_text(json.dumps(figures | {"programs": programs}), encoding="utf-8")
    text = " ".join(draw(tmp_path / "figures.json").read_text(encoding="utf-8").split())
    assert "Ours ends after 77 epochs, when its learning rate" in text
    assert "halves its rate after 2,345 updates and every 67 from there" in text


def test_figures_that_get_no_further_runs_say_so_and_have_the_settings_of_their_command() -> None:
    text = script.OUTPUT.with_name("tatoeba_minutes_zen5.md").read_text(encoding="utf-8")
    command = (
        "--data fra.txt --experiment tatoeba_bahdanau --setting decay_after=1600 decay_every=400 --output FILE.json"
    )
    assert f"earlier version of `python -m scripts.benchmarks.minutes {command}`, which adds no run" in text
    assert "which trains what the figures lack" in script.OUTPUT.with_suffix(".md").read_text(encoding="utf-8")


def test_the_committed_pages_have_different_titles() -> None:
    pages = script.OUTPUT.parent.glob("tatoeba_minutes*.md")
    titles = [page.read_text(encoding="utf-8").partition("\n")[0] for page in pages]
    assert len(set(titles)) == len(titles) == 5


def test_the_early_figure_is_at_a_time_that_all_reach() -> None:
    short = ended(40.0) | {"curve": [{"minutes": 11.8, "updates": 9, "bleu": 7.0}]}
    long = ended(41.0) | {"curve": [
        {"minutes": minutes, "updates": 9, "bleu": bleu} for minutes, bleu in ((10.0, 8.0), (13.0, 9.0), (30.0, 9.5))
    ]}  # fmt: skip
    text = figures({"ours": {"1": short}, "opennmt_rnn": {"1": long}})
    assert "best validation BLEU within 12 minutes, interpolated" in text
    assert "| OpenNMT-py 3.5.1, recurrent | 1 | 41.0 | 9.5 | 8.6 | 30.0 |" in text


def test_our_model_is_that_of_the_experiment() -> None:
    assert script.overrides(script.parse(["--experiment", "tatoeba_bahdanau"]))[0] == "experiment=tatoeba_bahdanau"


def test_settings_are_numbers_that_a_program_has() -> None:
    assert script.changed(["lr=0.001", "validation_updates=7"]) == {"lr": 0.001, "validation_updates": 7}
    with pytest.raises(UserError, match="--setting lr is not NAME=NUMBER"):
        script.changed(["lr"])
    with pytest.raises(UserError, match="lrr: no program has it; the settings are average_decay, batch_tokens"):
        script.changed(["lrr=1"])


def test_a_program_that_fails_does_not_keep_the_others_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def trained(name: str, *_: Any) -> dict[str, Any]:
        if name != "ours":
            raise script.ProgramError("no such peer")
        return ended(40.0)

    monkeypatch.setattr(script, "trained", trained)
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main(typed_in(tmp_path, "--seeds", "1"))
    said = capsys.readouterr()
    assert said.err.count("no such peer") == 4
    assert "opennmt_rnn with seed 1, opennmt_transformer with seed 1 failed; repeat the command" in said.err
    assert list(json.loads((tmp_path / "minutes.json").read_text())["programs"]) == ["ours"]


def test_a_training_that_has_ended_is_not_repeated_when_its_test_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, tested = [], []

    def train_peer(program: str, folder: Path, _: Any) -> list[dict[str, Any]]:
        assert not (folder / "left.txt").exists()
        (folder / "left.txt").touch()
        trained.append(program)
        if len(trained) == 1:
            raise KeyboardInterrupt
        return [{"minutes": 1.0, "updates": 20, "bleu": None}]

    def score_peer(program: str, folder: Path, curve: Any, references: Any, _: Any) -> dict[str, Any]:
        tested.append(references)
        if len(tested) == 1:
            raise UserError("the test failed")
        curve[0]["bleu"] = 5.0
        return {"test_bleu": 4.0}

    monkeypatch.setattr(script, "write_data", write_data)
    monkeypatch.setattr(script, "train_peer", train_peer)
    monkeypatch.setattr(script, "score_peer", score_peer)
    options = script.parse(["--runs", str(tmp_path)])
    for error in (KeyboardInterrupt, UserError):
        with pytest.raises(error):
            script.trained("opennmt_rnn", 1, options)
    result = script.trained("opennmt_rnn", 1, options)
    assert (len(trained), len(tested)) == (2, 2)
    assert (result["test_bleu"], result["curve"][0]["bleu"], result["tokens"]) == (4.0, 5.0, 800)
    assert tested[1] == {"val": [["a"]], "test": [["b"]]}


@pytest.mark.slow  # it waits for the program
def test_a_program_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such corpus')"]
    with pytest.raises(UserError, match="failed: no such corpus"):
        script.watched(command, tmp_path / "log", OPTIONS, dict)
    with pytest.raises(UserError, match="failed"):  # it validated nothing
        script.watched([sys.executable, "-c", "pass"], tmp_path / "log", OPTIONS, dict)


def test_both_are_scored_against_all_references() -> None:
    references = [["le chat dort bien ici", "le chat y dort bien"], ["oui , c'est vrai ."]]
    assert script.bleu(["le chat y dort bien", "oui , c'est vrai ."], references) == pytest.approx(100)


def test_lines_are_split_at_line_feeds_alone(tmp_path: Path) -> None:
    (tmp_path / "said").write_bytes("a\u2028b\n\nc\n".encode())
    assert lines_of(tmp_path / "said") == ["a\u2028b", "", "c"]


def test_a_tied_weight_counts_once_and_a_table_of_positions_does_not(tmp_path: Path) -> None:
    weight = torch.zeros(5, 7)
    state = {"embed": weight, "output": weight, "bias": torch.zeros(3), "encoder.pe.pe": torch.zeros(1, 50, 7)}
    (tmp_path / "model").mkdir()
    torch.save({"model_state": state}, tmp_path / "model" / "best.ckpt")
    assert script.OUTPUTS["joeynmt"].num_parameters(tmp_path) == 38


def test_a_validation_of_joeynmt_counts_when_all_its_lines_are_there(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for name, lines in (("200", 3), ("400", 2), ("best", 3)):
        (tmp_path / "model" / f"{name}.hyps").write_text("x\n" * lines)
    assert script.OUTPUTS["joeynmt"].updates(tmp_path, 3) == [200]


def test_a_validation_of_opennmt_is_a_checkpoint_and_its_parameters_are_those_it_prints(tmp_path: Path) -> None:
    (tmp_path / "model_step_30.pt").touch()
    assert script.OUTPUTS["opennmt"].updates(tmp_path, 3) == [30]
    (tmp_path / "run.log").write_text("[x INFO] decoder: 5\n[x INFO] * number of parameters: 4711864\n")
    assert script.OUTPUTS["opennmt"].num_parameters(tmp_path / "data") == 4_711_864


@pytest.mark.parametrize("name", script.PEERS)
def test_the_others_get_our_sizes_their_settings_and_a_seed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "write_data", write_data)
    options = script.parse(["--setting", "dropout=0.25", "--override", "batch_tokens=512"])  # of ours alone
    task = script.write_task(name, 7, tmp_path / "data", options)
    given = json.loads((tmp_path / "data" / "settings.json").read_text())
    assert given == task["settings"]
    assert (given["seed"], given["dropout"], given["dim"], given["tokens"]) == (7, 0.25, 256, 800)
    assert given["batch_tokens"] == (8192 if name.startswith("joeynmt") else 4096)
    own = {key: value for key, value in script.PEERS[name].settings.items() if key != "dropout"}
    assert own.items() <= given.items()
    assert name == f"{script.PEERS[name].program}_{given['model']}"
    assert task["sizes"] == {"tokens": 800, "sentences": {"train": 1, "val": 1, "test": 1}}


@pytest.mark.parametrize(
    "name",
    [
        "tatoeba_minutes",
        "tatoeba_minutes_small_batches",
        "tatoeba_minutes_earlier",
        "tatoeba_minutes_bahdanau",
        "tatoeba_minutes_zen5",
    ],
)
def test_the_committed_page_is_that_of_its_figures(name: str, tmp_path: Path) -> None:
    page = script.OUTPUT.with_name(f"{name}.md")
    shutil.copy(page.with_suffix(".json"), tmp_path)
    drawn = draw(tmp_path / f"{name}.json").read_text(encoding="utf-8")
    assert drawn == page.read_text(encoding="utf-8")


def test_figures_of_an_older_form_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"programs": {}}')
    with pytest.raises(UserError, match="has no 'setting'"):
        draw(tmp_path / "old.json")
    with pytest.raises(UserError, match=r"has runs of minutes None, not 30\.0"):
        script.read_results(script.parse(["--output", str(tmp_path / "old.json")]))
