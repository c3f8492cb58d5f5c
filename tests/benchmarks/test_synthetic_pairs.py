"""The queue of synthetic pairs: who reads what which model has written, no run repeated, and the page."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from comparison.made_runs import spoilt, write_run
from configs import composed
from hydra import compose, initialize_config_dir

from scripts.benchmarks import homes
from scripts.benchmarks import synthetic_pairs as script
from scripts.benchmarks.home_runs import ROWS, SEEDS, read_rows
from scripts.benchmarks.synthetic_pairs import ABOUT, ALL, PLAIN, REVERSE, SYNTHETIC, Run
from seq2seq_attn.options import TRAIN, TRANSLATE, check_options
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.training.monitor import choose_monitor

RESULTS = {"test/loss": 2.5, "test/bleu_signature": "nrefs:1", "test/chrf_signature": "nrefs:1|nc:6"}
TRAINING = 40  # pairs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "multi30k"
    folder.mkdir(parents=True)
    for split in ("train", "val", "test_2016_flickr"):
        for language, words in (("en", "a dog sees {} cats"), ("fr", "un chien voit {} chats")):
            with gzip.open(folder / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{words.format(number)} {split} !\n" for number in range(TRAINING))
    return folder.parent


def typed(act: str, tmp_path: Path, *others: str) -> list[str]:
    data = ["--data", str(tmp_path / "data")] if act == "run" else []
    return [act, *data, "--runs", str(tmp_path / "runs"), *others]


@pytest.mark.parametrize("run", [Run(row, 2) for row in (*ABOUT, REVERSE)])
def test_a_run_reads_real_pairs_and_those_that_its_writers_have_made(run: Run) -> None:
    runs = Path("/runs")
    config = composed(*script.command(run, runs), "paths.run_dir=run")
    choose_monitor(config)
    check_options(config, TRAIN)
    assert config.model == composed("experiment=regularisers").model
    assert (config.seed, config.trainer.max_steps, config.data.val_sentences) == (2, script.UPDATES, None)
    direction = (config.data.source_language, config.data.target_language)
    assert direction == (("fr", "en") if run.row == REVERSE else ("en", "fr"))
    for corpus in config.data.corpora.values():
        assert tuple(Path(file).suffix[1:] for file in corpus.train) == direction
    assert tuple(Path(file).suffix[1:] for file in config.data.test) == direction
    assert set(config.data.corpora) == ({"real", "synthetic"} if run.row in SYNTHETIC else {"real"})
    if run.row not in SYNTHETIC:
        return
    assert config.data.weights.get("real", 1) == (1 if run.row == "distilled" else 5)
    with initialize_config_dir(str(conf_directory()), version_base="1.3"):
        translation = compose("translate", script.translation_command(run, runs))
    check_options(translation, TRANSLATE)
    assert translation.output in config.data.corpora.synthetic.train
    (other,) = set(config.data.corpora.synthetic.train) - {translation.output}
    assert Path(other).stem == Path(translation.input).stem == SYNTHETIC[run.row].reads
    assert Path(translation.input).suffix == Path(other).suffix
    assert list(translation.ckpt_path) == [str(writer.folder(runs)) for writer in run.writers]


def test_distillation_has_the_models_of_all_seeds_and_all_else_the_one_of_its_own() -> None:
    assert Run("distilled", 2).writers == [Run(PLAIN, seed) for seed in SEEDS]
    assert Run("self_trained", 2).writers == [Run(PLAIN, 2)]
    assert Run("back_translated_tagged", 2).writers == [Run(REVERSE, 2)]
    assert not Run(PLAIN, 2).writers
    done: set[Run] = set()
    for runs in script.stages():
        assert all(set(run.writers) <= done for run in runs)
        done |= set(runs)
    assert done == {Run(row, seed) for row in (*ABOUT, REVERSE) for seed in SEEDS}


def finish(overrides: Sequence[str], folder: Path) -> None:
    """Leave what train.py leaves; back-translation is better."""
    assert "resume=auto" in overrides
    shutil.rmtree(folder)
    row, seed = folder.parent.name, int(folder.name)
    every = 3 if "back" not in row else 20
    write_run(folder, row, spoilt(every), seed=seed, options={"trainer": {"max_epochs": -1}}, **RESULTS)
    (folder / homes.ATTEMPTS).write_text("started\n90.0\n", encoding="utf-8")


@pytest.mark.usefixtures("data")
def test_no_run_is_repeated_and_the_page_has_what_each_row_gains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    translated: list[list[str]] = []
    failing = "reverse/3"

    def train(overrides: Sequence[str], folder: Path) -> None:
        started.append(folder.relative_to(tmp_path / "runs").as_posix())
        if not (started[-1] == failing and started.count(failing) == 1):
            finish(overrides, folder)

    def translate(words: Sequence[str], **_: Any) -> None:
        translated.append(list(words))
        options = dict(word.split("=", 1) for word in words[2:])
        read, written = (Path(json.loads(options[name])) for name in ("input", "output"))
        lines = read.read_text(encoding="utf-8").splitlines()
        written.write_text("".join(f"machine {line}\n" for line in lines), encoding="utf-8")

    monkeypatch.setattr(homes, "train", train)
    monkeypatch.setattr(script.subprocess, "run", translate)
    monkeypatch.setattr(script, "CAPTIONS", 10)
    with pytest.raises(SystemExit, match=f"1 runs failed: {failing}; repeat the command"):
        script.main(typed("run", tmp_path))
    assert not any(name.startswith("back") and name.endswith("/3") for name in started)
    script.main(typed("run", tmp_path))
    assert {name for name in started if started.count(name) > 1} == {failing}
    rows = read_rows(tmp_path / "runs" / ROWS)
    assert len(rows) == len(started) - 1 == sum(map(len, script.stages()))
    assert len(translated) == 1 + 3 * len(SEEDS)  # distillation once for all; tags are put before what is there

    def lines(name: str) -> list[str]:
        return (tmp_path / "runs" / "captions" / name).read_text(encoding="utf-8").splitlines()

    assert (len(lines("first.en")), len(lines("other.fr")), len(lines("all.en"))) == (10, 30, TRAINING)
    assert lines("first.en") + lines("other.en") == lines("all.en")
    assert lines("distilled.all.fr") == [f"machine {line}" for line in lines("first.en")]
    assert lines("back_translated.2.en") == [f"machine {line}" for line in lines("other.fr")]
    assert lines("back_translated_tagged.2.en") == [f"synthetic {line}" for line in lines("back_translated.2.en")]

    script.main(typed("page", tmp_path, "--output", str(tmp_path / "docs" / "page.md")))
    page = (tmp_path / "docs" / "page.md").read_text(encoding="utf-8")
    assert f"{len(rows)} of {len(rows)} runs have finished." in page
    bleu = {row["row"]: row["bleu"] for row in rows}
    table = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert [line[0].strip("`") for line in table] == [*ABOUT]
    above = {line[0].strip("`"): line[4] for line in table}
    assert above["back_translated"] == f"+{bleu['back_translated'] - bleu[PLAIN]:.1f} ± 0.0"
    assert above[ALL] == "+0.0 ± 0.0"
    assert str(tmp_path) not in page

    shutil.rmtree(tmp_path / "runs")  # and on another machine, where the rows are those of the page
    file = tmp_path / "docs" / "page.json"
    lost = Run("self_trained", 2)
    kept = [row for row in rows if not lost._asdict().items() <= row.items()]
    file.write_text(json.dumps({"rows": kept}), encoding="utf-8")
    for _ in range(2):
        script.main(typed("restore", tmp_path, "--page", str(file)))
        assert read_rows(tmp_path / "runs" / ROWS) == kept
    started.clear()
    script.main(typed("run", tmp_path))
    assert started == ["plain/2", "self_trained/2"]
    assert len(read_rows(tmp_path / "runs" / ROWS)) == len(rows)


@pytest.mark.slow
@pytest.mark.usefixtures("data", "quiet")
def test_the_queue_runs_train_py_and_translate_py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SEEDS": (1,), "CAPTIONS": 20}.items():
        monkeypatch.setattr(script, name, value)
    small = [word for word in script.COMMON if "val_check_interval" not in word]
    monkeypatch.setattr(script, "COMMON", (*small, "tokenizer.vocab_size=auto"))
    script.main(typed("run", tmp_path, "--override", "debug=fast", "trainer.max_steps=2"))
    rows = read_rows(tmp_path / "runs" / ROWS)
    assert {row["row"] for row in rows} == {*ABOUT, REVERSE}
    assert {row["updates"] for row in rows} == {2}
    script.main(typed("page", tmp_path, "--output", str(tmp_path / "page.md")))
