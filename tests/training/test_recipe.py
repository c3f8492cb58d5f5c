"""A corpus and a model without a recipe are named at the start, and a recipe that does not exist is refused."""

from __future__ import annotations

import pytest
from configs import CONF
from hydra import compose, initialize_config_dir

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.check_config import check_recipe


def check(*overrides: str) -> None:
    """Check what a command with these overrides has composed."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", ["callback=[]", *overrides], return_hydra_config=True)
    check_recipe(config.hydra.runtime)


@pytest.mark.parametrize("overrides", [[], ["recipe=none"], ["~recipe"], ["recipe=tatoeba_rnn"], ["data=multi30k_tok"]])
def test_a_recipe_that_exists_or_is_left_out_needs_no_word(
    overrides: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        check(*overrides)
    assert caplog.messages == []


def test_a_pair_without_a_recipe_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        check("data=parallel", "model=conv")
    assert caplog.messages == [
        "No recipe conf/recipe/parallel_conv.yaml: sizes and schedule are the defaults, unless set"
    ]


def test_a_recipe_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match=r"^There is no recipe 'demo'; choose from: demo_conv, .*, none, "):
        check("recipe=demo")
