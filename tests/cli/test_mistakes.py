"""What a command cannot do is one sentence and exit code 2, without a traceback."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from child import done
from configs import ROOT

slow = partial(pytest.param, marks=pytest.mark.slow)  # what training/test_check_config.py refuses in the same words


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["train.py", "attenton=sparse"],
            "There is no option 'attenton'; did you mean 'attention'? `python train.py --cfg job` lists them.",
        ),
        (
            ["train.py", "data=tatoeba", "data.path=no/such/file.txt"],
            "no/such/file.txt does not exist; check data.path, or data.train, data.val and data.test",
        ),
        (["train.py", "tokenizer.vocab_size=1000000"], None),
        slow(
            ["train.py", "metric=[chrf]", "monitor=val/bleu"],
            "monitor=val/bleu must be one of val/chrf, val/loss, val/ppl, val/accuracy, val/attention_entropy",
        ),
        slow(
            ["train.py", "position=rotary"],
            "position=rotary would change nothing: this model has no position, which a Transformer or ConvS2S has; "
            "leave it out, or use model=transformer",
        ),
        slow(
            ["train.py", "model=conv", "position=alibi"],
            "position=alibi tells self-attention how far apart two positions are, and this model has no "
            "self-attention; use position=sinusoidal, learned or none",
        ),
        slow(
            ["train.py", "model=transformer", "position=rotary", "attention=bahdanau"],
            "position=rotary acts on an inner product of queries and keys, which AdditiveScore is not; use "
            "attention/score=scaled_dot, or position=alibi or position=sinusoidal",
        ),
        slow(
            ["train.py", "attention=luong_location", "attention.score.max_length=5"],
            "the model has positions for 5 tokens, and a sentence of train has 23; give the option max_length=23 or "
            "more (attention.score.max_length, position.max_length), or drop long sentences with data.cleaning",
        ),
        (
            ["evaluate.py", "ckpt_path=model.ckpt", "data.path=captions"],
            "There is no option 'data.path' until a corpus is chosen, since without one it is the run's; choose it "
            "too, as data=demo or data=demo_dialogue or data=demo_summary or data=huggingface or data=multi30k or "
            "data=tatoeba",
        ),
        (
            ["translate.py", "ckpt_path=no/such/run"],
            "ckpt_path=no/such/run does not exist; give a run folder (runs/train/...) or a .ckpt file",
        ),
        (["translate.py"], "python translate.py needs ckpt_path=RUN, a run folder or a .ckpt file"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str | None, tmp_path: Path, pairs: list[str]
) -> None:
    if arguments[0] == "train.py":
        corpus = [] if "data=tatoeba" in arguments else ["data=parallel", *pairs, "tokenizer.vocab_size=40"]
        arguments = ["train.py", *corpus, *arguments[1:], f"hydra.run.dir={tmp_path}"]
    answer = done(ROOT / arguments[0], *arguments[1:], folder=ROOT)
    assert answer.returncode == 2, answer.stderr
    said = answer.stderr.strip()
    assert "Traceback" not in said
    assert "\n" not in said
    if sentence is not None:
        assert said == sentence
    else:
        assert said.startswith("tokenizer.vocab_size=1000000 is more than this corpus supports; at most ")


@pytest.mark.parametrize(
    ("name", "why"), [("file/run", "Not a directory"), ("x" * 300, "File name too long")], ids=["file", "long"]
)
def test_a_run_folder_that_cannot_be_made_is_one_sentence(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = done(ROOT / "train.py", f"hydra.run.dir={tmp_path / name}", "debug=fast", folder=ROOT)
    assert answer.returncode == 2
    assert answer.stderr == f"{tmp_path / name} cannot be made ({why}); give another hydra.run.dir\n"


def test_a_folder_of_a_sweep_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sweep = tmp_path / "file" / "sweep"
    answer = done(ROOT / "train.py", "-m", f"hydra.sweep.dir={sweep}", "debug=fast", "seed=1,2", folder=ROOT)
    assert answer.returncode == 2
    assert answer.stderr == f"{sweep} cannot be made (Not a directory); give another hydra.sweep.dir\n"


@pytest.mark.parametrize("given", ["--config-dir={}", "hydra.searchpath=[{}]"])
def test_a_file_that_would_not_be_read_is_named(given: str, tmp_path: Path) -> None:
    own = tmp_path / "search" / "beam.yaml"
    own.parent.mkdir()
    own.write_text("beam_size: 3\n")
    answered = done(ROOT / "translate.py", given.format(tmp_path), "ckpt_path=run", folder=tmp_path)
    file = ROOT / "conf" / "search" / "beam.yaml"
    sentence = f"{own} is not read, since {file} has the same name and comes first; rename yours\n"
    assert (answered.returncode, answered.stderr) == (2, sentence)


def test_a_sweep_does_not_read_standard_input_which_is_empty_after_its_first_job(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt").touch()
    given = ["ckpt_path=model.ckpt", "search=greedy,beam", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    answer = done(ROOT / "translate.py", "-m", *given, folder=tmp_path)
    sentence = "the first job of a sweep would read all of standard input; give input=FILE"
    assert answer.returncode == 2
    assert answer.stderr.splitlines()[:2] == [f"job 0: {sentence}", f"job 1: {sentence}"]
