"""The batches that take most memory are tried first, which a run does not notice; too little memory is one sentence."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training.ranks import on_ranks
from training.small_run import rows, run_here, weights, write_pairs

from seq2seq_attn.app.mistake import in_job
from seq2seq_attn.callback.longest_first import largest
from seq2seq_attn.data.batch_sampler import TokenBatchSampler
from seq2seq_attn.tensors.batch import Batch
from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.training.run_folder import VARIABLE
from seq2seq_attn.training.translation_module import TranslationModule

SHORT = ["trainer.max_steps=3", "trainer.limit_val_batches=1", "trainer.limit_test_batches=1"]
TRIED = ["callback=[longest_first,checkpoint,autosave]", "callback.longest_first.on_cpu=true"]
UNTRIED = ["callback=[checkpoint,autosave]"]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(
        VARIABLE, raising=False
    )  # a run of this process leaves it, and a rank would take its folder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's and torch's, which a command leaves out or shows
        yield


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_pairs(tmp_path_factory.mktemp("pairs"))


class Memory:
    """So many padded pieces a batch, and no more; `tried` are those of each batch that the model was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pieces: float, first: int = 0) -> None:
        self.tried: list[tuple[int, int, int]] = []
        loss = TranslationModule._loss

        def bounded(module: Any, batch: Batch, *options: Any, **named: Any) -> Any:
            sizes = (len(batch), batch.source.shape[1], batch.target_input.shape[1])
            self.tried.append(sizes)
            if sizes[0] * (sizes[1] + sizes[2]) > pieces and len(self.tried) > first:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return loss(module, batch, *options, **named)

        monkeypatch.setattr(TranslationModule, "_loss", bounded)


def test_a_run_is_bit_for_bit_the_same_with_a_trial_and_without(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, tried = Memory(monkeypatch, np.inf), {}
    for name, options in (("tried", TRIED), ("untried", UNTRIED)):
        memory.tried = []
        run_here(tmp_path / name, *pairs, *SHORT, *options)
        tried[name] = memory.tried
    assert rows(tmp_path / "tried") == rows(tmp_path / "untried")
    ours, theirs = (weights(tmp_path / name, "last.ckpt") for name in tried)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    extra = len(tried["tried"]) - len(tried["untried"])
    assert extra in (1, 2)
    assert tried["tried"][extra:] == tried["untried"]


def test_on_a_cpu_nothing_is_tried_unless_asked_for(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(monkeypatch, np.inf)
    run_here(tmp_path / "default", *pairs, *SHORT, TRIED[0])
    run_here(tmp_path / "without", *pairs, *SHORT, *UNTRIED)
    half = len(memory.tried) // 2
    assert memory.tried[:half] == memory.tried[half:]


def sampler(rank: int = 0, num_replicas: int = 1, batch_tokens: int = 60) -> TokenBatchSampler:
    lengths = np.array([2] * 10 + [19] * 2 + [11] * 3)
    return TokenBatchSampler(
        lengths, lengths, batch_tokens=batch_tokens, shuffle=True, seed=3, rank=rank, num_replicas=num_replicas
    )  # fmt: skip


def test_tried_are_the_batch_of_most_pieces_and_that_of_most_pieces_times_length() -> None:
    # Begin or end pieces included: ten pairs of 3 and 3 fill 60, one of 20 and 20 takes 40, and 40 x 40 is most.
    assert {len(rows): set(rows) <= {10, 11} for rows in largest(sampler())} == {10: False, 1: True}
    (both,) = largest(sampler(batch_tokens=80))
    assert sorted(both) == [10, 11]


def test_every_rank_tries_what_is_largest_among_all_and_its_own_batches_stay() -> None:
    ranks = [sampler(rank, 2, batch_tokens=80) for rank in range(2)]
    before = [list(one) for one in ranks]
    # Three batches cannot be shared alike, so the largest has been cut, into two of 40; the next has 72.
    assert {tuple(sorted(rows)) for one in ranks for rows in largest(one)} == {(12, 13, 14)}
    ranks[1].start_at(0, len(ranks[1]))  # a run that is resumed behind its last batch
    assert largest(ranks[0]) == largest(ranks[1])
    assert [list(ranks[0]), list(ranks[1])] == [before[0], []]


def test_too_little_memory_is_said_before_the_first_step_with_the_batch_tokens_that_fit(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(monkeypatch, pieces=130)
    with pytest.raises(UserError) as refused:
        run_here(tmp_path, *pairs, *SHORT, *TRIED)
    (number, source, target), (part, *lengths) = memory.tried
    fitting = part * sum(lengths)
    assert number * (source + target) > 130 >= fitting
    told = [f"batch_tokens={fitting}", f"trainer.accumulate_grad_batches={-(-400 // fitting)}"]
    assert str(refused.value) == (
        f"cpu has too little memory for a batch of {number} sentence pairs of {source} and {target} pieces; use "
        f"{', with '.join(told)} for updates of the same size"
    )
    assert not list(tmp_path.glob("checkpoints/*.ckpt"))
    run_here(tmp_path / "mended", *pairs, *SHORT, *TRIED, *told)


def test_a_pair_that_fits_by_no_batch_tokens_is_said_too(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Memory(monkeypatch, pieces=3)
    sentence = r" pieces, or for one of them; leave long sentences out by a smaller data.cleaning.max_words$"
    with pytest.raises(UserError, match=sentence):
        run_here(tmp_path, *pairs, *SHORT, *TRIED)


@pytest.mark.parametrize("number", [0, 2])
def test_memory_that_runs_out_later_is_the_same_sentence_and_keeps_its_trace(
    number: int, tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Memory(monkeypatch, pieces=3, first=number)
    with pytest.raises(torch.OutOfMemoryError) as ended:
        run_here(tmp_path, *pairs, *SHORT, TRIED[0])
    assert in_job(ended.value) == (
        "cpu has too little memory for a batch; use batch_tokens=200, with trainer.accumulate_grad_batches=2 for "
        "updates of the same size"
    )


def refused_by_rank_1(folder: Path, *options: str) -> str:
    warnings.simplefilter("ignore")
    with pytest.MonkeyPatch.context() as patch:
        Memory(patch, pieces=130 if os.environ["RANK"] == "1" else np.inf)
        with pytest.raises(UserError) as refused:
            run_here(folder, *options)
    return str(refused.value)


def test_a_rank_whose_memory_is_too_little_stops_all_at_once(tmp_path: Path, pairs: list[str]) -> None:
    two = ["trainer.strategy=ddp", "trainer.devices=2"]
    enough, little = on_ranks(2, refused_by_rank_1, tmp_path, tmp_path / "run", *pairs, *SHORT, *TRIED, *two)
    assert enough == "another device has too little memory for the longest batch"
    assert re.search(
        r"^cpu has too little memory for a batch of \d+ sentence pairs .+; use batch_tokens=", little
    )
