"""The recipes that repeat a paper's run, or go beyond it: their sizes, and a few steps on pairs of our own."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from configs import CONF, built, composed
from hydra import compose, initialize_config_dir
from small_run import WORDS

from seq2seq_attn.checkpoint import average as script
from seq2seq_attn.training.run import train

pytestmark = pytest.mark.usefixtures("quiet")
RECIPES = ("multi30k_tiny", "multi30k_rnn", "multi30k_best", "tatoeba_bahdanau", "tatoeba_best")
TINY = [
    "tokenizer.vocab_size=50", "model.embedding_dim=16", "model.encoder.dim=16", "model.decoder.dim=16",
    "model.encoder.num_layers=1", "model.decoder.num_layers=1",
    "batch_tokens=2000", "trainer=cpu", "trainer.max_steps=2", "trainer.enable_progress_bar=false",
    "trainer.limit_val_batches=1", "trainer.limit_test_batches=1", "num_threads=1", "search.beam_size=2",
    "search.limits.max_length=7", "callback.attention_map.min_tokens=99",  # which no sentence has
    *(f"choices.{name}=null" for name in ("attention", "model", "data")),
]  # fmt: skip


def write_corpus(folder: Path) -> None:
    """Tokenized captions, and everyday sentences."""
    pairs = []
    for number in range(60):
        words = Random(number).sample(WORDS, 3 + number % 5)
        pairs.append((f"{' '.join(words)} .", f"l&apos; {words[0]} voit {words[-1]} {number} ."))
    for split, lines in {"train": pairs[:40], "val": pairs[40:50], "test_2016_flickr": pairs[50:]}.items():
        for side, language in enumerate(("en", "fr")):
            text = "".join(f"{pair[side]}\n" for pair in lines)
            for form in ("", ".lc.norm.tok"):
                (folder / f"{split}{form}.{language}").write_text(text, encoding="utf-8")
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / "fra.txt").write_text(text, encoding="utf-8")


def tried(recipe: str, folder: Path, *overrides: str) -> dict[str, Any]:
    """A few steps of it, small."""
    write_corpus(folder)
    given = [f"paths.run_dir={folder / 'run'}", f"paths.cache_dir={folder / 'cache'}"]
    if recipe.startswith("tatoeba"):
        given += [f"data.path={folder / 'fra.txt'}", "data.val_sentences=9", "data.test_sentences=8"]
    else:
        given += [f"data.path={folder}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return train(compose("train", [f"experiment={recipe}", *TINY, *given, *overrides]))


@pytest.mark.parametrize(
    "recipe", [pytest.param(r, marks=[] if r == "multi30k_tiny" else pytest.mark.slow) for r in RECIPES]
)
def test_a_recipe_trains_and_scores_by_what_its_corpus_is_scored_by(recipe: str, tmp_path: Path) -> None:
    averaged = recipe == "multi30k_tiny"
    results = tried(recipe, tmp_path, *(["trainer.val_check_interval=1"] if averaged else []))
    assert results["steps"] == 2
    assert results["test/bleu"] >= 0
    if recipe.startswith("multi30k"):
        assert "detok:moses-fr" in results["test/bleu_signature"]
        assert "tok:none" in results["test/tokenized_bleu_signature"]
        assert "case:lc" in results["test/tokenized_bleu_signature"]
    if averaged:  # the checkpoints of its last validations
        script.main([str(tmp_path / "run"), "--last", "2", "--output", str(tmp_path / "average.ckpt")])
        assert (tmp_path / "average.ckpt").is_file()


@pytest.mark.parametrize(("recipe", "millions"), [("multi30k_tiny", 2.6), ("multi30k_rnn", 4.6)])
def test_a_recipe_has_the_size_of_the_papers_model(recipe: str, millions: float) -> None:
    sizes = [f"model.{side}_vocab_size=10000" for side in ("source", "target")]
    model = built(composed(f"experiment={recipe}", *sizes).model)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.1)


REGULARISERS = {
    "plain": [], "ema": ["callback=[default,ema]"], "r_drop": ["r_drop_alpha=5.0"],
    "token_dropout": ["token_dropout.source=0.1", "token_dropout.target=0.1"],
    "sampling": ["tokenizer.sampling_alpha=0.2"],
}  # fmt: skip


@pytest.mark.slow
def test_each_regulariser_of_the_table_changes_what_is_learned(tmp_path: Path) -> None:
    losses = {}
    for name, given in REGULARISERS.items():
        folder = tmp_path / name
        folder.mkdir()
        small = ["search=beam", "trainer.limit_val_batches=0", *given]
        results = tried("regularisers", folder, *small)
        losses[name] = results["test/loss"]
    assert len(set(losses.values())) == len(losses)
