"""What evaluate.py takes from the command line, what from the run, and what it refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from omegaconf import OmegaConf
from tiny import write_checkpoint

from seq2seq_attn.checkpoint.load import load, read_checkpoint
from seq2seq_attn.data.corpus import CleaningReport, LoadedCorpus, Split
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.models import choose_device, load_models

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.evaluation.evaluate import check_languages, choose, choose_splits, evaluate


def corpus(*names: str, source: str = "en", target: str = "fr") -> LoadedCorpus:
    splits = {name: Split(["A"], ["B"], [["B"]]) for name in ("train", *names)}
    return LoadedCorpus(splits, CleaningReport({}), source, target)


def test_every_test_set_is_scored_unless_splits_are_named() -> None:
    loaded = corpus("val", "test", "test_unseen")
    assert choose_splits(None, loaded) == ["test", "test_unseen"]
    assert choose_splits("val", loaded) == ["val"]
    assert choose_splits(OmegaConf.create(["test", "val", "test"]), loaded) == ["test", "val"]


def test_data_with_nothing_but_a_validation_set_is_scored_by_it() -> None:
    assert choose_splits(None, corpus("val")) == ["val"]


@pytest.mark.parametrize("name", ["tset", "train"])
def test_a_split_that_is_not_there_is_named_with_those_that_are(name: str) -> None:
    with pytest.raises(
        UserError, match=rf"^splits names '{name}', which this data does not have; choose from: val, test$"
    ):
        choose_splits(OmegaConf.create(["val", name]), corpus("val", "test"))


def test_data_in_other_languages_is_refused(tmp_path: Path) -> None:
    run = write_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(
        UserError,
        match=r"^the data goes from fr to en, but this model is trained from en to fr; set data.source_language=en "
        r"data.target_language=fr, or choose other data$",
    ):
        check_languages(corpus("test", source="fr", target="en"), load(str(run)))


def test_pairs_of_the_other_direction_must_be_read_in_the_other_order_too(tmp_path: Path) -> None:
    run = load(str(write_checkpoint(tmp_path / "a.ckpt")))
    of_files = replace(corpus("test", source="fr", target="en"), origins=("column 1", "column 2"))
    with pytest.raises(
        UserError, match=r"data.target_language=fr and read the source from the en side \(data.source_col"
    ):
        check_languages(of_files, run)


def test_a_language_model_is_of_the_language_of_its_target_whatever_the_source(tmp_path: Path) -> None:
    model_of_text = load(str(write_checkpoint(tmp_path / "a.ckpt", "model=lm")))
    for source, target in (("de", "fr"), ("text", "text"), ("fr", "fr")):
        check_languages(corpus("test", source=source, target=target), model_of_text)
    with pytest.raises(UserError, match="the data goes from fr to en, but this model is trained from en to fr"):
        check_languages(corpus("test", source="fr", target="en"), model_of_text)


COMPOSED = OmegaConf.create(
    {
        "paths": {"cache_dir": "here"},
        "metric": {"tokenized_bleu": {"language": "${data.target_language}"}},
        "batch_tokens": None,
        "precision": None,
        "choices": {"data": None},
    }
)
RUN: dict[str, Any] = {
    "data": {
        "cache_dir": "there",
        "target_language": "fr",
        "corpus": {"cache_dir": "there", "copy_to": "elsewhere", "seed": 1},
    },
    "search": {"max_length": 7},
    "metric": {"bleu": {"lowercase": False}, "tokenized_bleu": {"language": "en"}},
    "batch_tokens": 11,
    "trainer": {"precision": "32-true"},
    "choices": {"data": "tatoeba"},
}
OmegaConf.set_struct(COMPOSED, True)


def test_the_cache_is_that_of_this_machine_and_the_rest_is_that_of_the_run() -> None:
    assert choose(COMPOSED.copy(), RUN) == {
        "data": {
            "cache_dir": "here",
            "target_language": "fr",
            "corpus": {"cache_dir": "here", "copy_to": None, "seed": 1},
        },
        "search": {"max_length": 7},
        "metric": {"tokenized_bleu": {"language": "fr"}, "bleu": {"lowercase": False}},
        "batch_tokens": 11,
        "precision": "32-true",
        "choices": {"data": "tatoeba"},
    }


def test_batches_are_those_of_the_runs_validations_unless_another_size_is_given() -> None:
    run = RUN | {"eval_batch_tokens": 5}
    assert choose(COMPOSED.copy(), run)["batch_tokens"] == 5
    assert choose(COMPOSED.copy(), RUN | {"eval_batch_tokens": None})["batch_tokens"] == 11
    assert choose(OmegaConf.merge(COMPOSED, {"batch_tokens": 3}), run)["batch_tokens"] == 3


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_other_data_is_cleaned_as_that_of_the_run_also_where_documents_are_made_of_it(depth: int) -> None:
    def within(cleaning: dict[str, bool]) -> dict[str, Any]:
        data: dict[str, Any] = {"cleaning": cleaning}
        for _ in range(depth):
            data = {"corpus": data}
        return data

    composed = OmegaConf.merge(COMPOSED, {})
    OmegaConf.set_struct(composed, False)
    composed.data = within({"lowercase": False})
    OmegaConf.set_struct(composed, True)
    run = RUN | {"data": {"corpus": {"cleaning": {"lowercase": True}}}}
    composed.metric = {}
    assert choose(composed, run)["data"] == within({"lowercase": True})


@pytest.mark.parametrize("hide", [lambda one: {"y": one}, lambda one: {"y": [one]}])
def test_a_metric_that_names_a_command_is_not_taken_from_a_run_at_any_depth(hide: Callable[[Any], Any]) -> None:
    comet = {"_target_": "seq2seq_attn.metric.comet.COMET", "command": "/bin/true"}
    run = RUN | {"metric": RUN["metric"] | {"x": hide(comet)}}
    assert choose(COMPOSED.copy(), run)["metric"].keys() == choose(COMPOSED.copy(), RUN)["metric"].keys()


def test_a_missing_checkpoint_is_asked_for() -> None:
    with pytest.raises(UserError, match=r"^python evaluate.py needs ckpt_path=RUN, a run folder or a .ckpt file$"):
        evaluate(OmegaConf.create({"ckpt_path": "???"}))


def test_a_device_that_is_not_there_is_refused() -> None:
    assert choose_device("cpu").type == "cpu"
    for name in ("gpu", "cuda:77", "meta"):
        with pytest.raises(UserError, match=f"^device={name} cannot be used here; use auto, which takes"):
            choose_device(name)


def test_the_gpu_of_a_mac_is_neither_chosen_nor_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"
    for name in ("mps", "mps:0"):
        with pytest.raises(UserError, match=f"^device={name} lacks float64, in which searches sum .*; use device=cpu$"):
            choose_device(name)


EVALUATED = {
    "metric": {}, "choices": {}, "trainer": {"precision": "32-true"}, "seed": 1, "batch_tokens": 7,
    "label_smoothing": 0.1,
}  # fmt: skip


@pytest.mark.parametrize("option", EVALUATED)
def test_a_run_whose_options_are_gone_or_of_another_type_is_a_sentence(option: str, tmp_path: Path) -> None:
    run = write_checkpoint(tmp_path / "a.ckpt")
    checkpoint = read_checkpoint(run)
    config = {"ckpt_path": str(run), "device": "cpu", "num_threads": None, "precision": None, "batch_tokens": None}
    checkpoint["config"] |= EVALUATED  # of which each in turn is none
    for value in ("text", None):
        torch.save(checkpoint | {"config": checkpoint["config"] | {option: value}}, run)
        with pytest.raises(UserError, match=rf"a.ckpt holds no {option}\S* among its options; give a checkpoint"):
            evaluate(OmegaConf.create(config))
        if option in ("trainer", "batch_tokens"):
            with pytest.raises(UserError, match=rf"a.ckpt holds no {option}\S* among its options; give a checkpoint"):
                evaluate(OmegaConf.create(config | {"score": "pairs.tsv"}))


@pytest.mark.parametrize("order", ["6", 2 * 10**9])
def test_the_options_of_a_runs_metric_have_the_bounds_of_ones_own(order: Any, tmp_path: Path) -> None:
    run = write_checkpoint(tmp_path / "a.ckpt")
    checkpoint = read_checkpoint(run)
    chrf = {"_target_": "seq2seq_attn.metric.chrf.CHRF", "word_order": 0, "beta": 2, "lowercase": False}
    checkpoint["config"] |= EVALUATED | {"metric": {"chrf": chrf | {"char_order": order}}}
    torch.save(checkpoint, run)
    config = {"ckpt_path": str(run), "device": "cpu", "num_threads": None, "precision": None, "batch_tokens": None}
    sentence = rf"^metric.chrf.char_order={order} must be int in \[1, 1000\]; \S+a.ckpt holds this value, so use an int"
    with pytest.raises(UserError, match=sentence):
        evaluate(OmegaConf.create(config))


def test_a_wrong_value_in_the_search_of_a_run_is_a_sentence(tmp_path: Path) -> None:
    run = write_checkpoint(tmp_path / "a.ckpt")
    checkpoint = read_checkpoint(run)
    checkpoint["config"] |= EVALUATED
    checkpoint["config"]["search"]["no_repeat_ngram"] = -3  # a wrong type would be refused by the tests' own check
    torch.save(checkpoint, run)
    config = {"ckpt_path": str(run), "device": "cpu", "num_threads": None, "precision": None, "batch_tokens": None}
    with pytest.raises(UserError, match=r"^search.no_repeat_ngram=-3 must be int in .+a.ckpt holds this value, so use"):
        evaluate(OmegaConf.create(config))


def test_weights_of_a_training_that_diverged_are_not_evaluated(tmp_path: Path) -> None:
    run = write_checkpoint(tmp_path / "a.ckpt")
    checkpoint = read_checkpoint(run)
    checkpoint["state_dict"]["model.output.bias"].fill_(float("nan"))
    torch.save(checkpoint, run)
    with pytest.raises(UserError, match=r"a.ckpt holds NaN or infinity in \S+: its training diverged; use an earlier"):
        load_models([str(run)], "cpu")
