"""The recipes that compare attentions: the rows of their papers, and a few steps of a row on pairs of our own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from configs import CONF, options
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from small_run import WORDS

from seq2seq_attn.training.run import train

SYNTHESIZER = ["multihead", "synthesizer_fixed_random", "synthesizer_random", "synthesizer_factorized_random"]
SYNTHESIZER += ["synthesizer_dense", "synthesizer_factorized_dense", "synthesizer_random_dense"]
SYNTHESIZER += ["synthesizer_dense_vanilla", "synthesizer_random_vanilla"]
TINY = [
    "tokenizer.vocab_size=40", "model.embedding_dim=8", "model.encoder.dim=8", "model.decoder.dim=8",
    "trainer=cpu", "trainer.max_steps=2", "trainer.enable_progress_bar=false", "trainer.limit_val_batches=1",
    "trainer.limit_test_batches=1", "num_threads=1", "search.limits.max_length=7", "trainer.max_time=null",
    "callback.attention_map.num_sentences=0", *(f"choices.{name}=null" for name in ("attention", "model", "data")),
]  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's and torch's, which a command leaves out or shows
        yield


def composed_sweep(recipe: str) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", [f"experiment={recipe}"], return_hydra_config=True)


def swept(recipe: str) -> DictConfig:
    return OmegaConf.load(CONF / "experiment" / f"{recipe}.yaml").hydra.sweeper.params


def rows(recipe: str) -> list[list[str]]:
    """Overrides of each job, from the recipe's file: to compose it for the names of the cases takes a second."""
    typed = OverridesParser.create().parse_overrides([f"{key}={value}" for key, value in swept(recipe).items()])
    return BasicSweeper.split_arguments(typed, None)[0]


def write_captions(folder: Path) -> list[str]:
    """As Multi30k has them."""
    for split, first, count in (("train", 0, 60), ("val", 60, 9), ("test_2016_flickr", 69, 9)):
        for language, sign in (("en", ""), ("fr", "le ")):
            numbers = range(first, first + count)
            lines = [f"{sign}{WORDS[n % 19]} {WORDS[(n // 19) % 19]} {n % 7}\n" for n in numbers]
            (folder / f"{split}.{language}").write_text("".join(lines), encoding="utf-8")
    return [f"data.path={folder}"]


def tried(folder: Path, *overrides: str) -> dict[str, Any]:
    given = [f"paths.run_dir={folder / 'run'}", f"paths.cache_dir={folder / 'cache'}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return train(compose("train", [*overrides, *TINY, *given]))


def test_the_synthesizer_table_has_the_rows_of_its_paper_as_many_updates_for_each() -> None:
    assert rows("synthesizer_table") == [[f"attention={row}"] for row in SYNTHESIZER]
    presets = {name for name in options("attention") if "synthesizer" in name}
    assert set(SYNTHESIZER) - {"multihead"} == presets
    config = composed_sweep("synthesizer_table")
    assert (config.trainer.max_epochs, config.trainer.max_time) == (5, None)
    assert config.hydra.runtime.choices["data"] == "multi30k"
    assert config.hydra.runtime.choices["attention@cross_attention"] == "multihead"


def test_the_luong_table_has_every_score_with_every_pattern() -> None:
    found = [[override.partition("=")[2] for override in row] for row in rows("luong_table")]
    scores = ["location", "dot", "general", "concat"]
    assert found == [[pattern, score] for pattern in ("full", "local", "local_p") for score in scores]
    assert composed_sweep("luong_table").model.decoder._target_.endswith("RNNLuongDecoder")


@pytest.mark.parametrize("recipe", ["synthesizer_table", "luong_table", "sparse_long"])
def test_a_recipe_that_compares_is_a_sweep(recipe: str) -> None:
    config = composed_sweep(recipe)
    assert config.hydra.mode.name == "MULTIRUN"
    assert config.hydra.sweeper._target_.endswith("GridSweeper")
    assert config.hydra.sweeper.params == swept(recipe)


def few(recipe: str, *quick: int) -> list[Any]:
    """All rows, those that are not named behind the slow marker."""
    return [
        pytest.param(row, marks=() if number in quick else pytest.mark.slow, id=" ".join(row))
        for number, row in enumerate(rows(recipe))
    ]


@pytest.mark.parametrize("row", few("luong_table", 6))
def test_a_row_of_the_luong_table_trains(row: list[str], tmp_path: Path) -> None:
    assert tried(tmp_path, "experiment=luong_table", *row, *write_captions(tmp_path))["steps"] == 2


@pytest.mark.parametrize("row", few("synthesizer_table"))
def test_a_row_of_the_synthesizer_table_trains(row: list[str], tmp_path: Path) -> None:
    small = ["feed_forward.ff_dim=8", "batch_tokens=512"]
    small += write_captions(tmp_path)
    assert tried(tmp_path, "experiment=synthesizer_table", *row, *small)["steps"] == 2


@pytest.mark.parametrize("row", few("sparse_long", 3))
def test_attention_over_documents_trains(row: list[str], tmp_path: Path) -> None:
    write_captions(tmp_path)
    small = ["data@data.corpus=multi30k", f"data.corpus.path={tmp_path}", "data.min_words=10"]
    small += ["data.max_words=20", "feed_forward.ff_dim=8", "trainer.check_val_every_n_epoch=1"]
    assert tried(tmp_path, "experiment=sparse_long", *row, *small)["steps"] == 2
