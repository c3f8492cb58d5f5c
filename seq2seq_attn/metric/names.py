"""Names of metrics: their titles in tables, and the metric by which runs are compared."""

from collections.abc import Collection, Mapping
from typing import Any

TITLES = {
    "bleu": "BLEU", "chrf": "chrF", "ter": "TER", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L",
    "sentence_bleu": "sentence BLEU", "exact_match": "exact match", "comet": "COMET", "aer": "AER",
    "distinct1": "distinct-1", "distinct2": "distinct-2", "tokenized_bleu": "tokenized BLEU",
}  # fmt: skip


def title_of(metric: str) -> str:
    return TITLES.get(metric, metric.replace("_", " "))


def main_metric(names: Collection[str], monitor: str | None) -> str | None:
    """Return the metric that a run monitors, else BLEU, else the first; None if there is none.

    Args:
        monitor: the figure monitored, as in `val/bleu`.
    """
    monitored = (monitor or "").removeprefix("val/")
    return next((name for name in (monitored, "bleu", *names) if name in names), None)


def score_of_test(results: Mapping[str, Any], monitor: str | None) -> tuple[str, float] | None:
    """Return the title and value of the main metric of a test; None if it has none.

    Args:
        results: those of a run; a metric of the user's is known by its signature.
    """
    own = (key.removeprefix("test/").removesuffix("_signature") for key in results if key.endswith("_signature"))
    found = ((name, results.get(f"test/{name}")) for name in (*TITLES, *own))
    scores = {name: score for name, score in found if isinstance(score, int | float)}
    name = main_metric(scores, monitor)
    return None if name is None else (title_of(name), scores[name])
