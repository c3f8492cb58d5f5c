"""A task that is no translation: words are reversed, and neither BLEU nor a language is part of it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from random import Random
from typing import Any

import pytest
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from configs import CONF
from hydra import compose, initialize_config_dir
from metric.stub_comet import write_stub
from small_run import SPLITS, results, rows, run_here

from seq2seq_attn.checkpoint.average import validated
from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.comparison import runs as comparison

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.evaluation.evaluate import evaluate

OPTIONS = [
    "tokenizer=word", "tokenizer.vocab_size=12", "tokenizer.sampling_alpha=0", "attention=bahdanau",
    "model.dropout=0.0", "model.encoder.dim=32", "model.decoder.dim=32", "model.embedding_dim=16",
    "batch_tokens=512", "optimizer.lr=0.01", "label_smoothing=0.0", "trainer.max_epochs=11",
    "metric=[rouge,exact_match,comet,aer]", "metric.comet.model=some.ckpt", "monitor=val/exact_match",
    "callback.history.save_top_k=2", "scheduler=plateau", "choices.attention=bahdanau", "choices.model=rnn",
    "choices.data=parallel",
    "callback=[seeding,throughput,checkpoint,history,autosave,early_stopping]",
]  # fmt: skip


def write_reversals(folder: Path) -> list[str]:
    random, words = Random(1), [*"abcdefgh"]
    found = dict.fromkeys(tuple(random.sample(words, random.randint(1, 4))) for _ in range(2000))
    lines = [f"{' '.join(line)}\t{' '.join(reversed(line))}\n" for line in found]
    for name, start, end in zip(SPLITS, (80, 0, 40), (None, 40, 80), strict=True):
        (folder / f"{name}.tsv").write_text("".join(lines[start:end]), encoding="utf-8")
    return [*(f"data.{name}={folder / f'{name}.tsv'}" for name in SPLITS), f"paths.cache_dir={folder / 'cache'}"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text_to_text")
    command = f"metric.comet.command={write_stub(folder)}"
    gold = folder / "gold"
    gold.write_text("a b c ||| c b a  0-2 1-1 2-0\n d e ||| e d  0-1 1-0\n", encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_here(folder / "run", *write_reversals(folder), *OPTIONS, command, f"metric.aer.gold={gold}")
    return folder


def evaluated(folder: Path, output: str, *overrides: str) -> dict[str, Any]:
    given = [f"ckpt_path={folder / 'run'}", f"paths.run_dir={folder / output}", f"paths.cache_dir={folder / 'cache'}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose("evaluate", [*given, "choices.data=null", "bootstrap=50", *overrides])
    evaluate(composed)
    return json.loads((folder / output / "evaluation.json").read_text("utf-8"))


def test_words_are_reversed_and_the_results_hold_the_metrics_chosen(folder: Path) -> None:
    found = results(folder / "run")
    right = found["test/exact_match"]
    assert right > 80
    assert found["test/comet"] == pytest.approx(0.9 * right + 0.1 * (100 - right))
    names = [name for name in found if name.startswith("test/") and not name.endswith("_signature")]
    metrics = ["rouge1", "rouge2", "rougeL", "exact_match", "comet", "aer"]
    assert names == [f"test/{name}" for name in ("loss", "ppl", "accuracy", *metrics)]


def test_comet_is_no_part_of_a_validation(folder: Path) -> None:
    assert "val/comet" not in rows(folder / "run")[0]
    assert (folder / "comet-score.calls").read_text().splitlines()[0] == "40"


def test_the_alignment_error_rate_falls_from_one_validation_to_another(folder: Path) -> None:
    curve = [float(row["val/aer"]) for row in rows(folder / "run") if row["val/aer"]]
    assert curve[0] > curve[-1]
    assert results(folder / "run")["test/aer"] < 40


def test_the_best_checkpoint_is_that_of_the_monitored_metric(folder: Path) -> None:
    curve = [float(row["val/exact_match"]) for row in rows(folder / "run") if row["val/exact_match"]]
    best = read_checkpoint(folder / "run/checkpoints/best.ckpt")
    assert float(best["resume"]["metrics"]["val/exact_match"]) == max(curve) > min(curve)
    assert {score for _, score in validated(folder / "run").values()} == {max(curve), *curve[-2:]}


def test_an_evaluation_has_the_metrics_of_the_run_and_none_of_translation(
    folder: Path, capsys: pytest.CaptureFixture[str], quiet: None
) -> None:
    found = evaluated(folder, "evaluation")["splits"]["test"]
    assert list(found["confidence"]) == ["rouge1", "rouge2", "rougeL", "exact_match"]  # its COMET only if asked for
    assert "aer" not in found  # its options name a file
    run = results(folder / "run")
    assert all(found[name] == run[f"test/{name}"] for name in found["confidence"])
    assert sum(bucket["sentences"] for bucket in found["exact_match_by_length"]) == 40
    said = capsys.readouterr().out
    assert "exact match by words of the source" in said
    assert "BLEU" not in said
    assert "ranslat" not in said


def test_metrics_that_an_evaluation_adds_are_scored_with_their_intervals(folder: Path, quiet: None) -> None:
    comet = ["metric.comet.model=other.ckpt", f"metric.comet.command={folder / 'comet-score'}"]
    added = ["metric=[sentence_bleu,comet]", "metric.sentence_bleu.max_ngram_order=2", "splits=[val]"]
    found = evaluated(folder, "added", *added, *comet)["splits"]["val"]
    assert {"sentence_bleu", "comet", "rougeL"} <= set(found["confidence"])
    assert found["signatures"]["comet"] == "nrefs:1|model:other.ckpt"
    assert "|order:2|" in found["signatures"]["sentence_bleu"]


def test_a_page_compares_runs_by_the_metric_that_they_monitor(folder: Path) -> None:
    (group,), _ = comparison.compare([folder / "run"], None, 50)
    assert (group.metric, group.score) == ("exact_match", "exact match")
    comparison.write([group], [], folder / "page.html", 0)
    assert "AER" in (folder / "page.html").read_text("utf-8")
    assert "Highest exact match: " in (folder / "page.md").read_text("utf-8")
    assert "BLEU" not in (folder / "page.html").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_scores_a_whole_test_is_no_figure_of_a_share_of_the_validation_set(tmp_path: Path) -> None:
    words = ("tokenizer=word", "tokenizer.vocab_size=12", "tokenizer.sampling_alpha=0")
    options = (*words, "metric=[bleu,distinct]", "val_sentences=5", "trainer.max_epochs=1")
    found = run_here(tmp_path / "run", *write_reversals(tmp_path), *options)
    logged = {name for row in rows(tmp_path / "run") for name, value in row.items() if value}
    assert "val/bleu" in logged
    assert "val/distinct1" not in logged
    assert {"val/distinct1", "val/bleu", "test/distinct1"} <= found.keys()
