"""The updates of a run that goes on with the batches that it has now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from seq2seq_attn.checkpoint.best import keeper_of_best
from seq2seq_attn.checkpoint.run_length import Position, run_length

BATCHES, EPOCHS = 7, 4


@pytest.mark.parametrize(
    ("at", "accumulated", "max_steps", "expected"),
    [
        (None, 3, -1, 1234),
        (Position(0, 0, 0), 3, -1, 12),
        (Position(20, 1, 0), 3, -1, 29),
        (Position(20, 1, 3), 3, -1, 28),
        (Position(20, 1, 7), 3, -1, 26),  # of the whole epoch, whose last update is of one batch
        (Position(20, 4, 0), 1, -1, 27),
        (Position(20, 1, 0), 3, 25, 25),
    ],
)
def test_updates_are_those_done_and_those_to_come(
    at: Position | None, accumulated: int, max_steps: int, expected: int
) -> None:
    trainer: Any = SimpleNamespace(
        estimated_stepping_batches=1234,
        max_epochs=EPOCHS,
        max_steps=max_steps,
        num_training_batches=BATCHES,
        accumulate_grad_batches=accumulated,
    )
    assert run_length(trainer, at) == expected


def test_the_best_has_its_own_callback_whichever_stands_first() -> None:
    history, best = SimpleNamespace(filename="{step}"), SimpleNamespace(filename="best")
    for callbacks in ([history, best], [best, history]):
        assert keeper_of_best(SimpleNamespace(checkpoint_callbacks=callbacks)) is best
    assert keeper_of_best(SimpleNamespace(checkpoint_callbacks=[history])) is None
