"""Searches with briefly trained models, which have no ties: a translation does not depend on its batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from configs import built, composed
from shared_folder import shared_folder
from torch import Tensor
from training.test_toy_tasks import BOS, EOS, LONGEST, PAD, exact_match, model_for, sentences

from seq2seq_attn.search.search import Hypothesis, TargetVocabulary

ATTENTIONS = ("bahdanau", "hard", "local_p", "sparse", "synthesizer_dense")
MODELS = [(name, attention) for name in ("rnn", "conv", "transformer") for attention in ATTENTIONS]
SEARCHES = {
    "greedy": ["search=greedy"],
    "beam": ["search=beam", "search.beam_size=4", "search.num_best=3"],
    "sampling": ["search=sampling", "search.num_samples=3"],
    "diverse": ["search=diverse_beam", "search.beam_size=6", "search.num_groups=3", "search.num_best=6"],
}
QUICK = {("rnn", "bahdanau"): tuple(SEARCHES)}  # one model is trained; test_greedy.py and others have each architecture
TARGET = TargetVocabulary(BOS, EOS, (0, 1, 2), list)
STEPS = 120


def every(of_search: bool) -> Any:
    """All models, with all searches; those that are not quick are slow."""
    if not of_search:
        cases = [pytest.param(m, marks=[] if m in QUICK else pytest.mark.slow, id="-".join(m)) for m in MODELS]
        return pytest.mark.parametrize("model", cases, indirect=True)
    cases = [
        pytest.param(m, search, marks=[] if search in QUICK.get(m, ()) else pytest.mark.slow, id="-".join([*m, search]))
        for m in MODELS
        for search in SEARCHES
    ]
    return pytest.mark.parametrize(("model", "search"), cases, indirect=["model"])


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model in float32, as in use; trained once for all workers."""
    name, attention = request.param
    torch.manual_seed(1)
    trained = model_for(name, f"attention={attention}")

    def make(folder: Path) -> None:
        exact_match("copy", trained, steps=STEPS, count=32)
        torch.save(trained.state_dict(), folder / "weights.pt")

    folder = shared_folder(tmp_path_factory, f"copying_{name}_{attention}", make)
    trained.load_state_dict(torch.load(folder / "weights.pt"))
    return trained.eval()


def rows(count: int) -> list[list[int]]:
    """Sentences of various lengths, each with its end token."""
    tokens, lengths = sentences(count, torch.Generator().manual_seed(7))
    return [[*row[:length], EOS] for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]


def padded(batch: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, batch))
    source = torch.tensor([row + [PAD] * (longest - len(row)) for row in batch])
    return source, source != PAD


def found(model: Any, search: str, batch: list[list[int]], size: int) -> list[list[Hypothesis]]:
    """Return the translations, computed in batches of `size`."""
    run = built(composed(*SEARCHES[search]).search)
    parts = [run(model, *padded(batch[first : first + size]), TARGET) for first in range(0, len(batch), size)]
    return [hypotheses for part in parts for hypotheses in part]


def same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert [hypothesis.token_ids for hypothesis in one] == [hypothesis.token_ids for hypothesis in other]
        for a, b in zip(one, other, strict=True):
            assert a.log_prob == pytest.approx(b.log_prob, abs=1e-4)
            assert a.score == pytest.approx(b.score, abs=1e-4)


@every(of_search=True)
def test_translations_are_the_same_at_batch_1_7_and_64_in_any_order_and_among_longer_ones(
    model: Any, search: str
) -> None:
    batch = rows(64)
    expected = found(model, search, batch, 64)
    assert len({tuple(best.token_ids) for best, *_ in expected}) > 32
    same(found(model, search, batch[:8], 1), expected[:8])
    same(found(model, search, batch[:25], 7), expected[:25])
    same(found(model, search, batch[::-1], 64)[::-1], expected)
    longer = [[*row[:-1], *row[:-1], *row] for row in batch if len(row) == LONGEST + 1]
    assert longer
    same(found(model, search, [*longer, *batch], 100)[len(longer) :], expected)


@every(of_search=True)
def test_the_log_probability_of_every_hypothesis_is_that_of_forced_scoring(model: Any, search: str) -> None:
    batch = rows(64)
    pairs = [(row, one) for row, of_row in zip(batch, found(model, search, batch, 64), strict=True) for one in of_row]
    source, mask = padded([row for row, _ in pairs])
    tokens, _ = padded([[*one.token_ids, EOS] for _, one in pairs])
    with torch.inference_mode():
        read = torch.cat([torch.full((len(tokens), 1), BOS), tokens[:, :-1]], 1)
        log_probs = model.logits(model(source, mask, read).hidden).log_softmax(-1)
    forced = log_probs.gather(-1, tokens[..., None])[..., 0].masked_fill(tokens == PAD, 0.0).double().sum(-1)
    reported = torch.tensor([one.log_prob for _, one in pairs], dtype=torch.float64)
    torch.testing.assert_close(reported, forced, rtol=0, atol=1e-4)


@every(of_search=False)
@torch.inference_mode()
def test_a_reordered_state_equals_a_recomputed_one(model: Any) -> None:
    batch, width = rows(5), 3
    source, mask = padded(batch)
    owners = torch.arange(5).repeat_interleave(width)
    state, tokens = model.encode(source, mask).branch(owners), torch.full((15, 1), BOS)
    generator = torch.Generator().manual_seed(3)
    for step in range(6):
        state = model.step(tokens[:, -1], state).state
        # each row continues any hypothesis of its sentence, some of them twice, in any order
        within = torch.randint(width, (len(tokens),), generator=generator)
        parents = torch.arange(len(tokens)) // width * width + within
        state, tokens, owners = state.branch(parents), tokens[parents], owners[parents]
        if step == 2:
            kept = torch.tensor([4, 0, 3])
            remaining = (kept[:, None] * width + torch.arange(width)).flatten()
            state, tokens, owners = state.branch(remaining).keep(kept), tokens[remaining], owners[remaining]
        following = torch.randint(EOS + 1, 13, (len(tokens), 1), generator=generator)
        tokens = torch.cat([tokens, following], 1)
    assert owners.tolist() == [4] * 3 + [0] * 3 + [3] * 3
    stepped = model.step(tokens[:, -1], state).log_probs
    recomputed = model.logits(model(source[owners], mask[owners], tokens).hidden[:, -1]).log_softmax(-1)
    torch.testing.assert_close(stepped, recomputed, rtol=0, atol=1e-4)
