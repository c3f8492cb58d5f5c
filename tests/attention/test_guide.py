"""The loss of links: against float64 formulas for each normalizer, in every decoder, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention.layers import layer
from attention.normalizer_formulas import adaptive_entmax, entmax15, sparsemax, stick_breaking
from attention.test_normalizers import normalizer_of
from configs import attention_of, model_of, options
from torch import Tensor

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.usefixtures("double")

KEYS = 5
GUIDED = {"softmax", "softmax_one", "sink", "hard", "hard_gumbel", "sparsemax", "entmax15", "monotonic"}
GUIDED |= {"adaptive_entmax", "scalable_softmax", "stick_breaking"}
LINKED = [[0], [1, 3], [0, 2, 4], []]  # the linked keys of each row


def entmax_loss(scores: Tensor, target: Tensor, weights: Tensor, alpha: float) -> Tensor:
    """The distance of the regularised maximum from its value at the target: Peters et al. 2019, definition 1."""

    def omega(p: Tensor) -> Tensor:
        return (p**alpha - p).sum() / (alpha * (alpha - 1))

    return (weights @ scores - omega(weights)) - (target @ scores - omega(target))


def expected(option: str, scores: Tensor, target: Tensor, normalizer: Any) -> Tensor:
    """The loss of one row of the scores that may be seen."""
    if option == "sparsemax":  # Martins and Astudillo 2016, eq. 17, for any target
        weights = sparsemax(scores.detach())
        threshold = (scores[weights > 0].sum() - 1) / (weights > 0).sum()
        inside = (scores[weights > 0] ** 2 - threshold**2).sum()
        return -target @ scores + inside / 2 + target.square().sum() / 2
    if option == "entmax15":
        return entmax_loss(scores, target, entmax15(scores.detach()), 1.5)
    if option == "adaptive_entmax":
        alpha = 1 + normalizer.logits[0].detach().sigmoid()
        return entmax_loss(scores, target, adaptive_entmax(scores.detach(), alpha), alpha.item())
    if option == "stick_breaking":
        return -(target * stick_breaking(scores).log()).sum()
    if option == "scalable_softmax":
        scores = normalizer.scales[0].detach() * math.log(len(scores)) * scores
    more = {"softmax_one": torch.zeros(1), "sink": normalizer.logits[:1] if option == "sink" else None}.get(option)
    total = scores.exp().sum() + (0 if more is None else more.exp().sum())
    return -(target * (scores - total.log())).sum()


@pytest.mark.parametrize("option", sorted(GUIDED - {"monotonic"}))
def test_the_loss_and_its_gradient_are_those_of_the_formula(option: str) -> None:
    normalizer = normalizer_of(option).train()
    scores = torch.randn(1, 1, len(LINKED), KEYS, requires_grad=True)
    allowed = torch.ones(1, 1, len(LINKED), KEYS, dtype=torch.bool)
    allowed[0, 0, 2, 4] = False  # a link to a hidden key counts as none
    links = torch.zeros(1, len(LINKED), KEYS, dtype=torch.bool)
    for row, linked in enumerate(LINKED):
        links[0, row, linked] = True
    loss = Guide(0, 0, links).loss(normalizer, scores, allowed, normalizer(scores, allowed).weights)
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    for row in range(len(LINKED)):
        seen, found = allowed[0, 0, row], torch.zeros(KEYS)
        if not LINKED[row]:
            assert loss[0, row] == 0
            assert not gradient[0, 0, row].any()
            continue
        own = scores[0, 0, row].detach()[seen].requires_grad_()
        target = links[0, row][seen].double()
        value = expected(option, own, target / target.sum(), normalizer)
        torch.testing.assert_close(loss[0, row], value, rtol=0, atol=1e-12)
        found[seen] = torch.autograd.grad(value, own)[0]
        torch.testing.assert_close(gradient[0, 0, row], found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("option", ["sparsemax", "entmax15", "adaptive_entmax"])
def test_a_sparse_loss_is_0_where_the_weights_are_the_target(option: str) -> None:
    normalizer = normalizer_of(option)
    scores = torch.tensor([[[[0.0, 9.0, 9.0, 1.0]]]])
    links = torch.tensor([[[False, True, True, False]]])
    loss = Guide(0, 0, links).loss(normalizer, scores, None, normalizer(scores, None).weights)
    torch.testing.assert_close(loss, torch.zeros(1, 1), rtol=0, atol=1e-14)


def test_a_link_counts_where_the_guided_head_sees_the_key_whatever_the_others_see() -> None:
    normalizer, scores = normalizer_of("softmax"), torch.randn(1, 2, 3, KEYS)
    allowed, links = torch.ones(1, 2, 3, KEYS, dtype=torch.bool), torch.zeros(1, 3, KEYS, dtype=torch.bool)
    allowed[0, 0, 1, 2] = allowed[0, 1, 0, 2] = False
    links[0, :, 2] = links[0, 2, 4] = True
    weights = normalizer(scores, allowed).weights
    for head, hidden in ((0, 1), (1, 0)):
        loss = Guide(0, head, links).loss(normalizer, scores, allowed, weights)
        expected = -weights[0, head, :, 2].log()
        expected[2] = -weights[0, head, 2, [2, 4]].log().mean()
        torch.testing.assert_close(loss[0], expected.masked_fill(torch.arange(3) == hidden, 0.0))


def test_the_loss_of_half_precision_is_of_float32() -> None:
    scores, links = torch.randn(1, 1, 3, KEYS).bfloat16(), torch.ones(1, 3, KEYS, dtype=torch.bool)
    normalizer = normalizer_of("softmax")
    assert Guide(0, 0, links).loss(normalizer, scores, None, scores.softmax(-1)).dtype == torch.float32


@pytest.mark.parametrize("option", options("attention/normalizer"))
def test_a_normalizer_without_such_probabilities_is_refused(option: str) -> None:
    attention = layer("multihead", f"attention/normalizer={option}")
    if option in GUIDED:
        attention.check_guide(7)
    else:
        with pytest.raises(UserError, match=r"^guided_alignment needs weights that are probabilities .* of \w+ are"):
            attention.check_guide(7)


@pytest.mark.parametrize("preset", ["differential", "talking_heads", "local_p", "linear", "delta"])
def test_an_attention_whose_weights_are_no_such_probabilities_is_refused(preset: str) -> None:
    with pytest.raises(UserError, match=r"guided_alignment"):
        layer(preset).check_guide(0)


def test_a_head_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match=r"^guided_alignment.head=8 is no head of a layer with 8; give one from 0 to 7"):
        layer("multihead").check_guide(8)


SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 3, 0, 0, 0]])
MASK = SOURCE != 0
TARGET = torch.tensor([[2, 4, 5, 6, 7, 8], [2, 9, 10, 0, 0, 0], [2, 11, 0, 0, 0, 0]])
DECODERS = dict.fromkeys(options("decoder"), "multihead")


@pytest.mark.parametrize(
    ("decoder", "attention"),
    [*DECODERS.items(), *(("rnn", a) for a in ("monotonic", "coverage", "location_sensitive"))],
)
def test_a_guide_gives_the_loss_of_the_weights_and_changes_nothing_else(decoder: str, attention: str) -> None:
    kind = decoder.partition("_")[0]
    heads = ["attention.num_heads=2", "cross_attention.num_heads=2"] if attention == "multihead" else []
    overrides = [f"encoder@model.encoder={kind}", f"decoder@model.decoder={decoder}", f"attention={attention}"]
    model = model_of(*overrides, "model.embedding_dim=14", *heads).eval()
    layers = model.decoder.source_attentions
    links = torch.zeros(3, 6, 5, dtype=torch.bool)
    links[0, 0, 2] = links[0, 3, [1, 4]] = links[1, 1, 0] = True
    plain = model(SOURCE, MASK, TARGET, need_weights=True)
    assert plain.alignment_loss is None
    for number in range(len(layers)):
        guide = Guide(number, int(attention == "multihead"), links)
        decoded = model(SOURCE, MASK, TARGET, guide=guide)
        assert not decoded.weights
        torch.testing.assert_close(decoded.hidden, plain.hidden, rtol=0, atol=1e-12)
        weights = plain.weights[f"cross/{guide.layer}"][:, guide.head]
        if attention == "monotonic":  # `weights` of the output are divided by their sum
            attended = model(SOURCE, MASK, TARGET, guide=guide._replace(links=links & False))
            assert not attended.alignment_loss.any()
            return
        logs = weights.clamp(min=1e-300).log()
        own = torch.zeros(3, 6)
        own[0, 0], own[0, 3], own[1, 1] = -logs[0, 0, 2], -(logs[0, 3, 1] + logs[0, 3, 4]) / 2, -logs[1, 1, 0]
        torch.testing.assert_close(decoded.alignment_loss, own, rtol=0, atol=1e-10)


def test_the_loss_of_monotonic_attention_is_that_of_the_probabilities_of_its_stops() -> None:
    attention = attention_of("monotonic", query_dim=6, key_dim=6, value_dim=6).eval()
    query, keys = torch.randn(2, 4, 6), torch.randn(2, 5, 6)
    links = torch.zeros(2, 4, 5, dtype=torch.bool)
    links[:, 1, 2] = links[1, 3, [0, 4]] = True
    found = attention(query, attention.prepare(keys), need_weights=True, guide=Guide(0, 0, links))
    logs = found.weights[:, 0].log()
    torch.testing.assert_close(found.alignment_loss[:, 1], -logs[:, 1, 2])
    torch.testing.assert_close(found.alignment_loss[1, 3], -(logs[1, 3, 0] + logs[1, 3, 4]) / 2)
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    padded = attention(query, attention.prepare(keys, mask=mask), guide=Guide(0, 0, links & mask[:, None]))
    torch.testing.assert_close(padded.alignment_loss[0], found.alignment_loss[0])
    assert padded.alignment_loss.isfinite().all()


def test_only_the_guided_layer_computes_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    from seq2seq_attn.attention.backend import dense

    requests: list[Any] = []
    attend = dense.attend
    monkeypatch.setattr(dense, "attend", lambda parts, request: requests.append(request) or attend(parts, request))
    model = model_of("model=transformer", "model.encoder.num_layers=2", "model.decoder.num_layers=2").eval()
    model(SOURCE, MASK, TARGET)
    assert not requests
    model(SOURCE, MASK, TARGET, guide=Guide(0, 0, torch.zeros(3, 6, 5, dtype=torch.bool)))
    assert len(requests) == 1
