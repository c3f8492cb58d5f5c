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

from seq2seq_attn import options
from seq2seq_attn.errors import UserError
from seq2seq_attn.training.check_config import check_metrics

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.evaluation import evaluate as evaluation
    from seq2seq_attn.evaluation.evaluate import choose, evaluate

pytestmark = pytest.mark.usefixtures("quiet")
TOKENISED = ["data=multi30k", "data.suffix=.lc.norm.tok"]


def command_line_is(monkeypatch: pytest.MonkeyPatch, command: SimpleNamespace) -> None:
    """Let Hydra tell of this command."""
    hydra = SimpleNamespace(initialized=lambda: True, get=lambda: command)
    for module in (evaluation, options):
        monkeypatch.setattr(module, "HydraConfig", hydra)


@pytest.mark.slow  # its options are tested below, without a training
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
        (["data=demo"], {"bleu", "chrf", "ter"}),
        (["data=demo", "metric=[bleu]"], {"bleu", "chrf", "ter"}),
        (["data=multi30k_tok"], {"chrf", "ter"}),
    ],
)
def test_a_metric_is_the_runs_own_unless_the_data_adds_it_or_one_of_its_options_is_chosen(
    overrides: list[str], own: set[str]
) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("evaluate", ["ckpt_path=any", "choices.data=null", *overrides])
    found = choose(config, RUN)["metric"]
    assert {name for name, options in found.items() if options == RUN["metric"].get(name)} == own


CASELESS: dict[str, Any] = {
    "bleu": {"_target_": "seq2seq_attn.metric.bleu.BLEU", "lowercase": True, "tokenize": "char", "language": "fr"},
    "chrf": {
        "_target_": "seq2seq_attn.metric.chrf.CHRF", "char_order": 6, "word_order": 2, "beta": 2, "lowercase": True,
    },
}  # fmt: skip


@pytest.mark.slow
def test_other_data_is_scored_with_the_options_of_the_run_but_those_that_are_given(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ("data=parallel", "data.test=new.tsv")
    with caplog.at_level("INFO", "seq2seq_attn"):
        found = chosen_metrics(CASELESS, *other)
    assert (found["bleu"], found["chrf"]) == (CASELESS["bleu"], CASELESS["chrf"])
    assert {line.replace("language=fr, ", "") for line in caplog.messages} == {
        "metric.bleu has the options of the run: lowercase=true, tokenize=char",
        "metric.chrf has the options of the run: word_order=2, lowercase=true",
    }
    for data in ((), other):
        found = chosen_metrics(CASELESS, *data, "metric.bleu.tokenize=13a", "metric.chrf.lowercase=false")
        assert found["bleu"] == CASELESS["bleu"] | {"tokenize": "13a"}
        assert found["chrf"] == CASELESS["chrf"]  # of which Hydra alone says that it is given: the default is the same
    words = ["metric.bleu.lowercase=false", "metric.rouge1.tokenize=words"]
    runtime = SimpleNamespace(config_sources=[])
    command = SimpleNamespace(overrides=SimpleNamespace(task=words), runtime=runtime)
    command_line_is(monkeypatch, command)
    for data in ((), other):
        assert chosen_metrics(CASELESS, *data)["bleu"] == CASELESS["bleu"] | {"lowercase": False}
    rouge = {name: {"_target_": "seq2seq_attn.metric.rouge.ROUGE", "variant": name, "tokenize": "zh"} for name in (
        "rouge1", "rouge2", "rougeL"
    )}  # fmt: skip
    found = chosen_metrics(rouge, "metric=[rouge]")
    assert {options["tokenize"] for options in found.values()} == {"auto"}  # also where it refers to that of rouge1
    words.clear()
    assert chosen_metrics(rouge, "metric=[rouge]") == rouge


def test_a_metric_file_of_the_users_own_is_chosen_with_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"_target_": "seq2seq_attn.metric.bleu.BLEU", "lowercase": False, "tokenize": "intl", "language": None}
    (tmp_path / "metric").mkdir()
    OmegaConf.save({"bleu": own}, tmp_path / "metric" / "bleu_intl.yaml")
    sources = [SimpleNamespace(schema="file", path=str(tmp_path))]
    command = SimpleNamespace(
        overrides=SimpleNamespace(task=["metric=bleu_intl"]), runtime=SimpleNamespace(config_sources=sources)
    )
    command_line_is(monkeypatch, command)
    given = evaluation.given_options("bleu", OmegaConf.create(own))
    assert given == {"tokenize", "language"}  # unlike bleu.yaml
    assert evaluation.given_options("rouge1", compose_metric("rouge").rouge1) == set()


def compose_metric(name: str) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("evaluate", ["ckpt_path=any", "choices.data=null", f"metric=[{name}]"]).metric


def test_the_defaults_that_a_run_gives_its_options_are_those_of_evaluate() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert tuple(compose("evaluate", ["ckpt_path=any"]).metric) == evaluation.DEFAULT_METRICS


def chosen_metrics(run_metrics: dict[str, Any], *overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("evaluate", ["ckpt_path=any", "choices.data=null", *overrides])
    run = RUN | {"data": {"target_language": "fr", "cleaning": {"lowercase": True}}, "metric": run_metrics}
    found: dict[str, Any] = choose(config, run)["metric"]
    return found


@pytest.mark.parametrize(
    ("overrides", "way_out"),
    [
        ([], "metric.bleu.lowercase=true metric.chrf.lowercase=true"),
        (["metric.bleu.lowercase=true"], "metric.chrf.lowercase=true"),
        (["metric=[ter,rouge]", "metric.ter.case_sensitive=true"], "metric.ter.case_sensitive=false"),
        (["metric=[tokenized_text]"], None),
        (["metric.bleu.lowercase=true", "metric.chrf.lowercase=true"], None),
    ],
)
def test_lower_cased_text_is_warned_of_where_a_metric_tells_case(
    overrides: list[str], way_out: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    check_metrics(*data_and_metrics(*overrides))
    assert not caplog.messages
    check_metrics(*data_and_metrics(*overrides, "data.cleaning.lowercase=true"))
    sentence = "data.cleaning.lowercase=true makes the translations lower case, and references keep their case"
    assert [line.partition(", which")[0] for line in caplog.messages] == [sentence] * (way_out is not None)
    assert way_out is None or caplog.messages[0].endswith(f"; give {way_out}")


def test_split_punctuation_is_warned_of_where_a_metric_tells_blanks(caplog: pytest.LogCaptureFixture) -> None:
    data, metrics = data_and_metrics("metric=[bleu,ter,exact_match]", "data.cleaning.split_punctuation=true")
    check_metrics(data, {"bleu": metrics["bleu"], "ter": metrics["ter"] | {"normalized": True}})
    check_metrics({"cleaning": {"split_punctuation": False}}, metrics)
    assert not caplog.messages
    check_metrics(data, metrics)
    assert caplog.messages == [
        "data.cleaning.split_punctuation=true puts a blank before each mark of a translation, and references stay as "
        "they are, which makes scores worse; give metric.ter.normalized=true and metrics without exact_match"
    ]


@pytest.mark.parametrize(
    ("words", "lowercase", "split_punctuation", "max_words"),
    [
        ([], True, True, 7),
        (["data.cleaning.max_words=11"], True, True, 11),
        (["data/cleaning=long"], True, True, 200),
        (["data.cleaning.lowercase=false"], False, True, 100),
        (["data.cleaning={lowercase:false,split_punctuation:false}"], False, False, 100),
    ],
)
def test_other_data_is_cleaned_as_the_model_was_trained_but_for_options_that_are_named(
    words: list[str], lowercase: bool, split_punctuation: bool, max_words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaning = {"lowercase": True, "split_punctuation": True, "max_words": 7}
    run = RUN | {"data": {"target_language": "fr", "cleaning": cleaning}}
    given = ["ckpt_path=any", "choices.data=null", "data=parallel", "data.test=new.tsv", *words]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        of_run, config = compose("evaluate", given[:2]), compose("evaluate", given)
    command = SimpleNamespace(overrides=SimpleNamespace(task=given))
    command_line_is(monkeypatch, command)
    monkeypatch.setattr(evaluation, "choose_metrics", lambda *_, **__: {})
    assert choose(of_run, run)["data"] == run["data"]
    found = choose(config, run)["data"]["cleaning"]
    assert (found["lowercase"], found["split_punctuation"], found["max_words"]) == (
        lowercase, split_punctuation, max_words,
    )  # fmt: skip


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
