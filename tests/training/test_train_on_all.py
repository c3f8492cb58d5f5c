"""A run that holds nothing out: it keeps its last weights, and scores pairs that it was trained on."""

from __future__ import annotations

import csv
import logging
from pathlib import Path

import pytest
import torch
from configs import CONF, ROOT
from hydra import compose, initialize_config_dir
from small_run import WORDS, results, weights

from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.evaluation.evaluate import evaluate
from seq2seq_attn.training.run import train

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def fra(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up file of Tatoeba's form."""
    file = tmp_path_factory.mktemp("fra") / "fra.txt"
    pairs = [(f"The {word} {other}!", f"Le {other} est {word}\u202f!") for word in WORDS[:8] for other in WORDS[:8]]
    file.write_text("".join(f"{english}\t{french}\tCC-BY\n" for english, french in pairs), encoding="utf-8")
    return file


@pytest.mark.slow
def test_the_books_experiment_trains_on_all_pairs_and_scores_them(
    fra: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, overrides = tmp_path / "run", [f"paths.cache_dir={tmp_path}", "trainer=cpu", "num_threads=1"]
    names = [f"choices.{name}=null" for name in ("attention", "model", "data")]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        given = ["data.num_pairs=40", f"data.path={fra}", "trainer.max_epochs=2", "batch_sentences=9"]
        config = compose("train", ["experiment=d2l_fra_eng", *given, *overrides, *names, f"paths.run_dir={run}"])
    caplog.set_level(logging.INFO)
    found = train(config)
    assert "so 40 training pairs are scored, as test_train: this says what the model remembers" in caplog.text
    assert found["steps"] == 2 * 5
    assert "|order:2|" in found["test_train/sentence_bleu_signature"]
    assert not any(name.startswith(("val/", "test/")) for name in results(run))
    assert len((run / "translations_train.tsv").read_text("utf-8").splitlines()) == 40
    best, last = weights(run, "best.ckpt"), weights(run, "last.ckpt")
    assert all(torch.equal(best[name], last[name]) for name in last)
    with (run / "metrics.csv").open(encoding="utf-8", newline="") as file:
        assert not any(name.startswith("val/") for name in next(csv.reader(file)))

    tokenizer = load(str(run)).tokenizer
    assert tokenizer.source_tokens(tokenizer.encode_source(["the cat !"])[0]) == ["▁the", "▁cat", "▁!"]

    with initialize_config_dir(str(CONF), version_base="1.3"):
        four = ["data=parallel", f"data.test={ROOT / 'examples' / 'd2l_fra_eng.tsv'}"]
        again, scored = (
            compose(
                "evaluate",
                [f"ckpt_path={run}", *more, *overrides[:1], f"paths.run_dir={tmp_path}", "choices.data=null"],
            )
            for more in ([], [*four, "metric=sentence_bleu"])
        )
    assert evaluate(again)["splits"]["test_train"]["sentence_bleu"] == found["test_train/sentence_bleu"]
    assert evaluate(scored)["splits"]["test"]["sentences"] == 4
