"""What is refused before anything is read: options that do not fit one another, and options that nothing reads."""

from __future__ import annotations

import re

import pytest
from configs import compose_train, composed
from omegaconf import OmegaConf

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.check_config import (
    PARTS,
    TOKENIZER,
    check_best,
    check_config,
    check_groups,
    check_last,
    check_rate,
    check_slots,
    slot_of,
)

WITH_PARTS = {part: {"_target_": "a.Class"} for part in PARTS} | {"tokenizer": {"_target_": TOKENIZER}}
LACKING = [
    ("rnn", "position=rotary", "position"),
    ("rnn", "position.join=concat", "position"),
    ("rnn", "attention@self_attention=luong_dot", "self-attention"),
    ("rnn", "attention@encoder_attention=luong_dot", "encoder-attention"),
    ("rnn", "cross_attention.dropout=0.1", "cross-attention"),
    ("conv", "feed_forward=gelu", "feed-forward"),
    ("conv", "attention@cross_attention=bahdanau", "cross-attention"),
]


def model_yaml(*overrides: str) -> str:
    return OmegaConf.to_yaml(composed(*overrides).model, resolve=False)


@pytest.mark.parametrize(("model", "override", "slot"), LACKING)
def test_a_slot_that_the_model_lacks_is_refused(model: str, override: str, slot: str) -> None:
    config = model_yaml(f"model={model}", override)
    with pytest.raises(UserError, match=rf"^{override} would change nothing: this model has no {slot}, which a "):
        check_slots(config, [f"model={model}", override])


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["model=lm", "metric=[]", "token_dropout.source=0.3"], "a language model reads no source"),
        (["init_from.tokenizer=new"], "a run without init_from.run has a new tokenizer"),
        (["init_from.strict=false"], "without init_from.run there are no weights to fit"),
        (["guided_alignment.runs=[a,b]"], "the runs link words for guided_alignment.links=self alone"),
        (["guided_alignment.weight=0.1"], "there is no guidance without guided_alignment.links"),
        (["guided_alignment.layer=0"], "there is no guidance without guided_alignment.links"),
        (["guided_alignment.shift=true"], "there is no guidance without guided_alignment.links"),
        (
            ["guided_alignment.links=a", "guided_alignment.symmetrization=union"],
            "a file has links of one kind, not of two directions",
        ),
    ],
)
def test_an_option_that_nothing_reads_is_refused(overrides: list[str], reason: str) -> None:
    option = overrides[-1].partition("=")[0]
    with pytest.raises(UserError, match=f"^{option} would change nothing, because {reason}; leave it out$"):
        check_config(compose_train(*overrides))


@pytest.mark.parametrize(
    "override", ["links=a", "links=eflomal", "links=self", "weight=0", "links=eflomal,symmetrization=union"]
)
def test_options_of_guidance_that_are_read_are_let_pass(override: str) -> None:
    check_config(compose_train(*(f"guided_alignment.{option}" for option in override.split(","))))


@pytest.mark.parametrize(("name", "usual"), [("sgd", 0.5), ("adafactor", 0.01)])
def test_adams_rate_is_refused_for_an_optimizer_with_rates_of_another_size(name: str, usual: float) -> None:
    def check(*overrides: str, choice: str = name) -> None:
        check_rate(compose_train(*overrides), list(overrides), {"optimizer": choice})

    with pytest.raises(UserError, match=rf"^optimizer={name} would train at .*, 0.004, .*; give optimizer.lr={usual},"):
        check(f"optimizer={name}")
    check(f"optimizer={name}", "optimizer.lr=0.002")
    check(f"optimizer={name}", "recipe=none")
    check("optimizer=muon", choice="muon")


@pytest.mark.parametrize("model", ["rnn", "conv", "transformer"])
def test_what_the_model_reads_and_what_nobody_typed_is_let_pass(model: str) -> None:
    check_slots(model_yaml(f"model={model}"), [f"model={model}", "attention=bahdanau", "seed=2"])


def test_a_crossing_has_the_slots_of_its_parts() -> None:
    for slot in ("self_attention", "encoder_attention"):
        crossing = ["encoder@model.encoder=transformer", "position=rotary", f"attention@{slot}=multihead"]
        check_slots(model_yaml(*crossing), crossing)


def test_a_choice_without_the_default_callbacks_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    check_config(composed("callback=[default,ema]"))
    assert not [line for line in caplog.messages if line.startswith("callback=")]
    check_config(composed("callback=[ema,profile]"))
    (warned,) = [line for line in caplog.messages if line.startswith("callback=")]
    assert warned.startswith("callback=[ema,profile] leaves out the default callbacks, ")
    assert warned.endswith("; callback=[default,ema,profile] adds to them")


LIGHTNINGS = "pytorch_lightning.callbacks"
UNSUITABLE = {
    f"{LIGHTNINGS}.StochasticWeightAveraging,swa_lrs:0.01": r"whose average no .*; use callback=\[default,ema\]",
    f"{LIGHTNINGS}.GradientAccumulationScheduler,scheduling:{{0:1,4:2}}": (
        "and the length of a run, .*; give trainer.accumulate_grad_batches=NUMBER"
    ),
}


@pytest.mark.parametrize(("options", "sentence"), UNSUITABLE.items())
def test_a_callback_of_lightnings_that_no_run_can_use_is_refused(options: str, sentence: str) -> None:
    name = options.partition(",")[0].rpartition(".")[2]
    with pytest.raises(UserError, match=rf"^callback\.mine is Lightning's {name}, {sentence}$"):
        check_config(composed(f"+callback.mine={{_target_:{options}}}"))


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("lost", ["left out", "null", "a number"])
def test_a_training_without_one_of_its_parts_is_refused(name: str, lost: str) -> None:
    config = OmegaConf.create(WITH_PARTS)
    check_groups(config)
    config.update({} if lost == "left out" else {name: None if lost == "null" else 7})
    if lost == "left out":
        del config[name]
    with pytest.raises(UserError, match=f"^a training needs {name}=NAME; `seq2seq-attn --help {name}` lists the ch"):
        check_groups(config)


def test_a_callback_that_is_no_group_is_refused() -> None:
    config = OmegaConf.create(WITH_PARTS | {"callback": {"ema": {}, "map": None}})
    with pytest.raises(UserError, match=r"^callback\.map=null is no group of options; ~callback\.map leaves it out$"):
        check_groups(config)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        *((name, "is the name of a figure that every run has") for name in ("ppl", "loss", "attention_entropy")),
        ("keys", "is a name that torch uses itself"),
        ("a.b", "has a dot in its name"),
    ],
)
def test_a_metric_of_a_name_that_is_taken_is_refused(name: str, problem: str) -> None:
    config = OmegaConf.create(WITH_PARTS)
    config.metric = {name: {"_target_": "mine.F1"}}
    with pytest.raises(
        UserError, match=rf"^metric\.{re.escape(name)} {problem}; give the metric another in its YAML file$"
    ):
        check_groups(config)


def test_a_metric_without_a_key_of_its_name_is_refused() -> None:
    config = OmegaConf.create(WITH_PARTS | {"metric": {"_target_": "mine.F1", "beta": 2}})
    sentence = r"^metric._target_=mine.F1 is no group of options; the YAML file of a metric has them under a key of its"
    with pytest.raises(UserError, match=sentence):
        check_groups(config)


def test_another_tokenizer_is_refused_which_nothing_would_read() -> None:
    config = OmegaConf.create(WITH_PARTS | {"tokenizer": {"_target_": "mine.Tokenizer"}})
    with pytest.raises(UserError, match=r"^tokenizer._target_=mine.Tokenizer is not .* by tokenizer.model=FILE$"):
        check_groups(config)


@pytest.mark.parametrize(
    ("override", "slot"),
    [
        ("attention@self_attention=sparse", "self_attention"),
        ("attention/score@encoder_attention.score=l2", "encoder_attention"),
        ("attention/score@cross_attention.score=dot", "cross_attention"),
        ("+position.base=3", "position"),
        ("attention=hard", "attention"),
        ("model.encoder.dim=3", "model"),
    ],
)
def test_the_slot_of_an_override(override: str, slot: str) -> None:
    assert slot_of(override) == slot


@pytest.mark.parametrize(
    ("override", "way_out"),
    [
        ("callback.checkpoint.save_top_k=3", "give callback.best_checkpoints.save_top_k=5"),
        ("callback.checkpoint.save_top_k=-1", "give callback.best_checkpoints.save_top_k=5"),
        ("callback.checkpoint.filename=best_model", "leave filename as it is"),
        ("~callback.checkpoint.filename", "leave filename as it is"),
        ("callback.checkpoint.dirpath=elsewhere", "leave dirpath as it is"),
        ("+callback.checkpoint.every_n_train_steps=2", "every_n_train_steps=2 would write other weights .*"),
    ],
)
def test_a_best_checkpoint_that_would_not_be_found_is_refused(override: str, way_out: str) -> None:
    check_best(composed("paths.run_dir=here"))
    check_best(composed("paths.run_dir=here", "callback.checkpoint.save_top_k=0"))
    check_best(composed("paths.run_dir=here", "~callback.checkpoint"))
    check_best(composed("paths.run_dir=here", "~callback.checkpoint.save_top_k"))
    check_best(composed("paths.run_dir=here", "callback.checkpoint.dirpath=here/checkpoints/"))
    check_best(composed("paths.run_dir=here", override, "trainer.enable_checkpointing=false"))
    with pytest.raises(UserError, match=way_out):
        check_best(composed("paths.run_dir=here", override))


@pytest.mark.parametrize("name", ["autosave", "stop_on_signal"])
def test_a_last_checkpoint_that_would_not_be_found_is_refused(name: str) -> None:
    check_last(composed("paths.run_dir=here"))
    check_last(composed("paths.run_dir=here", f"callback.{name}.folder=here/checkpoints/"))
    with pytest.raises(UserError, match=rf"^callback\.{name}\.folder=elsewhere would hide last\.ckpt from resume=auto"):
        check_last(composed("paths.run_dir=here", f"callback.{name}.folder=elsewhere"))
