"""Text that came tokenized is scored as if it had come plain."""

from __future__ import annotations

import pytest
import sacrebleu
from configs import built, composed
from torchmetrics import Metric

from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.metric.detokenized_bleu import DetokenizedBLEU, detokenized
from seq2seq_attn.metric.tokenized_bleu import TokenizedBLEU, moses_tokenized

PLAIN = [
    "l'homme n'est pas là, hélas !",
    "aujourd'hui, un t-shirt à 3,50 €",
    "un garçon (en rouge) saute par-dessus un chien & un chat.",
]
SAID = ["l'homme n'est pas là, hélas.", "aujourd'hui, un t-shirt à 3,50 €", "un garçon saute dans l'eau."]


def scored(metric: Metric, hypotheses: list[str], references: list[str]) -> float:
    for hypothesis, reference in zip(hypotheses, references, strict=True):  # a batch each
        metric.update([hypothesis], [[reference]])
    return float(metric.compute())


def tokens(lines: list[str]) -> list[str]:
    return [moses_tokenized(line, "fr") for line in lines]


def detokenized_bleu() -> DetokenizedBLEU:
    return DetokenizedBLEU(language="fr", lowercase=True, tokenize="13a")


@pytest.mark.parametrize("plain", PLAIN)
def test_a_tokenized_sentence_becomes_the_plain_one(plain: str) -> None:
    tokenized = moses_tokenized(plain, "fr")
    assert tokenized != plain
    assert detokenized(tokenized, "fr") == plain


def test_it_is_what_sacrebleu_gives_for_plain_text() -> None:
    expected = sacrebleu.corpus_bleu(SAID, [PLAIN], lowercase=True).score
    assert scored(detokenized_bleu().clone(), tokens(SAID), tokens(PLAIN)) == pytest.approx(expected, abs=1e-9)
    assert 20 < expected < 90


def test_case_counts_only_if_asked_for() -> None:
    cased = DetokenizedBLEU(language="fr", lowercase=False, tokenize="13a")
    upper = [line.upper() for line in PLAIN]
    assert scored(detokenized_bleu(), upper, PLAIN) == pytest.approx(100)
    assert scored(cased, upper, PLAIN) < 50


def test_tokens_as_they_are_give_what_the_papers_report_of_plain_text() -> None:
    """Which multi30k_tok scores them by; to tokenize them again would count too many matches."""
    plain = scored(TokenizedBLEU(language="fr"), SAID, PLAIN)
    as_they_are = built(composed("data=multi30k_tok").metric.tokenized_bleu)
    assert isinstance(as_they_are, BLEU)
    assert scored(as_they_are, tokens(SAID), tokens(PLAIN)) == pytest.approx(plain, abs=1e-9)
    assert scored(TokenizedBLEU(language="fr"), tokens(SAID), tokens(PLAIN)) > plain + 1


def test_the_signature_says_what_was_done() -> None:
    metric = detokenized_bleu()
    scored(metric, tokens(SAID), tokens(PLAIN))
    assert "case:lc" in metric.signature()
    assert "tok:13a" in metric.signature()
    assert "detok:moses-fr" in metric.signature()


def test_text_that_came_tokenized_has_the_tokenizer_of_its_language() -> None:
    for group, name in (("tokenized_text", "bleu"), ("detokenized_bleu", "detokenized_bleu")):
        for language, tokenize in (("fr", "13a"), ("de", "13a"), ("zh", "zh")):
            metric = built(composed(f"metric=[{group}]", f"data.target_language={language}").metric[name])
            metric.update(["我们 明天 去 公园 。"], [["我们 明天 去 公园 。"]])
            assert f"|case:lc|eff:no|tok:{tokenize}|" in metric.signature()
            assert f"detok:moses-{language}" in metric.signature()
