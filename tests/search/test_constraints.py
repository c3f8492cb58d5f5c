"""Constraints on the next token: worked examples of greedy and of beam search."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from configs import built, composed
from omegaconf import OmegaConf
from scripted import END, TARGET, A, B, C, D, Scripted, beam, by_prefix, translated
from torch import Tensor

from seq2seq_attn.search.constraints import Constraints
from seq2seq_attn.search.limits import Lengths

pytestmark = pytest.mark.usefixtures("double")


def constraints(least: int, most: int, prefixes: Any = None, no_repeat_ngram: int = 0) -> Constraints:
    lengths = Lengths(torch.tensor([least]), torch.tensor([most]))
    return Constraints(lengths, TARGET, prefixes, no_repeat_ngram)


def allowed(which: Constraints, *tokens: int) -> set[int]:
    """Return which of seven tokens may follow; check that they keep their log-probability."""
    before = torch.arange(7.0)[None] - 9
    after = which(before.clone(), torch.tensor([tokens], dtype=torch.long), torch.tensor([0]))
    (tokens,) = (after[0] > -torch.inf).nonzero(as_tuple=True)
    assert (after[0, tokens] == before[0, tokens]).all()
    return set(tokens.tolist())


def always(token: int) -> Any:
    """Script with the same probabilities after every prefix: 0.9 for one token, 0.06 for the end, 0.04 for another."""

    def log_probs(sentences: Tensor, tokens: Tensor) -> Tensor:
        rows = torch.zeros(len(tokens), 7)
        rows[:, token], rows[:, END], rows[:, D] = 0.9, 0.06, 0.04
        return rows.log()

    return log_probs


def best(script: Any, *overrides: str, **more: Any) -> list[int]:
    ((hypothesis, *_),) = translated(Scripted(script), beam("/length_penalty=none", *overrides), **more)
    return hypothesis.token_ids


def test_banned_tokens_never_follow() -> None:
    assert allowed(constraints(0, 9), A) == {END, A, B, C, D, 6}


def test_the_end_may_not_come_before_the_least_length_and_must_come_at_the_most() -> None:
    which = constraints(2, 3)
    assert END not in allowed(which) | allowed(which, A)
    assert {END, A} < allowed(which, A, B)
    assert allowed(which, A, B, A) == {END}


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_a_translation_is_no_shorter_than_the_least_length(beam_size: int) -> None:
    size = f".beam_size={beam_size}"
    ends_soon = by_prefix({(): {END: 0.9, A: 0.1}, (A,): {END: 0.9, B: 0.1}, (A, B): {C: 0.5, END: 0.5}})
    assert best(ends_soon, size) == []
    assert best(ends_soon, size, ".limits.min_length=1") == [A]
    assert best(ends_soon, size, ".limits.min_length=2") == [A, B]
    assert best(ends_soon, size, ".limits.min_relative_length=0.7") == [A, B, C]  # of a source of 3


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_the_end_is_forced_at_the_limit_and_its_log_prob_counts(beam_size: int) -> None:
    search = beam(f".beam_size={beam_size}", ".patience=null", ".limits.max_length=4", "/length_penalty=mean")
    ((hypothesis, *_),) = translated(Scripted(always(A)), search)
    assert hypothesis.token_ids == [A, A, A, A]
    assert hypothesis.log_prob == pytest.approx((4 * torch.tensor(0.9).log() + torch.tensor(0.06).log()).item())


def test_no_pair_of_tokens_occurs_twice() -> None:
    which = constraints(0, 99, no_repeat_ngram=2)
    assert allowed(which, A) >= {A, B}
    assert allowed(which, A, B, A) == allowed(which) - {B}
    assert allowed(which, A, B, A, A) == allowed(which) - {A, B}
    assert allowed(which, C, A, B) == allowed(which)
    assert allowed(constraints(0, 99, no_repeat_ngram=1), A, C) == allowed(which) - {A, C}
    assert allowed(constraints(0, 99, no_repeat_ngram=3), A, B, A, B) == allowed(which) - {A}


def test_the_end_is_allowed_if_no_other_token_is() -> None:
    which = constraints(9, 99, no_repeat_ngram=1)
    assert allowed(which, A, B, C, D) == {6}
    assert allowed(which, A, B, C, D, 6) == {END}


def test_a_blocked_ngram_sends_the_search_elsewhere() -> None:
    def repeats(n: int) -> list[int]:
        overrides = (f".no_repeat_ngram={n}", ".limits.max_length=6", ".limits.min_length=3")
        return best(always(A), ".beam_size=1", *overrides)

    assert repeats(0) == [A] * 6
    assert repeats(1) == [A, D]  # nothing else has any probability, so the end comes too early
    assert repeats(2) == [A, A, D, A]
    assert repeats(3) == [A, A, A]


def test_greedy_search_repeats_no_ngram_either() -> None:
    def repeats(n: int) -> list[int]:
        search = built(composed("search.limits.max_length=6", f"search.no_repeat_ngram={n}").search)
        ((hypothesis,),) = translated(Scripted(always(A)), search)
        return hypothesis.token_ids

    assert repeats(0) == [A] * 6
    assert repeats(1) == [A]  # the end is then the likeliest
    assert repeats(3) == [A, A, A]


def test_no_sample_repeats_a_pair() -> None:
    more = ("search.num_samples=50", "search.limits.max_length=8", "search.limits.min_length=5")
    for n in (0, 2):
        search = built(composed("search=sampling", *more, f"search.no_repeat_ngram={n}").search)
        (found,) = translated(Scripted(always(A)), search)
        assert len(found) == 50
        pairs = [list(pairwise(sample.token_ids)) for sample in found]
        assert all(len(one) == len(set(one)) for one in pairs) == (n == 2)


def test_a_search_of_an_older_checkpoint_may_repeat() -> None:
    for name in ("greedy", "sampling"):
        node: Any = OmegaConf.to_container(composed(f"search={name}").search, resolve=True)
        assert node.pop("no_repeat_ngram") == 0
        assert built(OmegaConf.create(node)).no_repeat_ngram == 0


def test_no_hypothesis_of_a_beam_repeats_a_pair() -> None:
    search = beam(".num_best=5", ".no_repeat_ngram=2", ".limits.max_length=8", "/length_penalty=mean")
    (found,) = translated(Scripted(always(A)), search)
    assert len(found) == 5
    for hypothesis in found:
        pairs = list(pairwise(hypothesis.token_ids))
        assert len(pairs) == len(set(pairs))


def test_a_forced_prefix_is_kept_whatever_its_length_and_the_limits() -> None:
    which = constraints(0, 9, prefixes=[[C, C]], no_repeat_ngram=1)
    assert allowed(which) == {C}
    assert allowed(which, C) == {C}
    assert C not in allowed(which, C, C)
    assert END in allowed(which, C, C)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_each_translation_begins_with_its_own_prefix(beam_size: int) -> None:
    search = beam(f".beam_size={beam_size}", ".limits.max_length=4", ".num_best=1")
    model = Scripted(by_prefix({(): {A: 0.9, B: 0.1}, (B,): {A: 0.7, C: 0.3}, (B, C): {D: 0.8, END: 0.2}}))
    found = translated(model, search, sentences=3, prefixes=[[B, C], [], [B]])
    assert [h.token_ids for h, *_ in found] == [[B, C, D], [A], [B, A]]
    assert found[0][0].log_prob == pytest.approx((torch.tensor([0.1, 0.3, 0.8]).log().sum()).item())
