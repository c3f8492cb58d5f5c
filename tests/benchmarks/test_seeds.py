"""The queue of tables with three seeds: its commands, no run repeated, the figures of a page and their ranks."""

from __future__ import annotations

import gzip
import json
import shutil
from argparse import Namespace
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from statistics import fmean
from subprocess import CalledProcessError
from typing import Any

import pytest
from comparison.made_runs import spoilt, write_run
from configs import composed
from training.test_tables import TINY, rows, write_captions

from scripts.benchmarks import homes
from scripts.benchmarks import seeds as script
from scripts.benchmarks.home_runs import ROWS, SEEDS, read_rows
from scripts.benchmarks.seeds import PLANS

RESULTS = {"test/loss": 2.5, "test/bleu_signature": "nrefs:1"}


def typed(act: str, tmp_path: Path, plan: str, *others: str) -> list[str]:
    pages = ["--pages", str(tmp_path / "docs")] if act in ("page", "restore") else []
    return [act, "--plan", plan, "--runs", str(tmp_path / "runs"), *pages, *others]


@pytest.mark.parametrize(
    "plan", ["recipes", *(pytest.param(plan, marks=pytest.mark.slow) for plan in PLANS if plan != "recipes")]
)
def test_each_run_of_a_plan_is_a_command_of_train_py(plan: str) -> None:
    runs = script.planned(plan)
    assert len(set(runs)) == len(runs) == len(SEEDS) * len(PLANS[plan].rows)
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    for run in runs[: len(PLANS[plan].rows)]:
        config = composed(*script.command(run, Path("/corpus") if PLANS[plan].corpus else None))
        assert (config.seed, config.num_threads) == (1, 1)
        assert config.data.path == ("/corpus" if PLANS[plan].corpus else None)
        sets = ("val_", "other_", "unseen_")
        figures = {reduce(str.removeprefix, sets, figure) for figure in PLANS[plan].figures}
        assert figures <= {*config.metric, "ppl"}
        if run.row in PLANS[plan].averages:
            assert config.callback.history.save_top_k == PLANS[plan].averages[run.row]


def test_the_rows_of_the_synthesizers_are_those_of_their_experiment() -> None:
    plan = PLANS["synthesizer"]
    assert [list(overrides) for overrides in plan.rows.values()] == rows("synthesizer_table")
    assert all(set(published) <= set(plan.rows) for published in plan.published.values())


def finish(overrides: Sequence[str], folder: Path) -> None:
    """Leave what train.py leaves; `synthesizer_random` is better, by more with seed 3."""
    assert "resume=auto" in overrides
    shutil.rmtree(folder)
    row, seed = folder.parent.name, int(folder.name)
    every = 3 if row != "synthesizer_random" else 20 if seed == 3 else 6
    write_run(folder, row, spoilt(every), seed=seed, options={"trainer": {"max_epochs": 5}}, **RESULTS)
    (folder / homes.ATTEMPTS).write_text("started\n90.0\n", encoding="utf-8")


def test_no_run_is_repeated_and_the_page_has_differences_by_seed_and_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    failing = "synthesizer/multihead/3"

    def train(overrides: Sequence[str], folder: Path) -> None:
        started.append(folder.relative_to(tmp_path / "runs").as_posix())
        if not (started[-1] == failing and started.count(failing) < 3):
            finish(overrides, folder)

    names = ("multihead", "synthesizer_random", "synthesizer_dense")
    published = {"English–French": {"multihead": 1.0, "synthesizer_random": 2.0, "synthesizer_dense": 0.5}}
    plan = PLANS["synthesizer"]
    small = plan._replace(rows={name: plan.rows[name] for name in names}, published=published)
    monkeypatch.setitem(PLANS, "synthesizer", small)
    monkeypatch.setattr(homes, "train", train)
    (tmp_path / "data" / "multi30k").mkdir(parents=True)
    run = typed("run", tmp_path, "synthesizer", "--data", str(tmp_path / "data"))
    with pytest.raises(SystemExit, match=f"1 runs failed: {failing}; repeat the command"):
        script.main(run)
    script.main(typed("page", tmp_path, "synthesizer"))
    page = tmp_path / "docs" / "seeds_synthesizer.md"
    lines = {line.split(" | ")[0]: line.split(" | ") for line in page.read_text(encoding="utf-8").splitlines()}
    assert lines["| `multihead`"][1] == "2 †"
    assert lines["| `synthesizer_random`"][1] == "3"

    script.main(run)
    assert [name for name in dict.fromkeys(started) if started.count(name) > 1] == [failing]
    finished = read_rows(tmp_path / "runs" / ROWS)
    assert len(finished) == 9
    script.main(typed("page", tmp_path, "synthesizer"))
    text = page.read_text(encoding="utf-8")
    bleu = {(row["row"], row["seed"]): row["bleu"] for row in finished}
    above = [bleu["synthesizer_random", seed] - bleu["multihead", seed] for seed in SEEDS]
    assert above[2] > above[1] > 5
    lines = {line.split(" | ")[0]: line.split(" | ") for line in text.splitlines()}
    assert lines["| `synthesizer_random`"][5].startswith(f"+{fmean(above):.1f} ± ")
    assert lines["| `multihead`"][5] == ""
    assert lines["| `multihead`"][7] == "2 ± 0 |"  # 1.5 minutes each
    # multihead and dense are equal here: ranks 1.5, 3, 1.5 against 2, 3, 1, so rho is 1.5 / sqrt(1.5 · 2)
    assert "3 rows, English–French: 0.87 for the means over seeds\n  1, 2 and 3, 0.87 ± 0.00 for single seeds" in text
    assert "9 of 9 runs have finished" in text
    assert str(tmp_path) not in text

    shutil.rmtree(tmp_path / "runs")  # and on another machine, where the rows are those of the page
    for _ in range(2):
        script.main(typed("restore", tmp_path, "synthesizer"))
        assert read_rows(tmp_path / "runs" / ROWS) == finished
    started.clear()
    script.main(run)
    assert not started


def runs_of(row: str, seeds: Sequence[int], device: str, updates: int, bleu: float, epochs: int = 5) -> list[Any]:
    figures = dict.fromkeys(("chrf", "ppl"), 1.0) | {"parameters": 1_000_000, "processor_minutes": None}
    return [
        {"row": row, "seed": seed, "device": device, "updates": updates, "epochs": epochs, "bleu": bleu + seed,
         "commit": 40 * "a", **figures}
        for seed in seeds
    ]  # fmt: skip


def test_only_runs_of_one_kind_are_averaged() -> None:
    rows = [
        *runs_of("multihead", (1, 2, 3), "H100", 1155, 40.0),
        *runs_of("synthesizer_random", (1, 2), "H100", 1155, 41.0),
        *runs_of("synthesizer_random", (2, 3), "cpu", 1210, 90.0),  # seed 2 on both
        *runs_of("synthesizer_dense", (1,), "H100", 1155, 42.0),
        *runs_of("synthesizer_dense", (2, 3), "cpu", 1210, 80.0),
    ]
    text = script.page_text("synthesizer", rows, "seeds_synthesizer")
    cells = {line.split(" | ")[0]: line.split(" | ") for line in text.splitlines()}
    assert cells["| `multihead`"][1:3] == ["3", "42.0 ± 1.0"]
    assert cells["| `synthesizer_random`"][1:3] == ["2 †", "42.5 ± 0.7"]
    assert cells["| `synthesizer_random`"][5] == "+1.0 ± 0.0"
    assert cells["| `synthesizer_dense`"][1:3] == ["2 †", "82.5 ± 0.7"]
    assert cells["| `synthesizer_dense`"][5] == "–"  # no run of multihead on a CPU
    assert "† Fewer than 3 seeds: too few to call the row better or worse." in text
    assert "The other runs are only in the .json:\nseed 1 of `synthesizer_dense` (on one H100, 1,155 updates); " in text
    assert "seed 3 of `synthesizer_random` (on one thread of a CPU, 1,210 updates)." in text
    assert "one H100 (5 runs), one thread of a CPU (2 runs), 1,155 to 1,210 updates." in text
    assert "9 of 27 runs have finished." in text


def test_what_early_stopping_ended_is_averaged_and_another_size_of_epochs_is_not() -> None:
    whole, stopped = runs_of("a", (1, 3), "cpu", 4520, 60.0, 40), runs_of("a", (2,), "cpu", 4407, 60.0, 40)
    assert script.kinds_of([*whole, *stopped]) == [[*whole, *stopped]]
    assert script.kinds_of(runs_of("a", (1,), "cpu", 1155, 0.0) + runs_of("a", (2,), "cpu", 1210, 0.0)) == [
        runs_of("a", (1,), "cpu", 1155, 0.0),
        runs_of("a", (2,), "cpu", 1210, 0.0),
    ]


def test_ranks_are_of_runs_on_one_device() -> None:
    plan = PLANS["synthesizer"]
    names = list(plan.published["English–French"])
    rows = [run for n, name in enumerate(names) for run in runs_of(name, (1, 2), "H100", 1155, float(n))]
    small = plan._replace(published={"English–French": plan.published["English–French"]})
    (line,) = script.rank_lines(small, rows)
    assert "for the means over seeds\n  1 and 2," in line
    assert not script.rank_lines(small, [*rows[:-2], *runs_of(names[-1], (1, 2), "cpu", 1210, 9.0)])


def test_the_example_is_a_run_that_has_finished() -> None:
    text = script.page_text("synthesizer", runs_of("multihead", (1,), "cpu", 1210, 40.0), "seeds_synthesizer")
    assert "attention=multihead num_threads=1" in text


def test_a_second_test_set_of_the_same_run_has_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(overrides: Sequence[str], folder: Path) -> None:
        finish(overrides, folder)
        file = folder / "results.json"
        results = json.loads(file.read_text(encoding="utf-8")) | {"test_unseen/bleu": 93.0 + int(folder.name)}
        file.write_text(json.dumps(results), encoding="utf-8")

    monkeypatch.setattr(homes, "train", train)
    script.main(typed("run", tmp_path, "first_model"))
    script.main(typed("page", tmp_path, "first_model"))
    page = (tmp_path / "docs" / "seeds_first_model.md").read_text(encoding="utf-8")
    assert "| BLEU, test | BLEU, unseen combinations | chrF, test |" in page
    assert "| 95.0 ± 1.0 |" in page


def test_the_first_seed_of_all_plans_runs_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Path] = []

    def train(overrides: Sequence[str], folder: Path) -> None:
        started.append(folder.relative_to(tmp_path / "runs"))
        finish(overrides, folder)

    monkeypatch.setattr(homes, "train", train)
    for name in ("summary", "dialogue"):
        (first, *_) = PLANS[name].rows.items()
        monkeypatch.setitem(PLANS, name, PLANS[name]._replace(rows=dict([first])))
    typed = ["run", "--plan", "summary", "dialogue", "--runs", str(tmp_path / "runs")]
    script.main([*typed, "--rows", "synthesizer_random"])
    assert not started
    script.main([*typed, "--seeds", "1", "2", "--rows", *PLANS["summary"].rows])
    assert all(folder.name != "3" for folder in started)
    script.main(typed)
    assert [(folder.parts[0], folder.name) for folder in started] == [
        (plan, str(seed)) for seed in SEEDS for plan in ("summary", "dialogue")
    ]


def test_a_recipe_is_scored_by_its_averaged_checkpoints_and_on_both_test_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    failing = True

    def python(*words: str) -> None:
        asked.append([word.replace(str(tmp_path), "") for word in words])
        if "average" in words:
            Path(words[-1]).touch()
        if words[0] == "evaluate.py":
            folder = Path(words[4].removeprefix("hydra.run.dir=").strip('"'))
            folder.mkdir(exist_ok=True)
            if failing and "average.ckpt" in words[1]:
                raise CalledProcessError(2, words)
            scores = {"val": {"tokenized_bleu": 60.0}, "test": {"tokenized_bleu": 61.0, "bleu": 59.0}}
            if "2017" in folder.name:
                scores = {"test_2017_flickr": {"tokenized_bleu": 53.0, "bleu": 52.0}}
            (folder / "evaluation.json").write_text(json.dumps({"splits": scores}), encoding="utf-8")

    def train(overrides: Sequence[str], folder: Path) -> None:
        finish(overrides, folder)
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        results |= {"test/tokenized_bleu": 50.0, "data": "multi30k_tok"}
        (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")

    monkeypatch.setattr(script, "python", python)
    monkeypatch.setattr(script, "SEEDS", (1,))
    monkeypatch.setattr(homes, "train", train)
    (tmp_path / "data/multi30k/tok").mkdir(parents=True)
    run = typed("run", tmp_path, "recipes", "--data", str(tmp_path / "data"))
    with pytest.raises(SystemExit, match=r"^1 runs failed: recipes/multi30k_tiny/1; "):
        script.main(run)
    failing = False
    script.main(run)
    by_name = {row["row"]: row for row in read_rows(tmp_path / "runs" / ROWS)}
    tiny, best = by_name["multi30k_tiny"], by_name["multi30k_best"]
    assert [tiny[figure] for figure in PLANS["recipes"].figures] == [60.0, 61.0, 53.0, 59.0, 52.0]
    assert [best[figure] for figure in PLANS["recipes"].figures] == [60.0, 50.0, 53.0, best["bleu"], 52.0]
    folder = "/runs/recipes/multi30k_tiny/1"
    average = [words for words in asked if "average" in words]
    assert average == [["-m", "seq2seq_attn", "average", folder, "--last", "10", "--output", f"{folder}/average.ckpt"]]
    (other,) = (words for words in asked if f'hydra.run.dir="{folder}/test_2017_flickr"' in words)
    assert other[1] == f'ckpt_path="{folder}/average.ckpt"'
    assert other[-3:] == ["data=multi30k_tok", 'data.path="/data/multi30k/tok"', "data.test_split=test_2017_flickr"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "--plan", "recipes"], "--plan recipes needs --data FOLDER with multi30k/tok"),
        (["run", "--plan", "tatoeba"], "--plan tatoeba needs --data FOLDER with tatoeba/fra.txt"),
        (["page"], "has no finished run; start `scripts.benchmarks.seeds run` first"),
    ],
)
def test_what_is_missing_is_said(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main([*words, "--runs", str(tmp_path)])
    assert sentence in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_the_queue_runs_train_py_and_scores_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captions = tmp_path / "data/multi30k/tok"
    captions.mkdir(parents=True)
    write_captions(captions)
    for file in list(captions.iterdir()):
        with gzip.open(captions / f"{file.stem}.lc.norm.tok{file.suffix}.gz", "wb") as packed:
            packed.write(file.read_bytes())
    for language in ("en", "fr"):
        names = [captions / f"test_{year}_flickr.lc.norm.tok.{language}.gz" for year in (2016, 2017)]
        shutil.copy(*names)
    monkeypatch.setattr(script, "SEEDS", (1,))
    recipe = PLANS["recipes"]._replace(rows={"multi30k_tiny": PLANS["recipes"].rows["multi30k_tiny"]})
    monkeypatch.setitem(PLANS, "recipes", recipe)
    small = [word for word in TINY if not any(name in word for name in ("choices.", "attention_map", "max_steps"))]
    small += [f"paths.cache_dir={tmp_path}", "trainer.max_epochs=11"]
    script.main(typed("run", tmp_path, "recipes", "--data", str(tmp_path / "data"), "--override", *small))
    (row,) = read_rows(tmp_path / "runs" / ROWS)
    assert all(isinstance(row[figure], float) for figure in recipe.figures)
    script.main(typed("page", tmp_path, "recipes"))
    assert "| `multi30k_tiny` | 1 |" in (tmp_path / "docs/seeds_recipes.md").read_text(encoding="utf-8")


def test_a_corpus_may_be_one_file(tmp_path: Path) -> None:
    (tmp_path / "tatoeba").mkdir()
    (tmp_path / "tatoeba" / "fra.txt").touch()
    assert script.corpus_of("tatoeba", Namespace(data=tmp_path)) == tmp_path / "tatoeba" / "fra.txt"
