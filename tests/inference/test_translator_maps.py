"""The attention of a translation is that of the search's own steps."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference.test_translator import BEAM, SAMPLES
from tiny import SENTENCES, write_checkpoint
from torch import Tensor

from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.forced_attention import attention_along
from seq2seq_attn.alignment.word_alignment import Extraction
from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.decoder.decoder import DecoderState
from seq2seq_attn.inference import translator as translator_module
from seq2seq_attn.inference.choose_search import choose_search
from seq2seq_attn.inference.engine import TorchEngine
from seq2seq_attn.inference.line_answers import best_links
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.model.decoding_model import DecodingModel, Step
from seq2seq_attn.search.search import TargetVocabulary


@dataclass(frozen=True)
class RecordedState(DecoderState):
    """A model's own, and the sentence and tokens behind each hypothesis."""

    own: Any
    said: tuple[tuple[int, ...], ...]

    def branch(self, rows: Tensor) -> RecordedState:
        return RecordedState(self.own.branch(rows), tuple(self.said[row] for row in rows.tolist()))

    def keep(self, sentences: Tensor) -> RecordedState:
        return RecordedState(self.own.keep(sentences), self.said)


class Recorded(DecodingModel):
    """A model that notes all weights of each step of a search, by the tokens read."""

    def __init__(self, model: Any) -> None:
        self.model, self.weights = model, dict[tuple[int, ...], dict[str, Tensor]]()

    @property
    def max_length(self) -> int | None:
        return self.model.max_length

    def encode(self, source: Tensor, mask: Tensor) -> RecordedState:
        return RecordedState(self.model.encode(source, mask), tuple((row,) for row in range(len(source))))

    def step(self, last: Tensor, state: RecordedState, *, need_weights: bool = False) -> Step:
        decoded = self.model.decode(last[:, None], state.own, need_weights=True)
        said = tuple((*before, token) for before, token in zip(state.said, last.tolist(), strict=True))
        for row, read in enumerate(said):
            self.weights[read] = {slot: weights[row, :, 0] for slot, weights in decoded.weights.items()}
        log_probs = self.model.logits(decoded.hidden[:, 0]).log_softmax(-1)
        return Step(log_probs, RecordedState(decoded.state, said), None)


@pytest.mark.parametrize(
    ("overrides", "search"),
    [
        (["model=rnn"], {}),
        (["model=rnn"], SAMPLES),
        (["model=rnn", "attention=hard"], BEAM),
        (["decoder@model.decoder=rnn_luong", "attention=local_p"], BEAM),
        (["model=conv"], BEAM),
        (["model=transformer"], BEAM),
        (["model=transformer", "attention=sparse"], BEAM),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else value.get("name", "greedy"),
)
def test_maps_equal_the_weights_of_the_searchs_own_steps(
    overrides: list[str], search: dict[str, Any], tmp_path: Path
) -> None:
    translator = Translator.load(write_checkpoint(tmp_path / "a.ckpt", *overrides, scale=1.5))
    assert isinstance(translator.engine, TorchEngine)
    model: Any = translator.engine.model.double()
    recorded, tokenizer = Recorded(model), translator.tokenizer
    sources = tokenizer.encode_source([SENTENCES[8], SENTENCES[1], SENTENCES[14]])
    source, _, mask = collate_sources(sources, pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
    limits = {"limits": {"max_length": 12}}
    chosen = choose_search({**search, **limits}, translator.config["search"])
    for sentence, (best, *_) in enumerate(chosen(recorded, source, mask, TargetVocabulary.of(tokenizer))):
        maps = attention_along(model, tokenizer, sources[sentence], best.token_ids)
        read = [sentence, tokenizer.bos_id, *best.token_ids]
        slots = {one.slot for one in maps if not one.slot.startswith("encoder")}
        assert slots == set(recorded.weights[tuple(read[:2])])
        for slot, weights, columns, _ in maps:
            for row in range(len(best.token_ids) + 1) if slot in slots else ():
                own = recorded.weights[tuple(read[: row + 2])][slot].numpy()[:, : len(columns)]
                np.testing.assert_allclose(weights[:, row, : own.shape[1]], own, atol=1e-6)
                assert not weights[:, row, own.shape[1] :].any()


@pytest.mark.parametrize("kind", ["rnn", "conv", "transformer"])
def test_maps_of_several_translations_are_those_of_each_alone(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = Translator.load(write_checkpoint(tmp_path / "a.ckpt", f"model={kind}", scale=1.5), device="cpu")
    assert isinstance(translator.engine, TorchEngine)
    translator.engine.model.double()
    texts = [*SENTENCES[5:9], "", SENTENCES[1]]
    translations = translator.translate(texts, search={**BEAM, "limits": {"max_length": 12}}, maps=True)
    monkeypatch.setattr(translator_module, "ATTENTION_TOKENS", 40)
    for found in (dict(enumerate(one.maps for one in translations)), dict(translator.attentions(texts, translations))):
        assert sorted(found) == list(range(len(texts)))
        assert found[4] == []
        for row, (text, translation) in enumerate(zip(texts, translations, strict=True)):
            alone = translator.attention(text, translation)
            assert len(alone) == len(found[row])
            for one, other in zip(found[row], alone, strict=True):
                assert (one.slot, one.columns, one.rows) == (other.slot, other.columns, other.rows)
                np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=1e-6)
    assert list(translator.attentions([], [])) == []


@pytest.mark.slow
def test_a_notebook_shows_the_links_of_the_step_that_guided_alignment_teaches(tmp_path: Path) -> None:
    loaded = Translator.load(write_checkpoint(tmp_path / "a.ckpt", "model=transformer", scale=1.5), device="cpu")
    shown = {}
    for weight, shift in ((1, False), (1, True), (0, True)):
        guided = {"links": "eflomal", "weight": weight, "layer": 0, "head": 0, "shift": shift}
        translator = Translator(loaded.engine, loaded.tokenizer, loaded.config | {"guided_alignment": guided})
        (best,) = translator.translate([SENTENCES[5]], search=BEAM, maps=True)
        assert all(one.shift == best.shift for one in best.alternatives)
        (data,) = re.findall(r'id="data">([^<]+)<', unescape(best._repr_html_()))
        (look,) = json.loads(gzip.decompress(b64decode(data)))["looks"]
        pairs = best_links(best.maps, Heads(0, 0), Extraction(shift=bool(weight and shift)))
        assert look["links"]["slots"]["cross/0"]["heads"][0] == [list(pair) for pair in pairs]
        assert look["links"]["shift"] == bool(weight and shift)
        shown[weight, shift] = pairs
    assert shown[1, True] != shown[1, False] == shown[0, True]
