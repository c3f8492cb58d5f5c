"""Every option of every group composes with the rest, and the Trainer's YAML has all of its arguments."""

from __future__ import annotations

import inspect

import pytest
import pytorch_lightning as pl
from configs import CONF, ROOT, composed, options
from omegaconf import OmegaConf

GROUPS = ("attention", "data", "tokenizer", "model", "search", "optimizer", "scheduler", "trainer", "debug", "recipe")
PARTS = ("attention/score", "attention/pattern", "attention/normalizer", "data/cleaning")
CHOICES = [f"{group}={name}" for group in (*GROUPS, *PARTS) for name in options(group)]
LISTS = [f"{group}=[{name}]" for group in ("metric", "callback", "logger") for name in options(group)]
SLOTS = [f"{slot}@model.{slot}={name}" for slot in ("encoder", "decoder") for name in options(slot)]


@pytest.mark.parametrize("choice", [*CHOICES, *LISTS, *SLOTS])
def test_every_option_composes(choice: str) -> None:
    config = OmegaConf.to_container(composed(choice))
    assert isinstance(config, dict)
    assert config["model"]["_target_"]


def test_a_recipe_gives_way_to_the_command_line() -> None:
    assert composed("data=tatoeba", "tokenizer.vocab_size=77").tokenizer.vocab_size == 77
    assert composed("data=tatoeba").trainer.max_epochs != composed("data=demo").trainer.max_epochs


def test_every_argument_of_lightnings_trainer_is_an_override() -> None:
    ours = set(composed().trainer) - {"_target_"}
    ours |= {"self", "logger", "callbacks", "default_root_dir"}  # which the run fills in
    assert ours == set(inspect.signature(pl.Trainer.__init__).parameters)


def test_the_entries_stay_thin() -> None:
    entries = list(ROOT.glob("*.py"))
    assert len(entries) >= 2
    for entry in entries:
        assert len(entry.read_text(encoding="utf-8").splitlines()) < 60, entry
        assert (CONF / f"{entry.stem}.yaml").is_file()
