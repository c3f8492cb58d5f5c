"""What is refused before training: an option that nobody reads, and a model that cannot read the data."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
from configs import built, compose_train, composed, model_of
from omegaconf import OmegaConf

from seq2seq_attn.errors import UserError
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.training.check_config import (
    PARTS,
    TOKENIZER,
    check_best,
    check_config,
    check_groups,
    check_rate,
    check_slots,
    slot_of,
)
from seq2seq_attn.training.check_run import (
    check_end,
    check_interval,
    check_lengths,
    check_link_figure,
    check_positions,
    check_shares,
    check_validation,
    warn_of_limits,
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


@pytest.mark.parametrize("option", ["scheduler=plateau", "optimized_metric=val/bleu"])
def test_what_waits_for_validations_is_refused_without_any(option: str) -> None:
    plateau = "torch.optim.lr_scheduler.ReduceLROnPlateau"
    config: dict[str, Any] = {
        "scheduler": {"_target_": plateau if option.startswith("scheduler") else "other"},
        "trainer": {"check_val_every_n_epoch": 1, "limit_val_batches": None},
    }
    if option.startswith("optimized"):
        config["optimized_metric"] = "val/bleu"
    check_validation(config, {"train", "val"})
    with pytest.raises(UserError, match=f"^{option} needs validations, and no sentences are held out for one; use "):
        check_validation(config, {"train"})


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


def test_a_rate_that_follows_validations_is_refused_where_there_are_none() -> None:
    def config(*overrides: str) -> Any:
        chosen = composed(*overrides)
        return {name: OmegaConf.to_container(chosen[name]) for name in ("scheduler", "trainer")}

    with pytest.raises(UserError, match=r"^scheduler=plateau reads the figures of validations, and trainer.limit_"):
        check_validation(config("scheduler=plateau", "trainer.limit_val_batches=0"), {"train", "val"})
    check_validation(config("scheduler=cosine", "trainer.limit_val_batches=0"), {"train", "val"})
    for override in ("check_val_every_n_epoch=2", "check_val_every_n_epoch=null", "val_check_interval=00:00:30:00"):
        check_validation(config("scheduler=plateau", f"trainer.{override}"), {"train", "val"})
    with pytest.raises(
        UserError, match=r"^scheduler\.factor=1 never lowers the rate; give less, as 0\.5, or use sched"
    ):
        check_validation(config("scheduler=plateau", "scheduler.factor=1"), {"train", "val"})


@pytest.mark.parametrize("option", ["monitor", "optimized_metric", "callback.checkpoint.monitor"])
def test_the_loss_of_links_is_no_figure_of_validation_pairs_without_links(option: str) -> None:
    config: Any = {"monitor": "val/bleu", "optimized_metric": None, "callback": {"checkpoint": {"monitor": "val/bleu"}}}
    check_link_figure(config, {"train"})
    config = OmegaConf.to_container(OmegaConf.merge(config, OmegaConf.from_dotlist([f"{option}=val/alignment_loss"])))
    check_link_figure(config, {"train", "val"})
    with pytest.raises(UserError, match=r"^val/alignment_loss needs links of the validation pairs, and guided_alignme"):
        check_link_figure(config, {"train"})


CONV = ["encoder@model.encoder=conv", "decoder@model.decoder=conv"]


@pytest.mark.parametrize("position", ["rotary", "alibi", "relative", "t5", "kerple", "fire"])
def test_a_relative_position_needs_an_attention_to_itself(position: str) -> None:
    sentence = f"^position={position} tells .* this model has no self-attention; use position=sinusoidal, learned"
    with pytest.raises(UserError, match=sentence):
        check_positions(model_of(*CONV, f"position={position}"))
    check_positions(
        model_of(CONV[0], "decoder@model.decoder=transformer", "attention=multihead", f"position={position}")
    )
    check_positions(model_of(*CONV, "position=none"))


def test_an_attention_of_the_user_that_takes_no_position_is_named() -> None:
    model = model_of(*CONV, "position=rotary")
    for layer in model.decoder.source_attentions:
        layer.__class__ = type("Retention", (type(layer),), {"__module__": "mine"})
    with pytest.raises(
        UserError, match=r"^position=rotary tells .* are, and Retention.relative is None; use position="
    ):
        check_positions(model)


def test_sentences_longer_than_the_models_positions_are_refused_before_training() -> None:
    check_lengths(None, {"train": (900, 3)})
    check_lengths(9, {"train": (9, 3), "val": (2, 9)})
    with pytest.raises(
        UserError, match=r"positions for 9 tokens, and a sentence of val has 10; give .* max_length=10 or"
    ):
        check_lengths(9, {"train": (9, 3), "val": (2, 10)})


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


def test_a_schedule_over_a_run_without_an_end_is_refused() -> None:
    def check(scheduler: str, **limits: int) -> None:
        trainer = SimpleNamespace(**({"max_epochs": -1, "max_steps": -1} | limits))
        check_end(trainer, built(composed(f"scheduler={scheduler}").scheduler))

    check("inverse_sqrt")
    check("cosine", max_epochs=3)
    check("cosine", max_steps=7)
    for name in ("cosine", "linear", "wsd"):
        with pytest.raises(UserError, match=rf"^scheduler={name} must know how long the run is; give trainer\.max_epo"):
            check(name)


@pytest.mark.parametrize(("limit", "batches"), [(1.0, 12), (0.5, 6), (4, 4), (100, 12)])
def test_a_validation_after_more_batches_than_an_epoch_has_is_refused(limit: float, batches: int) -> None:
    datamodule: Any = SimpleNamespace(corpus=SimpleNamespace(splits={"val"}), train_dataloader=lambda: range(12))
    options = {"limit_train_batches": limit, "limit_val_batches": 1.0, "check_val_every_n_epoch": 1}
    options |= {"_val_check_time_interval": None}

    def check(interval: float, **others: Any) -> None:
        check_interval(SimpleNamespace(**(options | {"val_check_interval": interval} | others)), datamodule)

    check(batches)
    check(1.0)
    check(batches + 1, check_val_every_n_epoch=None)
    check(batches + 1, limit_val_batches=0)
    with pytest.raises(UserError, match=f"={batches + 1} is more than the {batches} batches of an epoch; give fewer"):
        check(batches + 1)


def test_a_time_between_validations_is_refused_on_several_devices_whose_clocks_differ() -> None:
    def check(devices: int, interval: Any) -> None:
        options: Any = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "max_epochs": 1}
        trainer = pl.Trainer(devices=devices, val_check_interval=interval, enable_checkpointing=False, **options)
        check_interval(trainer, SimpleNamespace(corpus=SimpleNamespace(splits={"val"}), train_dataloader=lambda: [1]))

    check(1, "00:00:30:00")
    check(2, 0.5)
    for interval in ("00:00:30:00", {"minutes": 30}):
        with pytest.raises(UserError, match=r"^trainer.val_check_interval is a time, which each of 2 devices reads"):
            check(2, interval)


@pytest.mark.parametrize("longest", [80, 81, 600])
def test_references_longer_than_a_translation_may_be_are_warned_of(
    longest: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A source of 29 tokens and the end token has a translation of at most 2 * 30 + 20."""
    limits = Limits(max_length=512, max_relative_length=2.0, max_extra_length=20, min_length=0, min_relative_length=0.0)
    shards = [(np.array([29] * 90), np.array([10] * 90)), (np.array([29] * 10), np.array([longest] * 10))]
    module: Any = SimpleNamespace(corpus=SimpleNamespace(splits={"val": None}), encoded={"val": shards}.get)
    warn_of_limits(limits, module)
    if longest == 80:
        assert not caplog.messages
        return
    (warned,) = caplog.messages
    assert warned.startswith(
        "10 of 100 references of the validation set are longer than the limits of the search allow, so"
    )
    found = {name: json.loads(value) for name, value in re.findall(r"search\.limits\.(\w+)=(\S+)", warned)}
    assert found == (
        {"max_relative_length": 2.5} if longest == 81 else {"max_relative_length": 19.5, "max_length": 600}
    )
    caplog.clear()
    given = {"max_length": 512, "max_extra_length": 20, "min_length": 0, "min_relative_length": 0.0, **found}
    warn_of_limits(Limits(**given), module)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("count", "longer", "expected"),
    [
        (50, {20: 1}, "search.limits.max_relative_length=3.0"),  # a sentence of 4 tokens and the end, of a few
        (1000, {20: 6, 600: 6}, "search.limits.max_relative_length=3.0 search.limits.max_length=600"),  # half each
        (1000, {20: 10}, None),
    ],
)
def test_the_limits_that_are_named_leave_no_more_than_a_hundredth(
    count: int, longer: dict[int, int], expected: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A source of 4 tokens and the end token has a translation of at most 2 * 5 + 5."""
    given = {"max_length": 512, "max_extra_length": 5, "min_length": 0, "min_relative_length": 0.0}
    target = np.repeat([9, *longer], [count - sum(longer.values()), *longer.values()])
    source = np.where(target == 600, 300, 4)
    module: Any = SimpleNamespace(corpus=SimpleNamespace(splits={"val": None}), encoded=lambda name: [(source, target)])
    warn_of_limits(Limits(**{"max_relative_length": 2.0, **given}), module)
    found = re.findall(r"; set (.*)", "\n".join(caplog.messages))
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize(("split", "share"), [("train", 0.08), ("val", 0.19), ("test", 0.19)])
def test_a_share_of_less_than_a_batch_is_refused_before_training(split: str, share: float) -> None:
    loaders: dict[str, Any] = {"train": range(12), "val": range(5), "test": [range(7), range(5)]}
    datamodule: Any = SimpleNamespace(**{f"{name}_dataloader": lambda one=one: one for name, one in loaders.items()})
    limits = {f"limit_{name}_batches": 1.0 for name in loaders}

    def check(**changed: float) -> None:
        check_shares(SimpleNamespace(**({"overfit_batches": 0.0} | limits | changed)), datamodule)

    check()
    for enough in (1, 0.0, 1 / len(loaders[split][1] if split == "test" else loaders[split])):
        check(**{f"limit_{split}_batches": enough})
    batches = 12 if split == "train" else 5
    with pytest.raises(
        UserError, match=rf"^trainer.limit_{split}_batches={share} of {batches} batches is less than one"
    ):
        check(**{f"limit_{split}_batches": share})
    for few in (3, 7, 12, 1500):
        datamodule = SimpleNamespace(**{f"{name}_dataloader": lambda few=few: range(few) for name in loaders})
        with pytest.raises(UserError, match=r"give 0\.\d+ or more") as refused:
            check(**{f"limit_{split}_batches": 0.9 / few})
        check(**{f"limit_{split}_batches": float(re.findall(r"give (\S+) or more", str(refused.value))[0])})


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
