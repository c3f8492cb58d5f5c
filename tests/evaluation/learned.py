"""A run that has learned a little, and what evaluate.py leaves of it."""

from __future__ import annotations

import csv
import json
import warnings
from itertools import product
from pathlib import Path
from typing import Any

from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from configs import CONF
from hydra import compose, initialize_config_dir
from training.test_run import SMALL, command

from seq2seq_attn.training.run import train

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.evaluation.evaluate import evaluate

WORDS = (
    {"the cat": "le chat", "the dog": "le chien", "a boy": "un garçon", "a girl": "une fille", "she": "elle"},
    {"sees": "voit", "hears": "entend", "finds": "trouve", "likes": "aime"},
    {"the house": "la maison", "the red car": "la voiture rouge", "a bird": "un oiseau", "water": "de l'eau"},
)
Pairs = list[tuple[str, str]]


def clauses() -> Pairs:
    """Eighty short sentences, then eighty of two clauses."""
    found = [tuple(map(" ".join, zip(*words, strict=True))) for words in product(*(d.items() for d in WORDS))]
    found = [found[i * 7 % 80] for i in range(80)]  # mixed; 7 and 80 have no common divisor
    twice = [(f"{a} and {c}", f"{b} et {d}") for (a, b), (c, d) in zip(found, found[1:] + found[:1], strict=True)]
    return [(f"{a.capitalize()}.", f"{b.capitalize()}.") for a, b in found + twice]


def write(file: Path, pairs: Pairs) -> Path:
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return file


def learn(folder: Path) -> Path:
    """A run that has learned a little; its test set has two references of every source, validation one."""
    pairs = clauses()
    splits = {"train": pairs[:60] + pairs[100:], "val": pairs[60:70] + pairs[90:100]}
    files = [f"data.{name}={write(folder / f'{name}.tsv', found)}" for name, found in splits.items()]
    test = [row for a, b in pairs[70:90] for row in ((a, b, f"Oui : {b}"), (a, f"Oui : {b}", b))]
    columns = [folder / name for name in ("test.en", "test.fr", "other.fr")]
    for file, texts in zip(columns, zip(*test, strict=True), strict=True):
        file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    files.append(f"data.test=[{','.join(map(str, columns))}]")
    options = [
        f"paths.run_dir={folder / 'run'}",
        *SMALL,
        "data=parallel",
        *files,
        "tokenizer=word",
        "tokenizer.vocab_size=60",
        "optimizer.lr=0.02",
        "debug=fast",
        "eval_batch_tokens=4096",
        "trainer.max_steps=48",
        "trainer.max_epochs=100",
        "trainer.check_val_every_n_epoch=6",
        "trainer.limit_val_batches=null",
        "trainer.limit_test_batches=null",
        "metric=[bleu,chrf,tokenized_bleu]",
        "search=beam",
        "search.beam_size=2",
        *("choices.attention=bahdanau", "choices.model=rnn", "choices.data=parallel"),
    ]
    (folder / "run").mkdir()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's, which the command leaves out
        train(config)
    return folder / "run"


def evaluated(folder: Path, *overrides: str) -> dict[str, Any]:
    """What evaluate.py leaves in the folder, without a process of its own."""
    folder.mkdir(exist_ok=True)
    fixed = ["device=cpu", "num_threads=1", "choices.data=null", f"paths.run_dir={folder}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("evaluate", [*overrides, *fixed])
    evaluate(config)
    return report(folder)


def best_validation(run: Path) -> dict[str, str]:
    """The row of metrics.csv that the best checkpoint was chosen by."""
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        return max((row for row in csv.DictReader(file) if row["val/bleu"]), key=lambda row: float(row["val/bleu"]))


def sacrebleu_command(folder: Path, suffix: str, versions: int, *flags: str) -> dict[str, dict[str, Any]]:
    """What the command gives for the written files, by metric."""
    files = [f"translations{suffix}.references", "-i", f"translations{suffix}.hypotheses"]
    done = command(
        "-m",
        "sacrebleu",
        *files,
        "--num-refs",
        str(versions),
        "-m",
        "bleu",
        "chrf",
        "ter",
        "-w",
        "14",
        *flags,
        cwd=folder,
    )
    said = {score["name"].lower(): score for score in json.loads(done.stdout)}
    assert set(said) == {"bleu", "chrf2", "ter"}
    return {"chrf" if name == "chrf2" else name: score for name, score in said.items()}


def report(evaluation: Path) -> dict[str, Any]:
    return json.loads((evaluation / "evaluation.json").read_text(encoding="utf-8"))


def columns(file: Path) -> list[list[str]]:
    """Columns of a tab-separated file."""
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    return [list(column) for column in zip(*rows, strict=True)]
