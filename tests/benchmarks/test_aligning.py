"""The queue of guided alignment: its runs, no run repeated, what is measured of them, and its pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from comparison.made_runs import spoilt, write_run
from configs import CONF
from hydra import compose, initialize_config_dir
from small_checkpoint import write_checkpoint
from training.test_toy_tasks import model_for

from scripts.benchmarks import aligning as script
from scripts.benchmarks import homes
from scripts.benchmarks.aligning import Run
from scripts.benchmarks.home_runs import MEASURES, ROWS, read_rows, write_rows
from scripts.benchmarks.write_aligning_page import DIRECTIONS, JOINED, links_table
from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.forced_attention import SlotMap, WordMaps
from seq2seq_attn.alignment.gold import AlignedPair

RESULTS = {"test/loss": 2.5, "test/bleu_signature": "nrefs:1", "test/chrf_signature": "nrefs:1|nc:6"}
GOLD = (
    "The red house ||| la maison rouge  1-1 2-3 3-2\na dog ||| un chien  1-1 2p2\nShe hears ||| elle entend  1-1 2-2\n"
)
UNGUIDED = [0.05, False, "ignore"]  # weight, shift and unlinked, which have no effect without links
TRANSFORMER = (
    "model=transformer",
    "model.encoder.num_layers=3",
    "model.decoder.num_layers=3",
    "cross_attention.num_heads=2",
)


@pytest.fixture
def bitext(tmp_path: Path) -> Path:
    folder = tmp_path / "bi text"
    folder.mkdir()
    for name in ("train", "val", "test_tatoeba", "test_2016"):
        (folder / f"{name}.en").write_text("the red house\na dog\n", encoding="utf-8")
        (folder / f"{name}.fr").write_text("la maison rouge\nun chien\n", encoding="utf-8")
    (folder / script.EFLOMAL).write_text("0-0 2-1\n0-0 1-1\n", encoding="utf-8")
    rate = {"links": 1, "precision": 80.0, "recall": 80.0}
    rates = {"diagonal": 55.0, "eflomal, forward": 13.0, "eflomal, grow-diag": 12.0, "fast_align, forward": 23.5}
    found = {name: rate | {"error_rate": error_rate} for name, error_rate in rates.items()}
    (folder / "alignment.json").write_text(json.dumps({"pairs": 99_240, "alignment": found}), encoding="utf-8")
    (tmp_path / "alignments").mkdir()
    (tmp_path / "alignments/enfr-dev.src-tgt").write_text(GOLD, encoding="utf-8")
    return folder


def typed(act: str, bitext: Path, runs: Path, plan: str, *others: str) -> list[str]:
    return [act, "--bitext", str(bitext), "--runs", str(runs), "--plan", plan, *others]


def composed(run: Run) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", script.command(run, Path("/bi text"), Path("/runs")))


@pytest.mark.parametrize(
    ("name", "links", "languages"),
    [
        ("transformer_guided", "/runs/links", ("en", "fr")),
        ("transformer_rev_guided", "/runs/turned.links", ("fr", "en")),
        ("rnn_plain", None, ("en", "fr")),
        ("rnn_guided", "/runs/links", ("en", "fr")),
        ("rnn_guided_shift", "/runs/links", ("en", "fr")),
        ("transformer_rev_self", "self", ("fr", "en")),
    ],
)
def test_the_name_of_a_run_says_what_it_is(name: str, links: str | None, languages: tuple[str, str]) -> None:
    config = composed(Run(name, 3))
    assert (config.guided_alignment.links, config.seed) == (links, 3)
    assert (config.data.source_language, config.data.target_language) == languages
    assert list(config.data.train) == [f"/runs/train.{language}" for language in languages]
    assert list(config.data.val) == list(config.data.test) == [f"/bi text/val.{language}" for language in languages]
    assert config.trainer.max_epochs == (5 if name.startswith("rnn") else 6)
    shift = not name.startswith("rnn") or name.endswith("shift")
    decoder = "rnn_conditional" if name.startswith("rnn") else "transformer"
    assert_settings(config, decoder, guided=links is not None, shift=shift)
    if links == "self":
        assert list(config.guided_alignment.runs) == ["/runs/transformer_rev_plain", "/runs/transformer_plain"]
    assert Run(name, 3).folder(Path("/runs")) == Path(f"/runs/{name}_3")
    assert Run(name, 1).folder(Path("/runs")) == Path(f"/runs/{name}")


def assert_settings(config: Any, decoder: str, *, guided: bool, shift: bool) -> None:
    """Assert the options that all runs have, those of a model, and those of guided runs."""
    assert not config.data.cleaning.deduplicate
    assert config.model.decoder._target_.rpartition(".")[0] == f"seq2seq_attn.decoder.{decoder}"
    assert decoder != "transformer" or config.position._target_ == "seq2seq_attn.position.rotary.RotaryPosition"
    options = config.guided_alignment
    assert [options.weight, options.shift, options.unlinked] == ([0.2, shift, "end"] if guided else UNGUIDED)


def test_each_preset_is_guided_once_in_its_home() -> None:
    runs = script.attention_runs()
    assert len(runs) == len(set(runs))
    guided = [run.name.split("/")[1:] for run in runs if not run.name.endswith("_plain")]
    assert sorted(preset for _, preset in guided) == sorted(set(script.presets()) - {"none"})
    homes_of = {preset: model for model, preset in guided}
    assert (homes_of["coverage"], homes_of["local_m"], homes_of["sink"]) == ("rnn", "rnn_luong", "transformer")
    for name, slot, decoder in (
        ("transformer/sink", "cross_attention", "transformer"),
        ("rnn_luong/luong_concat", "attention", "rnn_luong"),
        ("rnn/coverage", "attention", "rnn_conditional"),
    ):
        config = composed(Run(f"attentions/{name}", 1))
        assert_settings(config, decoder, guided=True, shift=decoder == "transformer")
        with initialize_config_dir(str(CONF), version_base="1.3"):
            assert config[slot] == compose("train", [f"attention={name.rpartition('/')[2]}"]).attention
        assert config.guided_alignment.links == "/runs/links"
        assert config.trainer.max_steps == script.UPDATES
    assert composed(Run("attentions/rnn/bahdanau_plain", 1)).guided_alignment.links is None


def test_each_run_of_guidance_is_in_a_row_of_its_page_and_each_row_is_of_such_runs() -> None:
    named = {name for both in DIRECTIONS.values() for name in both if name is not None}
    assert named == {run.name for run in script.guidance_runs()}


def finish(overrides: Sequence[str], folder: Path) -> None:
    """Leave what train.py leaves."""
    assert "resume=auto" in overrides
    (folder / "run.lock").unlink(missing_ok=True)
    folder.rmdir()
    write_run(folder, "multihead", spoilt(3), options={"trainer": {"max_epochs": 2}}, **RESULTS)


def test_rows_are_of_all_that_is_trained_whoever_trained_it(
    bitext: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, started = tmp_path / "runs", []

    def train(overrides: Sequence[str], folder: Path) -> None:
        started.append(folder.name)
        if folder.name == "rnn_plain" and started.count("rnn_plain") == 1:
            return  # it fails
        finish(overrides, folder)

    write_run(runs / "transformer_guided", "multihead", spoilt(3), options={"trainer": {"max_epochs": 10}}, **RESULTS)
    monkeypatch.setattr(homes, "train", train)
    script.main(typed("run", bitext, runs, "guidance"))
    assert "transformer_guided" not in started
    assert started.count("rnn_plain") == 2
    rows = read_rows(runs / ROWS)
    assert {(row["name"], row["seed"]) for row in rows} == set(script.guidance_runs())
    (found,) = (row for row in rows if (row["name"], row["seed"]) == ("transformer_guided", 1))
    assert (found["epochs"], found["processor_minutes"]) == (10, None)
    before = len(started)
    script.main(typed("run", bitext, runs, "guidance"))
    assert len(started) == before


def test_restored_rows_count_as_finished_and_only_runs_that_another_one_reads_are_trained_again(
    bitext: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, started = tmp_path / "runs", []
    names = ("rnn_plain", "transformer_plain", "transformer_rev_plain")
    figures = {
        "rows": [{"name": name, "seed": 1, "bleu": 1.0} for name in names],
        "measures": [{"name": name, "seed": 1, "error_rate": 30.0} for name in names],
    }
    (tmp_path / "page.json").write_text(json.dumps(figures), encoding="utf-8")
    script.main(["restore", "--runs", str(runs), "--page", str(tmp_path / "page.md")])
    assert (read_rows(runs / ROWS), read_rows(runs / MEASURES)) == (figures["rows"], figures["measures"])

    monkeypatch.setattr(
        homes, "train", lambda overrides, folder: (started.append(folder.name), finish(overrides, folder))
    )
    script.main(typed("run", bitext, runs, "guidance", "--only", "rnn_plain", "transformer_plain"))
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main(typed("run", bitext, runs, "guidance", "--only", "transformer_plain", "transformer_self"))
    assert "transformer_self: need the links of transformer_rev_plain; name" in capsys.readouterr().err
    assert started == []
    self_guided = ["transformer_plain", "transformer_rev_plain", "transformer_self"]
    script.main(typed("run", bitext, runs, "guidance", "--only", *self_guided))
    assert started == self_guided
    assert [row["name"] for row in read_rows(runs / MEASURES)] == ["rnn_plain"]
    script.main(["restore", "--runs", str(runs), "--page", str(tmp_path / "page.md")])
    assert len(read_rows(runs / ROWS)) == 4  # a row of this machine is kept
    with homes.alone(runs), pytest.raises(SystemExit, match=r"^2$"):
        script.main(["restore", "--runs", str(runs), "--page", str(tmp_path / "page.md")])
    (tmp_path / "other.json").write_text('{"rows": [{"preset": "bahdanau"}]}', encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main(["restore", "--runs", str(runs), "--page", str(tmp_path / "other.md")])
    assert "has no rows of this script" in capsys.readouterr().err


def test_a_run_learns_links_of_finished_runs_alone(
    bitext: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, started, lost = tmp_path / "runs", [], True

    def train(overrides: Sequence[str], folder: Path) -> None:
        started.append(folder.name)
        sleep(0.2 if folder.name == "transformer_rev_plain" else 0)
        if not (lost and folder.name == "transformer_rev_plain"):
            finish(overrides, folder)

    monkeypatch.setattr(homes, "train", train)
    names = ["transformer_plain", "transformer_rev_plain", "rnn_plain", "transformer_self"]
    words = typed("run", bitext, runs, "guidance", "--jobs", "2", "--only", *names)
    with pytest.raises(SystemExit, match=r"^1 runs failed: transformer_rev_plain; "):
        script.main(words)
    assert "transformer_self" not in started
    lost = False
    started.clear()
    script.main(words)
    assert started == ["transformer_rev_plain", "transformer_self"]


def test_a_picture_is_kept_where_its_runs_are_not(tmp_path: Path) -> None:
    file = tmp_path / "maps.png"
    assert script.draw_maps(tmp_path, [], file) is None
    file.write_bytes(b"PNG")
    assert script.draw_maps(tmp_path, [], file) == file
    assert file.read_bytes() == b"PNG"


def test_the_pairs_of_the_hansards_are_trained_on_ten_times_with_their_links(
    bitext: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "HANSARDS", 1)
    monkeypatch.setattr(homes, "train", lambda *_: None)
    names, times = ("train.en", "train.fr", "links", "turned.links"), []
    for _ in range(2):
        with pytest.raises(SystemExit, match="1 runs failed: rnn_plain"):
            script.main(typed("run", bitext, tmp_path / "runs", "guidance", "--only", "rnn_plain"))
        times.append([(tmp_path / "runs" / name).stat().st_mtime_ns for name in names])
    assert times[0] == times[1]  # the cache of prepared pairs knows files by their times
    assert [(tmp_path / "runs" / name).read_text("utf-8").splitlines() for name in names] == [
        ["the red house", *["a dog"] * 10],
        ["la maison rouge", *["un chien"] * 10],
        ["0-0 2-1", *["0-0 1-1"] * 10],
        ["0-0 1-2", *["0-0 1-1"] * 10],
    ]
    (bitext / "train.en").write_text("the red house\na cat\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="1 runs failed: rnn_plain"):
        script.main(typed("run", bitext, tmp_path / "runs", "guidance", "--only", "rnn_plain"))
    assert (tmp_path / "runs" / "train.en").read_text("utf-8").endswith("a cat\n")


@pytest.mark.parametrize(
    ("preset", "reason"),
    [
        ("linear", "KernelAttention computes its context without weights"),
        ("top_k", "those of TopKNormalizer are not"),
        ("differential", "those of DifferentialMix are not"),
    ],
)
def test_a_preset_that_cannot_be_guided_is_a_row_with_the_reason(
    preset: str, reason: str, bitext: Path, tmp_path: Path
) -> None:
    name = f"attentions/transformer/{preset}"
    script.main(typed("run", bitext, tmp_path / "runs", "attentions", "--only", name))
    (row,) = read_rows(tmp_path / "runs" / ROWS)
    assert (row["name"], row["seed"]) == (name, 1)
    assert reason in row["refused"]
    assert not (tmp_path / "runs" / name).exists()


@pytest.mark.slow
def test_runs_that_start_at_once_do_not_disturb_each_other(bitext: Path, tmp_path: Path) -> None:
    names = [f"attentions/transformer/{preset}" for preset in ("linear", "top_k", "differential", "relu", "performer")]
    words = typed("run", bitext, tmp_path / "runs", "attentions", "--jobs", "5", "--only", *names)
    script.main(words)
    assert sorted(row["name"] for row in read_rows(tmp_path / "runs" / ROWS) if row["refused"]) == sorted(names)


def checkpoint_of(runs: Path, name: str, *, guided: bool) -> None:
    """Write a finished run with an untrained model, and its row."""
    folder = runs / name
    write_run(folder, "multihead", spoilt(3), options={"trainer": {"max_epochs": 2}}, **RESULTS)
    file, seed = folder / "checkpoints" / "best.ckpt", len(name)
    write_checkpoint(file, *TRANSFORMER, seed=seed, sentences=["the red house", "la maison rouge", "a dog hears un s"])
    checkpoint = torch.load(file)
    if guided:
        checkpoint["config"]["guided_alignment"] = {"links": "eflomal", "weight": 0.05, "layer": None, "head": 1}
    if "_rev_" in name:
        checkpoint["config"]["data"] |= {"source_language": "fr", "target_language": "en"}
    torch.save(checkpoint, file)
    run = Run(name, 1)
    write_rows(runs / ROWS, [*read_rows(runs / ROWS), homes.row_of(run, folder) | run._asdict()])


@pytest.mark.slow
def test_links_and_translations_are_measured_once_and_are_on_the_page(
    bitext: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, data = tmp_path / "runs", ["--data", str(tmp_path)]
    checkpoint_of(runs, "transformer_guided", guided=True)
    checkpoint_of(runs, "transformer_rev_guided", guided=True)
    checkpoint_of(runs, "rnn_plain", guided=False)
    monkeypatch.setitem(script.BEAM, "limits", {"max_length": 4})
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main(typed("page", bitext, runs, "guidance", *data, "--output", str(tmp_path / "docs")))
    assert "no run has been measured; start " in capsys.readouterr().err
    script.main(typed("measure", bitext, runs, "guidance", *data))
    measured = {row["name"]: row for row in read_rows(runs / MEASURES)}
    assert measured["transformer_guided"]["heads"] == ["layer 1, head 1"]
    assert not measured["rnn_plain"]["guided"]
    assert set(measured["transformer_guided"]["test"]) == set(script.TEST_SETS)
    assert "test" not in measured["transformer_rev_guided"]
    assert len((runs / "rnn_plain" / "test_2016.fr").read_text("utf-8").splitlines()) == 2
    signature = measured["rnn_plain"]["test"]["test_2016"]["signature"]
    assert "case:lc" in signature
    assert "tok:none" in signature
    script.main(typed("measure", bitext, runs, "guidance", *data))
    assert len(read_rows(runs / MEASURES)) == 3
    page = ["page", "--bitext", str(bitext), "--runs", str(runs), "--output", str(tmp_path / "docs")]
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main(page)
    assert "the page of --plan guidance needs --data FOLDER" in capsys.readouterr().err
    script.main([*page, *data])
    assert "no run of --plan attentions has been measured; its page is left as it is" in capsys.readouterr().out
    assert {file.name for file in (tmp_path / "docs").iterdir()} == {"guided_alignment.md", "guided_alignment.json"}
    text = (tmp_path / "docs" / "guided_alignment.md").read_text(encoding="utf-8")
    cells = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in text.splitlines()}
    assert cells["eflomal"][1:5] == ["13.0", "–", "–", "12.0"]
    assert len(cells["diagonal"]) == 7
    assert "row of eflomal" not in text
    links_of_rnn = next(line for line in text.splitlines() if line.startswith("| RNN, not guided"))
    assert links_of_rnn.strip("| ").split(" | ")[1:] == [f"{measured['rnn_plain']['error_rate']:.1f}", *["–"] * 5]
    assert cells["RNN, not guided"][1:3] == ["1", f"{measured['rnn_plain']['test']['test_tatoeba']['bleu']:.1f}"]
    of_both = next(line for line in text.splitlines() if line.startswith("| Transformer, guided by links of eflomal"))
    assert of_both.split(" | ")[1] == f"{measured['transformer_guided']['error_rate']:.1f}"
    assert "–" not in of_both
    assert signature in text
    assert str(tmp_path) not in text + (tmp_path / "docs" / "guided_alignment.json").read_text(encoding="utf-8")


def test_eflomals_row_is_the_mean_of_its_runs_where_several_were_measured() -> None:
    repeated = [dict.fromkeys(("forward", "reverse", *JOINED), rate) for rate in (12.0, 13.0, 14.0)]
    aligners = {"alignment": {"diagonal": {"error_rate": 55.0}}, "error_rates": {"eflomal": repeated}}
    lines = links_table([], [], aligners).splitlines()
    assert lines[2].strip("| ").split(" | ") == ["eflomal", *["13.0 ± 1.0"] * 6]


def test_the_table_of_attentions_has_the_guided_head_and_the_best_one_without_guidance(
    bitext: Path, tmp_path: Path
) -> None:
    runs, data = tmp_path / "runs", ["--data", str(tmp_path)]
    checkpoint_of(runs, "attentions/transformer/multihead", guided=True)
    checkpoint_of(runs, "attentions/transformer/multihead_plain", guided=False)
    refused = {"name": "attentions/transformer/top_k", "seed": 1, "refused": "not | here"}
    write_rows(runs / ROWS, [*read_rows(runs / ROWS), refused])
    script.main(typed("measure", bitext, runs, "attentions", *data))
    measured = {row["name"].rpartition("/")[2]: row for row in read_rows(runs / MEASURES)}
    assert not any("test" in row for row in measured.values())
    (bitext / "alignment.json").unlink()
    page = ["page", "--bitext", str(bitext), "--runs", str(runs), "--output", str(tmp_path / "docs")]
    script.main([*page, "--plan", "attentions"])
    text = (tmp_path / "docs" / "aligning_attentions.md").read_text(encoding="utf-8")
    assert f" 2 of {len(script.attention_runs()) - 1} runs have finished;" in " ".join(text.split())
    (line,) = (line for line in text.splitlines() if line.startswith("| multihead"))
    figures = [measured["multihead"][name] for name in ("error_rate", "precision", "recall")]
    figures.append(measured["multihead_plain"]["error_rate"])
    assert line.split(" | ")[1:6] == ["transformer", *(f"{figure:.1f}" for figure in figures)]
    assert (tmp_path / "docs" / "aligning_attentions.png").stat().st_size > 5000
    assert "](aligning_attentions.png)" in text
    assert "- top\\_k: not \\| here" in text or "- top_k: not \\| here" in text


def maps_of(heads: Sequence[Sequence[int]], num_columns: int) -> WordMaps:
    """Return weights of 1 in one column of each row; the last row and column are the end token's."""
    weights = np.eye(num_columns, dtype=np.float32)[np.array(heads)]
    num_words = (num_columns - 1, len(heads[0]) - 1)
    return WordMaps([SlotMap("cross/0", weights, [], [])], *map(np.arange, num_words), num_words)


def measured_by_hand(
    monkeypatch: pytest.MonkeyPatch, maps: list[WordMaps], language: str, **guided: Any
) -> tuple[dict[str, Any], list[Any]]:
    """Return what is measured of a run with these maps, and the pairs that its model was given."""
    gold, read = frozenset({(0, 1), (2, 0)}), []
    config = {"data": {"source_language": language}, "guided_alignment": guided}
    monkeypatch.setattr(script, "find_checkpoint", Path)
    monkeypatch.setattr(
        script, "load", lambda _: SimpleNamespace(model=model_for("transformer"), tokenizer=None, config=config)
    )
    monkeypatch.setattr(script, "word_maps", lambda _model, _tokenizer, pairs, _config: read.extend(pairs) or maps)
    return script.alignment_of(Path("run"), [AlignedPair(["a", "b", "c"], ["d", "e"], gold, gold)] * len(maps)), read


@pytest.mark.parametrize("language", ["en", "fr"])
def test_links_are_english_first_and_of_the_heads_that_are_best_on_the_other_half(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong, columns = ([2, 0, 3], [0, 2, 3], 4) if language == "en" else ([1, 2, 0, 2], [0, 2, 1, 2], 3)
    first, second = maps_of([right, wrong], columns), maps_of([wrong, right], columns)
    found, read = measured_by_hand(monkeypatch, [first, second, first, second], language)
    assert read == [(["a", "b", "c"], ["d", "e"]) if language == "en" else (["d", "e"], ["a", "b", "c"])] * 4
    assert (found["heads"], found["guided"]) == (["layer 0, head 1", "layer 0, head 0"], False)
    assert found["pharaoh"] == ["0-0 2-1"] * 4
    assert found["error_rate"] == 100
    found, _ = measured_by_hand(monkeypatch, [first] * 4, language)
    assert (found["heads"], found["pharaoh"], found["error_rate"]) == (["layer 0, head 0"], ["2-0 0-1"] * 4, 0)


def test_links_of_a_run_that_is_guided_where_a_word_is_read_are_of_that_step(monkeypatch: pytest.MonkeyPatch) -> None:
    guided = {"links": "links", "weight": 0.2, "layer": 0, "head": 1}
    maps = [maps_of([[0, 0, 0], [1, 2, 0]], 4)] * 2
    for shift, links in ((True, "2-0 0-1"), (False, "1-0 2-1")):
        found, _ = measured_by_hand(monkeypatch, maps, "en", shift=shift, **guided)
        assert (found["heads"], found["guided"], found["pharaoh"]) == (["layer 0, head 1"], True, [links] * 2)


@pytest.mark.parametrize("shift", [False, True])
def test_a_map_is_of_the_step_that_was_guided_and_has_its_links(shift: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    guided = {"links": "links", "weight": 0.2, "layer": 0, "head": 1, "shift": shift}
    model = SimpleNamespace(model=None, tokenizer=None, config={"guided_alignment": guided})
    monkeypatch.setattr(script, "find_checkpoint", Path)
    monkeypatch.setattr(script, "load", lambda _: model)
    monkeypatch.setattr(script, "word_maps", lambda *_: [maps_of([[0, 0, 0], [1, 2, 3]], 4)])
    found = script.link_map(Path("run"), "guided", "layer 0, head 1", (["a", "b", "c"], ["d", "e"]))
    assert found.title == "guided: layer 0, head 1"
    assert found.weights.tolist() == np.eye(4)[[2, 3] if shift else [1, 2]].tolist()
    assert found.links == ([(2, 0)] if shift else [(1, 0), (2, 1)])  # a word whose weight is on the end has none


def test_the_maps_with_and_without_guidance_are_drawn_beside_the_page(bitext: Path, tmp_path: Path) -> None:
    runs, docs = tmp_path / "runs", tmp_path / "docs"
    for name, heads in (("transformer_guided", "layer 1, head 1"), ("transformer_plain", "mean of all heads")):
        checkpoint_of(runs, name, guided=name.endswith("_guided"))
        figures = {"guided": name.endswith("_guided"), "error_rate": 10.0, "pharaoh": [""] * 3}
        row = {"name": name, "seed": 1, "heads": [heads], **figures}
        write_rows(runs / MEASURES, [*read_rows(runs / MEASURES), row])
        script.main(typed("page", bitext, runs, "guidance", "--data", str(tmp_path), "--output", str(docs)))
        has_both = name == "transformer_plain"
        assert (docs / "guided_alignment.png").exists() == has_both
        page = (docs / "guided_alignment.md").read_text(encoding="utf-8")
        assert ("](guided_alignment.png)" in page) == has_both


def test_the_best_head_of_one_half_is_chosen_on_the_other() -> None:
    pairs = [AlignedPair(["a", "b"], ["c", "d"], frozenset({(0, 0)}), frozenset({(0, 0)}))] * 4
    right, wrong = [(0, 0)], [(1, 1)]
    candidates = {Heads(0, 0): [right, wrong, right, wrong], Heads(0, 1): [wrong, right, wrong, right]}
    assert script.best_heads(candidates, pairs, 0) == Heads(0, 0)
    assert script.best_heads(candidates, pairs, 1) == Heads(0, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_a_run_of_the_queue_is_one_of_train_py(bitext: Path, tmp_path: Path) -> None:
    lines = {"en": "a dog sleeps\nthe cat eats\n", "fr": "un chien dort\nle chat mange\n"}
    for language, text in lines.items():
        (bitext / f"train.{language}").write_text(text * 20, encoding="utf-8")
        (bitext / f"val.{language}").write_text(text, encoding="utf-8")
    (bitext / script.EFLOMAL).write_text("0-0 1-1 2-2\n" * 40, encoding="utf-8")
    small = ["debug=fast", "tokenizer=char", "tokenizer.vocab_size=40"]
    only = ["--only", "rnn_guided", "transformer_rev_guided", "--override", *small]
    script.main(typed("run", bitext, tmp_path / "runs", "guidance", *only))
    rows = read_rows(tmp_path / "runs" / ROWS)
    assert [row["name"] for row in rows if row["seed"] == 1] == ["transformer_rev_guided", "rnn_guided"]
    assert rows[0]["updates"] == 2
    script.main(typed("measure", bitext, tmp_path / "runs", "guidance", "--data", str(tmp_path)))
    measured = read_rows(tmp_path / "runs" / MEASURES)
    assert all(row["guided"] for row in measured)
    assert {row["name"] for row in measured if "test" in row} == {"rnn_guided"}
