"""A rate that follows the monitored figure counts every validation of the training, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import assert_same_run, rows, run_here, stopped_and_resumed

pytestmark = pytest.mark.usefixtures("quiet")
NEVER_BETTER = [
    "scheduler=plateau", "scheduler.patience=0", "monitor=val/loss", "+scheduler.threshold=0.999999",
    "optimizer.lr=0.05", "trainer.max_epochs=2",
]  # fmt: skip
EVERY_TWO = "callback.autosave.every_steps=2"


def rates(folder: Path) -> list[float]:
    return [float(row["lr"]) for row in rows(folder) if row.get("lr")]


@pytest.mark.slow  # what is kept of a plateau is tested in checkpoint/test_changes.py
def test_every_validation_counts_and_a_run_killed_around_them_is_the_run_that_was_not(
    pairs: list[str], tmp_path: Path
) -> None:
    """An epoch has 7 updates, so the validations are after 3, 6, 10, 13 and, not within the training, all 14."""
    given = [*pairs, *NEVER_BETTER, "trainer.val_check_interval=3", "trainer.num_sanity_val_steps=1"]
    run_here(tmp_path / "whole", *given)
    expected = [0.05] * 6 + [0.025] * 4 + [0.0125] * 3 + [0.00625]
    assert rates(tmp_path / "whole") == pytest.approx(expected, rel=1e-6)
    for saved, stops, begins in (
        (EVERY_TWO, [("validation", 6), ("validation_end", 6), ("batch_start", 10)], [6, 6, 10]),
        ("~callback.autosave", [("backward", 5), ("validation_end", 10)], [3, 6]),
    ):
        folder = tmp_path / f"{len(stops)}"
        assert stopped_and_resumed(folder, [*given, saved], *stops) == [0, *begins]
        assert rates(folder) == rates(tmp_path / "whole")
    assert_same_run(tmp_path / "3", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("trainer.check_val_every_n_epoch=2", [0.05] * 28 + [0.025] * 7),
        pytest.param(
            "trainer.check_val_every_n_epoch=null trainer.val_check_interval=9",
            [0.05] * 18 + [0.025] * 9 + [0.0125] * 8,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_validations_need_not_be_at_the_end_of_every_epoch(
    override: str, expected: list[float], pairs: list[str], tmp_path: Path
) -> None:
    run_here(tmp_path, *pairs, *NEVER_BETTER, "trainer.max_epochs=5", *override.split())
    assert rates(tmp_path) == pytest.approx(expected, rel=1e-6)
