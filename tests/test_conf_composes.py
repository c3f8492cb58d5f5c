"""Every option of every group composes with the rest, and the Trainer's YAML has all of its arguments."""

from __future__ import annotations

import inspect

import pytest
import pytorch_lightning as pl
from configs import CONF, ROOT, composed, options
from omegaconf import OmegaConf

ALONE = ("attention/score", "attention/pattern", "attention/normalizer")  # of many options, and cheap
GROUPS = ("data", "tokenizer", "model", "search", "optimizer", "scheduler", "trainer", "debug", "recipe")
LISTS = ("metric", "callback", "logger")
PARTS = ("attention/mix", "attention/gate", "data/cleaning")
FEATURE_MAPS = [["attention=linear", f"attention/feature_map={name}"] for name in options("attention/feature_map")]
DECAYS = [
    [f"attention={preset}", f"attention/decay={name}"]
    for preset in ("linear", "delta")
    for name in options("attention/decay")
]
SLOTS = ("encoder@model.encoder", "decoder@model.decoder")


def rows(*groups: str) -> list[list[str]]:
    """Overrides that choose every option of every group at least once: the i-th of each, shorter groups repeated."""
    names = {group: options(group.partition("@")[0]) for group in groups}
    width = max(map(len, names.values()))
    form = {group: "[{}]" if group in LISTS else "{}" for group in groups}
    return [
        [f"{group}={form[group].format(found[row % len(found)])}" for group, found in names.items()]
        for row in range(width)
    ]


SINGLE = [[f"{group}={name}"] for group in ALONE for name in options(group)]
# The contract of models composes each of them, too.
PRESETS = [pytest.param([f"attention={name}"], marks=pytest.mark.slow) for name in options("attention")]


@pytest.mark.parametrize(
    "choices", [*rows(*GROUPS, *LISTS), *rows(*PARTS, *SLOTS), *SINGLE, *PRESETS, *FEATURE_MAPS, *DECAYS], ids=" ".join
)
def test_every_option_composes(choices: list[str]) -> None:
    config = OmegaConf.to_container(composed(*choices))
    assert isinstance(config, dict)
    assert config["model"]["_target_"]


def test_a_recipe_gives_way_to_the_command_line() -> None:
    assert composed("data=tatoeba", "tokenizer.vocab_size=77").tokenizer.vocab_size == 77
    assert composed("data=tatoeba").trainer.max_epochs != composed("data=demo").trainer.max_epochs


def test_a_callback_is_added_after_the_others_and_one_is_left_out_by_name() -> None:
    default = list(composed().callback)
    assert default[0] == "seeding"
    assert list(composed("callback=[default,ema]").callback) == [*default, "ema"]
    assert list(composed("~callback.progress").callback) == [name for name in default if name != "progress"]
    assert (
        composed("callback=[default,ema]", "callback.early_stopping.patience=3").callback.early_stopping.patience == 3
    )


def test_metrics_of_the_captions_are_those_of_their_papers_unless_metrics_are_chosen() -> None:
    assert list(composed("data=multi30k").metric) == ["bleu", "chrf", "tokenized_bleu"]
    assert list(composed("data=multi30k_tok").metric) == ["bleu", "tokenized_bleu"]
    assert list(composed("data=multi30k", "metric=[bleu]").metric) == ["bleu"]
    assert composed("data=multi30k_tok").metric.tokenized_bleu.tokenize == "none"


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
