"""What an evaluation leaves: evaluation.json, and tables on the screen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.metric.by_length import LENGTHS, score_by_length
from seq2seq_attn.training.provenance import provenance
from seq2seq_attn.training.result import collect_figures, display_path
from seq2seq_attn.training.translation_module import TranslationModule


def build_report(
    trainer: Any, module: TranslationModule, corpus: LoadedCorpus, file: Path, chosen: dict[str, Any]
) -> dict[str, Any]:
    """Figures of every split, with all that is needed to get them again; plain data."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "checkpoint": str(file),
        "sha256": digest,
        "seed": module.config["seed"],
        "choices": chosen["choices"],
        "num_parameters": sum(p.numel() for p in module.model.parameters()),
        "languages": [corpus.source_language, corpus.target_language],
        "splits": {name: split_report(trainer, module, corpus, name) for name in module.test_names},
        "data": chosen["data"],
        "search": chosen["search"],
        "batch_tokens": chosen["batch_tokens"],
        "precision": chosen["precision"],
        "provenance": provenance(corpus),
    }


def split_report(trainer: Any, module: TranslationModule, corpus: LoadedCorpus, name: str) -> dict[str, Any]:
    """Sizes, figures, signatures, and BLEU by the length of the source."""
    split, translations = corpus.splits[name], module.translations[name]
    rows = sorted(translations)
    numbers = [len(split.references[row]) for row in rows]
    buckets = score_by_length(
        module.stage_metrics(name)["bleu"],
        [split.sources[row] for row in rows],
        [translations[row] for row in rows],
        [split.references[row] for row in rows],
    )
    return {
        "sentences": len(rows),
        "references": {"min": min(numbers), "max": max(numbers)},
        **collect_figures(trainer, module, name),
        "signatures": module.signatures[name],
        "bleu_by_length": [bucket._asdict() for bucket in buckets],
    }


def write_report(run_dir: Path, report: dict[str, Any]) -> None:
    (run_dir / "evaluation.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")


def print_report(run_dir: Path, report: dict[str, Any]) -> None:
    """Figures, BLEU by length, signatures and the folder."""
    console, choices = Console(), report["choices"]
    title = f"{choices['model']} · attention={choices['attention']} · data={choices['data']}"
    console.print(title, highlight=False)  # above the table, whose own title is cut to its width
    console.print(figures_table(report["splits"]))
    console.print("BLEU by words of the source (and sentences)", highlight=False)
    console.print(length_table(report["splits"]))
    for signature, names in signatures(report["splits"]).items():
        console.print(f"{signature} ({', '.join(names)})", highlight=False, soft_wrap=True)
    console.print(f"\nEvaluation: {display_path(run_dir)}", highlight=False, soft_wrap=True)


def figures_table(splits: dict[str, Any]) -> Table:
    """A row for each figure, a column for each split."""
    table = new_table("result", list(splits))
    first = next(iter(splits.values()))
    for name in first:
        if name not in ("signatures", "bleu_by_length"):
            table.add_row(name, *(shown(name, split[name]) for split in splits.values()))
    return table


def length_table(splits: dict[str, Any]) -> Table:
    """BLEU of each bucket, and how many sentences it has."""
    table = new_table("words", list(splits))
    cells = [
        {
            bucket["words"]: f"{bucket['score']:.2f} ({bucket['sentences']:,})"
            for bucket in split["bleu_by_length"]
        }
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
    if name == "accuracy":
        return f"{value:.1%}"
    if isinstance(value, dict):
        return str(value["min"]) if value["min"] == value["max"] else f"{value['min']} to {value['max']}"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
