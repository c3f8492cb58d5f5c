"""Intervals are those of test sets drawn with replacement, scored one by one."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.metric.chrf import CHRF
from seq2seq_attn.metric.confidence import check_bootstrap, confidence, draw
from seq2seq_attn.metric.corpus import reference_streams
from seq2seq_attn.metric.corpus_metric import CorpusMetric
from seq2seq_attn.metric.ter import TER
from seq2seq_attn.metric.tokenized_bleu import TokenizedBLEU

METRICS: dict[str, CorpusMetric] = {
    "bleu": BLEU(lowercase=False, tokenize="13a"),
    "chrf": CHRF(char_order=6, word_order=0, beta=2, lowercase=False),
    "ter": TER(normalized=False, no_punct=False, asian_support=False, case_sensitive=False),
    "tokenized_bleu": TokenizedBLEU(language="fr"),
}
HYPOTHESES = [
    "Le chat est assis sur le tapis.",
    "Une fille en robe rouge court à côté d'un lac",
    "Deux chiens jouent dans la neige fraîche.",
    "Où est-ce qu'ils vont ?",
    "Il n'a pas vu la voiture.",
]
REFERENCES = [
    ["Le chat est assis sur un tapis.", "Un chat se tient sur le tapis."],
    ["Une petite fille en robe rouge court au bord d'un lac."],
    ["Deux chiens jouent dans la neige.", "Des chiens s'amusent dans la neige fraîche.", "Deux chiens."],
    ["Où vont-ils ?", "Où est-ce qu'ils vont ?"],
    ["L'homme n'a pas vu la voiture !"],
]
each_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


def score(metric: CorpusMetric, rows: list[int]) -> float:
    own = metric.clone()
    own.update([HYPOTHESES[row] for row in rows], [REFERENCES[row] for row in rows])
    return own.compute().item()


@each_metric
def test_the_interval_leaves_out_a_fortieth_of_the_resampled_test_sets_on_each_side(metric: CorpusMetric) -> None:
    """References are ragged, from one to three."""
    draws = np.random.default_rng(12345).choice(len(HYPOTHESES), size=(80, len(HYPOTHESES)))
    scores = sorted(score(metric, draw.tolist()) for draw in draws)
    found = confidence(metric, HYPOTHESES, REFERENCES, 80)
    assert found.mean == pytest.approx(np.mean(scores), rel=1e-5)
    assert found.margin == pytest.approx((scores[80 - 1 - 2] - scores[2]) / 2, rel=1e-5)
    assert found.margin > 1


@each_metric
def test_the_signature_has_resamples_and_seed_and_that_of_the_metric_stays(metric: CorpusMetric) -> None:
    own = metric.clone()
    own.update(HYPOTHESES, REFERENCES)
    before = own.signature()
    assert confidence(own, HYPOTHESES, REFERENCES, 3).signature == before.replace(
        "nrefs:var|", "nrefs:var|bs:3|seed:12345|"
    )
    assert own.signature() == before
    assert own.counts[0] == len(HYPOTHESES)


def test_it_is_the_figure_that_sacrebleu_gives_with_a_bootstrap() -> None:
    theirs = sacrebleu.BLEU(force=True).corpus_score(HYPOTHESES, reference_streams(REFERENCES), n_bootstrap=1000)
    found = confidence(METRICS["bleu"], HYPOTHESES, REFERENCES, 1000)
    assert f"(μ = {found.mean:.3f} ± {found.margin:.3f})" in theirs.format(width=3)


def test_the_seed_is_that_of_sacrebleu_and_without_one_each_draw_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert draw(31, 2).tolist() == np.random.default_rng(7).choice(31, size=(2, 31)).tolist()
    monkeypatch.setenv("SACREBLEU_SEED", "None")
    assert draw(31, 2).tolist() != draw(31, 2).tolist()
    assert confidence(METRICS["ter"], HYPOTHESES, REFERENCES, 3).signature.startswith("nrefs:var|bs:3|seed:none|")


def test_sentences_that_are_all_alike_leave_no_doubt() -> None:
    found = confidence(METRICS["ter"], ["a b c x"] * 7, [["a b c d"]] * 7, 50)
    assert (found.mean, found.margin) == (25.0, 0.0)


@pytest.mark.parametrize("resamples", [1, 39, -5])
def test_too_few_resamples_are_refused(resamples: int) -> None:
    for allowed in (0, 40, 1000):
        check_bootstrap(allowed)
    with pytest.raises(
        UserError, match=f"^bootstrap={resamples} resamples give no interval of 95 %; use 1000, or 0 for none$"
    ):
        check_bootstrap(resamples)


def test_test_sets_of_which_some_have_no_match_at_all_have_an_interval_too() -> None:
    # one of five sentences matches: a third of the resampled sets leave it out
    hypotheses = ["Le chat est sur le tapis."] + ["rien"] * 4
    references = [["Le chat est sur le tapis."]] + [["Une fille court."]] * 4
    found = confidence(METRICS["bleu"], hypotheses, references, 100)
    assert 0 < found.mean < 100
    assert found.margin > 0
    none = confidence(METRICS["bleu"], hypotheses[1:], references[1:], 100)
    assert (none.mean, none.margin) == (0.0, 0.0)
