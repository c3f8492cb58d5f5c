"""The forgetting score: gates by hand, running sums in steps, chunks and blocks, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention.layers import in_chunks
from configs import attention_of, model_of
from torch import Tensor

from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.usefixtures("double")

B, N, WIDTH = 2, 11, 12
EXACT = {"rtol": 0, "atol": 1e-12}


def forgetting(*overrides: str) -> Any:
    sizes = {"query_dim": WIDTH, "key_dim": WIDTH, "value_dim": WIDTH}
    return attention_of("forgetting", "attention.num_heads=2", *overrides, **sizes).eval()


def with_gates(attention: Any, x: Tensor, gates: list[float]) -> None:
    """Let every head have these gates at the first positions of the first sentence, and no other scores."""
    score = attention.score
    score.scaled_dot.project_query.weight.data.zero_()
    score.gate.bias.data.zero_()
    logits = torch.tensor([math.log(gate / (1 - gate)) for gate in gates])
    w = torch.linalg.lstsq(x[0, : len(gates)], logits[:, None]).solution[:, 0]
    score.gate.weight.data = w.expand(2, -1).clone()


@pytest.mark.parametrize("causal", [True, False])
def test_weights_by_hand(causal: bool) -> None:
    attention, x = forgetting(), torch.randn(1, 3, WIDTH)
    with_gates(attention, x, [0.9, 0.5, 0.25])
    weights = attention.attend_self(x, causal=causal, need_weights=True).weights
    # products of the gates between: of 0 and 1 it is 1/2, of 1 and 2 1/4, of 0 and 2 1/8
    rows = torch.tensor([[1, 1 / 2, 1 / 8], [1 / 2, 1, 1 / 4], [1 / 8, 1 / 4, 1]])
    rows = rows.tril() if causal else rows
    torch.testing.assert_close(weights[0, 0], rows / rows.sum(-1, keepdim=True), **EXACT)


def test_a_closed_gate_forgets_all_before_it() -> None:
    attention, x = forgetting(), torch.randn(1, 4, WIDTH)
    with_gates(attention, x, [0.5, 0.5, 1e-9, 0.5])
    weights = attention.attend_self(x, causal=True, need_weights=True).weights
    assert weights[0, :, 2:, :2].max() < 1e-8


def test_before_training_gates_are_around_the_initial_one() -> None:
    gate = forgetting("attention.score.initial_gate=0.75").score.gate
    torch.testing.assert_close(gate.bias.sigmoid(), torch.full((2,), 0.75))


@pytest.mark.parametrize("cuts", [[1] * N, [4, 1, 6], [N]])
def test_chunks_of_any_length_equal_all_at_once(cuts: list[int]) -> None:
    attention, x = forgetting(), torch.randn(B, N, WIDTH)
    expected = attention.attend_self(x, causal=True).context
    torch.testing.assert_close(in_chunks(attention, x, cuts), expected, **EXACT)


def test_a_search_that_selects_and_grows_its_memory_equals_all_at_once() -> None:
    attention, x = forgetting(), torch.randn(B, 80, WIDTH)
    rows, past = torch.tensor([1, 0]), None
    with torch.no_grad():
        expected = attention.attend_self(x[rows], causal=True).context[:, -1:]
        for step in range(80):
            chunk = x[:, step : step + 1] if step < 40 else x[rows, step : step + 1]
            attended = attention.attend_self(chunk, past=past, causal=True)
            past = attended.memory.branch(rows) if step == 39 else attended.memory
    torch.testing.assert_close(attended.context, expected, **EXACT)


@pytest.mark.parametrize("pattern", ["local", "atrous", "sparse", "global_local"])
@pytest.mark.parametrize("causal", [True, False])
def test_patterns_in_blocks_and_in_steps_see_the_sums_of_the_whole_sentence(pattern: str, causal: bool) -> None:
    narrow = "attention.pattern.num_global=2" if pattern == "global_local" else "attention.pattern.k=5"
    attention, x = forgetting(f"attention/pattern={pattern}", narrow), torch.randn(B, 83, WIDTH)
    expected = attention.attend_self(x, causal=causal, need_weights=True).context
    attention.pattern.fused_from = attention.pattern.blocks_from = 1
    torch.testing.assert_close(attention.attend_self(x, causal=causal).context, expected, **EXACT)
    if causal:
        past, steps = None, []
        for step in x.split(1, 1):
            attended = attention.attend_self(step, past=past, causal=True)
            past = attended.memory
            steps.append(attended.context)
        torch.testing.assert_close(torch.cat(steps, 1), expected, **EXACT)


@pytest.mark.parametrize("causal", [True, False])
def test_a_token_that_is_hidden_forgets_nothing(causal: bool) -> None:
    attention, x = forgetting(), torch.randn(1, 6, WIDTH)
    kept = torch.tensor([0, 1, 3, 5])
    mask = torch.zeros(1, 6, dtype=torch.bool).index_fill(1, kept, True)
    expected = attention.attend_self(x[:, kept], causal=causal).context
    torch.testing.assert_close(attention.attend_self(x, mask, causal=causal).context[:, kept], expected, **EXACT)
    for_each = mask[:, None].expand(-1, 6, -1)
    torch.testing.assert_close(attention.attend_self(x, for_each, causal=causal).context[:, kept], expected, **EXACT)
    memory = attention.prepare(x, mask=mask)
    crossed = attention(x[:, -1:], memory, start=9, causal=False).context
    alone = attention(x[:, -1:], attention.prepare(x[:, kept]), start=9, causal=False).context
    torch.testing.assert_close(crossed, alone, **EXACT)


def test_hidden_tokens_forget_nothing_in_steps_either() -> None:
    attention, x = forgetting(), torch.randn(B, N, WIDTH)
    mask = torch.rand(B, N) < 0.6
    mask[:, 0] = True
    expected, past, steps = attention.attend_self(x, mask, causal=True).context, None, []
    for step, seen in zip(x.split(1, 1), mask.split(1, 1), strict=True):
        attended = attention.attend_self(step, seen, past=past, causal=True)
        past = attended.memory
        steps.append(attended.context)
    torch.testing.assert_close(torch.cat(steps, 1), expected, **EXACT)


def test_in_half_precision_the_sums_stay_in_float32() -> None:
    attention = forgetting().bfloat16()
    x = torch.randn(1, 700, WIDTH).bfloat16()
    _, sums = attention.prepare(x).keys
    assert sums.dtype == torch.float32
    exact = torch.nn.functional.logsigmoid(attention.score.gate(x).double()).cumsum(1).mT[..., None]
    assert ((sums - exact).abs() <= 1e-3 * exact.abs()).all()


def test_a_transformer_has_gates_in_each_layer() -> None:
    model = model_of("model=transformer", "attention=forgetting", "position=none")
    gates = [layer.attention.score.gate for layer in model.encoder.layers]
    gates += [layer.self_attention.score.gate for layer in model.decoder.layers]
    assert len({id(gate) for gate in gates}) == len(gates)


@pytest.mark.parametrize("gate", [0.0, 1.0, -0.5])
def test_a_gate_that_is_none_is_refused(gate: float) -> None:
    with pytest.raises(
        UserError, match=rf"^attention\.score\.initial_gate={gate}.* must be between 0\.000001 and 0\.999999; use 0\.9$"
    ):
        forgetting(f"attention.score.initial_gate={gate}")


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_a_prefix_of_the_source_is_read_where_it_has_the_token_of_the_query(ratio: float) -> None:
    options = ["attention/pattern=wait_k", "attention.pattern.k=2", f"attention.pattern.length_ratio={ratio}"]
    if ratio < 1:
        with pytest.raises(UserError, match=r"^ForgettingScore reads the source token at the position of the query"):
            forgetting(*options)
    else:
        forgetting(*options)


def test_it_is_no_part_of_another_score() -> None:
    with pytest.raises(
        UserError, match=r"^soft_cap gives its score no query positions, which ForgettingScore needs; use it alone$"
    ):
        forgetting("attention/score=soft_cap", "attention/score@attention.score.score=forgetting")
    with pytest.raises(
        UserError, match=r"^a mixture gives its scores no query positions, which ForgettingScore needs; take"
    ):
        forgetting("attention/score=mixture", "attention/score@attention.score.scores.first=forgetting")
