"""Multi-head latent attention: its equations, what a memory holds, absorption, rotation, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention.formulas import attend
from attention.layers import in_chunks
from attention.score_formulas import rms_norm
from configs import attention_of, model_of
from torch import Tensor

from seq2seq_attn.attention.build import no_relative
from seq2seq_attn.attention.score.latent import LatentScore
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.search_mode import search_mode
from seq2seq_attn.position.relative import RelativePosition
from seq2seq_attn.position.rotary import RotaryPosition

pytestmark = pytest.mark.usefixtures("double")

B, N, T = 3, 23, 5
HEADS, HEAD_DIM, DIM, RANK, ROTARY = 3, 7, 21, 11, 4
MASK = torch.arange(N) < torch.tensor([[N], [13], [1]])
ROTATIONS = RotaryPosition(dim=DIM, base=100.0)
RANKS = [f"attention.score.kv_rank={RANK}", f"attention.score.rotary_dim={ROTARY}"]
EXACT = {"rtol": 0, "atol": 1e-12}
FORMS = ["expanded", "absorbed"]


def latent(*overrides: str, rotary: bool = False, key_dim: int = DIM) -> Any:
    """A layer of self-attention, or of cross-attention to keys of another width; its gains are not all 1."""
    sizes = {"query_dim": DIM, "key_dim": key_dim, "value_dim": key_dim}
    relative = ROTATIONS.relative if rotary else no_relative if key_dim == DIM else None
    heads = f"attention.num_heads={HEADS}"
    attention = attention_of("latent", heads, *RANKS, *overrides, **sizes, relative=relative).eval()
    for gain in (attention.score.key_gain, attention.score.query_gain):
        if gain is not None:
            torch.nn.init.uniform_(gain, 0.5, 2.0)
    return attention


def take(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(LatentScore, "expanding_is_cheaper", lambda *_: form == "expanded")


def rotate(x: Tensor, position: Tensor) -> Tensor:
    """Su et al. 2021, eq. 34: pairs as complex numbers, turned by an angle for each position and pair."""
    pairs = torch.complex(*x.chunk(2, -1))
    angles = position[:, None] * ROTATIONS.base ** (-torch.arange(pairs.shape[-1]) / pairs.shape[-1])
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], -1)


def equations(attention: Any, query: Tensor, keys: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
    """DeepSeek-AI 2024, eq. 9-19, head by head, with keys and values written out."""
    score, contexts = attention.score, []
    c = rms_norm(score.compress_keys(keys), score.key_gain)  # (9), with the norm of 3.1.2
    c_query = query
    if score.compress_query is not None:
        c_query = rms_norm(score.compress_query(query), score.query_gain)  # (12)
    allowed = torch.ones(len(query), query.shape[1], keys.shape[1], dtype=torch.bool)
    allowed = allowed if mask is None else allowed & mask[:, None]
    allowed = allowed.tril() if causal else allowed
    for h in range(HEADS):
        rows = slice(h * HEAD_DIM, (h + 1) * HEAD_DIM)
        k = c @ score.project_key.weight[rows].T  # (10)
        v = c @ attention.project_values.weight[rows].T  # (11)
        q = score.project_query(c_query)[..., rows]  # (13)
        if score.rotary_query is not None:
            turned = slice(h * ROTARY, (h + 1) * ROTARY)
            q_turned = rotate(score.rotary_query(c_query)[..., turned], torch.arange(query.shape[1]))  # (14)
            k_turned = rotate(score.rotary_key(keys), torch.arange(keys.shape[1]))  # (15)
            q, k = torch.cat([q, q_turned], -1), torch.cat([k, k_turned], -1)  # (16), (17)
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~allowed, -math.inf)
        contexts.append(scores.softmax(-1).nan_to_num(0.0) @ v)  # (18)
    return attention.project_output(torch.cat(contexts, -1))  # (19)


@pytest.mark.parametrize("form", [*FORMS, "whichever is cheaper", "dense"])
@pytest.mark.parametrize("query_rank", [None, 5])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_is_that_of_the_equations_values_and_gradients(
    causal: bool, rotary: bool, query_rank: int | None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = latent(f"attention.score.query_rank={query_rank or 'null'}", rotary=rotary)
    if form in FORMS:
        take(monkeypatch, form)
    if form == "dense":
        attention.backend = "dense"
    x = torch.randn(B, N, DIM, requires_grad=True)
    for mask in (None, MASK):
        expected = equations(attention, x, x, mask, causal=causal)
        check_same(attention.attend_self(x, mask, causal=causal).context, expected, attention, x, mask)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("query_rank", [None, 5])
def test_cross_attention_is_that_of_the_equations_values_and_gradients(
    query_rank: int | None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(monkeypatch, form)
    attention = latent(f"attention.score.query_rank={query_rank or 'null'}", key_dim=13)
    query, keys = torch.randn(B, T, DIM), torch.randn(B, N, 13, requires_grad=True)
    expected = equations(attention, query, keys, MASK, causal=False)
    for need_weights in (False, True):
        found = attention(query, attention.prepare(keys, mask=MASK), need_weights=need_weights)
        check_same(found.context, expected, attention, keys)


def check_same(found: Tensor, expected: Tensor, attention: Any, x: Tensor, mask: Tensor | None = None) -> None:
    """Contexts and gradients; `mask` hides rows that are padding, whose contexts are arbitrary."""
    rows = torch.ones(found.shape[:2], dtype=torch.bool) if mask is None else mask
    torch.testing.assert_close(found[rows], expected[rows], **EXACT)
    upstream = torch.randn_like(found) * rows[..., None]
    parameters = [x, *attention.parameters()]
    ours, theirs = (
        torch.autograd.grad((out * upstream).sum(), parameters, retain_graph=True) for out in (found, expected)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@pytest.mark.parametrize("rotary", [False, True])
def test_a_memory_holds_one_latent_for_a_token_and_the_rotated_key(rotary: bool) -> None:
    attention, x, past = latent(rotary=rotary), torch.randn(B, 150, DIM), None
    width = RANK + ROTARY * rotary
    with torch.no_grad():
        expected = attention.attend_self(x, causal=True).context
        for t in range(150):  # long enough for free positions
            attended = attention.attend_self(x[:, t : t + 1], past=past, causal=True)
            past = attended.memory
            torch.testing.assert_close(attended.context, expected[:, t : t + 1], **EXACT)
            check_size(past, (B, 1, t + 1, width))
        assert past.buffer is not None
        rows = torch.tensor([2, 0])
        for memory in (past.branch(rows), past.select(rows), attention.prepare(x).branch(rows)):
            check_size(memory, (2, 1, 150, width))
            check_size(memory.at(slice(3, 10)), (2, 1, 7, width))
            check_size(memory.at(torch.tensor([1, 5, 9])), (2, 1, 3, width))


def check_size(memory: Any, shape: tuple[int, ...]) -> None:
    """The keys are the latents, and the values the same tensor."""
    assert [tuple(key.shape) for key in memory.keys] == [shape]
    assert memory.values is memory.keys[0]
    assert memory.buffer is None or len(memory.buffer.buffers) == 1


def test_the_latent_of_a_transformer_is_all_that_a_step_keeps() -> None:
    """Of a layer of 64 numbers in 2 heads, 32 instead of the 128 of keys and values."""
    widths = ["model.embedding_dim=64", "model.encoder.dim=64", "model.decoder.dim=64", "attention.num_heads=2"]
    model = model_of("model=transformer", "attention=latent", "position=sinusoidal", *widths)
    with torch.inference_mode():
        state = start(model, torch.tensor([[4, 5, 6, 7, 3]]))
        for token in (2, 4, 5):
            state = model.decode(torch.tensor([[token]]), state).state
    past = [memory for memory in memories(state) if memory.source == 3]
    assert len(past) == len(model.decoder.layers)
    for memory in past:
        assert sum(tensor.numel() for tensor in memory.stored) == 3 * 32


def start(model: Any, source: Tensor) -> Any:
    return model.decoder.initial_state(model._read(source, source != 0))


def memories(state: Any) -> list[Any]:
    from seq2seq_attn.attention.state import Memory

    found, left = [], [state]
    while left:
        one = left.pop()
        if isinstance(one, Memory):
            found.append(one)
        elif isinstance(one, (tuple, list)):
            left.extend(one)
        elif hasattr(one, "__dict__"):
            left.extend(vars(one).values())
    return found


@pytest.mark.parametrize("rotary", [False, True])
def test_a_step_makes_no_keys_or_values_of_the_past(rotary: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a step expanded latents")

    attention, x = latent(rotary=rotary), torch.randn(B, N, DIM)
    attended = attention.attend_self(x[:, :-1], causal=True)
    expected = attention.attend_self(x, causal=True).context[:, -1:]
    monkeypatch.setattr(LatentScore, "expand_keys", refuse)
    monkeypatch.setattr(attention.project_values, "forward", refuse)
    found = attention.attend_self(x[:, -1:], past=attended.memory, causal=True).context
    torch.testing.assert_close(found, expected, **EXACT)
    with pytest.raises(AssertionError, match="a step expanded latents"):  # as a whole sentence does
        attention.attend_self(x, causal=True)


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("cuts", [[4, 1, 18], [11, 12]])
def test_chunks_of_any_length_equal_all_at_once(cuts: list[int], rotary: bool) -> None:
    attention, x = latent(rotary=rotary), torch.randn(B, N, DIM)
    expected = attention.attend_self(x, causal=True).context
    torch.testing.assert_close(in_chunks(attention, x, cuts), expected, **EXACT)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hypotheses", [2, 9])
def test_hypotheses_share_the_latents_of_their_sentence(
    hypotheses: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = latent(key_dim=13)
    query, keys = torch.randn(B * hypotheses, 1, DIM), torch.randn(B, N, 13)
    repeated = attention.prepare(keys.repeat_interleave(hypotheses, 0), mask=MASK.repeat_interleave(hypotheses, 0))
    expected = attention(query, repeated).context
    take(monkeypatch, form)
    with search_mode():
        found = attention(query, attention.prepare(keys, mask=MASK), start=3).context
    torch.testing.assert_close(found, expected, **EXACT)


def test_a_step_of_a_search_copies_no_latents_for_each_head() -> None:
    attention, keys = latent(key_dim=13), torch.randn(B, N, 13)
    memory, shapes = attention.prepare(keys, mask=MASK), []

    class Record(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.nn.functional.scaled_dot_product_attention:
                shapes.append((args[0].shape[1:3], args[1].shape[1]))
            return func(*args, **(kwargs or {}))

    with search_mode(), Record():
        attention(torch.randn(B, 1, DIM), memory)
    assert shapes in ([], [((1, HEADS), 1)])  # the heads are rows of one head


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("pattern", "normalizer"),
    [
        *(("full", "sparsemax"), ("full", "sink"), ("local", "softmax"), ("local", "sparsemax")),
        *(("sparse", "softmax"), ("sparse", "sigmoid"), ("sparse", "sink"), ("local_p", "softmax")),
    ],
)
def test_patterns_and_normalizers_go_with_it(
    pattern: str, normalizer: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(monkeypatch, form)
    narrow = [] if pattern == "full" else ["attention.pattern.k=3"]
    attention = latent(f"attention/pattern={pattern}", f"attention/normalizer={normalizer}", *narrow)
    if pattern != "full":
        attention.pattern.fused_from = attention.pattern.blocks_from = 1
    x = torch.randn(1, 8, DIM)
    mask = torch.arange(8)[None] < 6
    for causal in (False, True):
        expected, weights = attend(attention, x, x, x, mask, causal, own=True)
        found = attention.attend_self(x, mask, causal=causal)
        torch.testing.assert_close(found.context[mask], expected[mask], **EXACT)
        asked = attention.attend_self(x, mask, causal=causal, need_weights=True)
        torch.testing.assert_close(asked.weights, weights, **EXACT)
        torch.testing.assert_close(asked.context, expected, **EXACT)


@pytest.mark.parametrize("normalizer", ["softmax", "entmax15", "sink"])
@pytest.mark.parametrize("pattern", ["local", "sparse"])
def test_patterns_see_the_rotated_part_at_once_and_in_steps(pattern: str, normalizer: str) -> None:
    attention = latent(f"attention/pattern={pattern}", f"attention/normalizer={normalizer}", rotary=True)
    attention.pattern.fused_from = attention.pattern.blocks_from = 1
    x, past, steps = torch.randn(B, N, DIM), None, []
    for mask in (None, MASK):
        rows = torch.ones(B, N, dtype=torch.bool) if mask is None else mask
        found = attention.attend_self(x, mask, causal=True).context
        attention.backend = "dense"
        expected = attention.attend_self(x, mask, causal=True).context
        attention.backend = "auto"
        torch.testing.assert_close(found[rows], expected[rows], **EXACT)
    for one in x.split(1, 1):
        attended = attention.attend_self(one, past=past, causal=True)
        past = attended.memory
        steps.append(attended.context)
    torch.testing.assert_close(torch.cat(steps, 1), attention.attend_self(x, causal=True).context, **EXACT)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", ["mix=talking_heads", "mix=differential", "gate=sigmoid"])
def test_mixes_and_gates_go_with_it(part: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take(monkeypatch, form)
    sizes = {"query_dim": 24, "key_dim": 24, "value_dim": 24, "relative": no_relative}
    attention = attention_of("latent", "attention.num_heads=3", f"attention/{part}", **sizes).eval()
    for parameter in [] if attention.mix is None else attention.mix.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(1, 8, 24)
    for causal in (False, True):
        expected, _ = attend(attention, x, x, x, None, causal)
        torch.testing.assert_close(attention.attend_self(x, causal=causal).context, expected, **EXACT)


@pytest.mark.parametrize("rotary", [False, True])
def test_a_pattern_selects_the_same_keys_by_latents_and_by_keys_of_heads(rotary: bool) -> None:
    blocks = ["attention/pattern=top_blocks", "attention.pattern.block_length=3", "attention.pattern.num_blocks=2"]
    attention, x, past = latent(*blocks, rotary=rotary), torch.randn(B, N, DIM), None
    expected = attention.attend_self(x, causal=True).context
    assert (expected - equations(attention, x, x, None, causal=True)).abs().max() > 1e-3
    for t in range(N):
        attended = attention.attend_self(x[:, t : t + 1], past=past, causal=True)
        past = attended.memory
        torch.testing.assert_close(attended.context, expected[:, t : t + 1], **EXACT)


def test_dropped_weights_are_the_same_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    attention, x = latent("attention.dropout=0.4").train(), torch.randn(B, N, DIM)
    contexts = []
    for form in FORMS:
        take(monkeypatch, form)
        torch.manual_seed(5)
        contexts.append(attention.attend_self(x, causal=True).context)
    torch.testing.assert_close(contexts[0], contexts[1], **EXACT)


@pytest.mark.parametrize("form", FORMS)
def test_rotated_scores_depend_on_distances_alone(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take(monkeypatch, form)
    attention, x = latent(rotary=True), torch.randn(B, T, DIM)
    weights = [
        attention(x, attention.prepare(x, start=start), start=start, need_weights=True).weights for start in (0, 40)
    ]
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-11)
    unrotated = latent().attend_self(x, need_weights=True).weights
    assert not torch.allclose(weights[0], unrotated)


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "alibi", "t5", "kerple", "fire", "none"])
def test_a_transformer_with_any_position_encoding_decodes_in_steps_as_at_once(position: str) -> None:
    widths = ["model.embedding_dim=12", "model.encoder.dim=12", "model.decoder.dim=12", "attention.num_heads=2"]
    model = model_of("model=transformer", "attention=latent", f"position={position}", *widths).eval()
    source, target = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]]), torch.tensor([[2, 4, 5, 6, 7], [2, 9, 8, 4, 5]])
    expected = model(source, source != 0, target).hidden
    with torch.inference_mode():
        state = start(model, source)
        for t in range(target.shape[1]):
            decoded = model.decode(target[:, t : t + 1], state)
            state = decoded.state
            torch.testing.assert_close(decoded.hidden, expected[:, t : t + 1], **EXACT)
    scores = [layer.attention.score for layer in model.encoder.layers]
    scores += [layer.self_attention.score for layer in model.decoder.layers]
    assert all((score.rotary_key is not None) == (position == "rotary") for score in scores)


@pytest.mark.parametrize(
    ("heads", "dim", "kv_rank", "rotary_dim"), [(8, 512, 256, 32), (16, 1024, 256, 32), (2, 64, 32, 16), (1, 5, 2, 2)]
)
def test_the_widths_are_the_papers_where_they_compress(heads: int, dim: int, kv_rank: int, rotary_dim: int) -> None:
    sizes = {"query_dim": dim, "key_dim": dim, "value_dim": dim}
    attention = attention_of("latent", f"attention.num_heads={heads}", **sizes, relative=ROTATIONS.relative)
    assert attention.score.compress_keys.out_features == kv_rank
    assert attention.score.rotary_key.out_features == rotary_dim
    assert attention.score.rotary_query.out_features == heads * rotary_dim
    assert attention.score.compress_query is None
    assert attention.score.scale == (dim // heads + rotary_dim) ** -0.5


@pytest.mark.parametrize("query_rank", [None, 5])
def test_only_projections_of_the_inputs_have_a_bias(query_rank: int | None) -> None:
    options = ["attention.qkv_bias=true", f"attention.score.query_rank={query_rank or 'null'}"]
    attention = latent(*options, rotary=True)
    biased = {name.removesuffix(".bias") for name, _ in attention.named_parameters() if name.endswith("bias")}
    of_query = {"score.compress_query"} if query_rank else {"score.project_query", "score.rotary_query"}
    assert biased == {"score.compress_keys", "score.rotary_key", "project_output.0"} | of_query
    for name, parameter in attention.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    x = torch.randn(B, N, DIM, requires_grad=True)
    expected = equations(attention, x, x, None, causal=True)
    check_same(attention.attend_self(x, causal=True).context, expected, attention, x)


def test_values_of_their_own_have_latents_of_their_own() -> None:
    """As in ConvS2S, whose values are keys plus embeddings."""
    attention = latent(key_dim=13)
    query, keys, values = torch.randn(B, T, DIM), torch.randn(B, N, 13), torch.randn(B, N, 13)
    expected, _ = attend(attention, query, keys, values, MASK, causal=False)
    torch.testing.assert_close(attention(query, attention.prepare(keys, values, MASK)).context, expected, **EXACT)
    together = attention(query, attention.prepare(keys, keys.clone(), MASK)).context
    torch.testing.assert_close(together, attention(query, attention.prepare(keys, keys, MASK)).context, **EXACT)


def test_within_another_score_it_scores_only() -> None:
    capped = ["attention/score=soft_cap", "attention/score@attention.score.score=latent"]
    sizes = {"query_dim": DIM, "key_dim": DIM, "value_dim": 13}
    attention = attention_of("latent", "attention.num_heads=3", *capped, **sizes).eval()
    assert attention.project_values.in_features == 13
    query, keys, values = torch.randn(B, T, DIM), torch.randn(B, N, DIM), torch.randn(B, N, 13)
    expected, _ = attend(attention, query, keys, values, MASK, causal=False)
    torch.testing.assert_close(attention(query, attention.prepare(keys, values, MASK)).context, expected, **EXACT)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("score.kv_rank=0", r"attention\.score\.kv_rank=0 leaves no latent; use 1 or more, or null"),
        ("score.query_rank=-2", r"attention\.score\.query_rank=-2 leaves no latent; use 1 or more, or null"),
        ("score.rotary_dim=3", r"attention\.score\.rotary_dim=3 must be an even number of at least 2, .*"),
        ("score.rotary_dim=0", r"attention\.score\.rotary_dim=0 must be an even number of at least 2, .*"),
        ("project_values=false", r"LatentScore needs attention\.project_values=true, .* for values as they are"),
        (
            "num_kv_heads=1",
            r"LatentScore takes no attention\.num_kv_heads=1; leave it null, or use attention/score=scaled_dot",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(override: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}$"):
        latent(f"attention.{override}")


def test_a_pattern_that_compares_keys_of_heads_is_refused() -> None:
    with pytest.raises(UserError, match=r"^LshPattern compares the keys of each head, .* attention/score=scaled_dot$"):
        latent("attention/pattern=lsh")


def test_keys_and_values_of_two_widths_are_refused() -> None:
    with pytest.raises(UserError, match=r"^LatentScore compresses .* keys are 13 wide and values 11; .* of one width$"):
        attention_of("latent", "attention.num_heads=3", query_dim=DIM, key_dim=13, value_dim=11)


@pytest.mark.parametrize("values", [True, False])
def test_vectors_of_distances_are_refused(values: bool) -> None:
    distances = RelativePosition(dim=DIM, max_distance=3, values=values)
    with pytest.raises(UserError, match=r"^position=relative compares .* use position=rotary, .*score=scaled_dot$"):
        attention_of("latent", query_dim=DIM, key_dim=DIM, value_dim=DIM, relative=distances.relative)
