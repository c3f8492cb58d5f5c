"""Properties of every model, for all combinations of encoders and decoders and every attention, in float64.

Every attention keeps the laws here in a third of the decoders, and every decoder with a third of the attentions;
`make test-slow` tests the rest.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from configs import attentions_at_once, model_of, options
from torch import Tensor

from seq2seq_attn.model.decoding_model import Step

ENCODERS, DECODERS, ATTENTIONS = options("encoder"), options("decoder"), options("attention")
CROSSINGS = [(encoder, decoder) for encoder in ENCODERS for decoder in DECODERS]
# Every attention in every decoder that takes it, and every combination with one attention that fits all of them.
MODELS = [
    (decoder.partition("_")[0], decoder, attention)
    for decoder in DECODERS
    for attention in ATTENTIONS
    if decoder.startswith("rnn") or attention in attentions_at_once()
]
MODELS += [(*crossing, "bahdanau") for crossing in CROSSINGS if crossing[0] != crossing[1].partition("_")[0]]


def is_slow(decoder: str, attention: str) -> bool:
    """Two of three decoders of an attention are slow: to build the model takes as long as the tests of it."""
    return bool((DECODERS.index(decoder) + ATTENTIONS.index(attention)) % 3)


ALL_MODELS = [pytest.param(*model, marks=[pytest.mark.slow] if is_slow(*model[1:]) else []) for model in MODELS]
all_models = pytest.mark.parametrize(("encoder", "decoder", "attention"), ALL_MODELS)


VARIANTS = {
    "rnn": [
        "model.{side}.cell=lstm",
        "model.{side}.num_layers=2",
        "model.{side}.num_layers=3 model.{side}.residual=true model.{side}.layer_norm=true",
        "model.decoder.start=states model.encoder.dim=6 model.decoder.dim=6",
    ],
    "conv": ["model.{side}.kernel_size=5", "model.{side}.num_layers=1", "position=none", "position.join=concat"],
    "transformer": [
        "model.{side}.norm=post",
        "feed_forward=swiglu",
        "attention@cross_attention=bahdanau",
        "attention@self_attention=luong_general",
        *(f"position={position}" for position in options("position")),
    ],
}
VARIED = [
    (kind, override.format(side=side))
    for kind, overrides in VARIANTS.items()
    for override in overrides
    for side in (["encoder", "decoder"] if "{side}" in override else [""])
]
pytestmark = pytest.mark.usefixtures("double")

ROUNDING = 1e-9  # of gradients, at most
DEPTH = 2  # layers of the models with several attentions

SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 3, 0, 0, 0]])
SOURCE_MASK = SOURCE != 0
TARGET = torch.tensor([[2, 4, 5, 6, 7, 8], [2, 9, 10, 0, 0, 0], [2, 11, 0, 0, 0, 0]])


def build(encoder: str, decoder: str, attention: str, *overrides: str) -> Any:
    """Return a model that every test of it shares: to compose and build it takes longer than most tests."""
    model = built_once(encoder, decoder, attention, *overrides).eval()
    model.zero_grad()
    return model


@cache
def built_once(encoder: str, decoder: str, attention: str, *overrides: str) -> Any:
    if attention in {"fixed_patterns", "grouped_query", "differential"}:  # eight heads, or an even width
        overrides = ("model.embedding_dim=16", "model.encoder.dim=16", "model.decoder.dim=16", *overrides)
    return model_of(
        f"encoder@model.encoder={encoder}", f"decoder@model.decoder={decoder}", f"attention={attention}", *overrides
    )


def build_with_two_heads(encoder: str, decoder: str) -> Any:
    heads = [f"{slot}.num_heads=2" for slot in ("attention", "cross_attention")]
    return build(encoder, decoder, "multihead", "model.embedding_dim=14", *heads)


def hidden(model: Any, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    return model(source, mask, target).hidden


def check_steps(model: Any, length: int = 4) -> None:
    """Four steps fill the window of a convolution of three, with one after it."""
    target = TARGET[:, :length]
    expected = hidden(model, SOURCE, SOURCE_MASK, target)
    with torch.inference_mode():
        state, steps = model.decoder.initial_state(model._read(SOURCE, SOURCE_MASK)), []  # of a given target
        for t in range(target.shape[1]):
            decoded = model.decode(target[:, t : t + 1], state)
            state = decoded.state
            assert state.next_position == t + 1
            steps.append(decoded.hidden)
        torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)


def test_the_quick_models_have_every_attention_and_every_decoder() -> None:
    quick = [model.values for model in ALL_MODELS if not model.marks]
    assert {attention for _, _, attention in quick} == set(ATTENTIONS)
    assert {decoder for _, decoder, _ in quick} == set(DECODERS)


@all_models
def test_one_step_at_a_time_equals_teacher_forcing(encoder: str, decoder: str, attention: str) -> None:
    check_steps(build(encoder, decoder, attention))


@pytest.mark.parametrize(("kind", "variant"), VARIED)
def test_steps_equal_teacher_forcing_in_every_variant(kind: str, variant: str) -> None:
    check_steps(build(kind, kind, "multihead", *variant.split()), TARGET.shape[1])


@pytest.mark.parametrize("variant", VARIANTS["rnn"])
@pytest.mark.parametrize("decoder", [name for name in DECODERS if name.startswith("rnn_")])
def test_steps_equal_teacher_forcing_in_every_recurrent_decoder(decoder: str, variant: str) -> None:
    check_steps(build("rnn", decoder, "bahdanau", *variant.format(side="decoder").split()))


@all_models
def test_padding_and_neighbours_change_nothing(encoder: str, decoder: str, attention: str) -> None:
    model = build(encoder, decoder, attention)
    together = hidden(model, SOURCE, SOURCE_MASK, TARGET)
    alone = hidden(model, SOURCE[1:2, :3], SOURCE_MASK[1:2, :3], TARGET[1:2, :3])
    torch.testing.assert_close(together[1:2, :3], alone, rtol=0, atol=1e-12)


@all_models
def test_a_hidden_state_depends_on_no_later_target(encoder: str, decoder: str, attention: str) -> None:
    model = build(encoder, decoder, attention)
    state = model.encode(SOURCE, SOURCE_MASK)
    embedded = model.embed_target(TARGET).detach().requires_grad_()
    found = model.decoder(embedded, state).hidden[:, 2]
    (found * torch.randn_like(found)).sum().backward()  # the plain sum of normalised values is constant
    assert (embedded.grad[:, 3:] == 0).all()
    assert (embedded.grad[:, :3] != 0).any()


@pytest.mark.parametrize("causal", [True, False])
def test_what_a_simultaneous_translation_says_depends_on_what_it_has_read(causal: bool) -> None:
    """With k = 2 the hidden state of position t depends on the source before position t + 2 alone."""
    heads = ["attention.num_heads=1", "cross_attention.num_heads=1"]
    wait = ["attention@cross_attention=wait_k", "cross_attention.pattern.k=2", f"model.encoder.causal={causal}"]
    model = build("transformer", "transformer", "multihead", *heads, *wait)
    other = SOURCE.clone()
    other[0, 3] = 12
    (found, changed) = (hidden(model, source, SOURCE_MASK, TARGET)[0] for source in (SOURCE, other))
    assert torch.equal(found[:2], changed[:2]) is causal  # position 1 sees the source positions 0 to 2
    assert not torch.allclose(found[2:], changed[2:])
    check_steps(model)


@all_models
def test_every_parameter_gets_a_gradient(encoder: str, decoder: str, attention: str) -> None:
    model = build(encoder, decoder, attention)
    decoded = model.train()(SOURCE, SOURCE_MASK, TARGET)
    loss = model.logits(decoded.hidden).square().mean()
    for drawn in (decoded.log_prob, decoded.entropy, decoded.source_log_prob, decoded.source_entropy):
        loss = loss + (0 if drawn is None else drawn.sum())
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad.abs() > ROUNDING).any(), name


@all_models
def test_requesting_weights_changes_nothing_and_returns_a_row_for_each_target(
    encoder: str, decoder: str, attention: str
) -> None:
    model = build(encoder, decoder, attention)
    plain = model(SOURCE, SOURCE_MASK, TARGET)
    asked = model(SOURCE, SOURCE_MASK, TARGET, need_weights=True)
    torch.testing.assert_close(plain.hidden, asked.hidden, rtol=0, atol=1e-12)
    assert plain.weights == {}
    cross = [weights for slot, weights in asked.weights.items() if slot.startswith("cross/")]
    assert len(cross) == (1 if decoder.startswith("rnn") else DEPTH)
    for weights in cross:
        assert weights.shape[0::2] == (3, 6)
        assert weights.shape[3] == 5
        assert (weights[1, :, :, 3:] == 0).all()
    for slot, weights in asked.weights.items():
        assert (weights >= 0).all()
        assert (weights.sum(-1) <= 1 + 1e-12).all()
        if attention in ("sigmoid", "sink", "softmax_one"):  # whose own rows sum to another number
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
        if slot.startswith("encoder/"):
            assert (weights[1, :, :3, 3:] == 0).all()


@pytest.mark.parametrize(("encoder", "decoder"), CROSSINGS)
def test_a_reordered_state_decodes_as_the_reordered_batch(encoder: str, decoder: str) -> None:
    model = build(encoder, decoder, "bahdanau")
    expected = hidden(model, SOURCE, SOURCE_MASK, TARGET)
    rows, others = torch.tensor([2, 0, 0]), torch.tensor([1, 2, 1])
    with torch.set_grad_enabled(encoder == "rnn"):  # the rest of the tests decode in inference mode
        before = model.encode(SOURCE, SOURCE_MASK)
        for t in range(2):
            before = model.decode(TARGET[:, t : t + 1], before).state
        # Two branches of one state, and the state itself, continue independently.
        for chosen in (rows, others, torch.arange(3)):
            state, steps = before.select(chosen), []
            for t in range(2, TARGET.shape[1]):
                decoded = model.decode(TARGET[chosen, t : t + 1], state)
                state = decoded.state
                steps.append(decoded.hidden)
            torch.testing.assert_close(torch.cat(steps, 1), expected[chosen, 2:], rtol=0, atol=1e-12)
        again = [model.decode(TARGET[:, 2:3], before).hidden for _ in range(2)]
        torch.testing.assert_close(again[0], again[1], rtol=0, atol=0)


@pytest.mark.parametrize("options", [["luong_general"], ["local_m", "attention.pattern.k=1"]])
def test_luong_without_input_feeding_equals_its_own_steps(options: list[str]) -> None:
    model = build("rnn", "rnn_luong", *options, "model.decoder.input_feeding=false")
    expected = hidden(model, SOURCE, SOURCE_MASK, TARGET)
    state, steps = model.encode(SOURCE, SOURCE_MASK), []
    for t in range(TARGET.shape[1]):
        decoded = model.decode(TARGET[:, t : t + 1], state)
        state = decoded.state
        steps.append(decoded.hidden)
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scaled", [False, True])
def test_embeddings_are_multiplied_by_the_root_of_their_width_and_dropped_number_by_number(scaled: bool) -> None:
    model, read = model_of(f"model.scale_embeddings={scaled}", "model.dropout=0.75"), {}
    for side in ("encoder", "decoder"):
        part = getattr(model, side)
        part.register_forward_pre_hook(lambda _, given, side=side: read.update({side: given[0]}))
    factor = 11**0.5 if scaled else 1.0
    for training in (False, True):
        hidden(model.train(training), SOURCE, SOURCE_MASK, TARGET)
        for side, embedding, tokens in (
            ("encoder", model.embed_source, SOURCE),
            ("decoder", model.embed_target, TARGET),
        ):
            kept = read[side] != 0
            assert (0.15 < kept.double().mean() < 0.35) if training else kept.all()
            expected = factor * embedding(tokens) / (0.25 if training else 1.0)
            torch.testing.assert_close(read[side][kept], expected[kept], rtol=0, atol=1e-12)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_log_probabilities_of_a_step_in_half_precision_are_of_float32(precision: torch.dtype) -> None:
    model = model_of().eval().to(precision)
    with torch.inference_mode():
        found = model.step(TARGET[:, 0], model.encode(SOURCE, SOURCE_MASK)).log_probs
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double().exp().sum(-1), torch.ones(3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("tie", ["none", "false", "target", "all"])
def test_tied_embeddings_are_one_matrix(tie: str) -> None:
    model = model_of(f"model.tie_embeddings={tie}", source_vocab_size=17, target_vocab_size=17)
    assert (model.output.weight is model.embed_target.weight) == (tie in ("target", "all"))
    assert (model.embed_source.weight is model.embed_target.weight) == (tie == "all")


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_tied_output_layer_reads_a_decoder_of_any_width(decoder: str) -> None:
    model = build("rnn", decoder, "bahdanau", "model.tie_embeddings=target")
    assert model.output.weight is model.embed_target.weight
    assert (model.narrow is None) == (model.decoder.output_dim == 11)
    assert model.logits(hidden(model, SOURCE, SOURCE_MASK, TARGET)).shape == (3, 6, 19)


def test_embeddings_of_two_vocabularies_cannot_be_tied() -> None:
    sentence = "model.tie_embeddings=all needs one vocabulary for both languages; use tokenizer.joint=true"
    with pytest.raises(Exception, match=sentence):
        model_of("model.tie_embeddings=all")


@all_models
def test_hypotheses_that_share_a_memory_decode_as_if_each_had_its_own(
    encoder: str, decoder: str, attention: str
) -> None:
    model = build(encoder, decoder, attention)
    rows = torch.tensor([0, 0, 1, 1, 2, 2])  # two hypotheses of each sentence
    read = torch.cat([TARGET[rows, :2], TARGET[[0, 1, 2, 0, 1, 2], 2:5]], 1)
    with torch.inference_mode():
        own, shared = model.encode(SOURCE[rows], SOURCE_MASK[rows]), model.encode(SOURCE, SOURCE_MASK)
        for t in range(5):
            if t == 2:
                shared = shared.branch(rows)  # up to here both are the same
            mine = model.step(read[:, t], own, need_weights=True)
            if t < 2:
                theirs = model.step(read[::2, t], shared, need_weights=True)
                assert_same_step(mine, theirs, rows)
            else:
                theirs = model.step(read[:, t], shared)
                torch.testing.assert_close(theirs.log_probs, mine.log_probs, rtol=0, atol=1e-12)
                assert_same_step(mine, model.step(read[:, t], shared, need_weights=True), torch.arange(6))
            own, shared = mine.state, theirs.state
        left = torch.tensor([0, 2])  # continue hypotheses 5 and 4 of sentence 2, and hypothesis 1 of sentence 0 twice
        chosen = torch.tensor([1, 1, 5, 4])
        mine = model.step(read[chosen, 4], own.select(chosen))
        theirs = model.step(read[chosen, 4], shared.branch(chosen).keep(left))
        torch.testing.assert_close(theirs.log_probs, mine.log_probs, rtol=0, atol=1e-12)


def assert_same_step(mine: Step, theirs: Step, rows: torch.Tensor) -> None:
    torch.testing.assert_close(theirs.log_probs[rows], mine.log_probs, rtol=0, atol=1e-12)
    assert mine.attention is not None
    assert theirs.attention is not None
    torch.testing.assert_close(theirs.attention[rows], mine.attention, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pattern", ["local", "atrous", "sparse", "local_p"])
def test_hypotheses_that_branch_before_the_first_token_are_all_at_the_first_position(pattern: str) -> None:
    ratio = [] if pattern == "local_p" else ["attention.pattern.length_ratio=1.5"]
    model = build("rnn", "rnn", "luong_general", f"attention/pattern={pattern}", "attention.pattern.k=2", *ratio)
    rows = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    with torch.inference_mode():
        expected = model.step(TARGET[:, 0], model.encode(SOURCE, SOURCE_MASK)).log_probs[rows]
        shared = model.step(TARGET[rows, 0], model.encode(SOURCE, SOURCE_MASK).branch(rows)).log_probs
    torch.testing.assert_close(shared, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("encoder", [encoder for encoder in ENCODERS if encoder != "rnn"])  # cannot pack an empty batch
def test_no_sentence_gives_no_hidden_state(encoder: str, decoder: str) -> None:
    model = build_with_two_heads(encoder, decoder)
    assert hidden(model, SOURCE[:0], SOURCE_MASK[:0], TARGET[:0]).shape[:2] == (0, TARGET.shape[1])


def test_a_transformer_reads_and_writes_no_token() -> None:
    model = build_with_two_heads("transformer", "transformer")
    found = hidden(model, SOURCE[:, :0], SOURCE_MASK[:, :0], TARGET)
    assert found.shape[:2] == TARGET.shape
    assert found.isfinite().all()
    assert hidden(model, SOURCE, SOURCE_MASK, TARGET[:, :0]).shape[:2] == (3, 0)
