"""What a run leaves: results.json, translations.tsv and the tables on the screen."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger
from rich.table import Table

from seq2seq_attn import markdown
from seq2seq_attn.callback.throughput import Throughput
from seq2seq_attn.callback.validation_time import ValidationTime
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.text import LINE_END, plain_console, printable
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.translation_module import TranslationModule

LOGGED_ROWS = 200  # of a test set; translations.tsv has them all


def collect_results(trainer: Any, module: TranslationModule, config: dict[str, Any]) -> dict[str, Any]:
    """Figures of a tested run, as plain data."""
    results: dict[str, Any] = {}
    for stage in tested(module):
        figures = collect_figures(trainer, module, stage)
        results |= {f"{stage}/{name}": value for name, value in figures.items()}
        signatures = module.signatures[stage]
        results |= {f"{stage}/{name}_signature": signature for name, signature in signatures.items()}
    counted = next((c for c in trainer.callbacks if isinstance(c, Throughput)), Throughput())
    validated = next((c for c in trainer.callbacks if isinstance(c, ValidationTime)), None)
    decoded = sum(len(rows) for rows in module.translations.values())
    return results | {
        "seed": config["seed"],
        "attention": config["choices"]["attention"],
        "model": config["choices"]["model"],
        "data": config["choices"]["data"],
        "num_parameters": sum(p.numel() for p in module.model.parameters()),
        "steps": trainer.global_step,
        "tokens_per_second": counted.tokens / max(counted.seconds, 1e-9),
        "train_seconds": counted.seconds,
        **({} if validated is None else validation_figures(validated.seconds, counted.seconds)),
        "padding_share": 1 - counted.tokens / max(counted.padded_tokens, 1),
        "decode_sentences_per_second": decoded / max(module.decode_seconds, 1e-9),
        "peak_memory_bytes": peak_memory_bytes(),
        **({"attention_entropy": float(module.attention_entropy.compute())} if decoded else {}),
    }


def tested(module: TranslationModule) -> list[str]:
    """The test sets that have a translation; trainer.limit_test_batches=0 leaves none."""
    return [name for name in module.test_names if module.translations.get(name)]


def validation_figures(validation: float, training: float) -> dict[str, float]:
    """Seconds of the validations, and their share of the time of these and all training steps."""
    share = validation / max(validation + training, 1e-9)
    return {"validation_seconds": validation, "validation_share": share}


def collect_figures(trainer: Any, module: TranslationModule, stage: str) -> dict[str, float]:
    """Every figure of one tested set, by its name in the log."""
    names = ["ppl" if name == "nll" else name for name in module.stage_metrics(stage)]
    return {name: float(trainer.callback_metrics[f"{stage}/{name}"]) for name in names}


def peak_memory_bytes() -> int:
    """Peak of this process: of the GPU where there is one, else resident memory."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def write_results(run_dir: Path, results: dict[str, Any]) -> None:
    (run_dir / "results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", "utf-8")


def write_translations(run_dir: Path, module: TranslationModule, corpus: LoadedCorpus) -> None:
    """Three files per test set, in the order of the split.

    `translations.tsv`: source, reference, hypothesis, without control characters. `translations.hypotheses` and
    `translations.references`, which has all versions of each sentence, tab-separated, are for
    `sacrebleu --num-refs`; as that wants the same number everywhere, the first version is repeated, which changes
    neither BLEU nor chrF (but TER, which divides by the mean length of the versions).
    """
    for name in tested(module):
        rows = module.translations[name]
        split, suffix = corpus.splits[name], "" if name == "test" else f"_{name.removeprefix('test_')}"
        most = max(len(split.references[row]) for row in rows)
        lines, hypotheses, versions = [], [], []
        for row in sorted(rows):
            references = [one_line(reference) for reference in split.references[row]]
            columns = (split.sources[row], split.references[row][0], rows[row])
            lines.append("\t".join(map(printable, columns)) + "\n")
            hypotheses.append(one_line(rows[row]) + "\n")
            versions.append("\t".join(references + references[:1] * (most - len(references))) + "\n")
        for kind, content in (("tsv", lines), ("hypotheses", hypotheses), ("references", versions)):
            (run_dir / f"translations{suffix}.{kind}").write_bytes("".join(content).encode())


def log_translations(loggers: list[Any], module: TranslationModule, corpus: LoadedCorpus) -> None:
    """The first translations of each test set as a table, to loggers that take one."""
    columns = ["source", "reference", "hypothesis"]
    for name in tested(module):
        rows = module.translations[name]
        split = corpus.splits[name]
        lines = [
            [printable(text) for text in (split.sources[row], split.references[row][0], rows[row])]
            for row in sorted(rows)[:LOGGED_ROWS]
        ]
        for logger in loggers:
            if isinstance(logger, WandbLogger):
                logger.log_table(f"{name}/translations", columns, lines)
            elif isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text(f"{name}/translations", markdown.table(columns, lines))


def one_line(text: str) -> str:
    """The text without tabs and line ends, and else as it is scored."""
    return LINE_END.sub(" ", text)


def print_data(corpus: LoadedCorpus, tokenizer: SentencePieceTokenizer, datamodule: TranslationDataModule) -> None:
    """What was read, and what cleaning dropped."""
    table = Table(title=f"Data: {corpus.direction}", title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    for name, split in corpus.splits.items():
        table.add_row(f"{name}: sentences", f"{len(split):,}")
    for what, count in corpus.report.counts.items():
        if count:
            table.add_row(what, f"{count:,}")
    table.add_row("tokens, source", f"{tokenizer.source_vocab_size:,}")
    table.add_row("tokens, target", f"{tokenizer.target_vocab_size:,}")
    table.add_row("padding of training batches", f"{datamodule.padding_share:.1%}")
    plain_console().print(table)


def print_results(run_dir: Path, results: dict[str, Any]) -> None:
    """The result table, the folder, and what to type next."""
    table = Table(title=f"{results['model']} · attention={results['attention']}", title_justify="left")
    table.add_column("result")
    table.add_column("value", justify="right")
    for name, value in results.items():
        if not name.endswith("_signature"):
            table.add_row(name, shown_value(name, value))
    console = plain_console()
    console.print(table)
    for name, value in results.items():
        if name.endswith("_signature"):
            console.print(f"{name}: {value}", highlight=False, soft_wrap=True)
    shown = display_path(run_dir)
    console.print(f"\nRun folder: {shown}", highlight=False, soft_wrap=True)
    console.print(
        f'Next: echo "Where is the library?" | python translate.py ckpt_path={shown}', highlight=False, soft_wrap=True
    )


def shown_value(name: str, value: float | int | str | None) -> str:
    """Shares in percent, numbers with their thousands apart."""
    if name.endswith("_share"):
        return f"{value:.1%}"
    if isinstance(value, int | float):
        return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
    return value or ""


def display_path(path: Path) -> str:
    """Relative to the working directory where that is shorter."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
