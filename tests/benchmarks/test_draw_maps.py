"""The pictures of docs/articles.md: a map of each run and each sentence, with its title."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scripts.benchmarks import draw_maps as script
from seq2seq_attn.alignment.forced_attention import SlotMap


def test_a_map_has_its_tokens_its_title_and_grey_for_zero() -> None:
    found = SlotMap("cross/0", np.array([[[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]]), ["▁go", "</s>"], ["▁va", "▁!", "</s>"])
    figure = script.draw([("go !", found), ("again", found)])
    first, second = figure.axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["·va", "·!", "</s>"]
    assert [text.get_text() for text in first.get_xticklabels()] == ["·go", "</s>"]
    assert (first.get_xlabel(), second.get_xlabel()) == ("go !", "again")
    weights: Any = first.collections[0].get_array()
    assert weights.mask.tolist() == [[True, False], [False, False], [False, True]]


@pytest.mark.usefixtures("quiet")
def test_a_run_is_drawn_along_a_given_translation(trained_run: Path, tmp_path: Path) -> None:
    picture = tmp_path / "pictures" / "maps.png"
    words = ["--sentences", "the cat", "a dog", "--translation", "a house", "--output", str(picture)]
    script.main([str(trained_run), str(trained_run), *words])
    assert Image.open(picture).size[0] > 100
