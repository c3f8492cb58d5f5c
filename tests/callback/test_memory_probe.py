"""The batches that take most memory are tried first, which a run does not notice; too little memory is one sentence."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_run import rows, run_here, weights

from seq2seq_attn.batch import Batch
from seq2seq_attn.callback.memory_probe import MemoryProbe, try_batch
from seq2seq_attn.data.batch_sampler import Lengths, TokenBatchSampler
from seq2seq_attn.distributed import ranks
from seq2seq_attn.errors import sentence_of
from seq2seq_attn.training.translation_module import TranslationModule

pytestmark = pytest.mark.usefixtures("quiet")
SHORT = ["trainer.max_steps=3", "trainer.limit_val_batches=1", "trainer.limit_test_batches=1"]
SHORT += ["search.limits.max_length=3"]
TRIED = ["callback=[memory_probe,checkpoint,autosave]", "callback.memory_probe.on_cpu=true"]
UNTRIED = ["callback=[checkpoint,autosave]"]
TOO_LITTLE = (
    "cpu has too little memory for a batch; use batch_tokens=200, with trainer.accumulate_grad_batches=2 for "
    "updates of the same size"
)


def of_cuda() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def of_cpu() -> torch.Tensor:
    """Asks the allocator for what no machine has."""
    return torch.empty(2**60, dtype=torch.uint8)


class Memory:
    """So many padded tokens a batch, and no more; `tried` are those of each batch that the model was given."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, tokens: float, first: int = 0, run_out: Callable[[], Any] = of_cuda
    ) -> None:
        self.tried: list[tuple[int, int, int]] = []
        loss = TranslationModule.loss

        def bounded(module: Any, batch: Batch, *options: Any, **named: Any) -> Any:
            sizes = (len(batch), batch.source.shape[1], batch.target_input.shape[1])
            self.tried.append(sizes)
            if sizes[0] * (sizes[1] + sizes[2]) > tokens and len(self.tried) > first:
                run_out()
            return loss(module, batch, *options, **named)

        monkeypatch.setattr(TranslationModule, "loss", bounded)


@pytest.mark.slow
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


def state(trainer: Any, module: TranslationModule) -> dict[str, Any]:
    """All that a later step could depend on."""
    numpy_name, numpy_numbers, *numpy_rest = np.random.get_state()
    return {
        "weights": copy.deepcopy(module.state_dict()),
        "gradients": [p.grad for p in module.parameters()],
        "moments": copy.deepcopy(trainer.optimizers[0].state_dict()),
        "schedule": copy.deepcopy(trainer.lr_scheduler_configs[0].scheduler.state_dict()),
        "draws": (torch.get_rng_state(), (numpy_name, torch.tensor(numpy_numbers), *numpy_rest), random.getstate()),
        "mean": (module.update_mean.smoothed, module.update_mean.tokens),
        "step": trainer.global_step,
        "batches": list(trainer.train_dataloader.batch_sampler),
        "training": module.training,
    }


def same(ours: Any, theirs: Any) -> bool:
    """To the last bit."""
    if isinstance(ours, torch.Tensor):
        return torch.equal(ours, theirs)
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


def test_nothing_draws_beside_the_training_of_one_device(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tests beartype draws from Python's global state for each list that it checks, in whichever thread."""
    draws = []

    def waited(callback: MemoryProbe, trainer: Any, pl_module: Any) -> None:
        for _ in range(2):
            draws.append(random.getstate())
            time.sleep(0.1)

    monkeypatch.setattr(ranks, "POLL_SECONDS", 0.001)  # as often as it can be, as on a machine that is slow
    monkeypatch.setattr(MemoryProbe, "on_train_start", waited)
    run_here(tmp_path, *pairs, *SHORT, *TRIED)
    assert draws[0] == draws[1]


@pytest.mark.parametrize(
    "options",
    [["r_drop_alpha=5.0"], pytest.param(["model=transformer", "attention=multihead"], marks=pytest.mark.slow)],
)
def test_a_trial_leaves_weights_moments_draws_and_the_position_in_the_data_as_they_were(
    options: list[str], tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    states, try_batches = [], MemoryProbe.on_train_start

    def watched(callback: MemoryProbe, trainer: Any, pl_module: Any) -> None:
        states.append(state(trainer, pl_module))
        try_batches(callback, trainer, pl_module)
        states.append(state(trainer, pl_module))

    monkeypatch.setattr(MemoryProbe, "on_train_start", watched)
    for steps in (3, 5):  # the second goes on, with moments
        run_here(tmp_path, *pairs, *SHORT, *TRIED, *options, f"trainer.max_steps={steps}", "resume=auto")
        (tmp_path / "results.json").unlink()
    assert [found["step"] for found in states] == [0, 0, 3, 3]
    assert [bool(found["moments"]["state"]) for found in states] == [False, False, True, True]
    for before, after in (states[:2], states[2:]):
        for name in before:
            assert same(before[name], after[name]), name
    assert not same(states[1], states[2])


@pytest.mark.slow
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
        [Lengths(lengths, lengths)],
        batch_tokens=batch_tokens,
        shuffle=True,
        seed=3,
        rank=rank,
        num_replicas=num_replicas,
    )


def test_tried_are_the_batch_of_most_tokens_and_that_of_most_tokens_times_length() -> None:
    # Begin or end tokens included: ten pairs of 3 and 3 fill 60, one of 20 and 20 takes 40, and 40 x 40 is most.
    assert {len(rows): set(rows) <= {10, 11} for rows in sampler().largest()} == {10: False, 1: True}
    (both,) = sampler(batch_tokens=80).largest()
    assert sorted(both) == [10, 11]


def test_every_rank_tries_what_is_largest_among_all_and_its_own_batches_stay() -> None:
    ranks = [sampler(rank, 2, batch_tokens=80) for rank in range(2)]
    before = [list(one) for one in ranks]
    # Three batches cannot be shared alike, so the largest has been cut, into two of 40; the next has 72.
    assert {tuple(sorted(rows)) for one in ranks for rows in one.largest()} == {(12, 13, 14)}
    ranks[1].start_at(0, len(ranks[1]))  # a run that is resumed behind its last batch
    assert ranks[0].largest() == ranks[1].largest()
    assert [list(ranks[0]), list(ranks[1])] == [before[0], []]


def test_too_little_memory_ends_a_run_before_its_first_step(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(monkeypatch, tokens=130)
    with pytest.raises(RuntimeError, match=r"[Tt]ried to allocate") as ended:
        run_here(tmp_path, *pairs, *SHORT, *TRIED)
    ((number, source, target),) = memory.tried
    assert number * (source + target) > 130
    assert sentence_of(ended.value) == TOO_LITTLE
    assert not list(tmp_path.glob("checkpoints/*.ckpt"))


@pytest.mark.parametrize(("number", "run_out"), [(0, of_cuda), (2, of_cuda), (2, of_cpu)])
def test_memory_that_runs_out_later_is_the_same_sentence_and_keeps_its_trace(
    number: int, run_out: Callable[[], Any], tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Memory(monkeypatch, tokens=3, first=number, run_out=run_out)
    with pytest.raises(RuntimeError, match=r"[Tt]ried to allocate") as ended:
        run_here(tmp_path, *pairs, *SHORT, TRIED[0])
    assert sentence_of(ended.value) == TOO_LITTLE


@pytest.mark.parametrize(("options", "half"), [([], 200), (["eval_batch_tokens=90"], 45)])
@pytest.mark.parametrize("split", ["val", "test"])
def test_memory_that_runs_out_in_a_validation_or_test_names_the_size_of_its_batches(
    split: str, options: list[str], half: int, tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = TranslationModule._evaluate

    def bounded(module: Any, batch: Batch, stage: str, **named: Any) -> Any:
        if stage == split:
            of_cuda()
        return evaluate(module, batch, stage, **named)

    monkeypatch.setattr(TranslationModule, "_evaluate", bounded)
    with pytest.raises(RuntimeError, match=r"[Tt]ried to allocate") as ended:
        run_here(tmp_path, *pairs, *SHORT, TRIED[0], *options)
    assert sentence_of(ended.value) == (
        f"cpu has too little memory for a batch of a validation or test; use eval_batch_tokens={half}"
    )


@pytest.mark.parametrize("on_cpu", ["true", "false"])
def test_another_fault_is_no_lack_of_memory(
    on_cpu: str, tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    Memory(monkeypatch, tokens=3, run_out=fail)
    with pytest.raises(RuntimeError, match=r"^mat1 and mat2") as ended:
        run_here(tmp_path, *pairs, *SHORT, *TRIED, f"callback.memory_probe.on_cpu={on_cpu}")
    assert sentence_of(ended.value) is None


@pytest.mark.parametrize(
    ("has_stepped", "accumulated", "copies"), [(False, 1, 2), (False, 4, 3), (True, 1, 0), (True, 2, 1)]
)
def test_a_trial_holds_what_a_later_step_holds(
    has_stepped: bool, accumulated: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam's two moments before they are there, and gradients that wait, of what is trained."""
    module = torch.nn.Linear(3, 5)
    module.bias.requires_grad_(False)
    held: list[torch.Size] = []
    monkeypatch.setattr(torch, "empty_like", lambda tensor: held.append(tensor.shape))
    step = SimpleNamespace(train_step_context=nullcontext)
    state = {module.weight: {}} if has_stepped else {}
    trainer = SimpleNamespace(
        optimizers=[SimpleNamespace(state=state)], accumulate_grad_batches=accumulated, precision_plugin=step
    )
    loss = SimpleNamespace(smoothed=module(torch.ones(3)).sum())
    ours = SimpleNamespace(
        parameters=module.parameters,
        device=torch.device("cpu"),
        training_batch=lambda batch: batch,
        loss=lambda batch: (loss, None),
        zero_grad=module.zero_grad,
    )
    ids, lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([3, 2])
    try_batch(trainer, ours, Batch(ids, lengths, ids == 1, ids, ids, lengths, ids == 1, lengths))
    assert held == [module.weight.shape] * copies
    assert module.weight.grad is None
