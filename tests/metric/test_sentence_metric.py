"""Means over sentences: ROUGE, sentence-level BLEU, exact match and COMET."""

from __future__ import annotations

import math
import os
from pathlib import Path
from statistics import fmean

import pytest
import sacrebleu
import torch
from metric.stub_comet import write_stub

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.comet import COMET, environment_without_ranks
from seq2seq_attn.metric.confidence import confidence
from seq2seq_attn.metric.exact_match import ExactMatch
from seq2seq_attn.metric.rouge import ROUGE
from seq2seq_attn.metric.sentence_bleu import SentenceBLEU
from seq2seq_attn.metric.sentence_metric import SentenceMetric

HYPOTHESES = ["the cat was found under the bed", "Police killed the gunman.", "", "It's 2 o'clock, isn't it?"]
REFERENCES = [
    ["the cat was under the bed"],
    ["police kill the gunman", "The gunman police killed"],
    ["a"],
    ["it is two o'clock"],
]
ROUGE_SCORE = {  # F1 of the package rouge-score 0.1.2, without stemming
    "rouge1": [0.923076923076923, 1.0, 0.0, 0.4615384615384615],
    "rouge2": [0.7272727272727272, 0.6666666666666666, 0.0, 0.18181818181818182],
    "rougeL": [0.923076923076923, 0.75, 0.0, 0.4615384615384615],
}
METRICS: list[SentenceMetric] = [
    ROUGE(variant="rougeL", tokenize="words"),
    SentenceBLEU(max_ngram_order=2, lowercase=True, tokenize="13a"),
    ExactMatch(lowercase=False),
]


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_score_that_is_not_finite_is_refused(score: float, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = ExactMatch(lowercase=False)
    monkeypatch.setattr(metric, "sentence_scores", lambda *texts: [score])
    with pytest.raises(
        UserError, match=rf"^ExactMatch returns {score} for a sentence, and what it counts or scores mus"
    ):
        metric.update(["a"], [["a"]])


@pytest.mark.parametrize("tokenize", ["ascii", "words"])
@pytest.mark.parametrize("variant", ["rouge1", "rouge2", "rougeL"])
def test_rouge_equals_the_package_of_google(variant: str, tokenize: str) -> None:
    scores = ROUGE(variant=variant, tokenize=tokenize).sentence_scores(HYPOTHESES, REFERENCES, [])
    assert scores == pytest.approx([100 * score for score in ROUGE_SCORE[variant]], abs=1e-4)


def test_words_of_rouge_are_of_any_script() -> None:
    def score(tokenize: str, hypothesis: str, reference: str) -> float:
        (found,) = ROUGE(variant="rouge1", tokenize=tokenize).sentence_scores([hypothesis], [[reference]], [])
        return found

    assert score("words", "Un élève", "un élevé") == 50.0
    assert score("ascii", "Un élève", "un élevé") == pytest.approx(40.0, abs=1e-4)  # un l ve; un lev
    assert score("words", "我们学习", "我们工作") == 0.0
    assert score("words", "की", "का") == 0.0  # vowel signs are parts of words
    assert score("words", "हिन्दी भाषा", "हिन्दी तमिल") == 50.0
    assert score("zh", "我们学习", "我们工作") == 50.0
    with pytest.raises(
        UserError, match=r"^ROUGE has no tokenizer 'chinese'; choose from: auto, words, ascii, none, zh, 13"
    ):
        ROUGE(variant="rouge1", tokenize="chinese")


def test_sentence_bleu_chooses_its_tokenizer_by_the_language() -> None:
    options = {"max_ngram_order": 4, "lowercase": False}
    chosen = SentenceBLEU(tokenize="auto", language="zh", **options)
    assert "|tok:zh|" in chosen.signed
    assert "|tok:13a|" in SentenceBLEU(tokenize="auto", language="fr", **options).signed
    chosen.update(["我喜欢狗。"], [["我喜欢猫。"]])
    plain = sacrebleu.BLEU(tokenize="zh", effective_order=True)
    assert float(chosen.compute()) == pytest.approx(plain.sentence_score("我喜欢狗。", ["我喜欢猫。"]).score)


def test_sentence_bleu_is_the_mean_of_sacrebleus() -> None:
    for order in (2, 4):
        metric = SentenceBLEU(max_ngram_order=order, lowercase=False, tokenize="13a")
        metric.update(HYPOTHESES, REFERENCES)
        scorer = sacrebleu.BLEU(max_ngram_order=order, effective_order=True)
        theirs = [scorer.sentence_score(h, r).score for h, r in zip(HYPOTHESES, REFERENCES, strict=True)]
        assert metric.compute().item() == pytest.approx(fmean(theirs), abs=1e-9)
        assert f"|order:{order}|" in metric.signature()


def test_an_exact_match_is_of_any_reference_up_to_blanks_around_it() -> None:
    assert ExactMatch(lowercase=False).sentence_scores([" a b", "a  b", "A"], [["c", "a b "], ["a b"], ["a"]], []) == [
        100.0,
        0.0,
        0.0,
    ]
    assert ExactMatch(lowercase=True).sentence_scores(["A"], [["a"]], []) == [100.0]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: type(metric).__name__)
def test_the_mean_does_not_depend_on_batches_or_ranks(metric: SentenceMetric) -> None:
    whole, first, second = metric.clone(), metric.clone(), metric.clone()
    whole.update(HYPOTHESES, REFERENCES)
    for row in (3, 1):
        first.update(HYPOTHESES[row : row + 1], REFERENCES[row : row + 1])
    second.update(HYPOTHESES[::2], REFERENCES[::2])
    first.merge_state(second)
    assert torch.equal(whole.compute(), first.compute())
    assert whole.signature() == first.signature()
    assert whole.signature().startswith("nrefs:var|")
    scores = metric.sentence_scores(HYPOTHESES, REFERENCES, [])
    assert whole.compute().item() == pytest.approx(fmean(scores), abs=1e-6)


def test_the_bootstrap_is_over_sentences() -> None:
    hypotheses, references = ["a"] * 400, [["a"], ["b"]] * 200
    found = confidence(ExactMatch(lowercase=False), hypotheses, references, 1000)
    assert found.mean == pytest.approx(50.0, abs=0.5)
    assert found.margin == pytest.approx(196 * (0.25 / 400) ** 0.5, rel=0.1)  # of the normal distribution
    assert found.signature == "nrefs:1|bs:1000|seed:12345|case:mixed"


def test_nothing_to_score_is_refused() -> None:
    metric = ExactMatch(lowercase=False)
    metric.update([], [])
    with pytest.raises(UserError, match=r"^there is no sentence to score; "):
        metric.compute()


def comet(command: Path | str, model: str = "Unbabel/wmt22-comet-da") -> COMET:
    return COMET(model=model, command=str(command), gpus=0, batch_size=16)


def test_comet_is_the_best_score_over_references_of_one_call_of_its_command(tmp_path: Path) -> None:
    metric = comet(write_stub(tmp_path))
    sources, hypotheses = ["s", "t\tu", "v"], ["a", "b\nc", "d"]
    references = [["x", "a"], ["b c"], ["y"]]
    metric.update(hypotheses, references, sources)
    assert metric.compute().item() == pytest.approx(100 * (0.9 + 0.9 + 0.1) / 3)
    assert metric.signature() == "nrefs:var|model:Unbabel/wmt22-comet-da"
    confidence(metric, hypotheses, references, 50, sources)  # asks for the same scores
    assert (tmp_path / "comet-score.calls").read_text() == "4\n"


def test_comet_is_no_process_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_NTASKS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    metric = comet(write_stub(tmp_path))
    metric.update(["a"], [["a"]], ["a"])
    assert float(metric.compute()) == pytest.approx(90)
    assert environment_without_ranks().items() <= os.environ.items()
    assert "OMP_NUM_THREADS" not in environment_without_ranks()


def test_a_comet_that_cannot_run_is_answered_with_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^metric=\[comet\] runs the command no-comet, which is not installed; install"
    ):
        comet("no-comet")
    with pytest.raises(UserError, match=r"comet-score has failed \(no such model\); "):
        comet(write_stub(tmp_path), "broken").update(["a"], [["a"]], ["a"])
