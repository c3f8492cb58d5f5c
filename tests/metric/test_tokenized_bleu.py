"""Tokenized BLEU is BLEU of Moses's lower-cased, normalised tokens, pinned on sentences of our own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from configs import composed
from torchmetrics import Metric

from seq2seq_attn.metric.tokenized_bleu import TokenizedBLEU, moses_tokenized

TOKENIZED = {
    "fr": {
        "Deux chiens jouent dans la neige.": "deux chiens jouent dans la neige .",
        "L'homme n'est pas là, hélas !": "l&apos; homme n&apos; est pas là , hélas !",
        "Aujourd'hui, un t-shirt à 3,50 €": "aujourd&apos; hui , un t-shirt à 3,50 €",
        "Les sœurs & frères [de M. Dupont] : 50 % d’entre eux à l’œuvre…":
            "les sœurs &amp; frères &#91; de m. dupont &#93; : 50 % d&apos; entre eux à l &quot; œuvre ...",
        'Il crie "Attention."': "il crie &quot; attention &quot; .",
        "«\u00a0Où vas-tu\u00a0?\u00a0»": "&quot; où vas-tu ? &quot;",
    },
    "en": {
        "Two dogs play in the snow.": "two dogs play in the snow .",
        "She didn't see Mr. Smith's car (the red one).":
            "she didn &apos;t see mr. smith &apos;s car ( the red one ) .",
        'He says "hello", and leaves.': "he says &quot; hello , &quot; and leaves .",
        "A well-known man\u2014or boy\u2014walks": "a well-known man - or boy - walks",
    },
}  # fmt: skip
CASES = [(language, text, tokens) for language, lines in TOKENIZED.items() for text, tokens in lines.items()]
HYPOTHESES = ["Deux chiens jouent dans la neige.", "Une fille court près d'un lac !", "IL CRIE « ATTENTION » ."]
REFERENCES = [
    ["Deux chiens s'amusent dans la neige.", "deux chiens jouent dans la neige fraîche"],
    ["Une fille court au bord d'un lac !", "Une fille court."],
    ["Il crie « attention ».", "Elle crie « attention » !"],
]


def scored(hypotheses: list[str], references: list[list[str]]) -> Metric:
    metric = TokenizedBLEU(language="fr")
    metric.update(hypotheses, references)
    return metric


@pytest.mark.parametrize(("language", "text", "tokens"), CASES)
def test_tokens_are_those_of_moses(language: str, text: str, tokens: str) -> None:
    assert moses_tokenized(text, language) == tokens


def test_it_is_what_the_sacrebleu_command_gives_for_tokenized_files(tmp_path: Path) -> None:
    columns = {"hypotheses": HYPOTHESES, **{str(i): [options[i] for options in REFERENCES] for i in range(2)}}
    for name, lines in columns.items():
        text = "".join(moses_tokenized(line, "fr") + "\n" for line in lines)
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "0", "1", "-i", "hypotheses", "-tok", "none", "-lc", "--force"]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    done = subprocess.run(
        [*command, "-w", "15", "-b"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert f"{scored(HYPOTHESES, REFERENCES).compute():.15f}" == done.stdout.strip()


def test_the_signature_says_what_was_done() -> None:
    said = scored(HYPOTHESES, REFERENCES).signature()
    assert said.startswith("nrefs:2|case:lc|eff:no|tok:moses-fr|smooth:exp|version:")
    assert "|norm:moses-fr|escape:yes|sacremoses:" in said


def test_case_and_the_kind_of_quotation_mark_do_not_count() -> None:
    assert scored([HYPOTHESES[2]], [['il crie "attention" .']]).compute() == pytest.approx(100)


def test_sentences_of_two_ranks_in_any_order_score_as_one_batch() -> None:
    whole, first = scored(HYPOTHESES, REFERENCES), scored(HYPOTHESES[1:], REFERENCES[1:])
    first.merge_state(scored(HYPOTHESES[:1], REFERENCES[:1]))
    assert torch.equal(whole.compute(), first.compute())
    assert whole.signature() == first.signature()


def test_the_language_is_that_of_the_corpus() -> None:
    for overrides, language in (([], "fr"), (["data.source_language=fr", "data.target_language=en"], "en")):
        assert composed("metric=[bleu,tokenized_bleu]", *overrides).metric.tokenized_bleu.language == language


def test_captions_are_scored_by_it_unless_the_command_line_says_which() -> None:
    assert list(composed("data=multi30k").metric) == ["bleu", "chrf", "tokenized_bleu"]
    assert list(composed("data=multi30k", "metric=[bleu]").metric) == ["bleu"]
    assert list(composed("data=tatoeba").metric) == ["bleu", "chrf"]
