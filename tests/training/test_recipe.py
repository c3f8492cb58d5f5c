"""A recipe that does not exist is refused, and one that is left out is not."""

from __future__ import annotations

import pytest
from configs import CONF
from hydra import compose, initialize_config_dir

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.checks import check_recipe


def check(*overrides: str) -> None:
    """Check what a command with these overrides has composed."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", ["callback=[]", *overrides], return_hydra_config=True)
    check_recipe(config.hydra.runtime)


@pytest.mark.parametrize(
    "overrides",
    [[], ["recipe=none"], ["~recipe"], ["recipe=tatoeba_rnn"], ["data=multi30k_tok"], ["data=parallel", "model=conv"]],
)
def test_a_recipe_that_exists_or_is_left_out_is_accepted(overrides: list[str]) -> None:
    check(*overrides)


def test_a_recipe_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match=r"^There is no recipe 'demo'; choose from: demo_conv, .*, none, "):
        check("recipe=demo")
