"""translate.py engine=ctranslate2: what is asked of CTranslate2, and what of ours it cannot do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import SENTENCES, tokenizer, write_checkpoint

from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference import ctranslate2_engine
from seq2seq_attn.inference.ctranslate2_engine import Exported
from seq2seq_attn.inference.translator import Translator

POSITIONS = 13


class Echo:
    """CTranslate2's translator that returns the first tokens of each source, and notes what it is asked."""

    made = 0
    compute_type: str
    asked: list[tuple[int, int]]

    def __init__(self, folder: str, **options: Any) -> None:
        assert folder == "exported"
        assert options["intra_threads"] == 3
        Echo.compute_type = options["compute_type"]
        Echo.made += 1

    def translate_batch(self, sources: list[list[str]], *, beam_size: int, **options: Any) -> list[Any]:
        Echo.asked.append((len(sources), beam_size))
        assert options["max_input_length"] == 0  # CTranslate2 would cut long sources without a word
        assert all(0 < len(tokens) < POSITIONS for tokens in sources)
        return [SimpleNamespace(hypotheses=[tokens], scores=[-2.0]) for tokens in sources]

    def score_batch(self, sources: list[list[str]], targets: list[list[str]], **options: Any) -> list[Any]:
        assert options["max_input_length"] == 0
        return [SimpleNamespace(log_probs=[-0.5] * (len(tokens) + 1)) for tokens in targets]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Translator:
    config = load(str(write_checkpoint(tmp_path / "a.ckpt"))).config
    module = SimpleNamespace(Translator=Echo, get_supported_compute_types=lambda *_: {"float32", "int8", "int16"})
    monkeypatch.setattr(ctranslate2_engine, "import_ctranslate2", lambda: module)
    monkeypatch.setattr(ctranslate2_engine, "read_exported", lambda _, trust: Exported(tokenizer(), config, POSITIONS))
    Echo.made, Echo.asked = 0, []
    return Translator.load("exported", device="cpu", engine="ctranslate2", num_threads=3)


def test_texts_go_in_and_out_as_with_our_own_searches(served: Translator) -> None:
    limits = {"limits": {"max_length": POSITIONS}}
    first, empty, long = served.translate([SENTENCES[0], " ", " ".join(SENTENCES)], search=limits)
    assert first.text == SENTENCES[0]
    assert (first.log_prob, first.score) == (-2.0, -2.0)
    assert empty.text == ""
    assert long.notes[0].endswith(" to 12 tokens, the most that the model has positions for")
    assert len(long.tokens) == 12
    assert long.log_prob == -6.5  # the end token, which a translation that is cut lacks, counted as by our own searches


def test_the_type_it_computes_in_is_float32_or_that_of_the_option(served: Translator) -> None:
    assert Echo.compute_type == "float32"
    given: dict[str, Any] = {"device": "cpu", "engine": "ctranslate2", "num_threads": 3}
    for compute_type in ("int8", "auto"):
        Translator.load("exported", compute_type=compute_type, **given)
        assert Echo.compute_type == compute_type
    with pytest.raises(
        UserError, match=r"^compute_type=float16 is not supported by .* choose from: auto, float32, int8$"
    ):
        Translator.load("exported", compute_type="float16", **given)
    with pytest.raises(
        UserError, match=r"^precision=bf16-mixed is for engine=torch; give compute_type= instead, or le"
    ):
        Translator.load("exported", precision="bf16-mixed", **given)


def test_another_search_reads_the_model_no_second_time(served: Translator) -> None:
    for search in (None, {"name": "beam", "beam_size": 3, "patience": 1.0}, "greedy"):
        served.translate(SENTENCES[:2], search=search)
    assert Echo.made == 1
    assert Echo.asked == [(2, 1), (2, 3), (2, 1)]


def test_batches_are_as_large_as_the_options_say(served: Translator) -> None:
    served.translate(SENTENCES[:5], batch_sentences=2)
    served.translate(SENTENCES[:2], batch_tokens=1)
    assert [number for number, _ in Echo.asked] == [2, 2, 1, 1, 1]


def test_what_it_cannot_do_is_refused(served: Translator) -> None:
    with pytest.raises(UserError, match=r"^engine=ctranslate2 takes no prefixes; leave out engine, or the prefixes$"):
        served.translate(SENTENCES[:1], prefixes=["the"])
    with pytest.raises(UserError, match=r"^engine=ctranslate2 gives no attention; leave out engine, or maps, al"):
        served.translate(SENTENCES[:1], maps=True)
