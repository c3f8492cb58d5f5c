"""What is handed to BertViz: a list over layers of each attention, and one list of tokens for each side."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from seq2seq_attn.alignment.bertviz import to_bertviz
from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.errors import UserError

READ, WRITTEN = ["▁a", "▁black", "▁cat", "</s>"], ["▁un", "▁chat", "▁no", "ir", "</s>"]


def maps(*slots: str) -> list[SlotMap]:
    """Maps of two heads whose weights are their number, so that none can be taken for another."""
    axes = {"cross": (READ, WRITTEN), "self": (["<s>", *WRITTEN[:-1]], WRITTEN), "encoder": (READ, READ)}
    found = []
    for number, slot in enumerate(slots):
        columns, rows = axes[slot.partition("/")[0]]
        size = 2 * len(rows) * len(columns)
        weights = (100 * number + np.arange(size, dtype=np.float32)).reshape(2, len(rows), len(columns))
        found.append(SlotMap(slot, weights, columns, rows))
    return found


def test_each_attention_is_a_list_over_its_layers() -> None:
    given = maps("encoder/0", "encoder/1", "self/0", "self/1", "cross/0", "cross/1")
    arguments = to_bertviz(given)
    assert list(arguments) == [
        "encoder_attention",
        "encoder_tokens",
        "decoder_attention",
        "decoder_tokens",
        "cross_attention",
    ]
    assert [tuple(one.shape) for one in arguments["cross_attention"]] == [(1, 2, 5, 4)] * 2
    assert [tuple(one.shape) for one in arguments["decoder_attention"]] == [(1, 2, 5, 5)] * 2
    assert np.array_equal(arguments["cross_attention"][1][0].numpy(), given[5].weights)
    assert arguments["encoder_tokens"] == READ
    assert arguments["decoder_tokens"] == ["<s>", "▁un", "▁chat", "▁no", "ir"]


def test_kinds_choose_what_is_shown() -> None:
    given = maps("encoder/0", "self/0", "cross/0")
    assert list(to_bertviz(given, ["encoder"])) == ["encoder_attention", "encoder_tokens"]
    assert list(to_bertviz(maps("cross/0"))) == ["cross_attention", "encoder_tokens", "decoder_tokens"]
    with pytest.raises(UserError, match=r"^there is no map of encoder; translate with maps=True "):
        to_bertviz(maps("cross/0"), ["encoder"])


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it leaves its scripts open
@pytest.mark.parametrize("view", ["head_view", "model_view"])
def test_bertviz_shows_it(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = ModuleType("IPython.display")
    for name in ("display", "HTML", "Javascript"):
        setattr(notebook, name, lambda data: SimpleNamespace(data=data))
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    module = pytest.importorskip(f"bertviz.{view}", reason="pip install --no-deps bertviz")
    shown = getattr(module, view)(**to_bertviz(maps("encoder/0", "self/0", "cross/0")), html_action="return").data
    params = json.JSONDecoder().raw_decode(shown[shown.index('{"attention": ') :])[0]
    assert [one["name"] for one in params["attention"]] == ["Encoder", "Decoder", "Cross"]
    assert params["attention"][2]["right_text"] == [" a", " black", " cat", "</s>"]
