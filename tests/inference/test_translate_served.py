"""translate.py engine=ctranslate2: what is asked of CTranslate2, and what of ours it cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny import SENTENCES, tokenizer, write_checkpoint

from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference import serving_engine
from seq2seq_attn.inference.ctranslate2_engine import Exported
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.search.search import Hypothesis, Search

POSITIONS = 13


class Echo:
    """Says the first tokens of each source; notes what it is asked."""

    made: list[Search | None]
    asked: list[tuple[int, int]]

    def __init__(self, folder: str, *, search: Search | None, device: Any, num_threads: int | None) -> None:
        assert folder == "exported"
        assert num_threads == 3
        Echo.made.append(search)

    def __call__(self, sources: list[list[int]], batch_sentences: int) -> list[list[Hypothesis]]:
        Echo.asked.append((len(sources), batch_sentences))
        assert all(0 < len(tokens) < POSITIONS for tokens in sources)
        return [[Hypothesis(tokens, -2.0, -1.0)] for tokens in sources]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Translator:
    config = load(str(write_checkpoint(tmp_path / "a.ckpt"))).config
    monkeypatch.setattr(serving_engine, "CTranslate2Engine", Echo)
    monkeypatch.setattr(serving_engine, "read_exported", lambda _: Exported(tokenizer(), config, POSITIONS))
    Echo.made, Echo.asked = [], []
    return Translator.load("exported", device="cpu", engine="ctranslate2", num_threads=3)


def test_texts_go_in_and_out_as_with_our_own_searches(served: Translator) -> None:
    first, empty, long = served.translate([SENTENCES[0], " ", " ".join(SENTENCES)])
    assert first.text == SENTENCES[0]
    assert (first.log_prob, first.score) == (-2.0, -1.0)
    assert empty.text == ""
    assert long.notes[0].endswith(" to 12 tokens, the most that the model has positions for")
    assert len(long.tokens) == 12


def test_the_model_is_read_again_only_for_another_search(served: Translator) -> None:
    assert Echo.made == []
    for search in (None, None, {"name": "beam", "beam_size": 3}, {"name": "beam", "beam_size": 3}, "greedy"):
        served.translate(SENTENCES[:2], search=search)
    assert [type(search).__name__ for search in Echo.made] == ["GreedySearch", "BeamSearch", "GreedySearch"]


def test_batches_are_as_large_as_the_options_say(served: Translator) -> None:
    longest = max(map(len, tokenizer().encode_source(SENTENCES[:2]))) + 1
    served.translate(SENTENCES[:2], batch_sentences=7)
    served.translate(SENTENCES[:2], batch_tokens=longest * 5 + 1)
    served.translate(SENTENCES[:2], batch_tokens=longest * 10, search={"name": "beam", "beam_size": 5})
    served.translate(SENTENCES[:2], batch_tokens=1)
    assert Echo.asked == [(2, 7), (2, 5), (2, 2), (2, 1)]


def test_what_it_cannot_do_is_refused(served: Translator) -> None:
    with pytest.raises(UserError, match=r"^engine=ctranslate2 takes no prefixes; leave out engine, or the prefixes$"):
        served.translate(SENTENCES[:1], prefixes=["the"])
    with pytest.raises(UserError, match=r"^engine=ctranslate2 gives no attention; leave out engine, or maps and al"):
        served.translate(SENTENCES[:1], maps=True)
