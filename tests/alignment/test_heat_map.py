"""Heat maps: every token is readable inside the picture, and the numbers survive."""

import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from seq2seq_attn.alignment.heat_map import check_is_map, draw_attention, readable, save_attention_map
from seq2seq_attn.errors import UserError

SOURCE = ["▁A", "▁dog", "▁run", "s", "</s>"]
TARGET = ["▁Un", "▁chien", "▁près", "▁d", "'", "un", "</s>"]


def some_weights(*shape: int) -> np.ndarray:
    rows = np.random.default_rng(1).random(shape, dtype=np.float32)
    return rows / rows.sum(-1, keepdims=True)


def maps(figure: Figure) -> list:
    return [axes for axes in figure.axes if axes.get_ylabel() != "attention weight"]


def labels(axes) -> tuple[list[str], list[str]]:
    return [t.get_text() for t in axes.get_xticklabels()], [t.get_text() for t in axes.get_yticklabels()]


def test_rows_are_target_tokens_from_the_top_and_columns_are_source_tokens():
    (axes,) = maps(draw_attention(some_weights(7, 5), SOURCE, TARGET))
    assert labels(axes) == (["·A", "·dog", "·run", "s", "</s>"], ["·Un", "·chien", "·près", "·d", "'", "un", "</s>"])
    assert axes.get_ylim() == (7, 0)
    assert axes.xaxis.get_ticks_position() == "top"


def test_colours_run_from_0_to_1_whatever_the_weights():
    weights = np.full((7, 5), 0.2, dtype=np.float32)
    (mesh,) = maps(draw_attention(weights, SOURCE, TARGET))[0].collections
    assert mesh.get_clim() == (0, 1)
    assert np.array_equal(mesh.get_array(), weights)


@pytest.mark.parametrize(
    ("heads", "source_length", "target_length"), [((), 1, 1), ((), 3, 2), ((), 61, 59), ((5,), 13, 11)]
)
def test_no_text_is_cut_off_or_covers_a_neighbour(heads, source_length, target_length):
    source = [f"▁mot{i}" for i in range(source_length - 1)] + ["▁anticonstitutionnellement"]
    target = ["▁hétérogénéité"] + [f"▁à{i}" for i in range(target_length - 1)]
    title = "Un titre bien plus long que le dessin : « où est passée la forêt ? »"
    figure = draw_attention(some_weights(*heads, target_length, source_length), source, target, title)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = [text for axes in figure.axes for text in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    texts += [axes.yaxis.label for axes in figure.axes] + [axes.xaxis.label for axes in figure.axes]
    boxes = [text.get_window_extent(renderer) for text in [*texts, *figure.texts] if text.get_text()]
    width, height = figure.canvas.get_width_height()
    assert len(boxes) > source_length + target_length
    assert min(min(box.x0, box.y0) for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= width
    assert max(box.y1 for box in boxes) <= height
    first, second = boxes[:2]
    assert source_length == 1 or first.x1 <= second.x0


@pytest.mark.parametrize("length", [3, 17, 60])
def test_cells_are_square_and_the_picture_grows_with_the_sentence(length):
    tokens = ["a"] * length
    figure = draw_attention(some_weights(length, length + 7), ["b"] * (length + 7), tokens)
    box = maps(figure)[0].get_window_extent()
    assert box.width / (length + 7) == pytest.approx(box.height / length)
    bigger = draw_attention(some_weights(length + 13, length + 20), ["b"] * (length + 20), ["a"] * (length + 13))
    assert all(bigger.get_size_inches() >= figure.get_size_inches())


def test_heads_become_small_maps_and_only_the_outer_ones_are_labelled():
    drawn = maps(draw_attention(some_weights(3, 7, 5), SOURCE, TARGET))
    assert [axes.get_xlabel() for axes in drawn] == ["head 0", "head 1", "head 2"]
    assert [tuple(map(len, labels(axes))) for axes in drawn] == [(5, 7), (5, 0), (0, 7)]
    assert [(len(axes.get_xticks()), len(axes.get_yticks())) for axes in drawn] == [(5, 7), (5, 0), (0, 7)]
    assert len(maps(draw_attention(some_weights(1, 7, 5), SOURCE, TARGET))) == 1


@pytest.mark.usefixtures("no_further_fonts")
def test_tokens_that_the_font_lacks_become_boxes_and_dollars_are_no_formula(tmp_path):
    assert [readable(token) for token in ["▁猫", "\n", "", "▁", "▁cœur", "$x$"]] == [
        "·□",
        "□",
        "∅",
        "·",
        "·cœur",
        "$x$",
    ]
    save_attention_map(tmp_path / "map", some_weights(2, 2), ["$\\x$", "▁猫"], ["\t", "é"], title="$5 $\\a")


def test_saved_map_holds_a_picture_and_the_exact_weights_and_tokens(tmp_path):
    weights = some_weights(2, 7, 5)
    picture = save_attention_map(tmp_path / "new" / "step_1.5", weights, SOURCE, TARGET, title="à Noël")
    assert picture == tmp_path / "new" / "step_1.5.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    with np.load(tmp_path / "new" / "step_1.5.npz", allow_pickle=False) as saved:
        assert np.array_equal(saved["weights"], weights)
        assert saved["source_tokens"].tolist() == SOURCE
        assert saved["target_tokens"].tolist() == TARGET


def test_wrong_shapes_and_names_are_refused(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"^7 target and 5 source tokens need weights of shape \(target, source\) or "
        r"\(heads, target, source\), got \(5, 7\)$",
    ):
        draw_attention(some_weights(5, 7), SOURCE, TARGET)
    with pytest.raises(ValueError, match=r"which on a command line is an override: 'step=3'$"):
        save_attention_map(tmp_path / "step=3", some_weights(7, 5), SOURCE, TARGET)


@pytest.mark.slow
def test_drawing_needs_no_pyplot():
    code = "import sys, seq2seq_attn.alignment.heat_map; sys.exit('matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("there", ["map.npz", "map.png"])
def test_files_that_are_no_map_are_not_replaced(there: str, tmp_path: Path) -> None:
    check_is_map(tmp_path / "map")
    save_attention_map(tmp_path / "map", some_weights(5, 5), SOURCE[:5], TARGET[:5])
    check_is_map(tmp_path / "map")
    for file in ("map.npz", "map.png"):
        (tmp_path / file).unlink()
    (tmp_path / there).write_bytes(b"mine")
    with pytest.raises(UserError, match=rf"{there} already exists and is not an attention map; give another path"):
        check_is_map(tmp_path / "map")
    (tmp_path / there).unlink()
    save_attention_map(tmp_path / "map", some_weights(5, 5), SOURCE[:5], TARGET[:5])
    Image.new("RGB", (3, 5)).save(tmp_path / "map.png")
    with pytest.raises(UserError, match=r"map.png already exists"):
        check_is_map(tmp_path / "map")
    (tmp_path / "map.png").unlink()
    np.savez(tmp_path / "map.npz", mine=np.zeros(3))
    with pytest.raises(UserError, match=r"map.npz already exists"):
        check_is_map(tmp_path / "map")


def test_a_map_whose_drawing_was_interrupted_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(figure: Figure, picture: BinaryIO, **_: object) -> None:
        picture.write(b"half a pict")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_attention_map(tmp_path / "map", some_weights(5, 5), SOURCE[:5], TARGET[:5])
    check_is_map(tmp_path / "map")


@pytest.mark.parametrize(("heads", "rows", "columns"), [(8, 400, 60), pytest.param(1, 60, 400, marks=pytest.mark.slow)])
def test_a_map_of_hundreds_of_tokens_is_small_enough_to_draw_and_keeps_every_number(
    heads: int, rows: int, columns: int, tmp_path: Path
) -> None:
    weights = np.zeros((heads, rows, columns), dtype=np.float32)
    weights[:, np.arange(60), np.arange(60)] = 1
    tokens = [f"▁t{number}" for number in range(400)]
    figure = draw_attention(weights, tokens[:columns], tokens[:rows])
    assert max(figure.get_size_inches()) < 45
    first, *_ = maps(figure)
    height, width = figure.get_size_inches()[::-1]
    box = first.get_position()
    assert box.width * width / columns == pytest.approx(box.height * height / rows)
    if heads == 8:
        assert labels(first) == ([], [])
    assert save_attention_map(tmp_path / "long", weights, tokens[:columns], tokens[:rows]).is_file()
    with np.load(tmp_path / "long.npz") as kept:
        assert np.array_equal(kept["weights"], weights)
