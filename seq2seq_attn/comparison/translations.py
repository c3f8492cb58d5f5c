"""Significance of the difference between systems: `seq2seq-attn compare translations BASELINE SYSTEM ...`

Approximate randomisation (Riezler and Maxwell 2005) or paired bootstrap resampling (Koehn 2004, "Statistical
Significance Tests for Machine Translation Evaluation"), both by sacreBLEU. Randomisation counts trials with an equal
difference too, as the paper does and the command `sacrebleu` does not. The bootstrap finds a difference too easily: it
centres absolute differences, and of two systems that are equally good it gives one in ten a p-value below 0.05. Each
system is a folder of train.py or evaluate.py, or a `translations.tsv` of one; all must have translated the same test
set. Metrics have the options of the evaluation of the first folder that has one, except that BLEU scores the tokens of
tokenized text (metric=[tokenized_text]) as they are, as tokenized_bleu does. All references of a sentence count, and
sentences may have different numbers of them. With --output, a page has the sentences whose translations differ, those
with the largest difference of chrF first.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import matplotlib as mpl
import numpy as np
import sacrebleu.significance
from jaxtyping import Float
from rich.table import Table
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest, Result

from seq2seq_attn.checkpoint.admitted import check_tokenizer
from seq2seq_attn.comparison.draw import STYLE
from seq2seq_attn.comparison.page import check_page
from seq2seq_attn.comparison.sentence_page import sentence_page
from seq2seq_attn.comparison.significance import ALPHA, FLOOR, LEAST_DIFFERENCE, is_notable
from seq2seq_attn.comparison.system import System, check_same_test_set, read_systems
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import replacing
from seq2seq_attn.metric.bleu import scorer_of, tokenizer_of
from seq2seq_attn.metric.chrf import signed_beta
from seq2seq_attn.metric.confidence import FEWEST_RESAMPLES
from seq2seq_attn.metric.corpus import reference_streams
from seq2seq_attn.metric.language import metric_language
from seq2seq_attn.metric.ter import is_split
from seq2seq_attn.text import plain_console

METRICS = ("bleu", "chrf", "ter")
METHODS = {"randomisation": "ar", "bootstrap": "bs"}
INTERVAL_RESAMPLES = 1000  # of the intervals beside the p-values of randomisation
ROUNDING = 1e-9  # by which two sums of the same counts may differ


class Comparison(NamedTuple):
    """Results by metric, the baseline's first, and signatures to quote.

    A p-value is the chance of so large a difference between systems that are equally good; None for the baseline, and
    where there is no difference.
    """

    results: dict[str, list[Result]]
    signatures: dict[str, str]


def compare(
    systems: Sequence[System], metrics: Sequence[str], method: str, resamples: int, bleu: BLEU | None = None
) -> Comparison:
    """Compare systems with the first.

    Args:
        bleu: how BLEU tokenizes; None: as in the evaluation of the first system that has one.
        resamples: test sets drawn, or trials; 0: sacreBLEU's 10,000 of randomisation and 1,000 of bootstrap.
    """
    check_same_test_set(systems)
    scorers = {name: bleu if name == "bleu" and bleu is not None else metric_of(name, systems) for name in metrics}
    test = PairedTest(
        [(str(number), system.hypotheses) for number, system in enumerate(systems)],
        scorers,
        reference_streams(systems[0].references),  # type: ignore[arg-type]
        test_type=METHODS[method],
        n_samples=resamples,
        n_ar_confidence=INTERVAL_RESAMPLES if method == "randomisation" else -1,  # else it is in the signature
    )
    with ties_counted() if method == "randomisation" else nullcontext():
        signatures, scores = test()
    scores.pop("System")
    results: dict[str, list[Any]] = dict(zip(metrics, scores.values(), strict=True))
    for metric_results in results.values():
        for result in metric_results[1:]:
            if result.score == metric_results[0].score:
                result.p_value = None  # for equal systems sacrebleu gives its smallest p-value
    signed = zip(scorers.items(), signatures.values(), strict=True)
    return Comparison(results, {name: with_beta(str(signature), scorer) for (name, scorer), signature in signed})


def with_beta(signature: str, scorer: Any) -> str:
    """Return the signature with the beta of chrF if it is unusual, as that of an evaluation has it."""
    field = signed_beta(scorer.beta) if isinstance(scorer, CHRF) else ""
    return f"{signature}|{field}" if field else signature


@contextmanager
def ties_counted() -> Iterator[None]:
    """Let sacreBLEU's randomisation count each trial whose difference is at least the real one.

    sacreBLEU 2.6 counts only those above it. Between systems that differ in one sentence every trial has the same
    difference, and its p-value would be the smallest one instead of 1.
    """

    def at_least(differences: Float[np.ndarray, " trials"], real_difference: float) -> float:
        reached = np.count_nonzero(differences >= real_difference - ROUNDING)
        return (int(reached) + 1) / (len(differences) + 1)

    with patch.object(sacrebleu.significance, "_compute_p_value", at_least):
        yield


def metric_of(name: str, systems: Sequence[System], tokenize: str | None = None, lowercase: bool | None = None) -> Any:
    """Return sacreBLEU's metric with the options of the first system's evaluation that has one, else by the language.

    Args:
        tokenize, lowercase: of BLEU, if not as evaluated.
    """
    evaluated = next((system for system in systems if name in system.signatures), None)
    signature = None if evaluated is None else evaluated.signatures[name]
    options = {} if signature is None else dict(field.partition(":")[::2] for field in signature.split("|"))
    if name == "chrf":
        usual = {"nc": CHRF.CHAR_ORDER, "nw": CHRF.WORD_ORDER, "beta": CHRF.BETA}
        read = {field: options.get(field, str(default)) for field, default in usual.items()}
        if evaluated is not None and not all(re.fullmatch("[0-9]{1,3}", number) for number in read.values()):
            raise UserError(f"{evaluated.name} has a damaged signature of chrF ({signature}); evaluate it again")
        char_order, word_order, beta = map(int, read.values())
        return CHRF(char_order=char_order, word_order=word_order, beta=beta, lowercase=options.get("case") == "lc")
    if name == "ter":
        by_default = "yes" if signature is None and is_split(language_of(systems)) else "no"
        return TER(
            normalized=options.get("norm", by_default) == "yes",
            no_punct=options.get("punct") == "no",
            asian_support=options.get("asian", by_default) == "yes",
            case_sensitive=options.get("case") == "mixed",
        )
    if tokenize is None:  # where the evaluation detokenized, the tokens themselves count
        tokenize = "none" if "detok" in options else options.get("tok") or tokenizer_of(language_of(systems))
        known = [known for known in BLEU.TOKENIZERS if tokenize.startswith(known)]  # as in ja-mecab-0.996-IPA
        tokenize = max(known, key=len, default=tokenize)
        if evaluated is not None:
            check_tokenizer(tokenize, evaluated.name, "--tokenize {}")
    return scorer_of(lowercase=options.get("case") == "lc" if lowercase is None else lowercase, tokenize=tokenize)


def language_of(systems: Sequence[System]) -> str | None:
    """Return the language by which metrics count words: of the first folder that names it, or of the references."""
    known = next((system.language for system in systems if system.language), None)
    return metric_language(known, (versions[0] for versions in systems[0].references))


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


def write_page(systems: Sequence[System], comparison: Comparison, page: Path) -> None:
    columns = comparison_table(systems, comparison).columns
    head, cells = [str(column.header) for column in columns], [map(str, column.cells) for column in columns]
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # missing in Matplotlib's font, but not in the browser's
        text = sentence_page(systems, metric_of("chrf", systems), head, list(zip(*cells, strict=True)))
    with replacing(page) as stream:
        stream.write(text.encode())


def shown(result: Result, baseline: Result, metric: str) -> tuple[str, str]:
    """Return `35.21 ± 1.20`, `0.0120*`."""
    interval = "" if result.ci is None else f" ± {result.ci:.2f}"
    if result.p_value is None:
        return f"{result.score:.2f}{interval}", "" if result is baseline else "same"
    apart = abs(result.score - baseline.score) >= LEAST_DIFFERENCE
    starred = result.p_value < ALPHA and (is_notable(result.score, baseline.score) if metric == "bleu" else apart)
    return f"{result.score:.2f}{interval}", f"{result.p_value:.4f}{'*' * starred}"


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
    parser.add_argument("--tokenize", choices=BLEU.TOKENIZERS, metavar="NAME", help="of BLEU: 13a, zh, none, ...")
    parser.add_argument("--lowercase", action=argparse.BooleanOptionalAction, help="of BLEU")
    parser.add_argument("--output", type=Path, help="a page with the sentences, such as sentences.html")
    given = parser.parse_args(arguments)
    if given.resamples != 0 and given.resamples < FEWEST_RESAMPLES:
        parser.error(f"--resamples {given.resamples} gives no interval of 95 %; give {FEWEST_RESAMPLES} or more, or 0")
    if given.output is not None:
        if given.output.suffix != ".html":
            parser.error(f"--output {given.output} does not end in .html; give sentences.html")
        check_page(given.output)
    systems = read_systems([given.baseline, *given.systems], given.split)
    bleu = metric_of("bleu", systems, given.tokenize, given.lowercase) if "bleu" in given.metrics else None
    comparison = compare(systems, list(dict.fromkeys(given.metrics)), given.method, given.resamples, bleu)
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
    if set(comparison.results) - {"bleu"}:
        say(f"No difference of chrF or TER below {LEAST_DIFFERENCE:g} is marked.")
    for metric, signature in comparison.signatures.items():
        say(f"{metric}: {signature}")
    if given.output is not None:
        write_page(systems, comparison, given.output)
        say(f"wrote {given.output}")
