"""Runs that the page leaves out, and what it points out of those that it shows."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from comparison.made_runs import bleu_of, only_group, spoilt, write_run
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

from seq2seq_attn.checkpoint.admitted import DOWNLOADED, build
from seq2seq_attn.comparison import lengths, read
from seq2seq_attn.comparison import runs as script
from seq2seq_attn.comparison.maps import best_maps
from seq2seq_attn.errors import UserError

DAMAGED = "results.json, config.yaml, provenance.json or metrics.csv is damaged"


def spoil(folder: Path, name: str, content: str | None) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content, encoding="utf-8")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"results.json": None}, "stopped after 30 updates or more, before its test"),
        ({"results.json": None, "metrics.csv": None}, "stopped before anything was logged"),
        (
            {"results.json": None, "metrics.csv": "epoch,step,train/loss\n0,19,3.1\n0,39", "train.log": "a\nKilled\n"},
            "stopped after 20 updates or more, before its test; its log ends: Killed",
        ),
        ({"results.json": '{"test/bleu": 3'}, rf"{DAMAGED} \(.+\)"),
        ({"results.json": '{"test/bleu": "3"}', "provenance.json": "[]"}, rf"{DAMAGED} \(.+\)"),
        ({"results.json": "[" * 100_000}, rf"{DAMAGED} \(.+\)"),
        ({"config.yaml": "[" * 100_000}, rf"{DAMAGED} \(config.yaml nests more than 100 lists\)"),
        ({"config.yaml": "a: &a [1]\nb: [*a, *a]\n"}, rf"{DAMAGED} \(config.yaml holds the reference \*a\)"),
        ({"metrics.csv": "epoch,step\n0," + "1" * 200_000}, rf"{DAMAGED} \(field larger than field limit .+\)"),
        ({"config.yaml": None}, "config.yaml is missing"),
        ({"translations.tsv": None}, r"translations.tsv cannot be read \(No such file or directory\)"),
        ({"results.json": None, "evaluation.json": "{}"}, "a folder of evaluate.py; give that of the run"),
    ],
)
def test_a_run_that_did_not_finish_has_the_reason(tmp_path: Path, files: dict[str, str | None], reason: str) -> None:
    write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    other = write_run(tmp_path / "runs" / "1", "local", spoilt(4))
    for name, content in files.items():
        spoil(other, name, content)
    runs, [left_out] = read.read_runs([tmp_path / "runs"])
    assert [run.name for run in runs] == ["runs/0"]
    assert left_out.name == "runs/1"
    assert re.fullmatch(reason, left_out.reason)


@pytest.mark.parametrize(
    "figures", [{"seed": [1, 2]}, {"test/bleu": 10**400}, {"test/bleu": "1"}, {"attention": 5}, {"seed": None}]
)
def test_figures_that_no_run_writes_leave_it_out_alone(tmp_path: Path, figures: dict[str, Any]) -> None:
    write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    other = write_run(tmp_path / "runs" / "1", "local", spoilt(4))
    results = json.loads((other / "results.json").read_text("utf-8"))
    (other / "results.json").write_text(json.dumps(results | figures), encoding="utf-8")
    runs, [left_out] = read.read_runs([tmp_path / "runs"])
    assert ([run.name for run in runs], left_out.name) == (["runs/0"], "runs/1")


def test_a_step_that_is_no_number_is_no_figure_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "metrics.csv"
    log.write_text("epoch,step,train/loss,val/bleu\n0,nan,nan,3\n1,9,inf,4\n", encoding="utf-8")
    first, second = read.read_log(log)
    assert (first.keys(), second) == ({"epoch", "train/loss", "val/bleu"}, {"epoch": 1, "step": 9, "val/bleu": 4})


def test_options_of_a_strangers_metric_have_the_bounds_of_ones_own() -> None:
    options = {
        "_target_": "seq2seq_attn.metric.chrf.CHRF",
        "char_order": 10**8,
        "word_order": 0,
        "beta": 2,
        "lowercase": False,
    }
    with pytest.raises(UserError, match=r"^metric.char_order=100000000 must be int in \[1, 1000\]"):
        build(options, "metric", Path("config.yaml"))


def test_a_tokenizer_of_a_strangers_run_is_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path))
    assert set(DOWNLOADED) == set(SPM_MODELS)
    bleu = {"_target_": "seq2seq_attn.metric.bleu.BLEU", "lowercase": False}
    for name in DOWNLOADED:
        with pytest.raises(UserError, match=rf"^c asks for sacreBLEU's tokenizer {name}, which is not on this machine"):
            build(bleu | {"tokenize": name}, "metric", Path("c"))


@pytest.mark.parametrize("name", ["results.json", "translations.tsv", "metrics.csv", "evaluation.json", "train.log"])
def test_a_pipe_in_the_place_of_a_file_is_not_read(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    other = write_run(tmp_path / "runs" / "1", "local", spoilt(4))
    (other / name).unlink(missing_ok=True)
    os.mkfifo(other / name)
    if name == "train.log":
        (other / "results.json").unlink()
    assert read.read_runs([tmp_path / "runs"])[0][0].name == "runs/0"


@pytest.mark.parametrize("command", ["runs", "lengths"])
@pytest.mark.parametrize("kind", ["comet", "aer"])
def test_a_metric_of_a_strangers_run_runs_no_program_whatever_its_name(
    tmp_path: Path, command: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    other = write_run(tmp_path / "runs" / "1", "local", spoilt(4))
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was_run\n", encoding="utf-8")
    program.chmod(0o755)
    comet = {"model": "x", "command": str(program), "gpus": 0, "batch_size": 1}
    options = {"_target_": f"seq2seq_attn.metric.{kind}.{kind.upper()}"} | (comet if kind == "comet" else {"gold": "x"})
    config = yaml.safe_load((other / "config.yaml").read_text(encoding="utf-8"))
    config["metric"]["bleu"] = options
    (other / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert read.compared_metric(config, {"test/bleu": 1.0}) is None
    if command == "lengths":
        lengths.main([str(tmp_path / "runs")])
    else:
        assert [run.name for run in read.read_runs([tmp_path / "runs"])[0]] == ["runs/0"]
    with pytest.raises(UserError, match=rf"^c asks for .*{kind.upper()}, whose options name a command or a file; it"):
        build(options, "metric", Path("c"))
    assert not (tmp_path / "was_run").exists()


OWN_METRIC = """
import sacrebleu

from seq2seq_attn.metric.corpus_metric import CorpusMetric


class MyBLEU(CorpusMetric):
    def __init__(self, *, lowercase, tokenize):
        super().__init__(scorer=sacrebleu.BLEU(tokenize=tokenize, force=True), num_counts=2 + 2 * 4)
"""


def test_a_run_with_a_metric_of_the_users_own_is_left_out_until_its_package_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    own = write_run(tmp_path / "runs" / "1", "local", spoilt(4))
    (tmp_path / "own_metric.py").write_text(OWN_METRIC, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    config = yaml.safe_load((own / "config.yaml").read_text(encoding="utf-8"))
    config["metric"]["bleu"]["_target_"] = "own_metric.MyBLEU"
    (own / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    runs, [left_out] = read.read_runs([tmp_path / "runs"])
    assert [run.name for run in runs] == ["runs/0"]
    assert left_out.reason == ("own_metric.MyBLEU computes its bleu; if you trust that package, name it with --trust")
    groups, left = script.compare([tmp_path / "runs"], None, 50, trust=["own_metric"])
    assert not left
    assert [len(row.runs) for group in groups for row in group.rows] == [1, 1]


def test_what_is_left_out_is_told_on_the_page_in_the_table_and_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    spoil(write_run(tmp_path / "runs" / "1", "local", spoilt(4)), "results.json", None)
    output = tmp_path / "page.html"
    script.main([str(tmp_path / "runs"), "--output", str(output), "--resamples", "50"])
    reason = "stopped after 30 updates or more, before its test"
    assert f"left out: runs/1: {reason}\n" in capsys.readouterr().err
    assert f"\n- runs/1: {reason}\n" in output.with_suffix(".md").read_text(encoding="utf-8")
    assert f"<b>runs/1</b>: {reason}</li>" in output.read_text(encoding="utf-8")


def test_a_page_of_the_users_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    page = tmp_path / "page.html"
    typed = [str(tmp_path / "runs"), "--output", str(page), "--resamples", "50"]
    script.main(typed)
    script.main(typed)  # its own
    page.write_text("<p>mine</p>", encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        script.main(typed)
    assert page.read_text(encoding="utf-8") == "<p>mine</p>"
    assert (
        f"{page} already exists and is not a page of seq2seq-attn compare; give another --output"
        in capsys.readouterr().err
    )


def test_a_run_behind_a_link_is_found_once_and_a_link_around_itself_ends(tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere" / "a", "sparse", spoilt(4))
    write_run(tmp_path / "runs" / "b", "local", spoilt(4))
    (tmp_path / "runs" / "a").symlink_to(tmp_path / "elsewhere" / "a")
    (tmp_path / "runs" / "again").symlink_to(tmp_path / "runs" / "b")
    (tmp_path / "runs" / "c").mkdir()
    (tmp_path / "runs" / "c" / "around").symlink_to(tmp_path / "runs")
    runs, left_out = read.read_runs([tmp_path / "runs"])
    assert sorted(run.name for run in runs) == ["runs/a", "runs/b"]
    assert not left_out


def test_files_beside_the_folders_of_maps_are_not_maps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    (run / "attention_maps" / "step_000050.old").mkdir(parents=True)
    (run / "attention_maps" / "step_000060.zip").touch()
    (run / "attention_maps" / "step_000070").touch()
    ([found], _) = read.read_runs([run])
    assert best_maps(found) is None


def test_a_job_that_never_began_is_named(sweep: Path) -> None:
    (sweep / "3" / ".hydra").mkdir(parents=True)
    _, left_out = script.compare([sweep], None, 50)
    assert left_out == [("sweep/3", "stopped before training began")]


def test_folders_without_a_finished_run_are_refused(tmp_path: Path) -> None:
    spoil(write_run(tmp_path / "0", "sparse", spoilt(4)), "results.json", None)
    with pytest.raises(
        UserError, match=r"no finished run in \S+ \(\S+/0: stopped after 30 updates or more, before its test\);"
    ):
        script.compare([tmp_path], None, 50)
    with pytest.raises(UserError, match=r"none is not a folder; give run folders of train.py, or folders of them"):
        script.compare([tmp_path / "none"], None, 50)


def test_a_run_is_compared_by_a_metric_of_which_more_is_better_whatever_its_name() -> None:
    ter = {"_target_": "seq2seq_attn.metric.ter.TER"}
    chrf = {"_target_": "seq2seq_attn.metric.chrf.CHRF"}
    results = {"test/cased": 374.4, "test/f": 20.0}
    assert read.compared_metric({"metric": {"cased": ter}}, results) is None
    assert read.compared_metric({"metric": {"cased": ter, "f": chrf}, "monitor": "val/cased"}, results) == "f"
    unknown = {"_target_": "other_package.Metric"}
    assert read.compared_metric({"metric": {"cased": unknown}}, results) == "cased"  # which is refused then


def test_a_run_is_not_compared_by_a_metric_that_no_resampled_test_set_has() -> None:
    distinct = {"_target_": "seq2seq_attn.metric.distinct.Distinct"}
    chrf = {"_target_": "seq2seq_attn.metric.chrf.CHRF"}
    results = {"test/distinct1": 40.0, "test/f": 20.0}
    assert read.compared_metric({"metric": {"distinct1": distinct, "f": chrf}}, results) == "f"
    assert read.compared_metric({"metric": {"distinct1": distinct}}, results) is None


def test_the_checkpoint_is_chosen_by_its_callback() -> None:
    of_run = {"monitor": "val/loss", "monitor_mode": "min"}
    assert read.chosen_by(of_run) == ("val/loss", "min")
    callback = {"checkpoint": {"monitor": "val/bleu", "mode": "max"}}
    assert read.chosen_by({**of_run, "callback": callback}) == ("val/bleu", "max")
    assert read.chosen_by({**of_run, "callback": {"checkpoint": {"dirpath": "a"}}}) == ("val/loss", "min")
    assert read.chosen_by({"callback": None}) == ("val/bleu", None)


def test_an_unknown_baseline_is_answered_with_the_names(sweep: Path) -> None:
    with pytest.raises(UserError, match=r"no finished run has attention=best; choose the baseline from: fair, good, p"):
        script.compare([sweep], "best", 50)


def test_runs_are_found_once_and_in_natural_order(sweep: Path) -> None:
    (sweep / "1" / "attention_maps").mkdir()
    shutil.copy(sweep / "0" / "results.json", sweep / "1" / "attention_maps")  # inside of a run
    found = read.find_runs([sweep, sweep / "0"])
    assert [position.name for position in found] == ["0", "1", "2", "10"]
    assert [name for name, _, _ in read.named(found, [sweep])] == ["sweep/0", "sweep/1", "sweep/2", "sweep/10"]


@pytest.mark.parametrize(
    ("launcher", "number", "shown"),
    [
        ("hydra._internal.core_plugins.basic_launcher.BasicLauncher", 1, "≤ 500"),
        ("hydra._internal.core_plugins.basic_launcher.BasicLauncher", 0, "500"),
        ("hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher", 1, "500"),
    ],
)
def test_memory_of_a_job_that_follows_others_in_its_process_is_a_bound(
    tmp_path: Path, launcher: str, number: int, shown: str
) -> None:
    folder = write_run(tmp_path / "0", "sparse", spoilt(4)) / ".hydra"
    folder.mkdir()
    hydra = {"mode": "MULTIRUN", "launcher": {"_target_": launcher}, "job": {"num": number}}
    (folder / "hydra.yaml").write_text(yaml.safe_dump({"hydra": hydra}), encoding="utf-8")
    group = only_group(tmp_path)
    assert f"| {shown} |" in script.markdown_page([group], [], "page.html")
    assert any("share one process" in note for note in group.notes) == shown.startswith("≤")


def test_translations_of_other_results_are_pointed_out(tmp_path: Path) -> None:
    write_run(tmp_path / "0", "sparse", spoilt(4), **{"test/bleu": 12.5})
    found = f"0: results.json has BLEU 12.50, its translations have {bleu_of(spoilt(4)):.2f}"
    assert any(found in note for note in only_group(tmp_path).notes)
