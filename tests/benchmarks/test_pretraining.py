"""The queue of pre-training and fine-tuning: parents first, no run repeated, and the page."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from comparison.made_runs import spoilt, write_run
from configs import composed

from scripts.benchmarks import homes
from scripts.benchmarks import pretraining as script
from scripts.benchmarks.home_runs import ROWS, SEEDS, read_rows
from scripts.benchmarks.pretraining import Run

RESULTS = {"test/loss": 2.5, "test/bleu_signature": "nrefs:1", "test/chrf_signature": "nrefs:1|nc:6"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "tatoeba").mkdir(parents=True)
    (folder / "multi30k").mkdir()
    pairs = [(f"a dog sees {n} cats", f"un chien voit {n} chats") for n in range(40)]
    text = "".join(f"{source}\t{target}\tCC-BY\n" for source, target in pairs)
    (folder / "tatoeba/fra.txt").write_text(text, encoding="utf-8")
    for split in ("train", "val", "test_2016_flickr"):
        for side, language in enumerate(("en", "fr")):
            with gzip.open(folder / f"multi30k/{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{pair[side]} {split} !\n" for pair in pairs)
    return folder


def typed(act: str, tmp_path: Path, *others: str) -> list[str]:
    data = ["--data", str(tmp_path / "data")] if act == "run" else []
    return [act, *data, "--runs", str(tmp_path / "runs"), *others]


def test_a_fine_tuning_follows_its_parent_and_both_parents_have_one_command() -> None:
    parents, children = script.parents(), script.children()
    assert len(set(parents)) == len(parents) == 2 * len(script.ATTENTIONS) * len(SEEDS)
    assert len(set(children)) == len(children) == len(parents) * len(script.EPOCHS)
    assert {run.origin for run in children} == set(parents)
    runs = Path("/runs")
    child = Run("synthesizer_random", "pretrained", 1_000, 2)
    ours, other = script.command(child, runs), script.command(child._replace(parent="untrained"), runs)
    assert [ours.index(word) for word in set(ours) - set(other)] == [
        ours.index(f'init_from.run="{child.origin.folder(runs)}"')
    ]
    config = composed(*(word for word in ours if not word.startswith("init_from")))
    assert (config.data.path, config.seed, config.trainer.max_epochs) == ("/runs/captions_1000", 2, 60)


@pytest.mark.parametrize("attention", script.ATTENTIONS)
def test_a_parent_restores_text_with_its_attention_on_both_sides(attention: str) -> None:
    config = composed(*script.command(Run(attention, "pretrained", 0, 3), Path("/runs")))
    assert config.objective._target_.endswith("Denoising")
    assert (
        config.attention == composed("model=transformer", f"attention={attention}", "attention.num_heads=4").attention
    )
    assert (config.seed, config.trainer.max_steps, config.data.train) == (3, script.UPDATES, "/runs/text.txt")
    assert composed(*script.command(Run(attention, "untrained", 0, 3), Path("/runs"))).trainer.max_epochs == 0


def finish(overrides: Sequence[str], folder: Path) -> None:
    """Leave what train.py leaves; the pre-trained are better, and `synthesizer_random` gains less."""
    assert "resume=auto" in overrides
    shutil.rmtree(folder)
    attention, kind, seed = folder.parts[-3:]
    every = 2 if kind.startswith("untrained") else 5 if attention == "synthesizer_random" else 20
    write_run(folder, attention, spoilt(every), seed=int(seed), options={"trainer": {"max_epochs": 9}}, **RESULTS)
    (folder / homes.ATTEMPTS).write_text("started\n90.0\n", encoding="utf-8")
    if "_" not in kind:
        found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        kept = {name: value for name, value in found.items() if "bleu" not in name and "chrf" not in name}
        (folder / "results.json").write_text(json.dumps(kept), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_no_run_is_repeated_and_the_page_has_the_gains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    failing = "multihead/pretrained/3"

    def train(overrides: Sequence[str], folder: Path) -> None:
        started.append(folder.relative_to(tmp_path / "runs").as_posix())
        if not (started[-1] == failing and started.count(failing) == 1):
            finish(overrides, folder)

    monkeypatch.setattr(homes, "train", train)
    with pytest.raises(SystemExit, match=f"1 runs failed: {failing}; repeat the command"):
        script.main(typed("run", tmp_path))
    assert not any(name.startswith("multihead/pretrained_") and name.endswith("/3") for name in started)
    script.main(typed("run", tmp_path))
    assert {name for name in started if started.count(name) > 1} == {failing}
    rows = read_rows(tmp_path / "runs" / ROWS)
    assert len(rows) == len(started) - 1 == len(script.parents()) + len(script.children())
    assert all(("bleu" in row) == (row["pairs"] > 0) for row in rows)
    text = (tmp_path / "runs" / script.TEXT).read_text(encoding="utf-8").splitlines()
    assert len(text) == len(set(text)) == 160
    assert text[:2] == ["a dog sees 0 cats", "un chien voit 0 chats"]

    script.main(typed("page", tmp_path, "--output", str(tmp_path / "docs" / "page.md")))
    page = (tmp_path / "docs" / "page.md").read_text(encoding="utf-8")
    assert f"{len(rows)} of {len(rows)} runs have finished." in page
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| synthesizer_random |")]
    assert [line[1:3] for line in lines] == [["1,000", "3"], ["5,000", "3"]]
    bleu = {(row["attention"], row["parent"]): row["bleu"] for row in rows if row["pairs"]}
    gains = {name: bleu[name, "pretrained"] - bleu[name, "untrained"] for name in script.ATTENTIONS}
    below = gains["synthesizer_random"] - gains["multihead"]
    assert below < 0
    assert lines[0][5] == f"+{gains['synthesizer_random']:.1f} ± 0.0"
    assert lines[0][6].startswith(f"−{-below:.1f}")
    assert str(tmp_path) not in page

    shutil.rmtree(tmp_path / "runs")  # and on another machine, where the rows are those of the page
    file = tmp_path / "docs" / "page.json"
    lost = Run("multihead", "pretrained", 1_000, 2)
    kept = [row for row in rows if not lost._asdict().items() <= row.items()]
    file.write_text(json.dumps({"rows": kept}), encoding="utf-8")
    for _ in range(2):
        script.main(typed("restore", tmp_path, "--page", str(file)))
        assert read_rows(tmp_path / "runs" / ROWS) == kept
    started.clear()
    script.main(typed("run", tmp_path))
    assert started == ["multihead/pretrained/2", "multihead/pretrained_1000/2"]
    assert len(read_rows(tmp_path / "runs" / ROWS)) == len(rows)


def test_rows_of_a_page_that_is_not_there_cannot_be_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main(typed("restore", tmp_path, "--page", str(tmp_path / "page.md")))
    assert f"{tmp_path / 'page.json'} is missing" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("data", "quiet")
def test_the_queue_runs_train_py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ATTENTIONS": ("synthesizer_random",), "SEEDS": (1,), "EPOCHS": {20: 12}, "UPDATES": 2}.items():
        monkeypatch.setattr(script, name, value)
    small = [word.replace("4000", "auto") for word in script.PARENT]
    monkeypatch.setattr(script, "PARENT", (*small, "objective.num_sentinels=8"))
    script.main(typed("run", tmp_path, "--override", "debug=fast"))
    rows = read_rows(tmp_path / "runs" / ROWS)
    assert [(row["parent"], row["pairs"], row["updates"]) for row in rows] == [
        ("untrained", 0, 0), ("pretrained", 0, 2), ("untrained", 20, 2), ("pretrained", 20, 2),
    ]  # fmt: skip
    script.main(typed("page", tmp_path, "--output", str(tmp_path / "page.md")))
