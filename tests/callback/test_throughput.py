"""How long validations took: of those that count, and across a stop."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_run import rows, run_here

from seq2seq_attn.batch import Batch
from seq2seq_attn.callback import throughput
from seq2seq_attn.callback.throughput import Throughput
from seq2seq_attn.training.results import padding_costs, validation_costs

MODULE: Any = SimpleNamespace(model=SimpleNamespace(reads_source=True))


def validate(callback: Throughput, sanity_checking: bool = False) -> None:
    trainer: Any = SimpleNamespace(sanity_checking=sanity_checking)
    module: Any = None
    callback.on_validation_start(trainer, module)
    callback.on_validation_end(trainer, module)


def test_validations_are_summed_but_not_the_sanity_check(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([1.0, 3.0, 10.0, 15.0, 20.0, 25.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    callback = Throughput()
    validate(callback)
    validate(callback, sanity_checking=True)
    assert callback.validation_seconds == 2.0
    resumed = Throughput()
    resumed.load_state_dict(callback.state_dict())
    validate(resumed)
    assert resumed.validation_seconds == 7.0


def test_a_run_that_resumes_within_an_epoch_does_not_count_the_time_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([5000.0, 5003.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    monkeypatch.setattr(throughput, "is_between_updates", lambda trainer: True)
    callback = Throughput()
    trainer: Any = SimpleNamespace(global_step=7, log_every_n_steps=20)
    ids, lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([3, 2])
    batch = Batch(ids, lengths, ids == 1, ids, ids, lengths, ids == 1, lengths)
    callback.on_train_start(trainer, MODULE)
    callback.on_train_batch_end(trainer, MODULE, None, batch, 7)
    assert callback.seconds == 3.0


def test_tokens_of_both_sides_are_counted_and_padding_is_what_else_was_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter([0.0, 1.0, 4.0, 5.0, 6.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    monkeypatch.setattr(throughput, "is_between_updates", lambda trainer: True)
    callback, logged = Throughput(), []
    trainer: Any = SimpleNamespace(global_step=0, log_every_n_steps=2)
    module: Any = SimpleNamespace(model=MODULE.model, log=lambda name, value, **_: logged.append((name, value)))
    source, target = torch.ones(2, 3, dtype=torch.long), torch.ones(2, 5, dtype=torch.long)
    batch = Batch(
        source, torch.tensor([3, 2]), source == 1, target, target, torch.tensor([1, 5]), target == 1, torch.arange(2)
    )
    callback.on_train_start(trainer, module)
    for step in range(1, 5):
        trainer.global_step = step
        callback.on_train_batch_end(trainer, module, None, batch, step)
    # 11 tokens of 16 in each batch; two batches in 4 seconds, and two in 2
    padding = ("train/padding_share", pytest.approx(1 - 11 / 16))
    assert logged == [("train/tokens_per_second", 22 / 4), padding, ("train/tokens_per_second", 22 / 2), padding]


def test_the_batches_of_an_update_that_is_not_made_are_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer: Any = SimpleNamespace(global_step=7, log_every_n_steps=20)
    ids, lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([3, 2])
    batch = Batch(ids, lengths, ids == 1, ids, ids, lengths, ids == 1, lengths)
    callback = Throughput()
    for is_whole, counted in ((True, (10, 12)), (False, (10, 12)), (True, (30, 36))):
        monkeypatch.setattr(throughput, "is_between_updates", lambda trainer, is_whole=is_whole: is_whole)
        callback.on_train_batch_end(trainer, MODULE, None, batch, 7)
        assert callback.state_dict()["total"][:2] == counted


def test_the_end_tokens_of_the_empty_sources_of_a_language_model_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "is_between_updates", lambda trainer: True)
    trainer: Any = SimpleNamespace(global_step=7, log_every_n_steps=20)
    module: Any = SimpleNamespace(model=SimpleNamespace(reads_source=False))
    ends, ids, lengths = torch.ones(2, 1, dtype=torch.long), torch.ones(2, 5, dtype=torch.long), torch.tensor([5, 2])
    batch = Batch(ends, ends[:, 0], ends == 1, ids, ids, lengths, ids == 1, torch.arange(2))
    callback = Throughput()
    callback.on_train_batch_end(trainer, module, None, batch, 7)
    assert callback.state_dict()["total"][:2] == (7, 10)


def test_the_peak_of_memory_is_that_of_the_device_and_of_all_parts_of_a_resumed_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 5)
    cpu, gpu = torch.device("cpu"), torch.device("cuda:0")
    callback, resumed = Throughput(), Throughput()
    assert callback.peak_memory_bytes(cpu) > 1e6
    assert callback.peak_memory_bytes(gpu) == 5
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(root_device=gpu))
    callback.setup(trainer, MODULE, "fit")
    resumed.load_state_dict(callback.state_dict())
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3)
    assert resumed.peak_memory_bytes(gpu) == 5
    assert Throughput().peak_memory_bytes(gpu) == 3


def test_their_share_is_of_training_steps_and_validations_together() -> None:
    assert validation_costs(3.0, 22.0) == {"validation_seconds": 3.0, "validation_share": 0.12}


def test_a_run_without_an_update_has_no_share_of_padding() -> None:
    assert padding_costs(57, 76) == {"padding_share": 0.25}
    assert padding_costs(0, 0) == {}


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_figures_of_accumulated_batches_are_of_all_of_them(tmp_path: Path, pairs: list[str]) -> None:
    given = ["trainer.accumulate_grad_batches=3", "trainer.max_epochs=1", "tokenizer.sampling_alpha=0"]
    found = run_here(tmp_path, *pairs, *given, "callback=[seeding,throughput]")
    shares = [float(row["train/padding_share"]) for row in rows(tmp_path) if row.get("train/padding_share")]
    assert len(shares) == 2  # of six batches
    assert min(shares) < found["padding_share"] < max(shares)
    every = run_here(tmp_path / "two", *pairs, *given, "callback=[seeding,throughput]", "trainer.log_every_n_steps=3")
    (last,) = [float(row["train/padding_share"]) for row in rows(tmp_path / "two") if row.get("train/padding_share")]
    assert last == pytest.approx(every["padding_share"], abs=1e-6)
