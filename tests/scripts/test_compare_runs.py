"""The page that compares attentions: its figures are those of the runs, and nothing is left out without a word."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from configs import CONF, options
from hydra import compose, initialize_config_dir
from load_script import load_script

from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.metric.by_length import score_by_length
from seq2seq_attn.tensors.error import UserError

script = load_script("compare_runs")
translations = load_script("compare_translations")
read, rows_of_runs = load_script("compare_runs_read"), load_script("compare_runs_rows")
figures_of_group, significance = load_script("compare_runs_figures"), load_script("compare_runs_significance")
drawing, maps, page = (load_script(f"compare_runs_{name}") for name in ("draw", "maps", "page"))

SUBJECTS = ("le chat", "la fille", "un homme", "ce vieux chien", "notre ami de Paris")
VERBS = ("dort", "mange du pain", "court vite dans la rue", "regarde la mer", "lit un livre & rit <fort>")
REFERENCES = [f"{subject.capitalize()} {verb}." for subject in SUBJECTS for verb in VERBS]
SOURCES = [
    " ".join(["Sentence", *("on",) * (number % 13), f"{number}."]) for number in range(len(REFERENCES))
]
METRIC = {"bleu": {"lowercase": False, "tokenize": "13a"}}


def spoilt(every: int, shift: int = 0) -> list[str]:
    """Each so many sentences are said the other way round."""
    return [
        " ".join(text.split()[::-1]) if (row + shift) % every == 0 else text
        for row, text in enumerate(REFERENCES)
    ]


def bleu_of(hypotheses: Sequence[str], references: Sequence[str] = REFERENCES) -> float:
    metric = BLEU(**METRIC["bleu"])
    metric.update(hypotheses, [[reference] for reference in references])
    return metric.compute().item()


def write_run(
    folder: Path, attention: str, hypotheses: list[str], *, seed: int = 1, references: Sequence[str] = REFERENCES,
    options: dict[str, Any] | None = None, **results: Any,
) -> Path:  # fmt: skip
    """As train.py leaves it, after three validations."""
    folder.mkdir(parents=True)
    preset = {"_target_": f"attention.{attention}", "dropout": 0.0}
    config = {
        "seed": seed, "num_threads": 2, "paths": {"run_dir": str(folder), "cache_dir": "/elsewhere/cache"},
        "choices": {"attention": attention}, "attention": preset, "metric": METRIC,
        "model": {"encoder": {"self_attention": preset, "num_layers": 2}, "dim": 7},
        "callback": {"seeding": {"seed": seed}, "checkpoint": {"dirpath": f"{folder}/checkpoints"}},
        **(options or {}),
    }  # fmt: skip
    found = {
        "test/bleu": bleu_of(hypotheses, references), "test/chrf": 50.0, "test/ppl": 1.5, "seed": seed,
        "attention": attention, "model": "transformer", "data": "demo", "num_parameters": 1_500_000, "steps": 30,
        "tokens_per_second": 1000.0, "train_seconds": 90.0, "decode_sentences_per_second": 10.0,
        "peak_memory_bytes": 500_000_000, "attention_entropy": 0.5,
    } | results  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(found), encoding="utf-8")
    (folder / "provenance.json").write_text(json.dumps({"commit": "c" * 40, "threads": 2}), encoding="utf-8")
    lines = zip(SOURCES, references, hypotheses, strict=True)
    (folder / "translations.tsv").write_text(
        "".join("\t".join(line) + "\n" for line in lines), encoding="utf-8"
    )
    (folder / "translations.references").write_text("".join(f"{r}\n" for r in references), encoding="utf-8")
    write_log(folder, [(9, 20.0), (19, 60.0), (29, 40.0)])
    return folder


def write_log(folder: Path, validations: Sequence[tuple[int, float]]) -> None:
    with (folder / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["epoch", "step", "train/loss", "val/bleu"])
        writer.writeheader()
        for step, bleu in validations:
            writer.writerow({"epoch": 0, "step": step, "train/loss": 5.0 - step / 10})
            writer.writerow({"epoch": 0, "step": step, "val/bleu": bleu})


def write_map(folder: Path, name: str, weights: np.ndarray) -> None:
    target, source = (
        [f"▁{side}{n}" for n in range(size)] for side, size in zip("ts", weights.shape[-2:], strict=True)
    )
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / name, weights=weights, source_pieces=source, target_pieces=target)


def only_group(*folders: Path, baseline: str | None = None, resamples: int = 200) -> Any:
    (group,), _ = script.compare(folders, baseline, resamples)
    return group


def runs_of(folder: Path) -> list[Any]:
    return read.read_runs([folder])[0]


def write_sweep(folder: Path) -> Path:
    """Three attentions, one of them with two seeds."""
    write_run(folder / "0", "poor", spoilt(2))
    write_run(folder / "1", "good", spoilt(9), seed=1)
    write_run(folder / "2", "good", spoilt(7), seed=2)
    write_run(folder / "10", "fair", spoilt(4))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return write_sweep(tmp_path / "sweep")


def test_with_one_seed_the_test_is_that_of_compare_translations(tmp_path: Path) -> None:
    said = {"baseline": spoilt(4), "good": spoilt(9), "poor": spoilt(2), "near": spoilt(4, shift=1)}
    for name, hypotheses in said.items():
        write_run(tmp_path / name, name, hypotheses)
    found = only_group(tmp_path, baseline="baseline", resamples=300).differences
    systems = [translations.read_system(tmp_path / name, "test") for name in said]
    base, *others = translations.compare(systems, ["bleu"], "bootstrap", 300).results["bleu"]
    assert list(found) != list(said)  # sorted by BLEU, and without the baseline
    for name, other in zip([name for name in said if name != "baseline"], others, strict=True):
        assert found[name].p == pytest.approx(other.p_value)
        assert found[name].value == pytest.approx(other.score - base.score)
        assert found[name].low <= found[name].value <= found[name].high
    assert found["poor"].significant
    assert not found["near"].significant


def test_seeds_that_say_the_same_change_no_p_value(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path / f"base{seed}", "base", spoilt(4), seed=seed)
        write_run(tmp_path / f"other{seed}", "other", spoilt(3), seed=seed)
    every = only_group(tmp_path, baseline="base").differences
    one = only_group(tmp_path / "base1", tmp_path / "other1", baseline="base").differences
    assert every["other"] == pytest.approx(one["other"])


def test_a_row_with_several_seeds_is_tested_by_their_mean(tmp_path: Path) -> None:
    said = [spoilt(3), spoilt(5)]
    write_run(tmp_path / "base", "base", spoilt(4))
    for seed, hypotheses in enumerate(said):
        write_run(tmp_path / f"other{seed}", "other", hypotheses, seed=seed)
    found = only_group(tmp_path, baseline="base").differences["other"]
    assert found.value == pytest.approx(sum(map(bleu_of, said)) / 2 - bleu_of(spoilt(4)))


def test_a_baseline_that_is_repeated_has_no_p_value(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "a", spoilt(4))
    write_run(tmp_path / "b", "b", spoilt(4))
    group = only_group(tmp_path, baseline="a")
    assert group.differences["b"] == (0.0, 0.0, 0.0, None, False)
    assert "Against a: not told apart from it: b." in figures_of_group.verdict(group)


def test_holm_stops_at_the_first_p_value_that_may_be_chance() -> None:
    p_values = {"d": 0.049, "a": 0.012, "c": 0.02, "b": 0.03, "same": None}
    found = significance.holm(
        {name: significance.Difference(1.0, 0.5, 1.5, p, False) for name, p in p_values.items()}
    )
    assert [name for name, one in found.items() if one.significant] == []  # 0.012 × 5
    del p_values["same"]
    found = significance.holm(
        {name: significance.Difference(1.0, 0.5, 1.5, p, False) for name, p in p_values.items()}
    )
    assert [name for name, one in found.items() if one.significant] == ["a"]  # 0.012 × 4, but 0.02 × 3 = 0.06


def test_bleu_by_length_is_that_of_an_evaluation(sweep: Path) -> None:
    group = only_group(sweep)
    buckets = score_by_length(
        BLEU(**METRIC["bleu"]), SOURCES, spoilt(4), [[reference] for reference in REFERENCES]
    )
    assert len(buckets) > 2
    assert group.lengths == {bucket.words: bucket.sentences for bucket in buckets}
    assert group.by_length["fair"] == pytest.approx({bucket.words: bucket.score for bucket in buckets})


def test_a_mean_over_seeds_has_the_deviation_of_a_sample(tmp_path: Path) -> None:
    for seed, speed in enumerate((1000.0, 1200.0, 1700.0)):
        write_run(tmp_path / str(seed), "sparse", spoilt(4), seed=seed, tokens_per_second=speed)
    group = only_group(tmp_path)
    assert group.means["sparse"]["tokens_per_second"] == pytest.approx((1300.0, 130000**0.5))
    assert "| 1,300 ± 361 |" in script.markdown_page([group], [], "page.html")
    assert not any("one seed" in note for note in group.notes)


def test_runs_that_differ_in_seed_and_folder_alone_share_a_row(sweep: Path) -> None:
    group = only_group(sweep)
    assert [(row.label, [run.seed for run in row.runs]) for row in group.rows] == [
        ("good", [1, 2]),
        ("fair", [1]),
        ("poor", [1]),
    ]
    assert [note for note in group.notes if "Rows differ" in note] == []
    assert group.notes[0].startswith("2 of 3 rows have one seed: how far")


def test_another_setting_is_a_row_of_its_own_that_says_so(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "multihead", spoilt(4), options={"label_smoothing": 0.1})
    write_run(tmp_path / "b", "multihead", spoilt(3), seed=2, options={"label_smoothing": 0.2})
    group = only_group(tmp_path)
    assert [row.label for row in group.rows] == [
        "multihead (label_smoothing=0.1)",
        "multihead (label_smoothing=0.2)",
    ]
    assert "Rows differ in more than their attention: label_smoothing (0.1 in 1, 0.2 in 1)." in group.notes
    with pytest.raises(
        UserError, match=r"baseline multihead could be any of multihead \(label_smoothing=0.1\), mult"
    ):
        script.compare([tmp_path], "multihead", 50)
    assert only_group(tmp_path, baseline="multihead (label_smoothing=0.2)").chosen


def test_a_slot_that_repeats_the_attention_is_no_difference_beside_it() -> None:
    def config(name: str, cross: str) -> dict[str, Any]:
        return {
            "seed": 1, "paths": {}, "attention": {"name": name}, "cross_attention": {"name": cross},
            "self_attention": None,
            "model": {"self_attention": {"name": name}, "cross_attention": {"name": cross}},
        }  # fmt: skip

    alike = [rows_of_runs.settings(config(name, "multihead")) for name in ("sparse", "multihead")]
    assert rows_of_runs.differing(alike) == ["attention.name"]
    apart = [rows_of_runs.settings(config("sparse", cross)) for cross in ("sparse", "multihead")]
    assert rows_of_runs.differing(apart) == ["cross_attention.name"]


def test_of_runs_with_one_seed_the_last_counts_and_the_other_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "9", "sparse", spoilt(4))
    write_run(tmp_path / "runs" / "10", "sparse", spoilt(5))
    (group,), left_out = script.compare([tmp_path / "runs"], None, 50)
    assert [run.name for run in group.rows[0].runs] == ["runs/10"]
    assert left_out == [("runs/9", "has the configuration and seed of runs/10, which comes after it")]


def test_another_model_or_test_set_is_another_group(tmp_path: Path) -> None:
    others = [*REFERENCES[1:], "Oui."]
    write_run(tmp_path / "0", "sparse", spoilt(4))
    write_run(tmp_path / "1", "sparse", spoilt(4), model="rnn")
    write_run(tmp_path / "2", "sparse", spoilt(3), references=others)
    write_run(tmp_path / "3", "local", spoilt(3))
    groups, left_out = script.compare([tmp_path], None, 50)
    assert [(group.title, [row.label for row in group.rows]) for group in groups] == [
        ("transformer on demo, test set 1", ["sparse", "local"]),
        ("rnn on demo", ["sparse"]),
        ("transformer on demo, test set 2", ["sparse"]),
    ]
    assert left_out == []
    (first, *rest), _ = script.compare([tmp_path], "local", 50)
    assert first.baseline == "local"
    assert any("No run here has attention=local: the baseline is" in note for note in rest[0].notes)


def spoil(folder: Path, name: str, content: str | None) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content, encoding="utf-8")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"results.json": None}, "stopped after 30 updates, before its test"),
        ({"results.json": None, "metrics.csv": None}, "stopped before anything was logged"),
        (
            {"results.json": None, "metrics.csv": "epoch,step,train/loss\n0,19,3.1\n0,39", "train.log": "a\nKilled\n"},
            "stopped after 20 updates, before its test; its log ends: Killed",
        ),
        ({"results.json": '{"test/bleu": 3'}, r"results.json, config.yaml or provenance.json is damaged \(.+\)"),
        ({"config.yaml": None}, "config.yaml is missing"),
        ({"translations.tsv": None}, r"translations.tsv cannot be read \(No such file or directory\)"),
        ({"results.json": None, "evaluation.json": "{}"}, "a folder of evaluate.py; give that of the run"),
    ],
)  # fmt: skip
def test_a_run_that_did_not_finish_has_the_reason(
    tmp_path: Path, files: dict[str, str | None], reason: str
) -> None:
    write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    other = write_run(tmp_path / "runs" / "1", "local", spoilt(4))
    for name, content in files.items():
        spoil(other, name, content)
    runs, [left_out] = read.read_runs([tmp_path / "runs"])
    assert [run.name for run in runs] == ["runs/0"]
    assert left_out.name == "runs/1"
    assert re.fullmatch(reason, left_out.reason)


def test_what_is_left_out_is_told_on_the_page_in_the_table_and_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs" / "0", "sparse", spoilt(4))
    spoil(write_run(tmp_path / "runs" / "1", "local", spoilt(4)), "results.json", None)
    output = tmp_path / "page.html"
    script.main([str(tmp_path / "runs"), "--output", str(output), "--resamples", "50"])
    reason = "stopped after 30 updates, before its test"
    assert f"left out: runs/1: {reason}\n" in capsys.readouterr().err
    assert f"\n- runs/1: {reason}\n" in output.with_suffix(".md").read_text(encoding="utf-8")
    assert f"<b>runs/1</b>: {reason}</li>" in output.read_text(encoding="utf-8")


def test_a_job_that_never_began_is_named(sweep: Path) -> None:
    (sweep / "3" / ".hydra").mkdir(parents=True)
    _, left_out = script.compare([sweep], None, 50)
    assert left_out == [("sweep/3", "stopped before training began")]


def test_folders_without_a_finished_run_are_refused(tmp_path: Path) -> None:
    spoil(write_run(tmp_path / "0", "sparse", spoilt(4)), "results.json", None)
    with pytest.raises(
        SystemExit, match=r"no finished run in \S+ \(\S+/0: stopped after 30 updates, before its test\);"
    ):
        script.main([str(tmp_path)])
    with pytest.raises(
        SystemExit, match=r"none is no folder; give run folders of train.py, or folders of them"
    ):
        script.main([str(tmp_path / "none")])


def test_an_unknown_baseline_is_answered_with_the_names(sweep: Path) -> None:
    with pytest.raises(
        SystemExit, match=r"no finished run has attention=best; choose the baseline from: fair, good, p"
    ):
        script.main([str(sweep), "--baseline", "best"])


def test_runs_are_found_once_and_in_natural_order(sweep: Path) -> None:
    (sweep / "1" / "attention_maps").mkdir()
    shutil.copy(sweep / "0" / "results.json", sweep / "1" / "attention_maps")  # inside of a run
    found = read.find_runs([sweep, sweep / "0"])
    assert [place.name for place in found] == ["0", "1", "2", "10"]
    assert [name for name, _ in read.named(found, [sweep])] == ["sweep/0", "sweep/1", "sweep/2", "sweep/10"]


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
    assert any("inherits the peak memory" in note for note in group.notes) == shown.startswith("≤")


def test_translations_of_other_results_are_pointed_out(tmp_path: Path) -> None:
    write_run(tmp_path / "0", "sparse", spoilt(4), **{"test/bleu": 12.5})
    found = f"0: results.json has BLEU 12.50, its translations have {bleu_of(spoilt(4)):.2f}"
    assert any(found in note for note in only_group(tmp_path).notes)


def test_rows_that_no_other_beats_at_both_are_the_front(tmp_path: Path) -> None:
    speeds = {"slow": (9, 100.0), "quick": (2, 900.0), "middle": (4, 500.0), "beaten": (3, 400.0)}
    for name, (every, speed) in speeds.items():
        write_run(tmp_path / name, name, spoilt(every), tokens_per_second=speed)
    group = only_group(tmp_path)
    front = [
        row.label for row in figures_of_group.efficient(group, group.rows, "tokens_per_second", lower=False)
    ]
    assert front == ["slow", "middle", "quick"]
    least = [
        row.label for row in figures_of_group.efficient(group, group.rows, "tokens_per_second", lower=True)
    ]
    assert least == ["slow"]
    assert figures_of_group.verdict(group)[-1].endswith(": slow, middle and quick.")


def test_the_verdict_tells_better_from_worse_and_from_neither(tmp_path: Path) -> None:
    for name, hypotheses in {
        "good": REFERENCES,
        "base": spoilt(3),
        "near": spoilt(3, 1),
        "bad": spoilt(1),
    }.items():
        write_run(tmp_path / name, name, hypotheses)
    first, second, _ = figures_of_group.verdict(only_group(tmp_path, baseline="base"))
    assert first == f"Highest BLEU: good, 100.0, {100 - bleu_of(spoilt(3, 1)):.1f} above near."
    assert second == "Against base: better: good; not told apart from it: near; worse: the other 1."


def test_a_run_that_diverged_stands_last(tmp_path: Path) -> None:
    write_run(tmp_path / "0", "diverged", spoilt(4), **{"test/bleu": float("nan"), "test/ppl": float("nan")})
    write_run(tmp_path / "1", "poor", spoilt(1))
    write_run(tmp_path / "2", "fair", spoilt(2), **{"test/ppl": 1.25})
    group = only_group(tmp_path)
    assert [row.label for row in group.rows] == ["fair", "poor", "diverged"]
    assert "| **1.25** |" in script.markdown_page([group], [], "page.html")
    assert page.html_page([group], [], 0).count('class="best"') == 2  # BLEU and perplexity; all else is equal


def test_attentions_that_have_learned_nothing_have_a_page_too(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_log(write_run(tmp_path / name, name, ["Non !"] * len(REFERENCES)), [(9, 0.0)])
    group = only_group(tmp_path)
    assert figures_of_group.verdict(group)[0] == "Highest BLEU: a, 0.0, as b has."
    assert 'class="best"' not in page.html_page([group], [], 0)


def test_names_at_points_cover_neither_points_nor_each_other() -> None:
    centres = [(2.0 + 0.2 * number, 2.0 + 0.03 * number) for number in range(7)]
    found = [box for _, box in drawing.arrange(centres, [(1.1, 0.1)] * 7, drawing.Box(0, 0, 7, 5))]
    marks = [drawing.Box(x - 0.05, y - 0.05, x + 0.05, y + 0.05) for x, y in centres]
    taken = [*found, *marks]
    assert sum(box.overlap(other) for i, box in enumerate(found) for other in taken[i + 1 :]) < 1e-9
    assert all(box.left >= 0 and box.right <= 7 for box in found)


def test_the_map_is_of_the_last_layer_at_the_validation_that_chose_the_checkpoint(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "0", "sparse", spoilt(4))
    weights = np.random.default_rng(1).random((3, 5, 7))
    for step in ("step_000010", "step_000020", "step_000030"):
        for layer in (0, 1):
            for sentence in (0, 1):
                right = (step, layer, sentence) == ("step_000020", 1, 1)  # after 20 updates BLEU was 60
                name = f"attention_maps/{step}/encoder_{layer}_{sentence}.npz"
                write_map(folder, name, weights if right else np.zeros((3, 5, 7)))
    (run,) = runs_of(tmp_path)
    found = maps.map_of(run, "encoder", 1)
    assert found.weights == pytest.approx(weights.mean(0))
    assert (found.layer, found.heads, found.rows[4], found.columns[6]) == (1, 3, "▁t4", "▁s6")
    assert maps.map_of(run, "cross", 1) is None
    write_log(folder, [(9, 20.0), (19, 60.0), (30, 70.0)])  # after training, Lightning counts the last update
    (run,) = runs_of(tmp_path)
    assert maps.best_maps(run).name == "step_000030"
    write_log(folder, [(9, 20.0), (19, 60.0)])
    (run,) = runs_of(tmp_path)
    (folder / "attention_maps/step_000020/encoder_1_1.npz").write_bytes(b"cut off")
    assert maps.map_of(run, "encoder", 1) is None


class Checker(HTMLParser):
    """Every element is closed, and what is referred to stands in the page, once."""

    VOID = ("meta", "path", "use", "image", "rect", "wbr", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def note(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            assert value is not None, name
            self.ids += [value] if name == "id" else []
            self.links += [value] if name in ("href", "xlink:href", "src") else []
            self.links += re.findall(r"url\(([^)]+)\)", value)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a page with maps, an odd name and a second group."""
    folder = tmp_path_factory.mktemp("made")
    write_sweep(folder / "sweep")
    write_run(folder / "sweep" / "odd", "<odd> & $x$", spoilt(3), model="rnn")
    for run in ("0", "1"):
        for kind in ("cross", "encoder"):
            name = f"attention_maps/step_000020/{kind}_0_0.npz"
            write_map(folder / "sweep" / run, name, np.eye(5, 7)[None])
    script.main([str(folder / "sweep"), "--output", str(folder / "page.html"), "--resamples", "50"])
    return folder


def test_the_page_is_whole_and_asks_for_nothing_beside_it(made: Path) -> None:
    text = (made / "page.html").read_text(encoding="utf-8")
    found = Checker(text)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids)) > 100
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in found.links)
    assert len([link for link in found.links if link.startswith("data:")]) == 6  # 2 × 2 maps, 2 keys
    assert not re.search(r"https?://|@import|<link|<iframe", text)
    assert "default-src 'none'" in text
    assert "&lt;odd&gt; &amp; $x$" in text
    assert "<odd>" not in text


def test_the_page_names_no_place_of_the_machine_and_is_made_alike_twice(made: Path, tmp_path: Path) -> None:
    text = (made / "page.html").read_text(encoding="utf-8")
    assert str(made.parent) not in text
    assert str(made.parent) not in (made / "page.md").read_text(encoding="utf-8")
    script.main([str(made / "sweep"), "--output", str(tmp_path / "new" / "page.html"), "--resamples", "50"])
    assert (tmp_path / "new" / "page.html").read_text(encoding="utf-8") == text


def test_every_row_is_in_every_part_of_the_page(made: Path) -> None:
    text = (made / "page.html").read_text(encoding="utf-8").partition("<h2>rnn on demo</h2>")[0]
    parts = dict(zip(re.findall("<h3>(.*?)</h3>", text), re.split("<h3>.*?</h3>", text)[1:], strict=True))
    for label in ("good", "fair", "poor"):
        for title in ("Difference from the baseline", "BLEU against speed of training", "All figures"):
            assert f">{label}<" in parts[title], title
        assert parts["BLEU against size, decoding and entropy"].count(f">{label}</text>") == 3
        assert parts["Learning curves"].count(f"<figcaption>{label}</figcaption>") == 2
        assert f">{label}</th>" in parts["BLEU by sentence length"]
    seen = [title for title in parts if "one sentence in every run" in title]
    assert len(seen) == 2
    assert all(parts[title].count("<figcaption>") == 2 for title in seen)
    table = (made / "page.md").read_text(encoding="utf-8")
    assert [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("| ")] == [
        ["| attention", "seeds"], ["| good", "2"], ["| fair", "1"], ["| poor", "1"],
        ["| attention", "seeds"], ["| <odd> & $x$", "1"],
    ]  # fmt: skip


def test_too_few_resamples_are_refused(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main([str(sweep), "--resamples", "39"])
    assert "--resamples 39 gives no interval of 95 %; give 40 or more" in capsys.readouterr().err


def test_a_page_that_its_table_would_overwrite_is_refused(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main([str(sweep), "--output", str(sweep / "page.md")])
    assert "page.md is no .html; give page.html" in capsys.readouterr().err


def test_compare_attentions_runs_every_preset_for_two_minutes_on_the_demo_corpus() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", ["experiment=compare_attentions"], return_hydra_config=True)
    assert config.hydra.mode.name == "MULTIRUN"
    assert config.hydra.sweeper.params == {"attention": "glob(*)"}
    chosen = config.hydra.runtime.choices
    assert (chosen["data"], chosen["model"]) == ("demo", "transformer")
    assert config.trainer.max_time == "00:00:02:00"
    assert len(options("attention")) >= 26
