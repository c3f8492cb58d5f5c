"""The queue of long documents: the text, its commands, no run repeated, and what the page derives from the figures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from configs import composed

from scripts.benchmarks import documents as script
from scripts.benchmarks import homes
from scripts.benchmarks.documents import ATTENTIONS, LENGTHS, Run
from scripts.benchmarks.home_runs import MEASURES, ROWS, read_rows, write_rows

MODULE = '''"""Says hello."""


def hello(name):
\tif name:
        return  f"hello, {name}"  # twice   spaced
'''
LINE = '"""Says hello."""↵↵↵def hello(name):↵⇥if name:↵⇥⇥return f"hello, {name}" # twice spaced↵'


def typed(act: str, tmp_path: Path, *others: str) -> list[str]:
    page = ["--page", str(tmp_path / "docs" / "page.md")] if act in ("page", "restore") else []
    return [act, "--runs", str(tmp_path / "runs"), *page, *others]


def test_a_module_is_one_line_from_which_its_lines_can_be_read() -> None:
    assert script.flattened(MODULE) == LINE
    again = LINE.replace("↵", "\n").replace("⇥", "    ")
    assert [line.split() for line in again.split("\n")] == [line.split() for line in MODULE.split("\n")]
    assert script.flattened("a = 1\f\nb\x1d = 2") == "a = 1↵b = 2↵"


def test_a_module_is_cut_into_documents_and_only_a_short_end_is_lost() -> None:
    text = "".join(chr(97 + position % 26) for position in range(1000))
    size = int(script.CHARACTERS * 100)
    documents = list(script.cut(text, 100))
    assert [len(document) for document in documents] == [size] * 4 + [1000 - 4 * size]
    assert "".join(documents) == text
    assert "".join(script.cut(text[: 4 * size + size // 2 - 1], 100)) == text[: 4 * size]


def test_each_module_is_in_one_split_and_the_splits_of_all_lengths_have_the_same_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = [f"<{number}>" + chr(97 + number % 26) * 40_000 for number in range(60)]
    monkeypatch.setattr(script, "modules", lambda: iter(modules))
    script.write_texts(tmp_path)
    for length in LENGTHS:
        texts = {split: script.text_file(tmp_path, length, split).read_text() for split in ("train", "val", "test")}
        numbers = {split: [n for n in range(60) if f"<{n}>" in text] for split, text in texts.items()}
        assert (numbers["val"], numbers["test"]) == ([6, 31, 56], [18, 43])
        assert numbers["train"] == [n for n in range(60) if n not in (6, 31, 56, 18, 43)]
        assert 2.5 * script.LONGEST < len(texts["val"].replace("\n", "")) <= 3 * script.LONGEST  # of three modules
    file = script.text_file(tmp_path, LENGTHS[0], "val")
    file.write_text("kept\n")
    script.write_texts(tmp_path)
    assert file.read_text() == "kept\n"


@pytest.mark.slow
def test_no_module_of_this_library_is_most_of_a_split() -> None:
    sizes: dict[int, list[int]] = {number: [] for number in script.SPLITS.values()}
    for number, text in enumerate(script.modules()):
        if number % 25 in sizes:
            sizes[number % 25].append(min(len(text), script.LONGEST))
    assert all(len(split) > 15 and max(split) < sum(split) / 5 for split in sizes.values())


def test_every_attention_learns_every_length_by_a_command_of_train_py_of_equal_work() -> None:
    runs = script.planned()
    assert len(set(runs)) == len(runs) == len(LENGTHS) * len(ATTENTIONS)
    assert [run.length for run in runs] == sorted(run.length for run in runs)
    work = set()
    for run in runs:
        config = composed(*script.command(run, Path("/runs")))
        assert config.data.train == f"/runs/train_{run.length}.txt"
        assert config.data.test == f"/runs/test_{run.length}.txt"
        assert config.val_sentences * run.length == 16 * script.TOKENS
        assert config.batch_sentences * run.length == script.TOKENS
        work.add((config.trainer.max_steps, config.batch_tokens, config.model.decoder.dim, config.seed))
        pattern = config.attention.get("pattern") or {}
        patterns = pattern.get("patterns") or {"only": pattern}
        assert all(each["k"] == script.K for each in patterns.values() if each and "k" in each)
        if run.attention == "lsh":
            assert pattern.num_buckets * 32 == run.length
    assert len(work) == 1


def finish(overrides: Sequence[str], folder: Path) -> None:
    """Leave what train.py leaves: `linear` learns more slowly than `multihead`, and `local` faster."""
    assert "resume=auto" in overrides
    attention = folder.parent.name
    gain = {"linear": 0.001, "local": 0.003}.get(attention, 0.002)
    (folder / "config.yaml").write_text("trainer:\n  max_epochs: 1000\n")
    (folder / "provenance.json").write_text(json.dumps({"commit": "c" * 40}))
    rows = "".join(f"{step - 1},{3 - gain * step}\n" for step in (200, 400, 600, 800))
    (folder / "metrics.csv").write_text(f"step,val/bits_per_character\n{rows}")
    results = {"num_parameters": 920_000, "steps": 800, "train_seconds": 60.0, "test/loss": 2.0,
               "test/bits_per_character": 3 - gain * 800}  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results))


@pytest.mark.slow
def test_no_run_is_repeated_and_the_page_has_bits_speed_and_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def train(overrides: Sequence[str], folder: Path) -> None:
        started.append(folder.relative_to(tmp_path / "runs").as_posix())
        finish(overrides, folder)

    monkeypatch.setattr(homes, "train", train)
    monkeypatch.setattr(script, "modules", lambda: iter([LINE * 200] * 50))
    for _ in range(2):
        script.main(typed("run", tmp_path))
    assert started == [f"{name}/{length}" for length in LENGTHS for name in ATTENTIONS]

    timed: list[str] = []

    def timed_training(overrides: Sequence[str], updates: int) -> dict[str, Any]:
        assert updates == 30
        (attention,) = (word.removeprefix("attention=") for word in overrides if word.startswith("attention="))
        timed.append(attention)
        speed = 8192.0 if attention == "local" else 4096.0
        seconds = 30 * 4096 / speed
        return {"tokens_per_second": speed, "peak_memory_bytes": 512e6, "train_seconds": seconds, "steps": 30}

    monkeypatch.setattr(script, "timed_training", timed_training)
    for _ in range(2):
        script.main(typed("measure", tmp_path))
    assert timed == [name for _ in LENGTHS for name in ATTENTIONS]

    script.main(typed("page", tmp_path))
    page = (tmp_path / "docs" / "page.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    tables = {name: [line[1:] for line in lines if line[0] == f"`{name}`"] for name in ATTENTIONS}
    bits, speeds, memory, minutes = tables["local"]
    assert bits == ["0.600"] * 4  # 3 - 0.003 · 800
    assert speeds == ["8,192 (2.00)"] * 4
    assert memory == ["512"] * 4
    # at its end multihead has 3 - 0.002 · 800 = 1.4 bits, and local 1.2 after 600 updates of half a second
    assert minutes == ["5.0"] * 4
    assert tables["multihead"][3] == ["13.3"] * 4
    assert tables["linear"][3] == ["–"] * 4  # it never has as few bits
    assert "32 of 32 runs have finished" in page
    assert str(tmp_path) not in page
    assert (tmp_path / "docs" / "page.png").stat().st_size > 10_000

    rows = read_rows(tmp_path / "runs" / ROWS), read_rows(tmp_path / "runs" / MEASURES)
    shutil.rmtree(tmp_path / "runs")
    script.main(typed("restore", tmp_path))
    assert (read_rows(tmp_path / "runs" / ROWS), read_rows(tmp_path / "runs" / MEASURES)) == rows
    started.clear()
    script.main(typed("run", tmp_path))
    assert not started


def test_a_page_without_runs_is_refused_and_one_without_measures_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("page", "measure"):
        with pytest.raises(SystemExit, match=r"^2$"):
            script.main(typed(command, tmp_path))
        assert "has no finished run; start `scripts.benchmarks.documents run` first" in capsys.readouterr().err
        assert not (tmp_path / "runs").exists()
    (tmp_path / "runs").mkdir()
    row = {**Run("local", 512)._asdict(), "commit": "c" * 40, "parameters": 920_000, "bits_per_character": 2.25,
           "curve": [[50, 3.0], [100, 2.5]], "python": "3.11.7"}  # fmt: skip
    write_rows(tmp_path / "runs" / ROWS, [row])
    script.main(typed("page", tmp_path))
    page = (tmp_path / "docs" / "page.md").read_text(encoding="utf-8")
    assert "| `local` | 2.250 | – | – | – |" in page
    assert "- Modules of Python 3.11.7.\n" in page
    write_rows(tmp_path / "runs" / ROWS, [row, {**row, "length": 1024}, {**row, "length": 4096, "python": "3.12.3"}])
    script.main(typed("page", tmp_path))
    page = (tmp_path / "docs" / "page.md").read_text(encoding="utf-8")
    assert "- Modules of Python 3.11.7 for n = 512, 1,024; 3.12.3 for n = 4,096.\n  Their texts differ" in page


def test_minutes_are_those_of_the_processor_of_the_usual_attention() -> None:
    measures = [
        {"attention": name, "length": length, "processor": processor, "seconds_per_update": seconds}
        for name, length, processor, seconds in (
            ("local", 512, "A", 3.0),
            ("multihead", 512, "B", 6.0),
            ("linear", 512, "B", 9.0),
            ("local", 1024, "A", 4.0),
        )
    ]
    seconds = script.seconds_on_one_processor(measures)
    assert seconds == {("multihead", 512): 6.0, ("linear", 512): 9.0, ("local", 1024): 4.0}
    rows = [{"attention": name, "length": 512, "curve": [[100, 2.0], [200, 1.5]]} for name in ("multihead", "local")]
    assert script.minutes_until(rows, seconds) == {("multihead", 512): 20.0}


def test_runs_of_a_length_read_the_modules_of_one_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").mkdir()
    write_rows(tmp_path / "runs" / ROWS, [{**Run("local", 1024)._asdict(), "python": "3.10.1"}])
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main(typed("run", tmp_path))
    assert "runs of n = 1,024 on the modules of Python 3.10.1, and this is Python 3." in capsys.readouterr().err
    assert not (tmp_path / "runs" / "multihead").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_the_queue_runs_train_py_and_measures_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "modules", lambda: iter([LINE * 60] * 50))
    monkeypatch.setattr(script, "LENGTHS", (64,))
    monkeypatch.setattr(script, "ATTENTIONS", ("multihead", "lsh"))
    small = ["tokenizer.vocab_size=40", "trainer.max_steps=4", "trainer.val_check_interval=2", "batch_tokens=256",
             "model.decoder.num_layers=1", f"paths.cache_dir={tmp_path}"]  # fmt: skip
    monkeypatch.setattr(script, "COMMON", (*script.COMMON, *small))
    script.main(typed("run", tmp_path))
    rows = read_rows(tmp_path / "runs" / ROWS)
    assert [row["attention"] for row in rows] == ["multihead", "lsh"]
    assert all(row["bits_per_character"] > 0 and [step for step, _ in row["curve"]] == [2, 4] for row in rows)
    script.main(typed("measure", tmp_path, "--updates", "3"))
    assert all(row["tokens_per_second"] > 0 for row in read_rows(tmp_path / "runs" / MEASURES))
    script.main(typed("page", tmp_path))
    assert "| `lsh` |" in (tmp_path / "docs" / "page.md").read_text(encoding="utf-8")
