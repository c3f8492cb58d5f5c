"""Mixes and gates: numbers by hand, laws, and what they do to the fast ways."""

from __future__ import annotations

import math

import pytest
import torch
from attention.layers import by_blocks, self_layer
from configs import attention_of, built, composed
from torch import Tensor, nn

from seq2seq_attn.attention.build import build_attention
from seq2seq_attn.attention.gate.attention_on_attention import AttentionOnAttentionGate
from seq2seq_attn.attention.gate.sigmoid import SigmoidGate
from seq2seq_attn.attention.mix.differential import DifferentialMix
from seq2seq_attn.attention.mix.talking_heads import TalkingHeadsMix

pytestmark = pytest.mark.usefixtures("double")

DIM, N = 24, 37
MASK = torch.arange(N) < torch.tensor([[37], [20], [0]])


def test_talking_heads_by_hand() -> None:
    mix = TalkingHeadsMix(num_heads=2)
    mix.score_matrix.data = torch.tensor([[1.0, 0.5], [0.0, 1.0]])
    mix.weight_matrix.data = torch.tensor([[1.0, 0.0], [-1.0, 2.0]])
    scores = torch.tensor([[2.0, 4.0], [1.0, 3.0]]).view(1, 2, 1, 2)
    assert mix.before(scores).flatten().tolist() == [2.0, 4.0, 2.0, 5.0]  # the second: half the first, plus the second
    weights = torch.tensor([[0.75, 0.25], [0.5, 0.5]]).view(1, 2, 1, 2)
    assert mix.after(weights).flatten().tolist() == [0.25, -0.25, 1.0, 1.0]


def test_talking_heads_start_as_multi_head_attention() -> None:
    layer, x = build_attention("talking_heads", dim=DIM, num_heads=4), torch.randn(3, N, DIM)
    plain = build_attention("multihead", dim=DIM, num_heads=4)
    assert plain.load_state_dict(layer.state_dict(), strict=False).missing_keys == []
    torch.testing.assert_close(layer(x, MASK).context[MASK], plain(x, MASK).context[MASK], rtol=0, atol=1e-12)


def test_differential_weights_by_hand() -> None:
    # lambda = exp(ln 2) - exp(0) + 0.2 = 1.2 in layer 0; 0.8 - 1.2 * 0.5 = 0.2 and 0.2 - 1.2 * 0.5 = -0.4
    mix = DifferentialMix(head_dim=1, value_head_dim=2, layer=0)
    mix.lambda_query.data = torch.tensor([[math.log(2)], [0.0]])
    mix.lambda_key.data = torch.tensor([[1.0], [1.0]])
    weights = torch.tensor([[0.8, 0.2], [0.5, 0.5]]).view(1, 2, 1, 2)
    torch.testing.assert_close(mix.after(weights).flatten(), torch.tensor([0.2, -0.4]))
    # (3, 4) has the root mean square sqrt(12.5); times 1 - 0.2
    context = mix.context(torch.tensor([3.0, 4.0]).view(1, 1, 1, 2)).flatten()
    torch.testing.assert_close(context, 0.8 * torch.tensor([3.0, 4.0]) / 12.5**0.5, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("layer", "expected"), [(0, 0.2), (1, 0.355509), (11, 0.777870)])
def test_the_first_lambda_of_each_layer(layer: int, expected: float) -> None:
    mix = build_attention("differential", dim=DIM, num_heads=4, layer=layer).attention.mix
    assert mix.lambda_init == pytest.approx(expected, abs=1e-6)


def test_two_equal_sets_of_weights_leave_what_lambda_leaves() -> None:
    layer, x = build_attention("differential", dim=DIM, num_heads=2), torch.randn(2, 5, DIM)
    for projection in layer.attention.score.projections:
        first, _ = projection.weight.data.chunk(2)
        projection.weight.data = torch.cat([first, first])
    mix = layer.attention.mix
    nn.init.zeros_(mix.lambda_query)
    weights = layer(x, need_weights=True).weights
    torch.testing.assert_close(weights.sum(-1), torch.full((2, 2, 5), 0.8))  # 1 - lambda, which is 1 - 1 + 0.2


def test_both_sets_of_weights_of_a_head_have_the_slope_of_their_head() -> None:
    relative = built(composed("position=alibi").position)(dim=DIM).relative
    sizes = {"query_dim": DIM, "key_dim": DIM, "value_dim": DIM}
    layer = attention_of("differential", "attention.num_heads=2", **sizes, relative=relative)
    for projection in layer.score.projections:
        nn.init.zeros_(projection.weight)
    nn.init.zeros_(layer.mix.lambda_query)
    weights = layer.attend_self(torch.randn(1, 3, DIM), need_weights=True).weights
    distance = (torch.arange(3) - torch.arange(3)[:, None]).abs()
    for head, slope in enumerate((2**-4, 2**-8)):
        expected = 0.8 * (-slope * distance).softmax(-1)  # 1 - lambda
        torch.testing.assert_close(weights[0, head], expected)


def test_differential_contexts_are_normalized_under_autocast_without_a_warning() -> None:
    layer, x = build_attention("differential", dim=DIM, num_heads=2).float(), torch.randn(2, 5, DIM).float()
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x).context
    torch.testing.assert_close(found.float(), layer(x).context, rtol=0, atol=0.05)


def test_a_sigmoid_gate_by_hand() -> None:
    gate = SigmoidGate(query_dim=1, context_dim=4, num_heads=2, per_head=True)
    gate.project.weight.data = torch.tensor([[0.0], [math.log(3)]])
    context = torch.tensor([[[2.0, 4.0, 8.0, 16.0]]])
    found = gate(torch.tensor([[[1.0]]]), context)
    torch.testing.assert_close(found, torch.tensor([[[1.0, 2.0, 6.0, 12.0]]]))  # 1/2, and 3 / (1 + 3)
    assert SigmoidGate(query_dim=1, context_dim=4, num_heads=2, per_head=False).project.weight.shape == (4, 1)


def test_attention_on_attention_by_hand() -> None:
    gate = AttentionOnAttentionGate(query_dim=1, context_dim=1)
    gate.project.weight.data = torch.tensor([[2.0, 1.0], [0.0, math.log(3)]])  # of the information, of its gate
    gate.project.bias.data = torch.tensor([1.0, 0.0])
    found = gate(torch.tensor([[[1.0], [1.0]]]), torch.tensor([[[3.0], [0.0]]]))
    torch.testing.assert_close(found, torch.tensor([[[6.0], [0.0]]]))  # (2 * 3 + 1 + 1) * 3/4; nothing was seen


OTHERS = [
    ["mix=talking_heads"],
    ["mix=differential"],
    ["mix=talking_heads", "normalizer=sparsemax", "num_kv_heads=2"],
    ["mix=differential", "normalizer=entmax15"],
    ["num_kv_heads=2", "normalizer=entmax15"],
    ["num_kv_heads=2", "gate=sigmoid"],
]


@pytest.mark.parametrize("pattern", ["local", "atrous", "sparse"])
@pytest.mark.parametrize("overrides", OTHERS, ids=" ".join)
def test_blocks_and_steps_equal_all_pairs(overrides: list[str], pattern: str) -> None:
    layer = by_blocks(build_attention(pattern, "pattern.k=3", *overrides, dim=DIM, num_heads=4)).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.4)
    x, past, steps = torch.randn(3, N, DIM, requires_grad=True), None, []
    upstream = torch.randn(3, N, DIM) * MASK[..., None]
    for causal in (False, True):
        found, expected = (layer(x, MASK, causal=causal, need_weights=need).context for need in (False, True))
        torch.testing.assert_close(found[MASK], expected[MASK], rtol=0, atol=1e-12)
        inputs = [x, *layer.parameters()]
        for ours, theirs in zip(*(gradients(c, upstream, inputs) for c in (found, expected)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    whole = layer(x, causal=True).context
    with torch.no_grad():
        for t in range(N):
            found = layer(x[:, t : t + 1], past=past, causal=True)
            past = found.memory
            steps.append(found.context)
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=0, atol=1e-12)


def gradients(context: Tensor, upstream: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad((context * upstream).sum(), inputs)


def test_a_key_that_one_head_hides_stays_hidden_when_heads_are_mixed() -> None:
    layer = build_attention("lsh", "mix=talking_heads", "pattern.num_rounds=1", dim=DIM, num_heads=8)
    attention, x = layer.attention, torch.randn(2, 6, DIM)
    nn.init.ones_(attention.mix.weight_matrix)
    query, keys = (prepare(x)[0] for prepare in (attention.score.prepare_query, attention.score.prepare_keys))
    chosen = attention.pattern.select(query, keys, None, torch.arange(6))
    assert not torch.equal(chosen[:, 0], chosen[:, 1])
    weights = layer(x, need_weights=True).weights
    assert (weights[~chosen] == 0).all()
    assert (weights[chosen] != 0).all()


@pytest.mark.parametrize(
    ("preset", "overrides", "expected"),
    [
        ("multihead", [], True),
        ("gated", [], True),
        ("multihead", ["attention/mix=talking_heads"], False),
        ("differential", [], False),
        ("sigmoid", [], False),
        ("local_p", [], False),
    ],
)
def test_an_attention_says_whether_its_weights_sum_to_one(preset: str, overrides: list[str], expected: bool) -> None:
    attention = attention_of(preset, *overrides, query_dim=DIM, key_dim=DIM, value_dim=DIM)
    assert attention.sums_to_one == expected


def test_a_gate_reads_the_query_of_scores_that_do_not() -> None:
    sizes = {"query_dim": DIM, "key_dim": DIM, "value_dim": DIM}
    assert not attention_of("none", **sizes).reads_query
    assert attention_of("none", "attention/gate=sigmoid", **sizes).reads_query


def test_no_mix_and_no_gate_leave_the_parameters_of_a_preset() -> None:
    names = [name for name, _ in self_layer("multihead").attention.named_parameters()]
    assert names == [
        "score.project_query.weight",
        "score.project_key.weight",
        "project_values.weight",
        "project_output.0.weight",
    ]


@pytest.mark.parametrize("slot", ["attention", "self_attention", "encoder_attention", "cross_attention"])
def test_a_mix_and_a_gate_are_chosen_in_each_slot_without_a_plus(slot: str) -> None:
    at, own = ("", "attention") if slot == "attention" else (f"@{slot}", f"attention@{slot}")
    parts = [f"attention/{p}{at and f'{at}.{p}'}={c}" for p, c in (("mix", "differential"), ("gate", "sigmoid"))]
    model = built_model(f"{own}=multihead", *parts)
    attentions = [model.encoder.layers[0].attention, *(getattr(model.decoder.layers[0], s) for s in SLOTS)]
    found = [a.mix is not None and a.gate is not None for a in attentions]
    assert (
        found
        == {
            "attention": [True, True, False],
            "self_attention": [True, True, False],
            "encoder_attention": [True, False, False],
            "cross_attention": [False, False, True],
        }[slot]
    )


SLOTS = ("self_attention", "cross_attention")


def built_model(*overrides: str) -> nn.Module:
    sizes = ["model.source_vocab_size=7", "model.target_vocab_size=7", "model.embedding_dim=8"]
    sizes += [f"model.{side}.{option}" for side in ("encoder", "decoder") for option in ("dim=8", "num_layers=1")]
    return built(composed("model=transformer", *sizes, *overrides).model)
