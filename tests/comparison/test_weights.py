"""Pictures of presets that can be compared: the same maps of the same sentence, in the same positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configs import built, composed
from matplotlib.backends.backend_agg import FigureCanvasAgg
from omegaconf import OmegaConf
from PIL import Image

from seq2seq_attn.checkpoint.load import FORMAT, load
from seq2seq_attn.comparison import weights as script
from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

SOURCE, TARGET = "a cat sees a black dog", "un chat voit un chien noir"
HEADS = 3  # of self-attention; cross-attention has one


def save_run(folder: Path, attention: str) -> str:
    """A Transformer that has learned nothing, as a run leaves it."""
    tokenizer = SentencePieceTokenizer("word", 100, joint=False, sampling_alpha=0.0, cache_dir=None)
    tokenizer.train([SOURCE], [TARGET])
    sizes = [f"model.{side}.{size}" for side in ("encoder", "decoder") for size in ("dim=24", "num_layers=2")]
    config = composed(
        "model=transformer",
        f"attention={attention}",
        f"attention.num_heads={HEADS}",
        "model.embedding_dim=24",
        f"model.source_vocab_size={tokenizer.source_vocab_size}",
        f"model.target_vocab_size={tokenizer.target_vocab_size}",
        *sizes,
    )
    (folder / "checkpoints").mkdir(parents=True)
    checkpoint = {
        "format": FORMAT,
        "config": {
            **{name: OmegaConf.to_container(config[name], resolve=True) for name in ("model", "search", "data")},
            "choices": {"attention": attention},
        },
        "state_dict": {f"model.{name}": x for name, x in built(config.model).state_dict().items()},
        "tokenizer": tokenizer.get_state(),
    }
    torch.save(checkpoint, folder / "checkpoints" / "best.ckpt")
    return str(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: save_run(folder / name, name) for name in ("multihead", "bahdanau")}


def wanted(*texts: str) -> list[Any]:
    return [script.Wanted.parse(text) for text in texts]


def pixels(picture: Path) -> np.ndarray:
    with Image.open(picture) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def some_map(rows: int, columns: int) -> Any:
    weights = np.random.default_rng(1).random((rows, columns))
    return script.Map("encoder/0", weights, ["row"] * rows, ["column"] * columns)


@pytest.mark.slow
def test_a_map_is_the_layer_and_head_that_was_asked_for(runs: dict[str, str]) -> None:
    model, tokenizer, _ = load(runs["multihead"])
    (tokens,), (given,) = tokenizer.encode_source([SOURCE]), tokenizer.encode_target([TARGET])
    source, _, mask = collate_sources([tokens], pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
    weights = model(source, mask, torch.tensor([[tokenizer.bos_id, *given]]), need_weights=True).weights
    preset, maps = script.read(
        runs["multihead"], SOURCE, TARGET, wanted("encoder:0:1", "encoder:-1:-1", "cross:0:0", "self:1:0")
    )
    expected = [weights["encoder/0"][0, 1], weights["encoder/1"][0, 2]]
    expected += [weights["cross/0"][0, 0], weights["self/1"][0, 0]]
    assert preset == "multihead"
    for found, one in zip(maps, expected, strict=True):
        np.testing.assert_allclose(found.weights, one.detach(), atol=1e-6)
    assert [found.name for found in maps] == [
        "encoder/0, head 1 of 3",
        "encoder/1, head 2 of 3",
        "cross/0, head 0 of 1",
        "self/1, head 0 of 3",
    ]


def test_a_checkpoint_names_no_file_outside_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = [some_map(3, 4)]
    monkeypatch.setattr(script, "read", lambda *_: (f"{tmp_path}/mine", maps))
    (tmp_path / "mine.png").write_text("a photograph")
    script.main(["run", "--sentence", SOURCE, "--output", str(tmp_path / "out")])
    assert (tmp_path / "mine.png").read_text() == "a photograph"
    assert (tmp_path / "out" / "mine.png").stat().st_size > 1000


@pytest.mark.parametrize("there", ["a photograph", "a text", "a folder"])
def test_a_file_that_this_command_has_not_drawn_is_not_replaced(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "read", lambda run, *_: (run, [some_map(3, 4)]))
    command = ["mine", "other", "--sentence", SOURCE, "--output", str(tmp_path)]
    script.main(command)
    script.main(command)
    picture = tmp_path / "other.png"
    picture.unlink()
    if there == "a folder":
        picture.mkdir()
    elif there == "a text":
        picture.write_text("mine")
    else:
        Image.new("RGB", (3, 5)).save(picture)
    before = (tmp_path / "mine.png").stat().st_mtime_ns, picture.is_file() and picture.read_bytes()
    with pytest.raises(SystemExit, match="2"):
        script.main(command)
    assert capsys.readouterr().err == (
        f"{picture} already exists and is not a picture of seq2seq-attn draw weights; give another --output\n"
    )
    assert before == ((tmp_path / "mine.png").stat().st_mtime_ns, picture.is_file() and picture.read_bytes())


def test_pictures_are_written_below_the_current_folder_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = [some_map(3, 4)]
    monkeypatch.setattr(script, "read", lambda *_: ("mine", maps))
    monkeypatch.chdir(tmp_path)
    script.main(["run", "--sentence", SOURCE])
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.png")] == ["attention_weights/mine.png"]


def test_rows_are_the_translation_that_was_given_whatever_the_run_would_say(runs: dict[str, str]) -> None:
    (given,) = script.read(runs["multihead"], SOURCE, TARGET, wanted("cross:0:0"))[1]
    (own,) = script.read(runs["multihead"], SOURCE, None, wanted("cross:0:0"))[1]
    assert given.rows == ["·un", "·chat", "·voit", "·un", "·chien", "·noir", "</s>"]
    assert given.columns == own.columns == ["·a", "·cat", "·sees", "·a", "·black", "·dog", "</s>"]
    assert own.rows != given.rows


def test_pictures_have_one_size_and_their_maps_one_position_and_one_size_of_cells() -> None:
    short, long = script.draw([[some_map(7, 7), some_map(3, 7)], [some_map(7, 7), some_map(13, 7)]])
    assert short.get_size_inches().tolist() == long.get_size_inches().tolist()
    for one, other in zip(short.axes, long.axes, strict=True):
        boxes = [axes.get_window_extent() for axes in (one, other)]
        assert boxes[0].x0 == pytest.approx(boxes[1].x0)
        assert boxes[0].y1 == pytest.approx(boxes[1].y1)
        assert min(box.y0 for box in boxes) > 0
    cells = [
        (axes.get_window_extent().width / axes.get_xlim()[1], axes.get_window_extent().height / axes.get_ylim()[0])
        for figure in (short, long)
        for axes in figure.axes
    ]
    assert np.ptp(np.array(cells)) == pytest.approx(0, abs=1e-9)


def test_no_text_is_cut_off_or_runs_into_the_next_map() -> None:
    (figure,) = script.draw([[some_map(5, 7)._replace(rows=["·anticonstitutionnellement"] * 5)] * 2])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    first, second = figure.axes
    texts = [*first.get_yticklabels(), *first.get_xticklabels(), first.xaxis.label, *second.get_yticklabels()]
    boxes = [text.get_window_extent(renderer) for text in texts]
    width, height = canvas.get_width_height()
    assert min(min(box.x0, box.y0) for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= width
    assert max(box.y1 for box in boxes) <= height
    assert min(box.x0 for box in boxes[-5:]) >= first.get_window_extent().x1


def test_a_weight_of_exactly_zero_is_grey_and_a_small_one_is_not(tmp_path: Path) -> None:
    weights = np.array([[0.0, 0.001, 1.0]])
    (figure,) = script.draw([[script.Map("cross/0", weights, ["row"], ["a", "b", "c"])]])
    script.save(figure, tmp_path / "map.png")
    drawn = pixels(tmp_path / "map.png")
    box = figure.axes[0].get_window_extent()
    row = round(drawn.shape[0] - (box.y0 + box.y1) / 2)
    nothing, little, all_of_it = (drawn[row, round(box.x0 + box.width * (i + 0.5) / 3)] for i in range(3))
    assert np.ptp(nothing) == 0
    assert 200 < nothing[0] < 240
    assert little[0] - little[2] > 30
    assert all_of_it.max() < 10


def test_each_run_becomes_a_small_picture_named_for_its_preset_and_an_unfinished_one_is_left_out(
    runs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.main([*runs.values(), str(tmp_path), "--sentence", SOURCE, "--output", str(tmp_path / "images")])
    pictures = sorted((tmp_path / "images").iterdir())
    assert [picture.name for picture in pictures] == ["bahdanau.png", "multihead.png"]
    assert len({pixels(picture).shape for picture in pictures}) == 1
    assert max(picture.stat().st_size for picture in pictures) < 40_000
    assert capsys.readouterr().err.startswith(f"left out: ckpt_path={tmp_path} holds no checkpoints/best.ckpt")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--maps", "encoder"], "encoder is not KIND:LAYER:HEAD, such as encoder:0:0"),
        (["--maps", "cross:7:0"], "has no map cross:7:0; it has encoder/0 with"),
        (["{run}"], "is a second run of attention=multihead; give one run for each preset"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(
    arguments: list[str], sentence: str, runs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs["multihead"]
    typed = [run, *(argument.format(run=run) for argument in arguments), "--sentence", SOURCE]
    with pytest.raises(SystemExit, match="2"):
        script.main([*typed, "--output", str(tmp_path)])
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_map_that_a_model_lacks_is_named_beside_those_that_it_has(runs: dict[str, str]) -> None:
    with pytest.raises(
        script.UserError, match=r"has no map encoder:2:0; it has encoder/0 with 3 heads, .+, cross/1 with 1 heads"
    ):
        script.read(runs["bahdanau"], SOURCE, TARGET, wanted("encoder:2:0"))


def test_a_sentence_of_no_token_is_named_as_that(runs: dict[str, str]) -> None:
    with pytest.raises(script.UserError, match=r"reads no token in the sentence, so there is nothing to draw$"):
        script.read(runs["bahdanau"], "\x01", None, wanted("cross:0:0"))


def test_an_empty_sentence_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main([str(tmp_path), "--sentence", " "])
    assert "--sentence is empty, so there is nothing to draw" in capsys.readouterr().err
