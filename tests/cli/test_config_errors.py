"""A callback that is typed as an option is answered with the way to add it."""

from __future__ import annotations

import pytest
from configs import CONF, composed
from hydra.errors import ConfigCompositionException

from seq2seq_attn.cli.config_errors import sentence_of_composition


@pytest.mark.parametrize(
    ("override", "name"),
    [("profile=true", "profile"), ("compile=true", "compile"), ("callback.history.save_top_k=3", "history")],
)
def test_a_callback_that_is_not_chosen_is_named_with_the_way_to_add_it(override: str, name: str) -> None:
    with pytest.raises(ConfigCompositionException, match="Could not override") as caught:
        composed(override)
    assert sentence_of_composition(caught.value, CONF, "train", [override]) == (
        f"'{name}' is a callback that is not chosen; add it with callback=[default,{name}]"
    )
