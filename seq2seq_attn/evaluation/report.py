"""The report of an evaluation: evaluation.json, and tables on the screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.evaluation.earlier import EVALUATION, model_record
from seq2seq_attn.files import replacing
from seq2seq_attn.inference.models import Models
from seq2seq_attn.metric.attention import AttentionFigures
from seq2seq_attn.metric.bleu import default_scorer
from seq2seq_attn.metric.by_length import LENGTHS, score_by_length
from seq2seq_attn.metric.confidence import confidence
from seq2seq_attn.metric.language import metric_language
from seq2seq_attn.metric.length_ratio import length_ratio
from seq2seq_attn.metric.names import main_metric, title_of
from seq2seq_attn.metric.repetition import repetition
from seq2seq_attn.metric.text_metric import TextMetric
from seq2seq_attn.paths import display_path
from seq2seq_attn.text import new_table, plain_console, printable
from seq2seq_attn.training.provenance import provenance
from seq2seq_attn.training.translation_module import TranslationModule

PERCENT = ("accuracy", "repetition", "attention_coverage")  # shares of 1
NESTED = ("confidence", "signatures")  # shown in tables and lines of their own, as is what ends in BY_LENGTH
BY_LENGTH = "_by_length"


def build_report(
    module: TranslationModule,
    attention: dict[str, AttentionFigures],
    models: Models,
    corpus: LoadedCorpus,
    chosen: dict[str, Any],
    bootstrap: int,
) -> dict[str, Any]:
    """Return the figures of every split with all that is needed to reproduce them, as plain data.

    The checkpoint and its SHA-256 are lists for an ensemble.
    """
    return {
        **model_record(models.files),
        "seed": models.config["seed"],
        "choices": chosen["choices"],
        "num_parameters": sum(p.numel() for p in models.model.parameters()),
        "languages": [corpus.source_language, corpus.target_language],
        "direction": corpus.direction,
        "splits": {name: split_report(name, module, attention[name], corpus, bootstrap) for name in module.test_names},
        "data": chosen["data"],
        "search": chosen["search"],
        "batch_tokens": chosen["batch_tokens"],
        "precision": chosen["precision"],
        "bootstrap": bootstrap,
        "provenance": provenance(corpus),
    }


def split_report(
    name: str, module: TranslationModule, attention: AttentionFigures, corpus: LoadedCorpus, bootstrap: int
) -> dict[str, Any]:
    """Return sizes, figures, their intervals and signatures, and the main metric by the length of the source."""
    split, translations = corpus.splits[name], module.scores.translations[name]
    if not module.translates:
        return {"sentences": len(split), **module.scores.figures[name], "confidence": {}, "signatures": {}}
    rows = sorted(translations)
    hypotheses, references = [translations[row] for row in rows], [split.references[row] for row in rows]
    sources = [split.sources[row] for row in rows]
    metrics: dict[str, Any] = {
        metric: of for metric, of in module.scores.metrics_of(name).items() if isinstance(of, TextMetric)
    }
    resampled = [of for of in metrics if bootstrap and metrics[of].has_interval]
    intervals = {of: confidence(metrics[of], hypotheses, references, bootstrap, sources) for of in resampled}
    numbers = [len(options) for options in references]
    main = main_metric([of for of in metrics if not metrics[of].scores_whole_test], module.config.get("monitor"))
    buckets = score_by_length(metrics[main], sources, hypotheses, references) if main else []
    if "bleu" in metrics:
        words = metrics["bleu"].scorer
    else:
        words = default_scorer(metric_language(corpus.target_language, (options[0] for options in references)))
    return {
        "sentences": len(rows),
        "references": {"min": min(numbers), "max": max(numbers)},
        **module.scores.figures[name],
        "length_ratio": length_ratio(words, hypotheses, references),
        "repetition": repetition(hypotheses),
        **(attention.figures if attention.has_weights else {}),
        "confidence": {metric: interval._asdict() for metric, interval in intervals.items()},
        "signatures": module.scores.signatures[name],
        **({f"{main}{BY_LENGTH}": [bucket._asdict() for bucket in buckets]} if main else {}),
    }


def write_report(run_dir: Path, report: dict[str, Any]) -> None:
    with replacing(run_dir / EVALUATION) as stream:
        stream.write((json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode())


def print_report(run_dir: Path, report: dict[str, Any]) -> None:
    """Print the figures, the main metric by length, signatures and the folder."""
    console, choices, splits = plain_console(), report["choices"], report["splits"]
    first, columns = next(iter(splits.values())), list(splits.values())
    title = f"{choices['model']} · attention={choices['attention']} · data={choices['data']}"
    if isinstance(report["checkpoint"], list):
        title = f"{len(report['checkpoint'])} models together, the first: {title}"
    title += f": {report['direction']}"
    console.print(printable(title), highlight=False)  # above the table, whose own title is cut to its width

    def print_table(head: str, rows: list[str], cell: Callable[[str, dict[str, Any]], str], prefix: str = "") -> None:
        cells = [[prefix + row, *(cell(row, split) for split in columns)] for row in rows]
        console.print(new_table([head, *splits], cells))

    print_table(
        "result",
        [name for name in first if name not in NESTED and not name.endswith(BY_LENGTH)],
        lambda name, split: shown(name, split[name]),
    )
    if report["bootstrap"] and first["confidence"]:
        text = f"Mean and 95 % interval over {report['bootstrap']:,} resampled test sets (bootstrap)"
        console.print(text, highlight=False, soft_wrap=True)
        print_table("metric", list(first["confidence"]), interval, "± ")
    for key in (name for name in first if name.endswith(BY_LENGTH)):
        console.print(
            f"{title_of(key.removesuffix(BY_LENGTH))} by words of the source (and sentences)", highlight=False
        )
        present_lengths = {bucket["words"] for split in columns for bucket in split[key]}
        print_table("words", [words for words in LENGTHS if words in present_lengths], partial(length_score, key))
    quoted: dict[str, list[str]] = {}  # each signature with the splits that it belongs to
    for name, split in splits.items():
        for metric, signature in split["signatures"].items():
            quoted.setdefault(f"{metric}: {signature}", []).append(name)
    for signature, names in quoted.items():
        console.print(printable(f"{signature} ({', '.join(names)})"), highlight=False, soft_wrap=True)
    console.print(f"\nEvaluation: {display_path(run_dir)}", highlight=False, soft_wrap=True)


def interval(metric: str, split: dict[str, Any]) -> str:
    """Return `50.57 ± 1.90`."""
    return f"{split['confidence'][metric]['mean']:.2f} ± {split['confidence'][metric]['margin']:.2f}"


def length_score(key: str, words: str, split: dict[str, Any]) -> str:
    """Return the score of a bucket and the number of its sentences, or nothing where it has none."""
    buckets = [bucket for bucket in split.get(key, []) if bucket["words"] == words]
    return "".join(f"{bucket['score']:.2f} ({bucket['sentences']:,})" for bucket in buckets)


def shown(name: str, value: Any) -> str:
    """Return `1,000`, `35.21`, `74.1%`, or `1 to 3` for a range."""
    if name in PERCENT:
        return f"{value:.1%}"
    if name == "length_ratio":
        return f"{value:.3f}"
    if isinstance(value, dict):
        return str(value["min"]) if value["min"] == value["max"] else f"{value['min']} to {value['max']}"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
