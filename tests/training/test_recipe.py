"""A corpus and a model without a recipe are named at the start, and a recipe that does not exist is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from configs import CONF
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.recipe import check_recipe, print_missing_recipe


@pytest.fixture(autouse=True)
def no_hydra() -> Iterator[None]:
    yield
    HydraConfig.instance().cfg = None


def started(*overrides: str) -> None:
    """As a command with these overrides starts its task."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", ["callback=[]", *overrides], return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    check_recipe()
    print_missing_recipe(
        {name: OmegaConf.to_container(config[name], resolve=True) for name in ("optimizer", "trainer")}
    )


@pytest.mark.parametrize("overrides", [[], ["recipe=none"], ["~recipe"], ["recipe=tatoeba_rnn"], ["data=multi30k_tok"]])
def test_a_recipe_that_exists_or_is_left_out_needs_no_word(
    overrides: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    started(*overrides)
    assert capsys.readouterr().out == ""


def test_a_pair_without_a_recipe_is_named_with_what_it_trains_by(capsys: pytest.CaptureFixture[str]) -> None:
    started("data=parallel", "model=conv", "trainer.max_epochs=3")
    assert capsys.readouterr().out == (
        "No recipe for data=parallel with model=conv, so sizes and schedule are defaults or what was set "
        "(optimizer.lr=0.002, trainer.max_epochs=3); a file conf/recipe/parallel_conv.yaml would set them\n"
    )


def test_a_recipe_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match=r"^There is no recipe 'demo'; choose from: demo_conv, .*, none, "):
        started("recipe=demo")


def test_a_run_outside_of_hydras_application_has_no_recipe_to_check() -> None:
    check_recipe()
