"""Runs as train.py leaves them, of sentences that are spoilt, for the page that compares them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from seq2seq_attn.comparison import read as read
from seq2seq_attn.comparison import runs as script
from seq2seq_attn.comparison import significance as significance
from seq2seq_attn.comparison import translations as translations
from seq2seq_attn.metric.bleu import BLEU

SUBJECTS = ("le chat", "la fille", "un homme", "ce vieux chien", "notre ami de Paris")
VERBS = ("dort", "mange du pain", "court vite dans la rue", "regarde la mer", "lit un livre & rit <fort>")
REFERENCES = [f"{subject.capitalize()} {verb}." for subject in SUBJECTS for verb in VERBS]
SOURCES = [" ".join(["Sentence", *("on",) * (number % 13), f"{number}."]) for number in range(len(REFERENCES))]
METRIC = {"bleu": {"_target_": "seq2seq_attn.metric.bleu.BLEU", "lowercase": False, "tokenize": "13a"}}


def spoilt(every: int, shift: int = 0) -> list[str]:
    """Each so many sentences are said the other way round."""
    return [" ".join(text.split()[::-1]) if (row + shift) % every == 0 else text for row, text in enumerate(REFERENCES)]


def bleu_of(hypotheses: Sequence[str], references: Sequence[str] = REFERENCES) -> float:
    metric = BLEU(lowercase=False, tokenize="13a")
    metric.update(hypotheses, [[reference] for reference in references])
    return metric.compute().item()


def write_run(
    folder: Path,
    attention: str,
    hypotheses: list[str],
    *,
    seed: int = 1,
    references: Sequence[str] = REFERENCES,
    options: dict[str, Any] | None = None,
    **results: Any,
) -> Path:
    """As train.py leaves it, after three validations."""
    folder.mkdir(parents=True)
    preset = {"_target_": f"attention.{attention}", "dropout": 0.0}
    config = {
        "seed": seed,
        "num_threads": 2,
        "paths": {"run_dir": str(folder), "cache_dir": "/elsewhere/cache"},
        "choices": {"attention": attention},
        "attention": preset,
        "metric": METRIC,
        "model": {"encoder": {"self_attention": preset, "num_layers": 2}, "dim": 7},
        "callback": {"seeding": {"seed": seed}, "checkpoint": {"dirpath": f"{folder}/checkpoints"}},
        **(options or {}),
    }
    found = {
        "test/bleu": bleu_of(hypotheses, references),
        "test/chrf": 50.0,
        "test/ppl": 1.5,
        "seed": seed,
        "attention": attention,
        "model": "transformer",
        "data": "demo",
        "num_parameters": 1_500_000,
        "steps": 30,
        "tokens_per_second": 1000.0,
        "train_seconds": 90.0,
        "decode_sentences_per_second": 10.0,
        "peak_memory_bytes": 500_000_000,
        "attention_entropy": 0.5,
    } | results
    plain = json.loads(json.dumps(config))  # without references, as train.py writes it
    (folder / "config.yaml").write_text(yaml.safe_dump(plain), encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(found), encoding="utf-8")
    (folder / "provenance.json").write_text(json.dumps({"commit": "c" * 40, "threads": 2}), encoding="utf-8")
    lines = zip(SOURCES, references, hypotheses, strict=True)
    (folder / "translations.tsv").write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
    (folder / "translations.references").write_text("".join(f"{r}\n" for r in references), encoding="utf-8")
    write_log(folder, [(9, 20.0), (19, 60.0), (29, 40.0)])
    return folder


def write_log(folder: Path, validations: Sequence[tuple[int, float]]) -> None:
    with (folder / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["epoch", "step", "train/loss", "val/bleu"])
        writer.writeheader()
        for step, bleu in validations:
            writer.writerow({"epoch": 0, "step": step, "train/loss": 5.0 - step / 10})
            writer.writerow({"epoch": 0, "step": step, "val/bleu": bleu})


def write_map(folder: Path, name: str, weights: np.ndarray, sentence: str = "") -> None:
    target, source = ([f"▁{side}{n}" for n in range(size)] for side, size in zip("ts", weights.shape[-2:], strict=True))
    source = [*(f"▁{word}" for word in sentence.split()), "</s>"] if sentence else source
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / name, weights=weights, source_tokens=source, target_tokens=target)


def only_group(*folders: Path, baseline: str | None = None, resamples: int = 200, by: str = "attention") -> Any:
    (group,), _ = script.compare(folders, baseline, resamples, by)
    return group


def runs_of(folder: Path) -> list[Any]:
    return read.read_runs([folder])[0]


def write_sweep(folder: Path) -> Path:
    """Three attentions, one of them with two seeds."""
    write_run(folder / "0", "poor", spoilt(2), num_parameters=1_600_000)
    write_run(folder / "1", "good", spoilt(9), seed=1)
    write_run(folder / "2", "good", spoilt(7), seed=2)
    write_run(folder / "10", "fair", spoilt(4))
    return folder
