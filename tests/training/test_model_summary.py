"""The model card counts what is there, once."""

from __future__ import annotations

import pytest
from configs import model_of

from seq2seq_attn.training.model_summary import parameters_by_part, print_model, training_bytes


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_parts_add_up_and_a_shared_matrix_counts_once(tie: str) -> None:
    model = model_of(f"model.tie_embeddings={tie}", source_vocab_size=17, target_vocab_size=17)
    counts = parameters_by_part(model)
    whole = sum(p.numel() for p in model.parameters())
    assert counts.pop("all") == whole
    assert counts.pop("of which attention") == sum(p.numel() for p in model.decoder.attention.parameters())
    assert sum(counts.values()) == whole
    assert counts["output"] == {"none": 17 * 11 + 17, "target": 17, "all": 17}[tie]
    assert training_bytes(model) == 16 * whole


def test_the_card_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of()
    print_model(model)
    printed = capsys.readouterr().out
    assert "RNNEncoder → RNNDecoder" in printed
    assert f"{sum(p.numel() for p in model.parameters()):,}" in printed
