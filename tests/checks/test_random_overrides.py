"""Random overrides: a command succeeds or says one sentence, and a bug is not taken for a sentence."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from small_run import SMALL, write_pairs

from scripts.checks import random_overrides as script


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The overrides of a run of a second, in a folder where `../../x` is harmless."""
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    choices = [f"choices.{choice}=null" for choice in ("attention", "model", "data")]
    return [*SMALL, "debug=fast", "paths.run_dir=run", *choices, *write_pairs(tmp_path)]


@pytest.mark.slow
def test_five_random_overrides_end_without_a_traceback(small: list[str]) -> None:
    random = Random(8)
    answers = [script.answer(*script.drawn(random, [("train", small)])) for _ in range(5)]
    assert all(len(sentence.splitlines()) < 2 for sentence in answers)
    assert any(answers)


def test_a_bug_is_raised_and_a_mistake_is_a_sentence(small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(config: Any) -> None:
        raise TypeError("a bug")

    assert script.answer("train", [*small, "batch_tokens=0"]).startswith("batch_tokens=0 must be int in ")
    assert script.answer("train", [*small, "nope=1"]).startswith("There is no option 'nope'")
    monkeypatch.setitem(script.COMMANDS, "train", fail)
    with pytest.raises(TypeError, match=r"^a bug$"):
        script.answer("train", small)


def test_every_key_of_the_composed_config_may_be_drawn(small: list[str]) -> None:
    found = script.options(script.composed("train", small))
    assert {"seed", "optimizer", "optimizer._target_", "optimizer.betas", "trainer.max_time"} <= set(found)
    bases = [("train", small)]
    assert script.drawn(Random(3), bases) == script.drawn(Random(3), bases) != script.drawn(Random(4), bases)
