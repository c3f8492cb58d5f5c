"""What is refused before training: options that do not fit the data, the model or the number of batches."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
from configs import built, compose_train, composed, model_of
from omegaconf import OmegaConf

from seq2seq_attn.checkpoint.resume import Resumed
from seq2seq_attn.errors import UserError
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.training.build import build
from seq2seq_attn.training.check_run import (
    check_end,
    check_interval,
    check_kept_folders,
    check_lengths,
    check_link_figure,
    check_positions,
    check_run,
    check_shares,
    check_validation,
    limits_of,
    warn_of_limits,
)


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


@pytest.mark.parametrize("name", ["history", "best_checkpoints"])
def test_the_checkpoints_of_another_run_in_a_shared_folder_are_not_replaced(name: str, tmp_path: Path) -> None:
    shared, run_dir = tmp_path / "shared", tmp_path / "run"
    shared.mkdir()
    (shared / "best-step=7.ckpt").touch()

    def check(*overrides: str, resumed: Path | None = None) -> None:
        given = (f"paths.run_dir={run_dir}", f"callback.{name}.dirpath={shared}", f"callback.{name}.save_top_k=2")
        chosen = composed(*given, *overrides)
        config = {key: OmegaConf.to_container(chosen[key], resolve=True) for key in ("paths", "trainer", "callback")}
        check_kept_folders(config, None if resumed is None else Resumed(resumed, {}, []))

    check(f"callback.{name}.save_top_k=0")
    check(f"callback.{name}.filename='mine-{{step}}'")
    check(f"callback.{name}.dirpath={tmp_path / 'other'}")
    check("trainer.enable_checkpointing=false")
    check(f"paths.run_dir={tmp_path}")  # where another check finds a run
    check(resumed=run_dir / "checkpoints" / "last.ckpt")
    sentence = rf"^{shared}/best-step=7.ckpt is another run's, and callback.{name}.dirpath={shared} would let this run"
    for resumed in (None, tmp_path / "other" / "checkpoints" / "last.ckpt"):
        with pytest.raises(UserError, match=sentence):
            check(resumed=resumed)


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


def test_two_vocabularies_of_one_size_share_no_matrix(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"a{n} b c d\tw{n} x y z\n" for n in range(40)))
    data = ["data=parallel", f"data.train={tmp_path / 'pairs.tsv'}", f"paths.cache_dir={tmp_path}", "callback=[]"]
    sizes = ["tokenizer=word", "tokenizer.vocab_size=7", "model.tie_embeddings=all", f"paths.run_dir={tmp_path}"]
    choices = [f"choices.{name}=null" for name in ("attention", "model", "data")]
    check_run(*build(compose_train(*data, *sizes, *choices)), resumed=None)
    own = build(compose_train(*data, *sizes, *choices, "tokenizer.joint=false"))
    with pytest.raises(UserError, match=r"^model.tie_embeddings=all needs one vocabulary for both languages, and here"):
        check_run(*own, resumed=None)


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
    options |= {"_val_check_time_interval": None, "accumulate_grad_batches": 1}

    def check(interval: float, **others: Any) -> None:
        check_interval(SimpleNamespace(**(options | {"val_check_interval": interval} | others)), datamodule)

    check(batches)
    check(1.0)
    check(batches + 1, check_val_every_n_epoch=None)
    check(batches + 1, limit_val_batches=0)
    with pytest.raises(UserError, match=f"={batches + 1} is more than the {batches} batches of an epoch; give fewer"):
        check(batches + 1)


@pytest.mark.parametrize(
    ("interval", "accumulated", "fewest"), [(3, 4, 4), (4, 4, None), (0.25, 4, 4), (0.5, 30, 12), (1.0, 30, None)]
)
def test_several_validations_within_an_update_are_warned_of(
    interval: float, accumulated: int, fewest: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    datamodule: Any = SimpleNamespace(corpus=SimpleNamespace(splits={"val"}), train_dataloader=lambda: range(12))
    limits = {"limit_train_batches": 1.0, "limit_val_batches": 1.0, "val_check_interval": interval}
    counted = {"_val_check_time_interval": None, "accumulate_grad_batches": accumulated}
    for every in (1, None):
        caplog.clear()
        check_interval(SimpleNamespace(**limits, **counted, check_val_every_n_epoch=every), datamodule)
        found = re.findall(r"^trainer.val_check_interval=.*; give (\d+) batches or more$", "\n".join(caplog.messages))
        assert found == ([] if fewest is None else [str(fewest)])


def test_checkpoints_of_validations_that_a_run_lacks_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    def warned(*overrides: str, splits: tuple[str, ...] = ("train", "val")) -> list[str]:
        caplog.clear()
        chosen = composed("callback.best_checkpoints.save_top_k=2", "callback.history.save_top_k=5", *overrides)
        options = {name: OmegaConf.to_container(chosen[name]) for name in ("scheduler", "trainer", "callback")}
        check_validation(options, splits)
        return [sentence.partition(" keeps ")[0] for sentence in caplog.messages]

    both = ["callback.best_checkpoints.save_top_k=2", "callback.history.save_top_k=5"]
    assert warned() == []
    assert warned(splits=("train",)) == warned("trainer.limit_val_batches=0") == both
    assert warned("callback.history.save_on_train_epoch_end=true", splits=("train",)) == both[:1]


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
    warn_of_limits(limits, "search.limits", module)
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
    warn_of_limits(Limits(**given), "search.limits", module)
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
    warn_of_limits(Limits(**{"max_relative_length": 2.0, **given}), "search.limits", module)
    found = re.findall(r"; set (.*)", "\n".join(caplog.messages))
    assert found == ([] if expected is None else [expected])


def test_the_limits_of_minimum_bayes_risk_are_those_of_its_candidates() -> None:
    limits, option = limits_of(built(composed("search=mbr", "search.candidates.limits.max_length=7").search))
    assert (limits.max_length, option) == (7, "search.candidates.limits")


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
