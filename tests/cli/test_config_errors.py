"""An option or a choice that does not exist is answered with the one that was probably meant."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from configs import CONF, composed, options
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException, MissingConfigException, OverrideParseException

from seq2seq_attn.cli.choices import purpose
from seq2seq_attn.cli.config_errors import (
    CHOICES,
    MEANT,
    choices_with,
    closest_option,
    compose_far,
    option_names,
    sentence_of_composition,
)


@pytest.mark.parametrize(
    ("override", "name"), [("profile=true", "profile"), ("compile=true", "compile"), ("callback.ema.decay=0.9", "ema")]
)
def test_a_callback_that_is_not_chosen_is_named_with_the_way_to_add_it(override: str, name: str) -> None:
    with pytest.raises(ConfigCompositionException, match="Could not override") as caught:
        composed(override)
    assert sentence_of_composition(caught.value, CONF, "train", [override]) == (
        f"'{name}' is a callback that is not chosen; add it with callback=[default,{name}]"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("monitor", "~monitor would change nothing, since monitor is null; leave it out"),
        ("metric.blue", "There is no option 'metric.blue'; did you mean 'metric.bleu'? "),
    ],
)
def test_a_deletion_of_nothing_is_answered_with_what_is_there(name: str, said: str) -> None:
    assert sentence(f"~{name}").startswith(said)


def test_a_callback_of_another_folder_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "callback").mkdir()
    (tmp_path / "callback" / "mine.yaml").write_text("mine: {seconds: 3}\n")
    with pytest.raises(ConfigCompositionException, match="Could not override") as caught:
        composed("callback.mine.seconds=4")
    arguments = (caught.value, CONF, "train", ["callback.mine.seconds=4"])
    assert sentence_of_composition(*arguments, str(tmp_path)) == (
        "'mine' is a callback that is not chosen; add it with callback=[default,mine]"
    )
    assert "callback=" not in str(sentence_of_composition(*arguments))


def sentence(override: str, config_name: str = "train") -> str:
    """Return the sentence that answers an override which does not compose."""
    with (
        initialize_config_dir(version_base="1.3", config_dir=str(CONF)),
        pytest.raises((ConfigCompositionException, MissingConfigException, OverrideParseException)) as caught,
    ):
        compose(config_name, [override])
    found = sentence_of_composition(caught.value, CONF, config_name, [override])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("lr=0.1", "optimizer.lr=..."),
        ("epochs=3", "trainer.max_epochs=..."),
        ("batch_size=32", "batch_tokens=..., which counts padded source and target tokens"),
        ("optimizer.learning_rate=0.1", "optimizer.lr=..."),
        ("search.beam_size=5", "search=beam search.beam_size=..."),
        ("trainer.max_epoch=3", "'trainer.max_epochs'"),
        ("max_epochs=3", "'trainer.max_epochs'"),
        ("warm_up_step=3", "'scheduler.warmup_steps'"),
        ("search.limits={max_len:3}", "'search.limits.max_length'"),
        ("trainer={max_epoch:3}", "'trainer.max_epochs'"),
    ],
)
def test_an_option_of_another_name_is_answered_with_ours(override: str, meant: str) -> None:
    assert f"; did you mean {meant}? `" in sentence(override)


def test_options_that_the_chosen_part_lacks_are_not_answered_with_themselves() -> None:
    overrides = ["encoder@model.encoder=conv", "model.encoder.cell=gru", "model.encoder.bidirectional=true"]
    with pytest.raises(ConfigCompositionException, match="Could not override") as caught:
        composed(*overrides)
    said = sentence_of_composition(caught.value, CONF, "train", overrides)
    assert said is not None
    assert said.startswith("There is no option 'model.encoder.cell'; did you mean 'model.decoder.cell'? ")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["callback=ema", "callback.profile.steps=3"],
            "'profile' is a callback that is not chosen; add it with callback=[default,ema,profile]",
        ),
        (
            ["model=transformer", "self_attention.dropout=0.1"],
            "'self_attention.dropout' belongs to the slot self_attention, which is not chosen; choose it with "
            "attention@self_attention=NAME, or set the option of attention, which the slot takes otherwise",
        ),
        (
            ["model=transformer", "attention/mix@self_attention.mix=talking_heads"],
            "'mix@self_attention.mix' belongs to the slot self_attention, which is not chosen; choose it with "
            "attention@self_attention=NAME, or set the option of attention, which the slot takes otherwise",
        ),
        (
            ["model=transformer", "encoder_attention.dropout=0.1"],
            "'encoder_attention.dropout' belongs to the slot encoder_attention, which is not chosen; choose it with "
            "attention@encoder_attention=NAME, or set the option of attention, which the slot takes otherwise",
        ),
        (
            ["model=transformer", "encoder_attention/gate=sigmoid"],
            "A part of a slot is written attention/gate@encoder_attention.gate=NAME",
        ),
        (
            ["model=transformer", "cross_attention/gate=sigmoid"],
            "A part of a slot is written attention/gate@cross_attention.gate=NAME",
        ),
        (
            ["ckpt_path=it's"],
            """The value of ckpt_path=it's has characters that must be quoted; write ckpt_path='"it'"'"'s"'""",
        ),
        (
            ["seed=1", "ckpt_path=übung 日本"],
            """The value of ckpt_path=übung 日本 has characters that must be quoted; write ckpt_path='"übung 日本"'""",
        ),
        (
            ["data.train=[übung/a 1.en,übung/a.fr]"],
            "The value of data.train=[übung/a 1.en,übung/a.fr] has characters that must be quoted; write "
            """data.train='["übung/a 1.en","übung/a.fr"]'""",
        ),
        (
            ["search.limits.max_length=3"],
            "There is no option 'search.limits.max_length' until a search is chosen, since without one it is the run's;"
            " choose it too, as search=beam or search=diverse_beam or search=greedy or search=sampling",
        ),
        (["runs/mine"], "'runs/mine' lacks '=' and a value; write OPTION=VALUE"),
        (["~optimizer", "my run"], "'my run' lacks '=' and a value; write OPTION=VALUE"),
        (["tokenizer.model=null", "logger=null"], "logger=null is no choice; logger=[] chooses none"),
    ],
)
def test_a_mistake_in_a_slot_or_group_is_answered_with_what_to_type(overrides: list[str], said: str) -> None:
    with (
        initialize_config_dir(version_base="1.3", config_dir=str(CONF)),
        pytest.raises(Exception, match=r".") as caught,
    ):
        compose(config := "translate" if overrides[0].startswith(("search", "runs")) else "train", overrides)
    assert isinstance(caught.value, Exception)
    assert sentence_of_composition(caught.value, CONF, config, overrides) == said


@pytest.mark.parametrize(
    ("config", "name", "option"),
    [
        ("translate", "über uns.en", """input='"über uns.en"'"""),
        ("train", "pairs.tsv", "data=parallel data.train=pairs.tsv"),
        ("train", "model.ckpt", "ckpt_path=model.ckpt"),
    ],
)
def test_a_file_without_an_option_is_answered_with_the_option_of_such_a_file(
    config: str, name: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).touch()
    assert sentence(name, config) == f"'{name}' lacks '=' and a value; write OPTION=VALUE, such as {option}"


@pytest.mark.parametrize("config", ["translate", "evaluate", "serve"])
@pytest.mark.parametrize(
    ("override", "searches"),
    [
        ("search.num_best=5", ["beam", "diverse_beam"]),
        ("search.beam_size=5", ["beam", "diverse_beam"]),
        ("search.patience=1", ["beam", "diverse_beam"]),
        ("search.length_penalty.alpha=1", ["beam", "beam_mean", "diverse_beam"]),
        ("search/length_penalty=mean", ["beam", "beam_mean", "diverse_beam"]),
        ("search.num_samples=5", ["samples", "sampling"]),
        ("search.utility=bleu", ["mbr"]),
        ("search.candidates.num_samples=5", ["mbr"]),
        ("search.limits.max_length=5", ["beam", "diverse_beam", "greedy", "sampling"]),
    ],
)
def test_an_option_of_a_search_that_is_not_chosen_names_those_that_have_it(
    override: str, searches: list[str], config: str
) -> None:
    option, choices = override.partition("=")[0], " or ".join(f"search={search}" for search in searches)
    assert sentence(override, config) == (
        f"There is no option '{option}' until a search is chosen, since without one it is the run's; choose it too, as "
        f"{choices}"
    )


@pytest.mark.parametrize(
    ("override", "corpora"),
    [
        ("data.test_split=test_2017_flickr", ["huggingface", "multi30k"]),
        ("data.suffix=.tok", ["multi30k", "multi30k_tok"]),
    ],
)
def test_an_option_of_a_corpus_that_is_not_chosen_names_those_that_have_it(override: str, corpora: list[str]) -> None:
    option, choices = override.partition("=")[0], " or ".join(f"data={corpus}" for corpus in corpora)
    assert sentence(override, "evaluate") == (
        f"There is no option '{option}' until a corpus is chosen, since without one it is the run's; choose it too, as "
        f"{choices}"
    )
    assert "until" not in sentence(override, "translate")  # which reads no corpus


@pytest.mark.parametrize(
    ("override", "config", "said"),
    [
        ("encoder=conv", "train", "There is no group 'encoder'; did you mean encoder@model.encoder=conv?"),
        (
            "attention@source=sparse",
            "train",
            "There is no group 'attention@source'; did you mean attention=sparse or attention@cross_attention=sparse or"
            " attention@encoder_attention=sparse or attention@self_attention=sparse?",
        ),
        (
            "attention/feature_map=linear",
            "train",
            "attention=bahdanau has no feature_map; choose from those that have one: cosformer, gated_linear, linear, "
            "performer",
        ),
        (
            "search/length_penalty=wu",
            "train",
            "search=greedy has no length_penalty; choose from those that have one: beam, beam_mean, diverse_beam",
        ),
        (
            "attention/gate@source.gate=sigmoid",
            "train",
            "There is no group 'attention/gate@source.gate'; did you mean attention/gate=sigmoid or "
            "attention/gate@cross_attention.gate=sigmoid?",
        ),
        *(
            (f"{group}=x", config, f"'{group}' is no group of PROGRAM; `PROGRAM --help` names those that it has")
            for group in ("attention", "attention/gate", "trainer", "callback")
            for config in ("translate", "evaluate", "serve")
        ),
    ],
)
def test_a_group_of_which_nothing_is_chosen_is_answered_with_what_to_type(
    override: str, config: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["PROGRAM"])
    assert sentence(override, config) == said


def test_a_group_that_no_choice_has_is_no_group_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["PROGRAM"])
    (tmp_path / "attention" / "mine").mkdir(parents=True)
    (tmp_path / "attention" / "mine" / "x.yaml").write_text("size: 3\n")
    with pytest.raises(ConfigCompositionException) as caught:
        composed("attention/mine=x")
    assert sentence_of_composition(caught.value, CONF, "train", ["attention/mine=x"], str(tmp_path)) == (
        "'attention/mine' is no group of PROGRAM; `PROGRAM --help` names those that it has"
    )


def test_a_search_that_is_chosen_is_not_asked_for() -> None:
    overrides = ["search=greedy", "search.num_best=5"]
    with (
        initialize_config_dir(version_base="1.3", config_dir=str(CONF)),
        pytest.raises(ConfigCompositionException) as caught,
    ):
        compose("translate", overrides)
    said = sentence_of_composition(caught.value, CONF, "translate", overrides)
    assert said is not None
    assert said.startswith("There is no option 'search.num_best'; ")


def test_a_group_is_looked_for_among_the_parts_of_what_is_chosen() -> None:
    overrides = ["attention=linear", "attention/gate=sigmoid"]
    with pytest.raises(ConfigCompositionException) as caught:
        composed(*overrides)
    said = sentence_of_composition(caught.value, CONF, "train", overrides)
    assert said == (
        "attention=linear has no gate; choose from those that have one: adaptive_entmax, alternating, atrous, "
        "attention_on_attention, bahdanau, bigbird, ..."
    )


def test_names_of_other_toolkits_are_answered_with_ours() -> None:
    names = option_names(compose_far(CONF, "train", []))
    for key, meant in (
        ("num_heads", "attention.num_heads=..."),
        ("valid", "data=parallel data.val=FILE"),
        ("data.train_file", "data=parallel data.train=FILE"),
        ("encoder_layers", "model.encoder.num_layers=..."),
        ("rnn_type", "model.encoder.cell=... model.decoder.cell=..."),
        ("share_all_embeddings", "model.tie_embeddings=all, target or none"),
        ("metric_for_best_model", "monitor=val/..."),
        ("keep_best_ckpts", "callback.best_checkpoints.save_top_k=..."),
        ("keep_checkpoint", "callback.history.save_top_k=..."),
        ("beam_alpha", "search=beam search.length_penalty.alpha=..."),
        ("lenpen", "search=beam_mean search.length_penalty.power=..."),
        ("sampling_topp", "search=sampling search.top_p=..."),
    ):
        assert closest_option(key, names) == f"did you mean {meant}? "


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("attention=multi_head", "There is no attention 'multi_head'; did you mean 'multihead'?"),
        ("attention=bahdanaw", "There is no attention 'bahdanaw'; did you mean 'bahdanau'?"),
        ("model=Transformer", "There is no model 'Transformer'; did you mean 'transformer'?"),
        ("model=mamba", "There is no model 'mamba'; choose from: conv, lm, rnn, transformer"),
        (
            "model=lstm",
            "There is no model 'lstm'; did you mean model=rnn, with model.encoder.cell=lstm model.decoder.cell=lstm?",
        ),
        ("attention=additive", "There is no attention 'additive'; did you mean attention=bahdanau?"),
        ("scheduler=noam", "There is no scheduler 'noam'; did you mean scheduler=inverse_sqrt?"),
        ("search=nucleus", "There is no search 'nucleus'; did you mean search=sampling?"),
    ],
)
def test_a_choice_that_is_nearly_one_is_answered_with_it(override: str, meant: str) -> None:
    assert sentence(override) == meant


def test_files_of_your_own_in_another_encoding_do_not_keep_others_from_being_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.yaml").write_bytes("# modèle\ncleaning: none\n".encode("latin1"))
    assert choices_with("cleaning", "data", [tmp_path]) == ["mine"]
    assert purpose(tmp_path / "data" / "mine.yaml") == "mod\ufffdle"


def test_a_synonym_of_an_option_that_a_command_lacks_is_not_offered() -> None:
    assert "optimizer" not in sentence("lr=0.1", "translate")
    assert "search=beam search.beam_size" in sentence("beam_size=3", "translate")


def test_every_synonym_names_options_and_choices_that_exist() -> None:
    overrides = ["search=beam", "scheduler=inverse_sqrt", "data=parallel", "logger=[wandb,tensorboard]"]
    names = option_names(compose_far(CONF, "train", overrides))
    names |= option_names(compose_far(CONF, "train", ["search=sampling", "optimizer=adamw"]))
    names |= option_names(compose_far(CONF, "train", ["search=beam_mean"]))
    found = {override for meant in MEANT.values() for override in re.findall(r"(\S+?)=", meant)}
    assert len(found) > 15
    assert found <= names.keys() | {"data", "logger", "model", "optimizer", "search", "scheduler"}


def test_every_synonym_of_a_choice_names_one_that_exists() -> None:
    for group, choices in CHOICES.items():
        known = options(group)
        assert {meant.partition(",")[0] for meant in choices.values()} <= set(known)
        assert not choices.keys() & set(known)
