"""What a head is worth is the rise of the loss without it; the figures are means over the pairs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from comparison.test_page import Checker
from explorer.three_models import NAMES, OVERRIDES
from tiny import SENTENCES, write_checkpoint

from seq2seq_attn.alignment.forced_attention import attention_along
from seq2seq_attn.alignment.head_summary import confidences, summaries
from seq2seq_attn.errors import UserError
from seq2seq_attn.explorer import head_worth
from seq2seq_attn.explorer import heads as script
from seq2seq_attn.explorer.head_worth import FIGURES, Head, Measured, Pairs, measure, ratio, read_pairs
from seq2seq_attn.explorer.heads_page import heads_page
from seq2seq_attn.explorer.intervention import Intervention, attention_layers, intervened
from seq2seq_attn.inference.models import Models, load_models

GIVEN = list(zip(SENTENCES, SENTENCES[::-1], strict=True))[:7]
ONE_LAYER = ("model.encoder.num_layers=1", "model.decoder.num_layers=1")
MORE = {
    "linear": ("model=transformer", "attention=linear", "attention.num_heads=2", *ONE_LAYER),
    "lm": ("model=lm", "attention.num_heads=2"),
    "luong": ("decoder@model.decoder=rnn_luong", "attention=local_p"),
    "encoder": ("model=transformer", "attention=multihead", "attention@encoder_attention=fixed_patterns", *ONE_LAYER),
}
MODELS = dict(zip(NAMES, OVERRIDES, strict=True)) | MORE


FEW = ("rnn", "encoder")  # the others are slow


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[] if name in FEW else pytest.mark.slow) for name in MODELS]
)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Models:
    """In float64, so that two orders of a sum agree."""
    file = write_checkpoint(tmp_path_factory.mktemp("heads") / "model.ckpt", *MODELS[request.param], scale=1.5)
    models = load_models([str(file)], "cpu")
    models.model.double()
    return models._replace(configs=[models.config | {"batch_tokens": 60}])


@pytest.fixture(scope="module")
def pairs(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in GIVEN), encoding="utf-8")
    return read_pairs(models, [str(file)], 100)


def loss_of(models: Models, source: list[int], target: list[int]) -> float:
    """Of a pair alone, by the definition."""
    tokenizer, model = models.tokenizer, models.members[0]
    read = torch.tensor([[tokenizer.bos_id, *target]])
    source_ids = torch.tensor([[*source, tokenizer.eos_id]])
    logits = model.logits(model(source_ids, torch.ones_like(source_ids, dtype=torch.bool), read).hidden)
    written = torch.tensor([*target, tokenizer.eos_id])
    return -float(logits.double().log_softmax(-1)[0, torch.arange(len(written)), written].sum())


def test_a_change_that_a_layer_does_not_take_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("model=transformer", "attention=delta", "attention@encoder_attention=multihead", *ONE_LAYER)
    models = load_models([str(write_checkpoint(tmp_path / "model.ckpt", *options))], "cpu")
    for pass_over_pairs in ("mean_figures", "token_losses"):
        monkeypatch.delattr(head_worth, pass_over_pairs)
    with pytest.raises(
        UserError, match=r"^the weights of self/0 come from the delta rule and cannot be made uniform; use kno"
    ):
        measure(models, Pairs([[5]], [[6]]), "uniform")


@torch.inference_mode()
def test_a_rise_is_that_of_the_mean_loss_of_a_token_without_the_head(models: Models, pairs: Pairs) -> None:
    before = loss_of(models, pairs.sources[0], pairs.targets[0])
    measured = measure(models, pairs, "knock_out")
    assert loss_of(models, pairs.sources[0], pairs.targets[0]) == before
    both = list(zip(pairs.sources, pairs.targets, strict=True))
    tokens = sum(len(target) + 1 for target in pairs.targets)
    base = sum(loss_of(models, *pair) for pair in both) / tokens
    assert (measured.pairs, measured.tokens) == (len(GIVEN), tokens)
    assert measured.loss == pytest.approx(base, rel=1e-5)
    layers = attention_layers(models.members[0])
    assert [(one.slot, one.head) for one in measured.heads] == [
        (slot, head) for slot, layer in layers.items() for head in (*range(layer.num_heads), None)
    ]
    for one in measured.heads:
        with intervened(models.members[0], [Intervention("knock_out", one.slot, one.head)]):
            changed = sum(loss_of(models, *pair) for pair in both) / tokens
        assert one.rise == pytest.approx(changed - base, abs=2e-6), (one.slot, one.head)
    assert max(abs(one.rise) for one in measured.heads) > 1e-3
    uniform = measure(models, pairs, "uniform")
    assert [one.figures for one in uniform.heads] == [one.figures for one in measured.heads]
    assert [one.rise for one in uniform.heads] != [one.rise for one in measured.heads]


@torch.inference_mode()
def test_figures_are_means_over_the_pairs_and_a_layer_has_none(models: Models, pairs: Pairs) -> None:
    measured = measure(models, pairs, None)
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for source, target in zip(pairs.sources, pairs.targets, strict=True):
        for one in attention_along(models.members[0], models.tokenizer, source, target):
            weights = torch.from_numpy(one.weights)
            told = summaries(weights, one.slot.partition("/")[0], [0] * weights.shape[2], [""])
            for head, summary in enumerate(told):
                shares = weights[head].abs() / weights[head].abs().sum(-1, keepdim=True)
                summary["confidence"] = float(shares.nan_to_num(0).amax(-1).sum() / (shares.sum(-1) > 0).sum().clamp(1))
                found.setdefault((one.slot, head), []).append(summary)
    assert len(found) == sum(one.head is not None for one in measured.heads)
    for one in measured.heads:
        assert math.isnan(one.rise)
        assert math.isnan(one.error)
        if one.head is None:
            assert one.figures == {}
            continue
        of_pairs = found[one.slot, one.head]
        expected = {name: np.mean([told[name] for told in of_pairs]) for name in FIGURES}
        assert one.figures == pytest.approx(expected, abs=1e-6)


def test_a_layer_without_weights_has_no_figures(models: Models, pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_worth, "attention_along", lambda *_: [])
    assert not any(one.figures for one in measure(models, pairs, None).heads)


def test_confidence_is_of_rows_that_have_weight() -> None:
    weights = torch.tensor([[[0.5, 0.25, 0.25], [0.0, 0.0, 0.0], [-3.0, 0.0, 1.0]], [[0.0] * 3] * 3])
    assert confidences(weights).tolist() == [(0.5 + 0.75) / 2, 0.0]


def test_the_interval_is_that_of_a_mean_where_all_pairs_are_of_one_length() -> None:
    sums = np.array([1.0, 2.0, 4.0, 4.5])
    mean, error = ratio(sums, np.full(4, 5))
    assert mean == pytest.approx(sums.mean() / 5)
    assert error == pytest.approx(1.96 * sums.std(ddof=1) / 2 / 5)
    drawn = np.random.default_rng(1)
    tokens = drawn.integers(3, 30, 400)
    sums = 0.1 * tokens + drawn.normal(0, 1, 400)
    chosen = drawn.integers(0, 400, (4000, 400))
    resampled = sums[chosen].sum(1) / tokens[chosen].sum(1)
    assert ratio(sums, tokens)[1] == pytest.approx(1.96 * resampled.std(), rel=0.05)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("source.txt").write_text("".join(f"{source}\n" for source, _ in GIVEN), encoding="utf-8")
    Path("target.txt").write_text("".join(f"{target}\n" for _, target in GIVEN), encoding="utf-8")
    file = write_checkpoint(tmp_path / "<i>.ckpt", *MODELS["transformer"], scale=1.5)
    checkpoint = torch.load(file, weights_only=True)
    checkpoint["config"]["batch_tokens"] = 60
    torch.save(checkpoint, file)
    return file


@pytest.mark.slow
def test_the_command_writes_a_page_and_its_figures(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.main([str(run), "source.txt", "target.txt", "--most", "5", "--output", "new/heads.html"])
    said = capsys.readouterr().out
    assert said.startswith("5 pairs, ")
    assert "wrote new/heads.html and new/heads.tsv" in said
    head, *lines = Path("new/heads.tsv").read_text().splitlines()
    assert head.split("\t") == ["slot", "head", "rise", "error", *FIGURES]
    rows = [line.split("\t") for line in lines]
    assert len(rows) == 6 * 3  # two layers of each kind, with two heads and both
    assert {len(row) for row in rows} == {9}
    assert [row[4:] for row in rows if row[1] == "all"] == [[""] * 5] * 6
    previous = [row for row in rows if row[head.split("\t").index("previous")] == "" and row[1] != "all"]
    assert {row[0] for row in previous} == {"cross/0", "cross/1"}  # whose rows are of other tokens than its columns
    models = load_models([str(run)], "cpu")
    measured = measure(models, read_pairs(models, ["source.txt", "target.txt"], 5), "knock_out")
    assert [float(row[2]) for row in rows] == pytest.approx([one.rise for one in measured.heads], abs=1e-5)
    text = Path("new/heads.html").read_text(encoding="utf-8")
    assert Checker(text).open == []
    assert "&lt;i&gt;.ckpt on 5 pairs; loss " in text
    assert "<i>" not in text
    assert text.count('<table class="grid">') == 3 * 6 - 1
    assert text.count("<h2>") == 3
    assert text.count(">on the previous token<") == 2 * 2  # a grid and a column of each self-attention
    assert "default-src 'none'" in text
    script.main([str(run), "source.txt", "target.txt", "--output", "new/heads.html", "--change", "none"])  # its own
    assert "all heads" in text
    assert "all heads" not in Path("new/heads.html").read_text(encoding="utf-8")  # a layer as a whole has only a rise
    assert "rise of the loss" not in Path("new/heads.html").read_text(encoding="utf-8")
    assert all(line.split("\t")[2:4] == ["", ""] for line in Path("new/heads.tsv").read_text().splitlines()[1:])


@pytest.mark.slow
def test_a_command_that_ends_while_it_prints_has_written_its_files(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "print_heads", interrupted)
    with pytest.raises(SystemExit, match=r"^130$"):
        script.main([str(run), "source.txt", "target.txt", "--output", "new/heads.html", "--change", "none"])
    assert Path("new/heads.html").is_file()
    assert Path("new/heads.tsv").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "heads.pdf"], "--output heads.pdf does not end in .html; give heads.html"),
        (["--most", "1"], "--most 1 pairs have no spread; give 2 or more"),
        (["--num-threads", "0"], "--num-threads 0 is not enough; give 1 or more"),
        (
            ["--output", "source.txt/heads.html"],
            "source.txt/heads.html cannot be written, since nothing can be written in",
        ),
        (["--output", "mine.html"], "mine.html already exists and is not a page of seq2seq-attn"),
        (["--output", "other.html"], "other.tsv would be written beside other.html and holds something else"),
        (["target.txt"], "3 files of pairs; give one file of pairs, or SOURCE and TARGET"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(
    words: list[str], said: str, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "load_models", None)
    Path("mine.html").write_text("<p>mine</p>")
    Path("other.tsv").write_text("a\tb\n")
    with pytest.raises(SystemExit, match="2"):
        script.main([str(run), "source.txt", "target.txt", *words])
    assert said in capsys.readouterr().err
    assert Path("mine.html").read_text() == "<p>mine</p>"
    assert Path("other.tsv").read_text() == "a\tb\n"


def test_pairs_are_spread_over_the_file_and_two_are_needed(run: Path) -> None:
    models = load_models([str(run)], "cpu")
    every = read_pairs(models, ["source.txt", "target.txt"], 100)
    some = read_pairs(models, ["source.txt", "target.txt"], 3)
    assert some.sources == [every.sources[row] for row in (0, 2, 4)]
    assert some.targets == [every.targets[row] for row in (0, 2, 4)]
    with pytest.raises(UserError, match=r"^none.tsv cannot be read \(No such file or directory\)"):
        read_pairs(models, ["none.tsv"], 3)
    Path("one.tsv").write_text("a\tb\n")
    with pytest.raises(UserError, match=r"one.tsv has 1 pairs, and their spread is measured; give more"):
        read_pairs(models, ["one.tsv"], 3)


def test_small_falls_of_the_loss_are_no_negative_zero_and_darker_is_more() -> None:
    figures = dict.fromkeys(FIGURES, 0.5)
    heads = [Head("cross/0", 0, -1e-5, 0.1, figures), Head("cross/0", 1, 0.8, 0.1, figures)]
    text = heads_page(Measured([*heads, Head("cross/0", None, 0.9, 0.1, {})], 2.0, 3, 9, "uniform"), "run")
    assert '<td style="background:rgb(255,255,255);color:#111">0.000</td>' in text
    assert '<td style="background:rgb(0,0,0);color:#fff">0.800</td>' in text
    assert "1 of 2 heads can be taken out alone" in text
