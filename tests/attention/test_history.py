"""Attention with a memory of the steps before: in parts, among hypotheses, in a search; the walks of `monotonic`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.formulas import attend
from attention.history_formulas import walk
from configs import attention_of, attentions_at_once, built, composed, model_of, options
from torch import Tensor

from seq2seq_attn.attention import Attention
from seq2seq_attn.attention.build import build_attention
from seq2seq_attn.attention.history import History
from seq2seq_attn.attention.normalizer.monotonic import MonotonicNormalizer, linear_recurrence
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.ensemble import Ensemble
from seq2seq_attn.search.search import TargetVocabulary

READING = [preset for preset in options("attention") if preset not in attentions_at_once()]
DECODERS = [name for name in options("decoder") if name.startswith("rnn")]
B, T, S = 2, 5, 7
MASK = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
PAD, BOS, EOS = 0, 2, 3
SOURCE = torch.tensor([[4, 5, 6, 7, EOS], [8, 9, EOS, PAD, PAD], [10, EOS, PAD, PAD, PAD]])
# A score and a normalizer that both read their history, and options that change a formula.
VARIANTS = [
    ("coverage", "attention/normalizer=monotonic"),
    ("location_sensitive", "attention/normalizer=monotonic"),
    ("coverage", "attention.score.max_fertility=null"),
    ("coverage", "attention/normalizer=sparsemax"),
    ("location_sensitive", "attention.score.kernel_size=1"),
    ("location_sensitive", "attention.score.kernel_size=11"),
    ("monotonic", "attention/score=dot"),
    ("monotonic", "attention/pattern=local"),
]


def layer(preset: str, *overrides: str, heads: int = 3) -> tuple[Any, Tensor, Tensor]:
    overrides = (f"attention.num_heads={heads}", *overrides)
    attention = attention_of(preset, *overrides, query_dim=6, key_dim=6, value_dim=9).eval()
    for parameter in attention.parameters():  # none at its first value, which may be 0
        torch.nn.init.normal_(parameter)
    return attention, torch.randn(B, T, 6), attention.prepare(torch.randn(B, S, 6), torch.randn(B, S, 9), MASK)


def close(found: Tensor, expected: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def test_there_are_attentions_that_read_their_history() -> None:
    assert {"coverage", "location_sensitive", "monotonic"} <= set(READING)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("size", [-10.0, -20.0, -60.0, -800.0])
def test_a_key_of_almost_no_fertility_makes_nothing_infinite(size: float, dtype: torch.dtype) -> None:
    attention = attention_of("coverage", query_dim=4, key_dim=4, value_dim=4).to(dtype)
    torch.nn.init.ones_(attention.score.fertility.weight)
    keys = torch.randn(1, 3, 4)
    keys[0, 0] = size / 4
    keys = keys.to(dtype).requires_grad_()
    context = attention(torch.randn(1, 4, 4).to(dtype), attention.prepare(keys)).context
    context.float().sum().backward()
    assert context.isfinite().all()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (keys, *attention.parameters()))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("preset", "override"), VARIANTS)
def test_variants_equal_their_formula_values_and_gradients(preset: str, override: str) -> None:
    attention, query, _ = layer(preset, override)
    keys, values = torch.randn(B, S, 6), torch.randn(B, S, 9)
    inputs = [x.requires_grad_() for x in (query, keys, values)] + list(attention.parameters())
    expected, weights = attend(attention, query, keys, values, MASK, causal=False)
    found = attention(query, attention.prepare(keys, values, MASK), need_weights=True)
    close(found.context, expected)
    close(found.weights, weights)
    upstream = torch.randn_like(expected)
    ours, theirs = (
        torch.autograd.grad((context * upstream).sum(), inputs, allow_unused=True)
        for context in (found.context, expected)
    )
    for own, other in zip(ours, theirs, strict=True):
        close(torch.zeros(()) if own is None else own, torch.zeros(()) if other is None else other, 1e-11)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("preset", READING)
def test_steps_that_hand_on_their_history_equal_all_at_once(preset: str) -> None:
    attention, query, memory = layer(preset)
    expected = attention(query, memory, need_weights=True)
    first = attention(query[:, :2], memory, history=attention.first_history(memory))
    assert first.weights is None
    second = attention(query[:, 2:], memory, start=2, history=first.history)
    close(torch.cat([first.context, second.context], 1), expected.context)
    again = attention(query[:, 2:], memory, start=2, history=first.history)  # a history is a value
    assert torch.equal(again.context, second.context)
    last = attention(query[:, :0], memory, history=first.history)  # no step changes nothing
    for before, after in zip(vars(first.history).values(), vars(last.history).values(), strict=True):
        assert before is after or torch.equal(before, after)
    for history in (second.history.score, second.history.normalizer):
        assert history is None or (history[1, ..., 4:] == 0).all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("preset", READING)
def test_hypotheses_that_share_a_memory_have_their_own_history(preset: str) -> None:
    attention, _, memory = layer(preset)
    rows = torch.tensor([0, 0, 0, 1, 1, 1])
    shared, own = attention.first_history(memory).select(rows), attention.first_history(memory.select(rows))
    for step in range(4):
        query = torch.randn(6, 1, 6)
        ours = attention(query, memory, start=step, history=shared, need_weights=True)
        theirs = attention(query, memory.select(rows), start=step, history=own, need_weights=True)
        close(ours.weights, theirs.weights)
        close(ours.context, theirs.context)
        chosen = torch.tensor([2, 0, 0, 5, 4, 5])  # as a beam chooses
        shared, own = ours.history.select(chosen), theirs.history.select(chosen)


@pytest.mark.usefixtures("double")
def test_weights_after_dropout_are_not_remembered() -> None:
    attention, query, memory = layer("coverage")
    expected = attention(query, memory).history.score
    attention.dropout = 0.5
    close(attention.train()(query[:, :1], memory).history.score, attention.eval()(query[:, :1], memory).history.score)
    close(expected.sum(-1), torch.full((B, 3, 1), float(T)))


# What refuses them.


@pytest.mark.parametrize("preset", READING)
def test_a_whole_sentence_at_once_is_refused(preset: str) -> None:
    sentence = r"the steps before, but this model attends from a whole sentence at once; use model=rnn"
    with pytest.raises(UserError, match=sentence):
        build_attention(preset, dim=16)
    for overrides in (
        ("encoder@model.encoder=conv", "decoder@model.decoder=conv", f"attention={preset}"),
        ("encoder@model.encoder=transformer", "decoder@model.decoder=transformer", f"attention={preset}"),
        ("model=transformer", f"attention@cross_attention={preset}"),
    ):
        with pytest.raises(Exception, match=sentence):
            model_of(*overrides)


def test_a_score_within_another_is_refused() -> None:
    child = "+attention/score@attention.score.scores.own=coverage"
    with pytest.raises(UserError, match="the weights of the steps before, which MixtureScore does not"):
        attention_of("synthesizer_random_vanilla", child, query_dim=6, key_dim=6, value_dim=6)


@pytest.mark.parametrize(
    ("preset", "override", "match"),
    [
        ("coverage", "score.max_fertility=0.0", "max_fertility=0.0 is not above 0"),
        ("location_sensitive", "score.kernel_size=4", "and the kernel odd"),
        ("location_sensitive", "score.num_filters=0", "num_filters=0"),
        ("monotonic", "normalizer.noise=-1.0", "noise=-1.0 is a standard deviation"),
    ],
)
def test_a_value_out_of_range_is_refused(preset: str, override: str, match: str) -> None:
    with pytest.raises(UserError, match=match):
        attention_of(preset, f"attention.{override}", query_dim=6, key_dim=6, value_dim=6)


# monotonic


def normalizer(**options: float) -> Any:
    return MonotonicNormalizer(**{"offset": 0.0, "noise": 0.0} | options).eval()


@pytest.mark.usefixtures("double")
def test_a_search_stops_where_the_algorithm_of_the_paper_stops() -> None:
    monotonic, scores = normalizer(offset=-0.5), torch.randn(3, 2, 9, 6) + 0.3  # sentences, heads, steps, keys
    allowed = torch.rand(3, 1, 6) < 0.8
    history, never = monotonic.first_history(torch.zeros(3, 2, 6)), 0
    stopped: dict[tuple[int, int], int | None] = {(b, h): 0 for b in range(3) for h in range(2)}
    for step in range(9):
        weights = monotonic(scores[:, :, step], allowed, history, in_search=True).weights
        assert ((weights == 0) | (weights == 1)).all()
        for (b, h), position in stopped.items():
            chosen = {j: bool(scores[b, h, step, j] > 0.5) for j in range(6) if allowed[b, 0, j]}
            stopped[b, h] = walk(chosen, position)
            assert weights[b, h].nonzero().flatten().tolist() == ([] if stopped[b, h] is None else [stopped[b, h]])
        history = weights
        never += sum(position is None for position in stopped.values())
    assert 0 < never < 54  # some walks pass the last key, some do not


@pytest.mark.usefixtures("double")
def test_the_weights_are_the_expectation_of_sampled_walks() -> None:
    monotonic, draws = normalizer(), 40_000
    scores = torch.randn(4, 5)  # steps, keys
    expected = walks = monotonic.first_history(torch.zeros(1, 5))
    walks = walks.expand(draws, -1)
    for step in range(4):
        expected = monotonic(scores[step : step + 1], None, expected).weights
        drawn = torch.rand(draws, 5) < scores[step].sigmoid()
        walks = monotonic(drawn.double() - 0.5, None, walks, in_search=True).weights
        close(walks.mean(0, keepdim=True), expected, atol=5 * 0.5 / draws**0.5)  # five standard errors


@pytest.mark.usefixtures("double")
def test_certain_stops_make_the_expectation_a_search() -> None:
    monotonic, scores = normalizer(), 1000.0 * torch.randn(3, 8, 6).sign()
    soft = hard = monotonic.first_history(torch.zeros(3, 6))
    for step in range(8):
        soft = monotonic(scores[:, step], None, soft).weights
        hard = monotonic(scores[:, step], None, hard, in_search=True).weights
        assert torch.equal(soft, hard)


@pytest.mark.parametrize("size", [3.0, 80.0])
def test_float32_is_as_good_as_float64_for_long_sentences_and_large_scores(size: float) -> None:
    generator = torch.Generator().manual_seed(4)
    scores = size * torch.randn(20, 2, 301, generator=generator) - size
    found = {}
    for dtype in (torch.float32, torch.float64):
        monotonic, given = normalizer(), scores.detach().to(dtype, copy=True).requires_grad_()
        weights = monotonic.first_history(torch.zeros(2, 301, dtype=dtype))
        steps = []
        for step in given:
            weights = monotonic(step, None, weights).weights
            steps.append(weights)
        (torch.stack(steps) * torch.arange(301)).sum().backward()
        assert given.grad.isfinite().all()
        found[dtype] = torch.stack(steps).double()
    close(found[torch.float32], found[torch.float64], atol=2e-6)
    assert (found[torch.float32].sum(-1) <= 1 + 1e-5).all()


def test_the_recurrence_is_that_of_a_loop() -> None:
    factors, terms = torch.rand(3, 13), torch.rand(3, 13)
    x, steps = torch.zeros(3), []
    for j in range(13):
        x = factors[:, j] * x + terms[:, j]
        steps.append(x)
    torch.testing.assert_close(linear_recurrence(factors, terms), torch.stack(steps, 1))


def test_noise_is_added_in_training_only() -> None:
    monotonic, scores = normalizer(noise=1.0), torch.randn(3, 6)
    assert torch.equal(monotonic(scores, None).weights, monotonic(scores, None).weights)
    monotonic.train()
    assert not torch.equal(monotonic(scores, None).weights, monotonic(scores, None).weights)
    logits = normalizer(noise=0.25).train()(torch.zeros(4001, 1), None).weights.logit()
    assert (logits.mean().item(), logits.std().item()) == pytest.approx((0.0, 0.25), abs=0.02)


# In models.


def decoded(model: Any) -> tuple[Tensor, list[int], float]:
    """Return the weights of a greedy search for the first sentence, its tokens and their log-probability."""
    search = built(composed("search=greedy", "search.limits.max_length=6").search)
    (best, *_), *_ = search(model, SOURCE, SOURCE != PAD, TargetVocabulary(BOS, EOS, (PAD, BOS), list))
    state, rows = model.encode(SOURCE, SOURCE != PAD), []
    for token in [BOS, *best.token_ids]:
        step = model.step(torch.full((3,), token), state, need_weights=True)
        state = step.state
        rows.append(step.attention[0])
    return torch.stack(rows), best.token_ids, best.log_prob


def forced(model: Any, token_ids: list[int]) -> tuple[Tensor, float]:
    """Return the weights along a given target of the first sentence, and its log-probability."""
    read = torch.tensor([[BOS, *token_ids]]).expand(3, -1)
    found = model(SOURCE, SOURCE != PAD, read, need_weights=True)
    log_probs = model.logits(found.hidden)[0].log_softmax(-1)
    return found.weights["cross/0"][0, 0], float(sum(log_probs[i, token] for i, token in enumerate([*token_ids, EOS])))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("preset", READING)
def test_a_search_and_its_forced_pass_agree_on_weights_and_score(preset: str, decoder: str) -> None:
    certain = ["attention.normalizer.offset=1000.0"] if preset == "monotonic" else []  # where both are the same
    model = model_of(f"decoder@model.decoder={decoder}", f"attention={preset}", *certain).eval()
    model.output.bias.data[EOS] = -10.0  # or an untrained model may end at once
    with torch.inference_mode():
        weights, token_ids, log_prob = decoded(model)
        expected, expected_log_prob = forced(model, token_ids)
    close(weights, expected)
    assert len(token_ids) > 3
    assert abs(log_prob - expected_log_prob) < 1e-9


def test_monotonic_attends_to_one_word_in_a_search_and_to_several_along_a_target() -> None:
    models = [model_of("attention=monotonic", "attention.normalizer.offset=1.0").eval() for _ in range(2)]
    for model in (models[0], Ensemble(models)):
        state = model.encode(SOURCE, SOURCE != PAD)
        step = model.step(torch.full((3,), BOS), state, need_weights=True)
        assert ((step.attention == 0) | (step.attention == 1)).all()
    soft = models[0](SOURCE, SOURCE != PAD, torch.full((3, 2), BOS), need_weights=True).weights["cross/0"]
    assert ((soft > 0) & (soft < 1)).any()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("preset", READING)
def test_luong_without_input_feeding_goes_step_by_step(preset: str) -> None:
    without = ("decoder@model.decoder=rnn_luong", "model.decoder.input_feeding=false")
    model = model_of(*without, f"attention={preset}").eval()
    target = torch.tensor([[2, 4, 5, 6, 7, 8], [2, 9, 10, 0, 0, 0], [2, 11, 0, 0, 0, 0]])
    expected = model(SOURCE, SOURCE != PAD, target).hidden
    state = model.decoder.initial_state(model._read(SOURCE, SOURCE != PAD))
    steps = []
    for t in range(6):
        found = model.decode(target[:, t : t + 1], state)
        state = found.state
        steps.append(found.hidden)
    close(torch.cat(steps, 1), expected)


def test_other_attentions_have_no_history() -> None:
    model = model_of("attention=bahdanau")
    assert model.encode(SOURCE, SOURCE != PAD).history is None
    reading = model_of("attention=coverage").encode(SOURCE, SOURCE != PAD).history
    assert isinstance(reading, History)
    assert reading.in_search
    assert isinstance(model.decoder.attention, Attention)
