"""The queue of every attention in each home: its order, models of one size, no run repeated, and the page."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from comparison.made_runs import spoilt, write_run
from configs import CONF, options
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from training.test_tables import TINY, write_captions

from scripts.benchmarks import draw_homes, home_runs, home_tables, write_homes_page
from scripts.benchmarks import homes as script
from scripts.benchmarks.home_runs import HOMES, SEEDS, Job
from seq2seq_attn.alignment.gold import AlignedPair
from seq2seq_attn.errors import UserError

RESULTS = {"test/loss": 2.5, "test/bleu_signature": "nrefs:1", "test/chrf_signature": "nrefs:1|nc:6"}
FEW = ("bahdanau", "hard", "none", "luong_dot", "multihead", "sparse")


class Killed(BaseException):
    """The end of a queue that is killed while a run trains."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two homes of a few attentions; return the words that choose the homes."""
    monkeypatch.setattr(home_runs, "presets", lambda: list(FEW))
    small = {"rnn": HOMES["rnn"]._replace(own=("hard",)), "conv": HOMES["conv"]}
    monkeypatch.setattr(home_runs, "HOMES", small)
    monkeypatch.setattr(home_runs, "BEST", 1)
    return ["--home", "rnn", "conv"]


def finish(overrides: Sequence[str], folder: Path) -> None:
    """Leave what train.py leaves; that of sparse has the highest BLEU."""
    assert "resume=auto" in overrides
    shutil.rmtree(folder)
    write_run(
        folder,
        folder.parent.name,
        spoilt(20 if folder.parent.name == "sparse" else 3),
        seed=int(folder.name),
        options={"model": {"embedding_dim": 128, "encoder": {"dim": 128}}, "trainer": {"max_epochs": 18}},
        **RESULTS,
    )
    (folder / script.ATTEMPTS).write_text("started\n90.0\n", encoding="utf-8")
    (folder / "checkpoints").mkdir()
    for name in ("best.ckpt", "last.ckpt"):
        (folder / "checkpoints" / name).write_bytes(b"weights")


def typed(tmp_path: Path, few: list[str]) -> list[str]:
    (tmp_path / "data" / "multi30k").mkdir(parents=True, exist_ok=True)
    return ["run", "--data", str(tmp_path / "data"), "--runs", str(tmp_path / "runs"), *few]


def test_each_home_runs_every_attention_once_the_usual_ones_and_those_at_home_there_first() -> None:
    jobs = home_runs.first_jobs(list(HOMES))
    assert len(jobs) == len(set(jobs))
    assert {job.seed for job in jobs} == {1}
    for name, home in HOMES.items():
        order = [job.preset for job in jobs if job.home == name]
        assert sorted(order) == sorted(home.only or options("attention"))
        early = list(dict.fromkeys([*home.first, *home.own]))
        assert order[: len(early)] == early
        assert home.first[0] == "none"
        assert home.usual in home.first
    assert [job.home for job in jobs[: len(HOMES)]] == list(HOMES)  # the homes take turns


def test_other_seeds_are_of_the_usual_attentions_of_those_at_home_there_and_of_the_best() -> None:
    rows: list[dict[str, Any]] = [
        {"home": "conv", "preset": preset, "seed": 1, "bleu": bleu}
        for bleu, preset in enumerate(["none", "sparse", "sink", "l2", "gated", "cosine", "hard"])
    ]
    rows.append({"home": "conv", "preset": "coverage", "seed": 1, "refused": "reads the weights of the steps before"})
    jobs = home_runs.later_jobs(["conv"], rows)
    second = ["none", "luong_dot", "multihead", "hard", "cosine", "gated", "l2", "sink"]
    assert jobs == [Job("conv", preset, seed) for seed in (2, 3) for preset in second]


SLOW_HOMES = ("rnn_luong", "conv", "self")


@pytest.mark.parametrize(
    "home", [pytest.param(home, marks=[pytest.mark.slow] if home in SLOW_HOMES else []) for home in HOMES]
)
def test_the_command_of_a_home_fills_its_slot_in_a_model_of_nearly_the_usual_size(home: str) -> None:
    overrides = home_runs.command(Job(home, "none", 3))
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", overrides)
    slot = HOMES[home].slot.rpartition("@")[2]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert config[slot] == compose("train", ["attention=none"]).attention
    assert (config.seed, config.trainer.max_epochs) == (3, home_runs.EPOCHS)
    usual = OmegaConf.select(home_runs.composed(home, HOMES[home].usual), HOMES[home].widths[0])
    target = home_runs.num_parameters(home, HOMES[home].usual, usual)
    width = home_runs.equal_width(home, "none")
    off = [abs(home_runs.num_parameters(home, "none", other) - target) for other in (width - 1, width, width + 1)]
    assert min(off) == off[1] < 0.005 * target


def test_an_attention_that_a_home_does_not_take_is_a_row_with_the_reason(tmp_path: Path) -> None:
    given = script.parse(["run", "--data", "data", "--runs", str(tmp_path)])
    row = script.run_job(Job("conv", "coverage", 1), given)
    assert row is not None
    assert row["refused"].startswith("CoverageScore reads the weights of the steps before")
    assert not (tmp_path / "conv").exists()


def test_a_queue_that_is_killed_goes_on_and_repeats_no_finished_run(
    tmp_path: Path, few: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def killed_at_the_third(overrides: Sequence[str], folder: Path) -> None:
        started.append(folder.relative_to(tmp_path / "runs").as_posix())
        if len(started) == 3:
            raise Killed
        finish(overrides, folder)

    monkeypatch.setattr(script, "command", lambda job: [f"attention={job.preset}"])
    monkeypatch.setattr(script, "train", killed_at_the_third)
    with pytest.raises(Killed):
        script.main(typed(tmp_path, few))
    assert started[:3] == ["rnn/none/1", "conv/none/1", "rnn/bahdanau/1"]
    script.main(typed(tmp_path, few))
    assert [run for run in started if started.count(run) > 1] == ["rnn/bahdanau/1"] * 2
    rows = home_runs.read_rows(tmp_path / "runs" / home_runs.ROWS)
    assert {(row["home"], row["preset"]) for row in rows if row["seed"] == 1} == {
        (home, preset) for home in ("rnn", "conv") for preset in FEW
    }
    others = ["none", "bahdanau", "multihead", "sparse", "hard"]  # sparse has the highest BLEU
    assert {row["preset"] for row in rows if row["home"] == "rnn" and row["seed"] == 3} == set(others)
    first = rows[0]
    assert (first["commit"], first["epochs"], first["processor_minutes"]) == ("c" * 40, 18, 1.5)
    assert (tmp_path / "runs" / first["folder"] / "checkpoints" / "best.ckpt").is_file()
    assert not list((tmp_path / "runs").rglob("last.ckpt"))
    before = len(started)
    script.main(typed(tmp_path, few))
    assert len(started) == before


def test_a_run_on_a_gpu_has_no_minutes_of_a_processor_and_its_page_names_the_gpu(tmp_path: Path) -> None:
    job = Job("rnn", "none", 1)
    folder = job.folder(tmp_path)
    folder.mkdir(parents=True)
    finish(["resume=auto"], folder)
    on_cpu = script.row_of(job, folder)
    provenance = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    (folder / "provenance.json").write_text(json.dumps(provenance | {"device": "NVIDIA H100"}), encoding="utf-8")
    on_gpu = script.row_of(job, folder)
    assert (on_cpu["processor_minutes"], on_gpu["processor_minutes"]) == (1.5, None)
    assert home_runs.devices([on_gpu, on_cpu, on_gpu]) == "one NVIDIA H100 (2 runs), one thread of a CPU (1 runs)"


def test_a_page_names_the_further_overrides_of_its_runs(tmp_path: Path) -> None:
    typed = ["run", "--data", "data", "--runs", str(tmp_path)]
    changed = ["--override", "trainer.max_epochs=2", f"paths.cache_dir={tmp_path}"]
    for seeds, words in (((1, 2), []), ((2, 3), changed)):
        jobs = [Job("rnn", "none", seed) for seed in seeds]
        script.run_jobs(jobs, script.parse([*typed, *words]), lambda job, _: {**job._asdict(), "commit": "c" * 40})
    told = home_runs.commits_and_processors(home_runs.read_rows(tmp_path / home_runs.ROWS))
    assert told == "`cccccccc`; processor not recorded; 1 of 3 runs had `trainer.max_epochs=2` in addition"


def test_some_attentions_can_be_run_alone_with_all_their_seeds(
    tmp_path: Path, few: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "command", lambda job: [f"attention={job.preset}"])
    monkeypatch.setattr(script, "train", finish)
    script.main([*typed(tmp_path, few), "--presets", "none", "sparse"])
    rows = home_runs.read_rows(tmp_path / "runs" / home_runs.ROWS)
    found = {(row["home"], row["preset"], row["seed"]) for row in rows}
    assert found == {
        (home, preset, seed) for home in ("rnn", "conv") for preset in ("none", "sparse") for seed in SEEDS
    }


def test_a_run_that_fails_has_no_row_and_gets_a_second_try_after_the_others(
    tmp_path: Path, few: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []

    def fails(overrides: Sequence[str], folder: Path) -> None:
        started.append(folder.parent.name)
        if folder.parent.name != "hard":
            finish(overrides, folder)

    monkeypatch.setattr(script, "command", lambda job: [f"attention={job.preset}"])
    monkeypatch.setattr(script, "train", fails)
    with pytest.raises(SystemExit, match=r"rnn/hard/1.*; repeat the command"):
        script.main([*typed(tmp_path, few)[:5], "--home", "rnn"])
    assert started[:7].count("hard") == 2
    assert started[6] == "hard"
    assert "rnn/hard/1: failed" in capsys.readouterr().out
    assert not any(row["preset"] == "hard" for row in home_runs.read_rows(tmp_path / "runs" / home_runs.ROWS))


@pytest.mark.parametrize("where", ["command", "write_rows"])
def test_a_mistake_in_a_run_or_an_end_between_runs_starts_no_other_run(
    where: str, tmp_path: Path, few: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def finish_slowly(overrides: Sequence[str], folder: Path) -> None:
        started.append(folder.parent.name)
        sleep(0.2)
        finish(overrides, folder)

    def killed(*_: Any) -> list[str]:
        started.append("")
        sleep(0.2)
        raise Killed

    monkeypatch.setattr(script, "command", lambda job: [f"attention={job.preset}"])
    monkeypatch.setattr(script, "train", finish_slowly)
    monkeypatch.setattr(script, where, killed)
    with pytest.raises(Killed):
        script.main([*typed(tmp_path, few), "--jobs", "2"])
    assert len(started) <= 5 < len(FEW)


def test_a_run_whose_results_are_cut_is_run_again(
    tmp_path: Path, few: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = script.parse(typed(tmp_path, few))
    job = Job("rnn", "none", 1)
    folder = job.folder(given.runs)
    folder.mkdir(parents=True)
    (folder / "results.json").write_text('{"test/bleu": 3', encoding="utf-8")
    monkeypatch.setattr(script, "train", finish)
    row = script.run_job(job, given)
    assert row is not None
    assert row["bleu"] > 0


@pytest.mark.parametrize(
    ("words", "rows", "sentence"),
    [
        (["--jobs", "0"], "", "--jobs 0 runs nothing; give 1 or more"),
        ([], '{"name": "rnn_plain", "seed": 1}\n', "rows.jsonl has rows of another script; give another folder of --r"),
    ],
)
def test_a_queue_that_cannot_run_says_why(
    words: list[str], rows: str, sentence: str, tmp_path: Path, few: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / home_runs.ROWS).write_text(rows, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main([*typed(tmp_path, few), *words])
    assert sentence in capsys.readouterr().err


def test_two_queues_do_not_share_a_folder(tmp_path: Path, few: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").mkdir()
    with script.alone(tmp_path / "runs"), pytest.raises(SystemExit, match=r"^2$"):
        script.main(typed(tmp_path, few))
    assert "another queue is at work" in capsys.readouterr().err


def test_the_training_captions_are_cut_and_the_others_are_not(tmp_path: Path) -> None:
    for name in ("train", "val"):
        with gzip.open(tmp_path / f"{name}.en.gz", "wb") as file:
            file.write(b"A dog.\nA cat.\nA horse.\n")
    script.cut_captions(tmp_path, tmp_path / "cut", 2)
    lines = {
        name: gzip.decompress((tmp_path / "cut" / f"{name}.en.gz").read_bytes()).splitlines()
        for name in ("train", "val")
    }
    assert lines == {"train": [b"A dog.", b"A cat."], "val": [b"A dog.", b"A cat.", b"A horse."]}


def made(runs: Path, seeds: dict[str, list[int]]) -> None:
    """Write runs of the RNN's home with their rows: every so many sentences of each seed are spoilt."""
    model = {"model": {"embedding_dim": 128}, "trainer": {"max_epochs": 18}}
    rows: list[dict[str, Any]] = [{"home": "rnn", "preset": "sparse", "seed": 1, "refused": "not | here"}]
    for preset, spoils in seeds.items():
        for seed, every in enumerate(spoils, 1):
            job = Job("rnn", preset, seed)
            folder = job.folder(runs)
            write_run(folder, preset, spoilt(every), seed=seed, options=model, **RESULTS)
            (folder / script.ATTEMPTS).write_text("started\n60.0\n", encoding="utf-8")
            rows.append({**script.row_of(job, folder), **script.page_figures(job, folder)})
    home_runs.write_rows(runs / home_runs.ROWS, rows)


def test_a_row_of_one_seed_is_marked_and_never_called_better(tmp_path: Path) -> None:
    runs, page = tmp_path / "runs", tmp_path / "docs" / "homes.md"
    made(runs, {"none": [1, 1, 1], "bahdanau": [3, 3, 4], "hard": [20], "multihead": [11, 12, 13], "l2": [2, 20, 20]})
    measured = {"home": "rnn", "preset": "hard", "seed": 1, "aer": 41.5, "tokens_per_second": 5432.0}
    others = [{"home": "rnn", "preset": "l2", "seed": seed, "aer": 50.0} for seed in (1, 3)]
    home_runs.write_rows(runs / home_runs.MEASURES, [measured, *others])
    html = tmp_path / "attentions.html"
    output = ["--output", str(page), "--html", str(html)]
    script.main(["page", "--runs", str(runs), *output, "--home", "rnn", "--resamples", "200"])
    text = page.read_text(encoding="utf-8")
    cells = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in text.splitlines() if line.startswith("| ")}
    verdicts = {name: row[5] for name, row in cells.items() if len(row) > 5}
    assert verdicts["hard¹"] == ""
    assert cells["hard¹"][1] == "1"
    assert float(cells["hard¹"][2]) > float(cells["multihead"][2].split()[0])
    assert verdicts["multihead"] == "**better**"
    assert verdicts["none"] == "**worse**"
    assert verdicts["l2"] == ""  # one of its seeds is below the usual attention's
    assert cells["bahdanau"][3] == "usual"
    assert " ± " in cells["bahdanau"][2]
    assert " ± " not in cells["hard¹"][2]
    assert {"41.5", "5,432"} <= set(cells["hard¹"])
    assert "50.0 ± 0.0²" in cells["l2"]  # of two of its three seeds
    assert "| sparse | – | not taken: not \\| here |" in text
    assert "seed 1 to 3; " in text
    assert "- Commits of the runs: `cccccccc`; processor not recorded\n" in text
    assert f"training pairs. 5\nof {len(options('attention'))} attentions have finished; the model refuses 1." in text
    assert "all 3 seeds of one are above all 3 of the other in one of 10 cases" in " ".join(text.split())
    assert "[attentions.html](../attentions.html)" in text
    assert page.with_suffix(".png").stat().st_size > 10_000
    shown = html.read_text(encoding="utf-8")
    assert "<li>Better: multihead.</li>\n<li>Worse: none.</li>\n<li>Neither, with 3 seeds: l2.</li>" in shown
    assert "<li>Not judged, for want of seeds: 1 attention.</li>" in shown
    assert "sparse is not taken: not | here" in shown
    table = shown[shown.index("<h3>All figures") : shown.index("<h3>Learning curves")]
    rows = re.findall(r'<th scope="row" data-value="([^"]+)">(.*?)</tr>', table, re.DOTALL)
    assert {name for name, cells in rows if "*</td>" in cells} == {"none", "multihead"}
    figures = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert len(figures["rows"]) == 14
    assert str(tmp_path) not in json.dumps(figures) + text


def test_restored_rows_make_the_same_page_without_the_runs_and_are_neither_run_nor_measured_again(
    tmp_path: Path, few: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, others = tmp_path / "docs" / "homes.md", tmp_path / "others"
    made(tmp_path / "runs", {"none": [1, 1, 1], "bahdanau": [3, 3, 4], "hard": [20]})
    weights = [[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]]
    drawn = {"rows": ["▁Un", "</s>"], "columns": ["▁A", "▁dog", "</s>"], "weights": weights}
    measures = [{"home": "rnn", "preset": preset, "seed": 1, "aer": 41.5} for preset in ("none", "bahdanau", "hard")]
    measures[1] |= {"map": drawn, "processor": "a processor", "tokens_per_second": 9.0}
    measures[0] |= {"map": None, "processor": "one that measured no speed"}
    home_runs.write_rows(tmp_path / "runs" / home_runs.MEASURES, measures)
    command = [
        "page",
        "--output",
        str(page),
        "--html",
        str(page.with_name("attentions.html")),
        "--home",
        "rnn",
        "--resamples",
        "200",
    ]
    script.main([*command, "--runs", str(tmp_path / "runs")])
    files = {file: file.read_bytes() for file in page.parent.iterdir()}
    assert sorted(file.name for file in files) == [
        "attentions.html",
        "homes.json",
        "homes.md",
        "homes.png",
        "homes_rnn.png",
    ]
    text = page.read_text(encoding="utf-8")
    assert "](homes_rnn.png)" in text
    assert "processors: a processor." in " ".join(text.split())
    script.main(["restore", "--page", str(page), "--runs", str(others)])
    for file in files:
        file.unlink()
    script.main([*command, "--runs", str(others)])
    assert {file: file.read_bytes() for file in page.parent.iterdir()} == files

    started: list[str] = []
    monkeypatch.setattr(script, "command", lambda job: [])
    monkeypatch.setattr(
        script, "train", lambda overrides, folder: started.append(f"{folder.parent.name}/{folder.name}")
    )
    monkeypatch.setattr(script, "tatoeba_pairs", lambda corpus: [])
    with pytest.raises(SystemExit, match="runs failed"):  # the made training leaves no results
        script.main([*typed(tmp_path, few)[:4], str(others), "--home", "rnn"])
    seeds = [f"{preset}/{seed}" for preset in ("multihead", "hard") for seed in (2, 3)]
    assert set(started) == {"multihead/1", "luong_dot/1", *seeds}
    home_runs.write_rows(others / home_runs.MEASURES, [])
    (tmp_path / "data" / "tatoeba").mkdir()
    (tmp_path / "data" / "tatoeba" / "fra.txt").touch()
    script.main(["measure", "--data", str(tmp_path / "data"), "--runs", str(others), "--home", "rnn"])
    assert home_runs.read_rows(others / home_runs.MEASURES) == []

    (tmp_path / "other.json").write_text('{"rows": [{"name": "rnn_plain", "seed": 1}]}', encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main(["restore", "--page", str(tmp_path / "other.md"), "--runs", str(others)])
    assert "has no rows of this script" in capsys.readouterr().err


def test_a_finished_run_without_its_translations_fails_and_stops_no_other(
    tmp_path: Path, few: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def damaged(overrides: Sequence[str], folder: Path) -> None:
        finish(overrides, folder)
        if folder.parent.name == "bahdanau":
            (folder / "translations.tsv").unlink()

    monkeypatch.setattr(script, "command", lambda job: [])
    monkeypatch.setattr(script, "train", damaged)
    with pytest.raises(SystemExit, match="rnn/bahdanau/1"):
        script.main([*typed(tmp_path, few)[:5], "--home", "rnn"])
    assert "move its folder away" in capsys.readouterr().err
    rows = home_runs.read_rows(tmp_path / "runs" / home_runs.ROWS)
    assert {row["preset"] for row in rows if row["seed"] == 1} == set(FEW) - {"bahdanau"}


def test_the_counts_of_a_row_score_as_the_run_did(tmp_path: Path) -> None:
    made(tmp_path, {"bahdanau": [2]})
    *_, row = home_runs.read_rows(tmp_path / home_runs.ROWS)
    counts = home_runs.unpack(row["counts"])
    assert home_tables.METRIC.score(counts.sum(0).tolist()) == pytest.approx(row["bleu"], abs=0.005)
    assert row["curve"] == [[10, 20.0], [20, 60.0], [30, 40.0]]
    assert row["width"] == 128


def test_two_rows_of_one_seed_have_no_verdict_whatever_their_difference(tmp_path: Path) -> None:
    made(tmp_path, {"bahdanau": [2], "multihead": [20]})
    table = home_tables.table_of("rnn", home_runs.read_rows(tmp_path / home_runs.ROWS), 200)
    best, usual = table.rows
    assert table.differences["multihead"].significant
    assert home_tables.judged(best, usual, table.differences["multihead"]) == ""


def test_measures_are_taken_once_and_costs_of_the_first_seed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, {"bahdanau": [2, 3]})
    (tmp_path / "data" / "tatoeba").mkdir(parents=True)
    (tmp_path / "data" / "tatoeba" / "fra.txt").touch()
    asked: list[str] = []

    def error_rate(run: Path, pairs: list[AlignedPair]) -> float:
        asked.append(run.name)
        return 50.0

    monkeypatch.setattr(script, "tatoeba_pairs", lambda corpus: [])
    monkeypatch.setattr(script, "error_rate", error_rate)
    monkeypatch.setattr(script, "costs", lambda job, given: {"tokens_per_second": 7.0})
    monkeypatch.setattr(script, "drawn_map", lambda job, folder: None)
    for _ in range(2):
        script.main(["measure", "--data", str(tmp_path / "data"), "--runs", str(tmp_path)])
    assert asked == ["1", "2"]
    first, second = home_runs.read_rows(tmp_path / home_runs.MEASURES)
    assert (first["aer"], first["tokens_per_second"]) == (50.0, 7.0)
    assert "tokens_per_second" not in second


@pytest.mark.slow
def test_a_run_of_the_queue_is_one_of_train_py_and_can_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_runs, "HOMES", {"rnn": HOMES["rnn"]._replace(only=("bahdanau",), first=(), own=())})
    monkeypatch.setattr(home_runs, "SEEDS", (1,))
    captions = tmp_path / "data" / "multi30k"
    captions.mkdir(parents=True)
    write_captions(captions)
    for file in captions.iterdir():
        with gzip.open(f"{file}.gz", "wb") as packed:
            packed.write(file.read_bytes())
    dropped = ("choices.", "attention_map")
    small = [override for override in TINY if not any(word in override for word in dropped)]
    script.main([*typed(tmp_path, ["--home", "rnn"]), "--override", *small, f"paths.cache_dir={tmp_path}"])
    (row,) = home_runs.read_rows(tmp_path / "runs" / home_runs.ROWS)
    assert (row["preset"], row["updates"]) == ("bahdanau", 2)
    assert row["processor_minutes"] is not None
    job = Job("rnn", "bahdanau", 1)
    drawn = script.drawn_map(job, job.folder(tmp_path / "runs"))
    assert drawn is not None
    assert drawn["rows"][-1] == drawn["columns"][-1] == "</s>"
    assert [len(row) for row in drawn["weights"]] == [len(drawn["columns"])] * len(drawn["rows"])
    home_runs.write_rows(tmp_path / "runs" / home_runs.MEASURES, [{**job._asdict(), "map": drawn}])
    page = tmp_path / "docs" / "homes.md"
    output = ["--output", str(page), "--html", str(page.with_suffix(".html"))]
    script.main(["page", "--runs", str(tmp_path / "runs"), "--home", "rnn", *output])
    assert page.with_name("homes_rnn.png").stat().st_size > 5000


@pytest.mark.slow
def test_maps_that_fit_are_all_drawn_the_usual_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    presets = ["bahdanau", "entmax15", "multihead", "alternating", "cosine", "scaled_dot", "atrous", "luong_dot"]
    table = home_tables.Table("conv", [home_tables.Row(preset, []) for preset in presets], {}, {})
    measured = {preset: {"rows": ["a"], "columns": [preset], "weights": [[1.0]]} for preset in presets}
    drawn: list[str] = []
    monkeypatch.setattr(draw_homes, "label", lambda axes, columns, rows, size: drawn.extend(columns))
    measures = [{"home": "conv", "preset": preset, "map": one} for preset, one in measured.items()]
    assert draw_homes.draw_maps(table, measures, tmp_path / "maps.png")
    assert (drawn[0], sorted(drawn)) == ("luong_dot", sorted(presets))


def test_runs_with_other_vocabularies_are_not_compared() -> None:
    rows = [{"home": "conv", "preset": "none", "seed": seed, "updates": 3228 + seed} for seed in (1, 2)]
    with pytest.raises(UserError, match=r"^runs of conv have 3229 and 3230 updates, so their vocabularies differ"):
        home_tables.table_of("conv", rows, 10)


def test_speeds_of_another_processor_than_that_of_the_usual_attention_are_not_shown() -> None:
    rows = [
        {"home": "self", "preset": preset, "processor": processor, "tokens_per_second": 2.0, "aer": 1.0}
        for preset, processor in (("local", "new"), ("multihead", "old"), ("sparse", "old"))
    ]
    shown = write_homes_page.on_one_processor(rows)
    assert shown == [{"home": "self", "preset": "local", "processor": "new", "aer": 1.0}, *rows[1:]]
