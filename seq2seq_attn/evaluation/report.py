"""What an evaluation leaves: evaluation.json, and tables on the screen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.inference.models import Models
from seq2seq_attn.metric.attention import AttentionFigures
from seq2seq_attn.metric.by_length import LENGTHS, score_by_length
from seq2seq_attn.metric.confidence import confidence
from seq2seq_attn.metric.length_ratio import length_ratio
from seq2seq_attn.metric.repetition import repetition
from seq2seq_attn.text import plain_console
from seq2seq_attn.training.provenance import provenance
from seq2seq_attn.training.results import display_path
from seq2seq_attn.training.translation_module import MEANS, TranslationModule

PERCENT = ("accuracy", "repetition", "attention_coverage")  # shares of 1
NESTED = ("confidence", "signatures", "bleu_by_length")  # which stand in tables and lines of their own


class Evaluated(NamedTuple):
    """What the tests gave, by the name of the test set.

    Attributes:
        module: its translations, metrics and signatures.
        figures: by their name in the log.
    """

    module: TranslationModule
    figures: dict[str, dict[str, float]]
    attention: dict[str, AttentionFigures]


def build_report(
    evaluated: Evaluated, models: Models, corpus: LoadedCorpus, chosen: dict[str, Any], bootstrap: int
) -> dict[str, Any]:
    """Figures of every split, with all that is needed to get them again; plain data.

    The checkpoint and its sha256 are lists where there are several.
    """
    files, digests = [str(file) for file in models.files], [sha256(file) for file in models.files]
    alone = len(files) == 1
    return {
        "checkpoint": files[0] if alone else files,
        "sha256": digests[0] if alone else digests,
        "seed": models.config["seed"],
        "choices": chosen["choices"],
        "num_parameters": sum(p.numel() for p in models.model.parameters()),
        "languages": [corpus.source_language, corpus.target_language],
        "direction": corpus.direction,
        "splits": {name: split_report(evaluated, corpus, name, bootstrap) for name in evaluated.module.test_names},
        "data": chosen["data"],
        "search": chosen["search"],
        "batch_tokens": chosen["batch_tokens"],
        "precision": chosen["precision"],
        "bootstrap": bootstrap,
        "provenance": provenance(corpus),
    }


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def split_report(evaluated: Evaluated, corpus: LoadedCorpus, name: str, bootstrap: int) -> dict[str, Any]:
    """Sizes, figures, their intervals and signatures, and BLEU by the length of the source."""
    module, attention = evaluated.module, evaluated.attention[name]
    split, translations = corpus.splits[name], module.translations[name]
    rows = sorted(translations)
    hypotheses, references = [translations[row] for row in rows], [split.references[row] for row in rows]
    metrics = {metric: of for metric, of in module.stage_metrics(name).items() if metric not in MEANS}
    numbers = [len(options) for options in references]
    buckets = score_by_length(metrics["bleu"], [split.sources[row] for row in rows], hypotheses, references)
    return {
        "sentences": len(rows),
        "references": {"min": min(numbers), "max": max(numbers)},
        **evaluated.figures[name],
        "length_ratio": length_ratio(metrics["bleu"], hypotheses, references),
        "repetition": repetition(hypotheses),
        "attention_entropy": attention.entropy,
        "attention_coverage": attention.coverage,
        "confidence": {
            metric: confidence(of, hypotheses, references, bootstrap)._asdict() for metric, of in metrics.items()
        }
        if bootstrap
        else {},
        "signatures": module.signatures[name],
        "bleu_by_length": [bucket._asdict() for bucket in buckets],
    }


def write_report(run_dir: Path, report: dict[str, Any]) -> None:
    (run_dir / "evaluation.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")


def print_report(run_dir: Path, report: dict[str, Any]) -> None:
    """Figures, BLEU by length, signatures and the folder."""
    console, choices, splits = plain_console(), report["choices"], report["splits"]
    title = f"{choices['model']} · attention={choices['attention']} · data={choices['data']}"
    if isinstance(report["checkpoint"], list):
        title = f"{len(report['checkpoint'])} models together, the first: {title}"
    title += f": {report['direction']}"
    console.print(title, highlight=False)  # above the table, whose own title is cut to its width
    console.print(figures_table(splits))
    if report["bootstrap"]:
        console.print(
            f"Mean and 95 % interval over {report['bootstrap']:,} resampled test sets (bootstrap)",
            highlight=False,
            soft_wrap=True,
        )
        console.print(confidence_table(splits))
    console.print("BLEU by words of the source (and sentences)", highlight=False)
    console.print(length_table(splits))
    for signature, names in signatures(splits).items():
        console.print(f"{signature} ({', '.join(names)})", highlight=False, soft_wrap=True)
    console.print(f"\nEvaluation: {display_path(run_dir)}", highlight=False, soft_wrap=True)


def figures_table(splits: dict[str, Any]) -> Table:
    """A row for each figure, a column for each split."""
    table = new_table("result", list(splits))
    first = next(iter(splits.values()))
    for name in first:
        if name not in NESTED:
            table.add_row(name, *(shown(name, split[name]) for split in splits.values()))
    return table


def confidence_table(splits: dict[str, Any]) -> Table:
    """`50.57 ± 1.90`, a row for each text metric."""
    table = new_table("metric", list(splits))
    for metric in next(iter(splits.values()))["confidence"]:
        intervals = [split["confidence"][metric] for split in splits.values()]
        table.add_row(f"± {metric}", *(f"{found['mean']:.2f} ± {found['margin']:.2f}" for found in intervals))
    return table


def length_table(splits: dict[str, Any]) -> Table:
    """BLEU of each bucket, and how many sentences it has."""
    table = new_table("words", list(splits))
    cells = [
        {bucket["words"]: f"{bucket['score']:.2f} ({bucket['sentences']:,})" for bucket in split["bleu_by_length"]}
        for split in splits.values()
    ]
    for words in LENGTHS:
        if any(words in column for column in cells):
            table.add_row(words, *(column.get(words, "") for column in cells))
    return table


def signatures(splits: dict[str, Any]) -> dict[str, list[str]]:
    """`bleu: nrefs:1|...`, each with the splits that it belongs to."""
    found: dict[str, list[str]] = {}
    for name, split in splits.items():
        for metric, signature in split["signatures"].items():
            found.setdefault(f"{metric}: {signature}", []).append(name)
    return found


def new_table(first: str, names: list[str]) -> Table:
    table = Table()
    table.add_column(first)
    for name in names:
        table.add_column(name, justify="right")
    return table


def shown(name: str, value: Any) -> str:
    """`1,000`, `35.21`, `74.1%`, or `1 to 3` for a range."""
    if name in PERCENT:
        return f"{value:.1%}"
    if name == "length_ratio":
        return f"{value:.3f}"
    if isinstance(value, dict):
        return str(value["min"]) if value["min"] == value["max"] else f"{value['min']} to {value['max']}"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
