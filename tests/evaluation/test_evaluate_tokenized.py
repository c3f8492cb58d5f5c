"""Text that is tokenized is never tokenized once more on the way to a score."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from configs import CONF, composed
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from training.test_recipes import tried

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.checks import check_metrics

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.evaluation import evaluate as evaluation
    from seq2seq_attn.evaluation.evaluate import choose, evaluate

pytestmark = pytest.mark.usefixtures("quiet")
TOKENISED = ["data=multi30k", "data.suffix=.lc.norm.tok"]


def test_a_run_on_tokenized_text_is_evaluated_as_it_was_tested_without_being_told(tmp_path: Path) -> None:
    results = tried("multi30k_rnn", tmp_path)
    given = [f"ckpt_path={tmp_path / 'run'}", f"paths.run_dir={tmp_path / 'evaluation'}", "choices.data=null"]
    (tmp_path / "evaluation").mkdir()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("evaluate", [*given, f"paths.cache_dir={tmp_path / 'cache'}", "device=cpu"])
    found = evaluate(config)["splits"]["test"]
    assert "detok:moses-fr" in found["signatures"]["bleu"]
    assert "tok:none" in found["signatures"]["tokenized_bleu"]
    for name in ("bleu", "tokenized_bleu"):
        assert found["signatures"][name] == results[f"test/{name}_signature"]
        assert found[name] == results[f"test/{name}"]


RUN: dict[str, Any] = {
    "data": {"target_language": "fr"}, "search": {}, "batch_tokens": 7, "trainer": {"precision": "32-true"},
    "metric": {"bleu": {"_target_": "ours"}, "chrf": {"_target_": "theirs"}, "ter": {"_target_": "other"}},
    "choices": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "own"),
    [
        ([], {"bleu", "chrf", "ter"}),
        (["metric=[bleu]", "metric.bleu.lowercase=true"], {"chrf", "ter"}),
        (["data=demo"], set()),
        (["data=demo", "metric=[bleu]"], {"chrf", "ter"}),
    ],
)
def test_a_metric_is_the_runs_own_unless_the_data_or_one_of_its_options_is_chosen(
    overrides: list[str], own: set[str]
) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("evaluate", ["ckpt_path=any", "choices.data=null", *overrides])
    found = choose(config, RUN)["metric"]
    assert {name for name, options in found.items() if options == RUN["metric"].get(name)} == own


def test_other_data_is_cleaned_as_the_model_was_trained_unless_its_cleaning_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = RUN | {"data": {"target_language": "fr", "cleaning": {"lowercase": True, "split_punctuation": True}}}

    def lowercase(*overrides: str) -> bool:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("evaluate", ["ckpt_path=any", "choices.data=null", *overrides])
        cleaning = choose(config, run)["data"]["cleaning"]
        assert cleaning.get("split_punctuation") is cleaning["lowercase"]
        return bool(cleaning["lowercase"])

    assert lowercase("data=parallel", "data.test=new.tsv")
    assert lowercase()
    monkeypatch.setattr(evaluation, "cleaning_is_chosen", lambda: True)
    assert not lowercase("data=parallel", "data.test=new.tsv", "data.cleaning.max_words=7")


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["data=parallel", "data.test=a.tsv"], False),
        (["data=parallel", "data.cleaning.lowercase=false"], True),
        (["data=parallel", "data/cleaning=long"], True),
        (["data=parallel", "+data.cleaning.lowercase=false"], True),
    ],
)
def test_a_cleaning_is_chosen_by_its_words(words: list[str], chosen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    command = SimpleNamespace(overrides=SimpleNamespace(task=words))
    hydra = SimpleNamespace(initialized=lambda: True, get=lambda: command)
    monkeypatch.setattr(evaluation, "HydraConfig", hydra)
    assert evaluation.cleaning_is_chosen() is chosen


@pytest.mark.parametrize(
    "overrides",
    [
        [*TOKENISED],
        [*TOKENISED, "metric=[bleu]"],
        [*TOKENISED, "metric=[bleu,tokenized_bleu]", "metric.bleu.tokenize=none"],
    ],
)
def test_a_bleu_that_would_split_tokens_is_refused(overrides: list[str]) -> None:
    sentence = (
        r"^data.suffix=.lc.norm.tok is tokenized text, and metric.(tokenized_)?bleu would tokenize it once more; use "
        r"data=multi30k_tok, or metric=\[tokenized_text\]$"
    )
    with pytest.raises(UserError, match=sentence):
        check_metrics(*data_and_metrics(*overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        ["data=multi30k"],
        ["data=multi30k_tok"],
        [*TOKENISED, "metric=[tokenized_text]"],
        ["data=demo"],
        ["data=multi30k", "data.suffix=.token"],
    ],
)
def test_what_tokenises_nothing_twice_passes(overrides: list[str]) -> None:
    check_metrics(*data_and_metrics(*overrides))


def data_and_metrics(*overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    config = composed(*overrides)
    data, metrics = (OmegaConf.to_container(part, resolve=True) for part in (config.data, config.metric))
    assert isinstance(data, dict)
    assert isinstance(metrics, dict)
    return {str(k): v for k, v in data.items()}, {str(k): v for k, v in metrics.items()}
