"""The example Vision Transformer, on made images; on scikit-learn's digits where it is installed."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from configs import ROOT

from examples.classify_digits import classify_digits as script

COMMANDS = dict.fromkeys(
    re.findall(
        r"^python -m examples\.classify_digits\.classify_digits(.*)$",
        (ROOT / "examples" / "classify_digits" / "README.md").read_text(encoding="utf-8")
        + (ROOT / "docs" / "alone.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)  # some are on both pages


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> script.Split:
    """Replace the digits by ten pictures with noise, and the four layers by two."""
    generator = torch.Generator().manual_seed(0)
    digits = torch.arange(400) % 10
    pictures = torch.rand(10, 8, 8, generator=generator).round()
    images = 0.8 * pictures[digits] + 0.2 * torch.rand(400, 8, 8, generator=generator)
    monkeypatch.setattr(script, "LAYERS", 2)
    split = images, digits
    monkeypatch.setattr(script, "read_digits", lambda seed: (split, split))
    return split


def test_patches_are_cut_row_by_row() -> None:
    image = torch.arange(64.0).view(1, 8, 8)
    patches = script.cut(image, 2)
    assert patches.shape == (1, 16, 4)
    assert patches[0, [0, 1, 4]].tolist() == [[0, 1, 8, 9], [2, 3, 10, 11], [16, 17, 24, 25]]
    assert script.cut(image, 1)[0, :, 0].tolist() == list(range(64))


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_it_learns_pictures_and_draws_the_maps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "new" / "maps.png"
    assert script.main(["--epochs", "8", "--plot", str(plot), "output_bias=true"]) > 0.9
    assert re.match(r"epoch 1: train loss \d\.\d{4}, test loss \d\.\d{4}, accuracy \d", capsys.readouterr().out)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_maps_are_the_weights_of_the_class_token_over_the_patches(
    made: script.Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layers = [script.build_attention("multihead", dim=script.DIM, num_heads=script.HEADS)]
    model = script.VisionTransformer(layers, patch=2).eval()
    weights = torch.zeros(1, script.HEADS, 17, 17)
    weights[:, 0, 0, 1 + 4 + 2] = 1  # second row of patches, third column
    monkeypatch.setattr(model, "forward", lambda images, need_weights: (torch.zeros(len(images), 10), [weights]))
    drawn = []
    monkeypatch.setattr(script.Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    script.draw(model, (made[0][:1], made[1][:1]), tmp_path / "maps.png")
    image, head, *_ = drawn[0].axes
    assert image.images[0].get_array().tolist() == made[0][0].tolist()
    assert head.images[0].get_array().tolist() == [[0.0] * 4, [0.0, 0.0, 1.0, 0.0], [0.0] * 4, [0.0] * 4]


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_sampled_positions_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main(["--attention", "hard", "--epochs", "1"])
    assert "give normalizer=hard_gumbel" in capsys.readouterr().err
    script.main(["--attention", "hard", "normalizer=hard_gumbel", "--epochs", "1"])


def test_without_scikit_learn_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(SystemExit, match="2"):
        script.main([])
    assert capsys.readouterr().err == "the digits are in scikit-learn: pip install 'seq2seq_attn[examples]'\n"


@pytest.mark.filterwarnings("default")
def test_it_reads_the_digits_of_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    training, test = script.read_digits(seed=1)
    assert [split[0].shape for split in (training, test)] == [(1437, 8, 8), (360, 8, 8)]
    assert training[0].aminmax() == (0, 1)
    assert all(35 <= count <= 37 for count in test[1].bincount().tolist())
    assert script.main(["--epochs", "3", "output_bias=true"]) > 0.75


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 3


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "train", lambda *_: 0.5)
    monkeypatch.chdir(tmp_path)
    assert script.main(shlex.split(command)) == 0.5
    assert (tmp_path / "maps.png").exists() == ("--plot" in command)
