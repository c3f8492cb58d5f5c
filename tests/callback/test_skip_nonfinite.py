"""What is not finite changes nothing, on no rank; what stays so ends the run, and is never saved."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from callback.faulty import SEEN
from distributed.ranks import on_ranks
from pytorch_lightning.strategies import SingleDeviceStrategy
from small_run import rows, run_here, weights
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seq2seq_attn.batch import Batch
from seq2seq_attn.callback.skip_nonfinite import (
    READ_EVERY,
    SkipNonfinite,
    check_constants,
    not_finite,
    restore_where,
    skip_on_device,
)
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.usefixtures("quiet")
CALLBACKS = "callback=[seeding,skip_nonfinite,checkpoint,autosave]"
SHORT = [
    CALLBACKS, "trainer.max_steps=7", "trainer.limit_val_batches=1", "trainer.limit_test_batches=1",
    "search.limits.max_length=3", "+callback.onlooker._target_=callback.faulty.Onlooker",
]  # fmt: skip


def faulty(fault: str, first: int, number: int = 1, rank: int | None = None) -> str:
    told = f"fault:{fault},first:{first},number:{number},rank:{'null' if rank is None else rank}"
    return f"+callback.faulty={{_target_:callback.faulty.Faulty,{told}}}"


def tensors(part: Any) -> list[Tensor]:
    return [tensor for node in part.values() for tensor in (tensors(node) if isinstance(node, dict) else [node])]


def same(before: dict[str, Any], after: dict[str, Any], part: str) -> bool:
    both = list(zip(tensors(before[part]), tensors(after[part]), strict=True))
    return bool(both) and all(torch.equal(*pair) for pair in both)


@pytest.mark.parametrize(("fault", "fused"), [("forward", "true"), ("gradient", "false"), ("loss", "true")])
def test_a_step_with_a_fault_changes_nothing_but_the_rate(
    fault: str, fused: str, tmp_path: Path, pairs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    run_here(tmp_path, *pairs, *SHORT, f"optimizer.fused={fused}", faulty(fault, first=5))
    steps = list(pairwise(SEEN))
    assert [seen["step"] for seen in SEEN] == list(range(8))
    assert [same(*step, "weights") for step in steps] == [number == 5 for number in range(7)]
    assert [same(*step, "moments") for step in steps[1:]] == [number == 5 for number in range(1, 7)]
    assert SEEN[5]["rate"] > SEEN[6]["rate"]
    assert not not_finite(weights(tmp_path, "last.ckpt"))
    said = [record.message for record in caplog.records if "skipped" in record.message]
    assert said == ["step 5 is skipped: its loss or gradient is not finite"]


@pytest.mark.parametrize(
    "fault", ["gradient", *(pytest.param(name, marks=pytest.mark.slow) for name in ("forward", "loss"))]
)
def test_a_first_step_that_is_skipped_leaves_no_momentum(fault: str, tmp_path: Path, pairs: list[str]) -> None:
    """The fused kernel of torch takes new memory for the momentum before it skips."""
    given = ["optimizer=sgd", "optimizer.lr=0.1", "trainer.deterministic=true", faulty(fault, first=0, number=2)]
    run_here(tmp_path, *pairs, *SHORT, *given)
    changed = [not same(*step, "weights") for step in pairwise(SEEN)]
    assert changed == [number > 1 for number in range(7)]
    assert not not_finite(weights(tmp_path, "last.ckpt"))


def test_without_it_the_same_fault_stays_in_the_weights(tmp_path: Path, pairs: list[str]) -> None:
    without = [option.replace("skip_nonfinite,", "") for option in SHORT]
    run_here(tmp_path, *pairs, *without, faulty("gradient", first=5))
    assert not_finite(weights(tmp_path, "last.ckpt"))


@pytest.mark.slow
def test_a_run_without_a_fault_is_the_same_with_and_without(tmp_path: Path, pairs: list[str]) -> None:
    for name, options in (("with", SHORT), ("without", [option.replace("skip_nonfinite,", "") for option in SHORT])):
        run_here(tmp_path / name, *pairs, *options)
    ours, theirs = (weights(tmp_path / name, "last.ckpt") for name in ("with", "without"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert rows(tmp_path / "with") == rows(tmp_path / "without")


def test_a_fault_in_one_accumulated_batch_voids_the_whole_update(tmp_path: Path, pairs: list[str]) -> None:
    accumulate = ["trainer.accumulate_grad_batches=2", "trainer.max_epochs=9", "trainer.max_steps=4"]
    run_here(tmp_path, *pairs, *SHORT, *accumulate, faulty("forward", first=2))
    begun = {seen["step"]: seen for seen in reversed(SEEN)}  # with no batch of the next update read
    assert [same(begun[step], begun[step + 1], "weights") for step in range(4)] == [False, True, False, False]


def test_faults_without_end_end_the_run_with_their_sentences_in_a_file_and_no_spoilt_checkpoint(
    tmp_path: Path, pairs: list[str]
) -> None:
    file = tmp_path / "not_finite.tsv"
    sentence = (
        "3 steps in a row, up to step 7, were skipped, because their loss or gradient is not finite; their sentences "
        f"are in {file}; use a lower optimizer.lr, or remove unusual ones among them"
    )
    limits = ["callback.skip_nonfinite.limit=3", "callback.autosave.every_steps=1", "trainer.max_steps=-1"]
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        run_here(tmp_path, *pairs, *SHORT, *limits, faulty("forward", first=5, number=100))
    columns, *found = [line.split("\t") for line in file.read_text("utf-8").splitlines()]
    assert columns == ["step", "rank", "loss", "source", "target"]
    assert {tuple(row[:3]) for row in found} == {(str(step), "0", "nan") for step in (5, 6, 7)}
    corpus = Path(pairs[0].partition("=")[2]).read_text("utf-8").splitlines()
    assert {"\t".join(row[3:]) for row in found} <= set(corpus)
    last = weights(tmp_path, "last.ckpt")
    assert all(torch.equal(last[name], SEEN[5]["weights"][name]) for name in last)


def test_faults_up_to_the_last_step_of_a_short_run_end_it_too(tmp_path: Path, pairs: list[str]) -> None:
    with pytest.raises(UserError, match=r"^4 steps in a row, up to step 6, were skipped"):
        run_here(tmp_path, *pairs, *SHORT, "callback.skip_nonfinite.limit=4", faulty("gradient", first=3, number=9))


@pytest.mark.slow
def test_weights_that_are_not_finite_are_saved_neither_as_best_nor_as_last(tmp_path: Path, pairs: list[str]) -> None:
    sentence = (
        r"^the weights are not finite after step {} \(model.output.bias\) and are not saved; use a lower "
        "optimizer.lr$"
    )
    for name, every, step in (("autosaved", 1, 3), ("validated", "null", 4)):
        ruin = f"+callback.ruin={{_target_:callback.faulty.Ruin,step:{step}}}"
        options = [f"callback.autosave.every_steps={every}", "trainer.val_check_interval=4", "trainer.max_epochs=9"]
        with pytest.raises(UserError, match=sentence.format(step)):
            run_here(tmp_path / name, *pairs, *SHORT, *options, ruin)
    assert not list((tmp_path / "validated" / "checkpoints").glob("*.ckpt"))
    assert not not_finite(weights(tmp_path / "autosaved", "last.ckpt"))


def skipping(folder: Path, *options: str) -> dict[str, Tensor]:
    warnings.simplefilter("ignore")
    run_here(folder, *options)
    assert [same(before, now, "weights") for before, now in pairwise(SEEN)][3:6] == [False, True, False]
    return SEEN[-1]["weights"]


@pytest.mark.slow
def test_a_fault_on_one_rank_is_skipped_by_both(tmp_path: Path, pairs: list[str]) -> None:
    two = ["trainer.strategy=ddp", "trainer.devices=2", "batch_tokens=200"]
    run = tmp_path / "run"
    ours, theirs = on_ranks(2, skipping, tmp_path, run, *pairs, *SHORT, *two, faulty("loss", first=4, rank=1))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not not_finite(ours)


class WaitsError(AssertionError):
    pass


class NoWaiting(TorchDispatchMode):
    """Refuses what would wait for a device: a number of a tensor for Python to read."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default):
            raise WaitsError(func)
        return func(*args, **(kwargs or {}))


def some_batch() -> Batch:
    nothing = torch.zeros(2, 3, dtype=torch.int64)
    mask, lengths = nothing.bool(), nothing[:, 0]
    return Batch(nothing, lengths, mask, nothing, nothing, lengths, mask, torch.tensor([7, 5]))


def a_step(
    finite: SkipNonfinite, layer: nn.Linear, optimizer: torch.optim.Optimizer, number: int, factor: float
) -> None:
    trainer: Any = SimpleNamespace(global_step=number, strategy=SingleDeviceStrategy("cpu"))
    module: Any = layer
    finite.on_train_batch_start(trainer, module, some_batch(), number)
    loss = layer(torch.ones(2, 3)).sum() * factor
    finite.on_before_backward(trainer, module, loss)
    loss.backward()
    finite.on_before_optimizer_step(trainer, module, optimizer)
    optimizer.step()
    finite.on_train_batch_end(trainer, module, None, None, number)
    optimizer.zero_grad()


def test_a_fused_optimizer_skips_without_waiting_for_the_device_but_at_every_16th_step() -> None:
    layer, finite = nn.Linear(3, 5), SkipNonfinite(limit=100, file="nowhere")
    optimizer = torch.optim.Adam(layer.parameters(), fused=True)
    with NoWaiting():
        for number in range(READ_EVERY - 1):
            a_step(finite, layer, optimizer, number, factor=torch.nan if number == 3 else 1.0)
    assert finite.skipped_in_a_row == 0
    assert optimizer.state[layer.weight]["step"] == READ_EVERY - 2
    slow = torch.optim.Adam(layer.parameters(), fused=False)
    with NoWaiting(), pytest.raises(WaitsError):
        a_step(finite, layer, slow, READ_EVERY, factor=1.0)


@pytest.mark.parametrize("fused", [True, False])
def test_only_steps_in_a_row_count_and_a_run_that_is_resumed_goes_on_counting(fused: bool) -> None:
    layer, finite = nn.Linear(3, 5), SkipNonfinite(limit=READ_EVERY * 2, file="nowhere")
    optimizer = torch.optim.AdamW(layer.parameters(), fused=fused)
    for number in range(30):
        a_step(finite, layer, optimizer, number, factor=1.0 if number in (4, 17) else torch.nan)
    state = finite.state_dict()
    assert state == {"skipped_in_a_row": 12}
    again = SkipNonfinite(limit=14, file="nowhere")
    again.load_state_dict(state)
    a_step(again, layer, optimizer, 30, factor=torch.inf)
    assert again.state_dict() == {"skipped_in_a_row": 13}
    a_step(again, layer, optimizer, 31, factor=1.0)
    assert again.state_dict() == {"skipped_in_a_row": 0}
    ended = SkipNonfinite(limit=12, file="nowhere")  # as many as end a run, which is to go on with another rate
    ended.load_state_dict(state)
    assert ended.state_dict() == {"skipped_in_a_row": 0}


def test_a_buffer_goes_back_to_what_it_was_before_a_void_step() -> None:
    buffer, count = torch.tensor([2.0, 3.0]), torch.tensor(7)
    buffers = [(buffer, buffer.clone()), (count, count.clone())]
    for value, void, expected in ((5.0, 0.0, 5.0), (torch.nan, 1.0, 5.0), (7.0, 1.0, 5.0), (11.0, 0.0, 11.0)):
        buffer[1] = value
        restore_where(torch.tensor(void), buffers)
        assert (buffer.tolist(), count.item()) == ([2.0, expected], 7)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW])
def test_a_fused_optimizer_of_torch_2_13_skips_by_found_inf(optimizer: Any) -> None:
    """The contract of `skip_on_device` with torch, seen in 2.11 to 2.13."""
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.full((3,), torch.nan)
    fused = optimizer([weight], lr=0.1, fused=True)
    assert skip_on_device(fused, torch.tensor(1.0))
    fused.step()
    assert weight.tolist() == [1.0] * 3
    assert not skip_on_device(optimizer([weight], lr=0.1, fused=False), torch.tensor(1.0))


def test_a_buffer_of_infinite_constants_is_refused_before_the_first_step() -> None:
    module = nn.Module()
    module.register_buffer("weight", torch.ones(2))
    check_constants(module.state_dict())
    module.register_buffer("future", torch.full((2, 2), -torch.inf).triu(1))
    with pytest.raises(UserError, match=r"^future holds NaN or infinity before the first step; .* persistent=False"):
        check_constants(module.state_dict())
