"""Significance of the difference between systems: `seq2seq-attn compare translations BASELINE SYSTEM ...`

Approximate randomisation (Riezler and Maxwell 2005) or paired bootstrap resampling (Koehn 2004, "Statistical
Significance Tests for Machine Translation Evaluation"), both by sacreBLEU. Its bootstrap finds a difference too easily:
it centres absolute differences, and of two systems that are equally good it gives one in ten a p-value below 0.05. Each
system is a folder of train.py or evaluate.py, or a `translations.tsv` of one; all must have translated the same test
set. All references of a sentence count, and sentences may have different numbers of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest, Result

from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.metric.confidence import FEWEST_RESAMPLES
from seq2seq_attn.metric.corpus import reference_streams
from seq2seq_attn.text import plain_console, printable

METRICS: dict[str, Callable[[], Any]] = {"bleu": lambda: BLEU(force=True), "chrf": CHRF, "ter": TER}
METHODS = {"randomisation": "ar", "bootstrap": "bs"}
INTERVAL_RESAMPLES = 1000  # of the intervals beside the p-values of randomisation
ALPHA = 0.05
LEAST_BLEU, LEAST_DIFFERENCE = 1.0, 0.05  # below these no difference of BLEU is called significant
FLOOR = (
    f"No difference is marked where both have less than {LEAST_BLEU:g} BLEU, since n-grams that match that rarely say "
    f"nothing of the translations, nor one below {LEAST_DIFFERENCE:g} BLEU, which rounds to 0.0."
)


class System(NamedTuple):
    """Translations of a test set, line-aligned.

    Attributes:
        references: all versions of each line.
    """

    name: str
    sources: list[str]
    hypotheses: list[str]
    references: list[list[str]]


class Comparison(NamedTuple):
    """Results by metric, the baseline's first, and signatures to quote.

    A p-value is the chance of so large a difference between systems that are equally good; None for the baseline, and
    where there is no difference.
    """

    results: dict[str, list[Result]]
    signatures: dict[str, str]


def read_system(path: Path, split: str) -> System:
    """Read the translations of a split from a folder or a file.

    Raises:
        UserError: if a file is missing, or its lines are not what train.py and evaluate.py write.
    """
    suffix = "" if split == "test" else f"_{split.removeprefix('test_')}"
    file = path / f"translations{suffix}.tsv" if path.is_dir() else path
    rows = [line.split("\t") for line in read_lines(file)]
    for number, row in enumerate(rows, 1):
        if len(row) != 3:
            raise UserError(
                f"{file}, line {number}: {len(row)} tab-separated columns instead of source, reference and "
                "translation; give a translations.tsv of train.py or evaluate.py"
            )
    sources, first, hypotheses = (list(column) for column in zip(*rows, strict=True))
    versions = file.with_suffix(".references")
    if not versions.is_file():
        return System(str(path), sources, hypotheses, [[reference] for reference in first])
    # The first version is repeated in lines that have fewer; it counts once.
    references = [list(dict.fromkeys(line.split("\t"))) for line in read_lines(versions)]
    if [printable(options[0]) for options in references] != [printable(reference) for reference in first]:
        raise UserError(f"{versions} does not belong to {file}; give the folder that both were written to")
    return System(str(path), sources, hypotheses, references)


def read_lines(file: Path) -> list[str]:
    try:
        content = file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(
            f"{file} cannot be read ({why}); give a folder of train.py or evaluate.py, or its translations.tsv"
        ) from error
    if not content:
        raise UserError(f"{file} is empty; give translations of a test set")
    return content.removesuffix("\n").split("\n")


def check_same_test_set(systems: Sequence[System]) -> None:
    """Refuse different test sets, naming the first line that differs."""
    first = systems[0]
    for other in systems[1:]:
        sizes = len(first.sources), len(other.sources)
        why = f"{sizes[0]} and {sizes[1]} lines" if sizes[0] != sizes[1] else None
        for what in ("sources", "references"):
            pairs = zip(getattr(first, what), getattr(other, what), strict=False)
            line = next((number for number, (a, b) in enumerate(pairs, 1) if a != b), None)
            if why is None and line is not None:
                why = f"other {what} in line {line}"
        if why:
            raise UserError(
                f"{first.name} and {other.name} have translated different test sets ({why}); compare systems on the "
                "same data and split"
            )


def compare(systems: Sequence[System], metrics: Sequence[str], method: str, resamples: int) -> Comparison:
    """Compare systems with the first.

    Args:
        resamples: test sets drawn, or trials; 0: sacreBLEU's 10,000 of randomisation and 1,000 of bootstrap.
    """
    check_same_test_set(systems)
    test = PairedTest(
        [(str(number), system.hypotheses) for number, system in enumerate(systems)],
        {metric: METRICS[metric]() for metric in metrics},
        reference_streams(systems[0].references),  # type: ignore[arg-type]
        test_type=METHODS[method],
        n_samples=resamples,
        n_ar_confidence=INTERVAL_RESAMPLES,
    )
    signatures, scores = test()
    scores.pop("System")
    results: dict[str, list[Any]] = dict(zip(metrics, scores.values(), strict=True))
    for metric_results in results.values():
        for result in metric_results[1:]:
            if result.score == metric_results[0].score:
                result.p_value = None  # for equal systems sacrebleu gives its smallest p-value
    return Comparison(results, {m: str(s) for m, s in zip(metrics, signatures.values(), strict=True)})


def comparison_table(systems: Sequence[System], comparison: Comparison) -> Table:
    """Return a row for each system, the baseline first, which has no p-values."""
    table = Table()
    table.add_column("system", overflow="fold")
    for metric in comparison.results:
        table.add_column(metric, justify="right")
        table.add_column("p", justify="right")
    for number, system in enumerate(systems):
        cells = [cell for m, of in comparison.results.items() for cell in shown(of[number], of[0], m)]
        table.add_row(system.name, *cells)
    return table


def shown(result: Result, baseline: Result, metric: str) -> tuple[str, str]:
    """Return `35.21 ± 1.20`, `0.0120*`."""
    interval = "" if result.ci is None else f" ± {result.ci:.2f}"
    if result.p_value is None:
        return f"{result.score:.2f}{interval}", "" if result is baseline else "same"
    starred = result.p_value < ALPHA and (metric != "bleu" or is_notable(result.score, baseline.score))
    return f"{result.score:.2f}{interval}", f"{result.p_value:.4f}{'*' * starred}"


def is_notable(bleu: float, other: float) -> bool:
    """Return whether a difference is large enough to be marked if it is significant; see FLOOR."""
    return max(bleu, other) >= LEAST_BLEU and abs(bleu - other) >= LEAST_DIFFERENCE


@reports_user_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline", type=Path, help="a folder of train.py or evaluate.py, or its translations.tsv")
    parser.add_argument("systems", nargs="+", type=Path, help="the same, of each system to compare with it")
    parser.add_argument("--split", default="test", help="as in splits=[val,test]; test if not given")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=["bleu", "chrf"])
    parser.add_argument("--method", choices=METHODS, default="randomisation", help="%(default)s if not given")
    parser.add_argument(
        "--resamples", type=int, default=0, help="0: 10,000 trials of randomisation, 1,000 of bootstrap"
    )
    given = parser.parse_args(arguments)
    if given.resamples != 0 and given.resamples < FEWEST_RESAMPLES:
        parser.error(f"--resamples {given.resamples} gives no interval of 95 %; give {FEWEST_RESAMPLES} or more, or 0")
    systems = [read_system(path, given.split) for path in (given.baseline, *given.systems)]
    comparison = compare(systems, list(dict.fromkeys(given.metrics)), given.method, given.resamples)
    console = plain_console()
    say = partial(console.print, highlight=False, soft_wrap=True)
    say(f"{len(systems[0].sources):,} sentences; the baseline is {systems[0].name}")
    console.print(comparison_table(systems, comparison))
    say("±: half of the 95 % interval over the resampled test sets")
    say(
        f"* p < {ALPHA}: unlikely if both were equally good (paired {given.method}; each system against the baseline "
        "alone, with no correction for several)"
    )
    if "bleu" in comparison.results:
        say(FLOOR)
    for metric, signature in comparison.signatures.items():
        say(f"{metric}: {signature}")
