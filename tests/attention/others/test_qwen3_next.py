"""The delta rule with a decay against that of transformers, written for the weights of Qwen3-Next."""

from __future__ import annotations

import pytest
import torch

from seq2seq_attn.attention.delta_attention import DeltaMemory
from seq2seq_attn.attention.kernel_attention import decayed_sums_over_keys

B, HEADS, N, WIDTH, VALUE_WIDTH, BEFORE = 2, 3, 150, 6, 5, 70


@pytest.mark.parametrize("rule", ["torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"])
def test_states_and_what_queries_read_are_those_of_qwen3_next(rule: str) -> None:
    modeling = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    query, keys = torch.nn.functional.normalize(torch.randn(2, B, HEADS, N, WIDTH), dim=-1)
    values = torch.randn(B, HEADS, N, VALUE_WIDTH)
    strength, log_decay = torch.rand(B, HEADS, N), torch.rand(B, HEADS, N).log()
    theirs = (x.transpose(1, 2) for x in (query, keys, values, log_decay, strength))
    context, state = getattr(modeling, rule)(*theirs, initial_state=None, output_final_state=True)

    first, second = (
        DeltaMemory(keys[:, :, part], values[:, :, part], strength[:, :, part], log_decay[:, :, part])
        for part in (slice(BEFORE), slice(BEFORE, None))
    )
    both = first.append(second)
    torch.testing.assert_close(both.total, state, rtol=0, atol=1e-5)
    parts = [
        decayed_sums_over_keys(query[:, :, begin:end], memory.written, begin, causal=True, same_position=False)
        for begin, end, memory in ((0, BEFORE, first), (BEFORE, N, both))
    ]
    torch.testing.assert_close(torch.cat(parts, 2).transpose(1, 2) / WIDTH**0.5, context, rtol=0, atol=1e-5)
