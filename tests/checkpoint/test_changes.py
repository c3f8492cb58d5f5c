"""A run that goes on with other options: they take effect and are named, or they are refused."""

from __future__ import annotations

import logging
import math
import re
import shutil
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from configs import ROOT, composed
from hydra.utils import instantiate
from omegaconf import OmegaConf
from small_run import KilledError, assert_same_run, begun, results, rows, run_here, weights
from torch import nn

from seq2seq_attn.checkpoint import exact_resume
from seq2seq_attn.checkpoint.exact_resume import adopt, count_for_devices, reschedule, warn_of_other_figures
from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.checkpoint.resume import Change, Resumed, changes, in_folders, read_recorded, results_of_complete
from seq2seq_attn.errors import UserError
from seq2seq_attn.scheduler.schedule import cosine, inverse_sqrt
from seq2seq_attn.training.check_resumed import check_changes

pytestmark = pytest.mark.usefixtures("quiet")
PAGE = (ROOT / "docs" / "runs.md").read_text("utf-8")
LONGER = PAGE.partition("\n## Train longer, or with other options\n")[2].partition("\n## ")[0]
ONE_EPOCH = ["scheduler=constant", "trainer.max_epochs=1"]  # of 7 steps
slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def complete(pairs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("complete") / "run"
    run_here(folder, *pairs, *ONE_EPOCH)
    return folder


@pytest.fixture
def run(complete: Path, tmp_path: Path) -> Path:
    """The complete run in a folder of this test."""
    return Path(shutil.copytree(complete, tmp_path / "run"))


@pytest.mark.slow  # the next test says it of a number of steps
def test_a_complete_run_that_is_made_longer_is_the_run_that_was_as_long_from_the_start(
    pairs: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    run_here(long, *pairs, *ONE_EPOCH, "trainer.max_epochs=2")
    run_here(short, *pairs, *ONE_EPOCH)
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        run_here(short, *pairs, *ONE_EPOCH, "trainer.max_epochs=2", "resume=auto")
    assert_same_run(short, long)
    said = [line for line in caplog.messages if line.startswith("From step")]
    assert said == ["From step 7 on: trainer.max_epochs 1 → 2; the learning rate is 0.05"]


@pytest.mark.slow
def test_a_run_that_a_number_of_steps_has_ended_within_an_epoch_goes_on_within_it(
    pairs: list[str], tmp_path: Path
) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    given = [*pairs, "scheduler=constant", "trainer.limit_val_batches=0", "trainer.limit_test_batches=0"]
    run_here(long, *given, "trainer.max_steps=9")
    run_here(short, *given, "trainer.max_steps=3")
    run_here(short, *given, "trainer.max_steps=9", "resume=auto")
    assert begun[-1] == 3
    assert [row["train/loss"] for row in rows(short)] == [row["train/loss"] for row in rows(long)]
    ours, theirs = (weights(folder, "last.ckpt") for folder in (short, long))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_a_validation_after_the_last_update_is_one_of_the_run_that_goes_on(pairs: list[str], tmp_path: Path) -> None:
    """An epoch has 7 updates."""
    run_here(tmp_path, *pairs, "monitor=val/loss", "trainer.max_steps=10")
    files = {name: tmp_path / "checkpoints" / f"{name}.ckpt" for name in ("best", "last")}
    assert {name: read_checkpoint(file)["global_step"] for name, file in files.items()} == {"best": 10, "last": 10}
    loss = float([row for row in rows(tmp_path) if row["val/loss"]][-1]["val/loss"])
    for file in files.values():
        checkpoint = read_checkpoint(file)
        (kept,) = (state for state in checkpoint["callbacks"].values() if "best_k_models" in state)
        assert float(kept["best_model_score"]) == pytest.approx(loss, rel=1e-6)
        assert Path(kept["best_model_path"]).name == "best.ckpt"
    assert checkpoint["resume"]["validated_step"] == 10
    worse = ["optimizer.lr=9.0", "trainer.max_steps=14", "resume=auto"]
    run_here(tmp_path, *pairs, "monitor=val/loss", *worse)
    assert [int(row["step"]) + 1 for row in rows(tmp_path) if row["val/loss"]] == [7, 10, 14]
    assert read_checkpoint(files["best"])["global_step"] == 10
    assert results(tmp_path)["steps"] == 14


@pytest.mark.slow
def test_a_run_that_goes_on_from_an_earlier_checkpoint_has_the_best_from_there_on(
    pairs: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_here(tmp_path, *pairs, "monitor=val/loss", "trainer.max_epochs=1")
    best, earlier = (tmp_path / "checkpoints" / f"{name}.ckpt" for name in ("best", "earlier"))
    shutil.copy(best.with_name("last.ckpt"), earlier)
    run_here(tmp_path, *pairs, "monitor=val/loss", "trainer.max_epochs=3", "resume=auto")
    assert (later := read_checkpoint(best)["global_step"]) > 7
    caplog.clear()
    still = ["optimizer.lr=0.0", "scheduler=constant", "trainer.max_epochs=2", f"ckpt_path={earlier}"]
    run_here(tmp_path, *pairs, "monitor=val/loss", *still)
    (line,) = [line for line in caplog.messages if line.startswith(str(best))]
    assert f"best.ckpt is now that of step {later}, and the run resumes from step 7; until there the best val" in line
    before, after = (weights(tmp_path, name) for name in ("earlier.ckpt", "best.ckpt"))
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("model."))


@pytest.mark.slow
@pytest.mark.parametrize(("last", "steps", "done"), [slow(2, 5, 2), pytest.param(0, 4, 0, id="the first of an epoch")])
def test_a_training_that_ends_within_an_update_goes_on_with_the_whole_update(
    last: int, steps: int, done: int, pairs: list[str], tmp_path: Path
) -> None:
    """An epoch has 7 batches, of which the last is an update; the last batch of the second epoch is read again.

    The baseline of hard attention and the padding are of each batch once.
    """
    given = [*pairs, "scheduler=constant", "trainer.accumulate_grad_batches=2"]
    long, short = tmp_path / "long", tmp_path / "short"
    run_here(long, *given, "trainer.max_epochs=3")
    stop = f"+callback.stopped={{_target_:small_run.Stopped,epoch:1,batch:{last}}}"
    assert run_here(short, *given, "trainer.max_epochs=2", stop)["steps"] == steps
    checkpoint = read_checkpoint(short / "checkpoints" / "last.ckpt")
    assert checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]["processed"] == done
    assert (checkpoint["global_step"], checkpoint["resume"]["validated_step"]) == (steps, steps)
    run_here(short, *given, "trainer.max_epochs=3", "resume=auto")
    assert begun[-1] == steps
    trained = [[row["train/loss"] for row in rows(folder) if row["train/loss"]] for folder in (short, long)]
    assert trained[0][-7:] == trained[1][-7:]
    ours, theirs = (weights(folder, "last.ckpt") for folder in (short, long))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert results(short)["padding_share"] == results(long)["padding_share"]


@pytest.mark.slow
def test_a_stop_that_min_epochs_puts_off_is_forgotten(pairs: list[str], tmp_path: Path) -> None:
    stop = "+callback.stopped={_target_:small_run.Stopped,epoch:0,batch:1}"
    assert run_here(tmp_path, *pairs, "trainer.min_epochs=2", "trainer.max_epochs=3", stop)["steps"] == 21


def test_changed_options_take_effect_are_named_and_are_on_record(
    run: Path, pairs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        "trainer.max_epochs": 2,
        "trainer.gradient_clip_val": 0.5,
        "optimizer.lr": 0.02,
        "optimizer.betas": [0.8, 0.9],
        "model.dropout": 0.1,
        "label_smoothing": 0.0,
        "token_dropout.source": 0.1,
        "callback.early_stopping.patience": 3,
    }
    overrides = [f"{key}={value}" for key, value in given.items()]
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        run_here(run, *pairs, *ONE_EPOCH, "scheduler=cosine", *overrides, "resume=auto")
    (said,) = [line for line in caplog.messages if line.startswith("From step 7 on: ")]
    for named in (
        "optimizer.lr 0.05 → 0.02",
        "optimizer.betas [0.9, 0.98] → [0.8, 0.9]",
        "model.dropout 0.3 → 0.1",
        "label_smoothing 0.1 → 0.0",
        "token_dropout.source 0.0 → 0.1",
        "scheduler ConstantLR → cosine",
        "callback.early_stopping.patience 10 → 3",
        "trainer.gradient_clip_val 1.0 → 0.5",
    ):
        assert named in said
    factor = cosine(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), warmup_steps=200, total_steps=14)
    assert said.endswith(
        f"; the learning rate is {0.02 * factor.lr_lambdas[0](7):.3g}, its schedule is computed over 14 steps"
    )
    last = read_checkpoint(run / "checkpoints" / "last.ckpt")
    (group,) = last["optimizer_states"][0]["param_groups"]
    assert (group["betas"], last["global_step"]) == ((0.8, 0.9), 14)
    assert last["lr_schedulers"][0]["base_lrs"] == [0.02]
    (early,) = [state for key, state in last["callbacks"].items() if key.startswith("EarlyStopping")]
    assert early["patience"] == 3
    recorded = OmegaConf.load(run / "config.yaml")
    assert {key: OmegaConf.select(recorded, key) for key in given} == given


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seed=2", r"^seed=2 cannot take effect in a resumed run: .*last.ckpt was trained with 1; leave"),
        ("optimizer=adamw", r"^optimizer._target_=torch.optim.AdamW cannot take effect .* torch.optim.Adam; "),
        (
            "monitor=val/loss",
            r"^monitor=val/loss would replace .*best.ckpt, which was chosen with monitor=val/bleu; give monitor=val/b",
        ),
        (
            "metric=[chrf,bleu]",
            r"^monitor=val/chrf would replace .*best.ckpt, .* give monitor=val/bleu, or start a new",
        ),
        (
            "callback.checkpoint.monitor=val/ppl callback.checkpoint.mode=min",
            r"^callback.checkpoint.monitor=val/ppl would",
        ),
        (
            "+callback.checkpoint.every_n_epochs=2",
            r"would replace .*best.ckpt, which was chosen without it; leave callback.checkpoint.every_n_epochs out, ",
        ),
        ("scheduler=plateau", r"^scheduler._target_=.*ReduceLROnPlateau cannot take effect"),
        (
            "attention/normalizer=sparsemax",
            r"^\S+last.ckpt holds another model than the run to train, by attention.normalizer HardNormalizer → Spars",
        ),
        ("callback=[seeding,autosave]", r"^callback.checkpoint, which has chosen .*best.ckpt, is missing or switched"),
        ("trainer.enable_checkpointing=false", r"^callback.checkpoint, which has chosen .*best.ckpt, is missing or"),
        (
            "trainer.max_epochs=0",
            r"^trainer.max_epochs=0 is too few: .*last.ckpt has reached epoch 1; give 1 or more, or ",
        ),
        (
            "trainer.max_steps=3",
            r"^trainer.max_steps=3 is too few: .*last.ckpt has reached step 7; give 7 or more, or ",
        ),
    ],
)
def test_what_cannot_take_effect_is_refused_before_the_old_run_is_touched(
    override: str, sentence: str, run: Path, pairs: list[str]
) -> None:
    (run / "results.json").unlink()  # as if it had not come so far
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with pytest.raises(UserError, match=sentence):
        run_here(run, *pairs, *ONE_EPOCH, *override.split(), "resume=auto")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_complete_run_says_that_it_is_too_short_for_what_was_changed(
    run: Path, pairs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        run_here(run, *pairs, *ONE_EPOCH, "optimizer.lr=0.1", "resume=auto")
    assert caplog.messages == [
        f"{run} is complete; nothing is left to train with optimizer.lr 0.05 → 0.1; give a higher trainer.max_epochs, "
        "or callback.early_stopping.patience if it stopped early"
    ]


@pytest.mark.parametrize("name", ["max_epochs", "max_steps", "max_time"])
def test_a_complete_run_goes_on_where_a_limit_has_changed(name: str, tmp_path: Path) -> None:
    config = OmegaConf.create({"resume": "auto", "trainer": {name: 1}})
    OmegaConf.save(config, tmp_path / "config.yaml")
    (tmp_path / "results.json").write_text('{"steps": 7}', encoding="utf-8")
    assert results_of_complete(config, tmp_path) == {"steps": 7}
    assert results_of_complete(OmegaConf.merge(config, {"trainer": {name: 2}}), tmp_path) is None


@pytest.mark.parametrize(
    ("monitor", "key", "is_said"),
    [
        ("val/bleu", "search.length_penalty", True),
        ("val/bleu", "metric.bleu.lowercase", True),
        ("val/bleu", "metric.chrf.word_order", False),
        ("val/bleu", "optimizer.lr", False),
        ("val/loss", "val_sentences", True),
        ("val/loss", "search.length_penalty", False),
    ],
)
def test_a_figure_that_is_another_from_here_on_is_said(
    monitor: str, key: str, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_other_figures([Change(key, 1, 2)], {"monitor": monitor, "metric": {"bleu": {}, "chrf": {}}})
    said = (
        f"{key} 1 → 2: {monitor} from here on does not compare with that of earlier validations, by which best.ckpt "
        "was chosen; leave the option as it was, or start a new run"
    )
    assert caplog.messages == [said] * is_said


@pytest.mark.parametrize("is_own", [True, False])
def test_only_a_run_of_its_own_checkpoint_says_that_its_figure_is_another(
    is_own: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("restore_metrics", "say_changes"):
        monkeypatch.setattr(exact_resume, name, lambda *_: None)
    monkeypatch.setattr(exact_resume, "is_own", lambda _: is_own)
    callback = exact_resume.ExactResume()
    callback._changes = [Change("val_sentences", 1, 2)]
    callback.on_train_start(None, SimpleNamespace(config={"monitor": "val/loss", "metric": {}}))
    assert len(caplog.messages) == is_own


def test_a_limit_of_time_may_be_a_mapping(tmp_path: Path) -> None:
    config = OmegaConf.create({"resume": "auto", "trainer": {"max_time": {"minutes": 3}}})
    OmegaConf.save(config, tmp_path / "config.yaml")
    (tmp_path / "results.json").write_text('{"steps": 7}', encoding="utf-8")
    assert results_of_complete(config, tmp_path) == {"steps": 7}
    for longer in ({"minutes": 4}, {"hours": 1}):
        assert results_of_complete(OmegaConf.merge(config, {"trainer": {"max_time": longer}}), tmp_path) is None


@pytest.mark.parametrize("option", ["amsgrad", "centered"])
def test_a_complete_run_is_another_with_an_optimizer_of_other_states(option: str, tmp_path: Path) -> None:
    config = OmegaConf.create({"resume": "auto", "optimizer": {option: False}})
    OmegaConf.save(config, tmp_path / "config.yaml")
    (tmp_path / "results.json").write_text('{"steps": 7}', encoding="utf-8")
    with pytest.raises(UserError, match=f"was trained with other options: optimizer.{option} False → True; give them"):
        results_of_complete(OmegaConf.merge(config, {"optimizer": {option: True}}), tmp_path)


def test_another_run_from_the_checkpoint_may_choose_its_best_by_another_figure(
    run: Path, tmp_path: Path, pairs: list[str]
) -> None:
    other, given = tmp_path / "other", ["trainer.max_epochs=2", "scheduler=constant", "monitor=val/loss"]
    run_here(other, *pairs, *given, f"ckpt_path={run / 'checkpoints' / 'last.ckpt'}")
    assert read_checkpoint(other / "checkpoints" / "best.ckpt")["config"]["monitor"] == "val/loss"


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("seed=2", "seed 1 → 2"),
        ("model.encoder.dim=16", "model.encoder.dim 12 → 16"),
        ("optimizer=adamw", "optimizer Adam → AdamW"),
        ("monitor=val/loss", "monitor val/bleu → val/loss"),
    ],
)
def test_the_results_of_a_complete_run_are_not_those_of_another_seed_or_model(
    override: str, named: str, run: Path, pairs: list[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with pytest.raises(UserError, match=f"^{run} is complete and was trained with other options: {named}; give them "):
        run_here(run, *pairs, *ONE_EPOCH, override, "resume=auto")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_complete_run_stays_complete_with_options_of_no_effect_and_after_an_upgrade(
    run: Path, pairs: list[str]
) -> None:
    recorded = OmegaConf.load(run / "config.yaml")
    del recorded.attention.backend, recorded.attention.qkv_bias  # as if they had come later
    OmegaConf.save(recorded, run / "config.yaml")
    for given in ([], ["model.dropout=0"], ["optimizer.lr=0.1"]):
        assert run_here(run, *pairs, *ONE_EPOCH, *given, "resume=auto")["steps"] == 7
    OmegaConf.save(OmegaConf.merge(recorded, {"attention": {"backend": "auto"}}), run / "config.yaml")
    assert run_here(run, *pairs, *ONE_EPOCH, "attention.backend=dense", "resume=auto")["steps"] == 7


@pytest.mark.slow
def test_a_shorter_run_ends_at_its_new_limit_and_says_so(
    tmp_path: Path, pairs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    killer = "+callback.killed={_target_:small_run.Killed,hook:backward,step:9}"
    with pytest.raises(KilledError):
        run_here(tmp_path, *pairs, "trainer.max_epochs=9", killer)
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        assert run_here(tmp_path, *pairs, "trainer.max_epochs=2", "resume=auto")["steps"] == 14
    (changed,) = [line for line in caplog.messages if line.startswith("From step 7 on: ")]
    assert "trainer.max_epochs 9 → 2" in changed
    assert changed.endswith(", its schedule is computed over 14 steps")
    assert caplog.messages[-1] == "The training ends in epoch 2 after step 14: trainer.max_epochs=2 is reached"


@pytest.mark.slow
def test_a_run_that_has_nothing_left_to_train_keeps_the_place_in_its_schedule(pairs: list[str], tmp_path: Path) -> None:
    given = [*pairs, "scheduler=linear", "trainer.max_epochs=2", "trainer.limit_test_batches=0"]
    killer = "+callback.killed={_target_:small_run.Killed,hook:backward,step:4}"
    with pytest.raises(KilledError):
        run_here(tmp_path, *given, "callback.autosave.every_steps=4", killer)
    run_here(tmp_path, *given, "trainer.max_steps=4", "resume=auto")
    (schedule,) = read_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["lr_schedulers"]
    assert schedule["last_epoch"] == 4


def test_momentum_that_needs_a_state_of_its_own_does_not_begin_in_a_resumed_run(tmp_path: Path) -> None:
    def check(optimizer: str, old: float, new: float) -> None:
        checkpoint = {"config": {"optimizer": {"_target_": f"torch.optim.{optimizer}"}}}
        check_changes(Resumed(tmp_path / "a.ckpt", checkpoint, [Change("optimizer.momentum", old, new)]), tmp_path)

    check("SGD", 0.0, 0.9)
    check("RMSprop", 0.5, 0.9)
    for old, new in ((0.0, 0.9), (0.9, 0.0)):
        with pytest.raises(UserError, match=f"^optimizer.momentum={new} cannot take effect in a resumed run"):
            check("RMSprop", old, new)


@pytest.mark.parametrize(
    ("change", "is_refused"),
    [
        (Change("attention.num_heads", 4, 8), True),  # with weights of the same shapes
        (Change("attention.num_heads", None, 8), True),  # null takes another number
        (Change("feed_forward.activation", "relu", "gelu"), True),
        (Change("attention.mix", {"_target_": "a.Mix"}, None), True),
        (Change("attention.dropout", 0, 0.1), False),
        (Change("self_attention.backend", "auto", "dense"), False),
        (Change("attention.output_bias", None, False, is_new=True), False),  # which came after the checkpoint
    ],
)
def test_an_option_of_the_model_does_not_change_in_a_resumed_run(
    change: Change, is_refused: bool, tmp_path: Path
) -> None:
    resumed = Resumed(tmp_path / "a.ckpt", {"config": {"optimizer": {"_target_": "torch.optim.Adam"}}}, [change])
    sentence = f"a.ckpt holds another model than the run to train, by {change}; leave it as it was, or start a new run"
    with pytest.raises(UserError, match=f"{re.escape(sentence)}$") if is_refused else nullcontext():
        check_changes(resumed, tmp_path)


def test_an_option_that_was_null_is_not_one_that_came_later() -> None:
    old, new = ({"attention": {"num_heads": None}}, {"attention": {"num_heads": 8, "output_bias": False}})
    assert changes(old, new) == [
        Change("attention.num_heads", None, 8), Change("attention.output_bias", None, False, is_new=True)
    ]  # fmt: skip


@pytest.mark.slow
def test_a_run_that_stopped_early_trains_on_with_more_patience(tmp_path: Path, pairs: list[str]) -> None:
    given = [*pairs, "trainer.max_epochs=9", "trainer.limit_train_batches=1", "optimizer.lr=0.0"]
    assert run_here(tmp_path, *given, "callback.early_stopping.patience=1")["steps"] == 2
    assert run_here(tmp_path, *given, "callback.early_stopping.patience=2", "resume=auto")["steps"] == 3


@pytest.mark.slow
def test_another_run_from_a_checkpoint_stops_early_by_its_own_validations(tmp_path: Path, pairs: list[str]) -> None:
    given = [*pairs, "trainer.max_epochs=9", "trainer.limit_train_batches=1", "optimizer.lr=0.0"]
    given += ["callback.early_stopping.patience=1"]
    assert run_here(tmp_path / "one", *given)["steps"] == 2
    last = tmp_path / "one" / "checkpoints" / "last.ckpt"
    assert run_here(tmp_path / "other", *given, f"ckpt_path={last}")["steps"] == 4


def test_accumulation_changes_between_two_updates_of_the_new_kind(tmp_path: Path, pairs: list[str]) -> None:
    killer = "+callback.killed={_target_:small_run.Killed,hook:backward,step:3}"
    with pytest.raises(KilledError):
        run_here(tmp_path, *pairs, "callback.autosave.every_steps=3", killer)
    with pytest.raises(UserError, match=r"^trainer.accumulate_grad_batches=2 does not divide the 3 batches of"):
        run_here(tmp_path, *pairs, "trainer.accumulate_grad_batches=2", "resume=auto")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    ["batch_tokens=800", *(slow(other) for other in ("batch_tokens=200", "trainer.accumulate_grad_batches=3"))],
    ids=str,
)
def test_a_planned_schedule_ends_with_the_last_update_though_other_batches_follow(
    changed: str, pairs: list[str], tmp_path: Path
) -> None:
    given = [*pairs, "scheduler=linear", "trainer.limit_val_batches=0", "trainer.limit_test_batches=0"]
    run_here(tmp_path, *given, "trainer.max_epochs=2")
    run_here(tmp_path, *given, "trainer.max_epochs=4", changed, "resume=auto")
    assert begun[-1] == 14
    rates = [float(row["lr"]) for row in rows(tmp_path) if row.get("lr")]
    after = rates[14:]  # of two epochs of seven batches
    assert len(after) >= 4
    steps = [one - other for one, other in pairwise(after)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-4)  # a straight line
    assert after[-1] == pytest.approx(0, abs=1e-8)  # each row has the rate after its update


@pytest.mark.slow
def test_epochs_that_end_before_the_steps_that_are_asked_for_are_said_at_the_start(
    pairs: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = "trainer.max_epochs=1 ends the training after 7 updates, before trainer.max_steps=1,000; "
    for steps in (1000, 7):
        caplog.clear()
        with caplog.at_level(logging.INFO, "seq2seq_attn"):
            run_here(tmp_path / str(steps), *pairs, *ONE_EPOCH, f"trainer.max_steps={steps}")
        found = [line for line in caplog.messages if "ends the training" in line]
        assert [line.startswith(expected) for line in found] == [True] * (steps > 7)


@pytest.mark.slow
def test_an_epoch_of_few_batches_is_complete_when_these_are_read(pairs: list[str], tmp_path: Path) -> None:
    given = [*pairs, "scheduler=plateau", "scheduler.patience=0", "scheduler.factor=0.5", "monitor=val/loss"]
    given += ["+scheduler.threshold=0.999999", "trainer.limit_train_batches=3"]  # no validation is ever better
    run_here(tmp_path / "long", *given, "trainer.max_epochs=4")
    run_here(tmp_path / "short", *given, "trainer.max_epochs=2")
    run_here(tmp_path / "short", *given, "trainer.max_epochs=4", "resume=auto")
    assert begun[-1] == 6
    long, short = ([float(row["lr"]) for row in rows(tmp_path / name) if row["lr"]] for name in ("long", "short"))
    assert short == long == pytest.approx([0.05] * 6 + [0.025] * 3 + [0.0125] * 3, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("callbacks", ["callback=[seeding,autosave]", "callback.checkpoint.save_top_k=0"])
def test_a_run_that_keeps_no_best_is_tested_with_its_last_weights_when_it_goes_on(
    callbacks: str, pairs: list[str], tmp_path: Path
) -> None:
    given = [*pairs, "scheduler=constant", callbacks, "trainer.limit_train_batches=3"]
    long = run_here(tmp_path / "long", *given, "trainer.max_epochs=3")
    run_here(tmp_path / "short", *given, "trainer.max_epochs=1")
    short = run_here(tmp_path / "short", *given, "trainer.max_epochs=3", "resume=auto")
    assert begun[-1] == 3
    assert short["test/loss"] == long["test/loss"]
    best = [read_checkpoint(tmp_path / name / "checkpoints" / "best.ckpt")["global_step"] for name in ("long", "short")]
    assert best == [9, 9]


@pytest.mark.slow
def test_a_history_of_fewer_checkpoints_deletes_the_oldest(pairs: list[str], tmp_path: Path) -> None:
    given = [*pairs, "scheduler=constant", "callback=[seeding,checkpoint,history,autosave]"]
    given += ["trainer.limit_train_batches=3"]
    run_here(tmp_path, *given, "trainer.max_epochs=3", "callback.history.save_top_k=3")
    run_here(tmp_path, *given, "trainer.max_epochs=5", "callback.history.save_top_k=2", "resume=auto")

    def kept() -> list[str]:
        return sorted(file.name for file in (tmp_path / "checkpoints").glob("step=*.ckpt"))

    assert kept() == ["step=12.ckpt", "step=15.ckpt"]
    refused = ["scheduler=cosine", "trainer.max_epochs=-1", "callback.history.save_top_k=1", "resume=auto"]
    with pytest.raises(UserError, match="must know how long the run is"):
        run_here(tmp_path, *given, *refused)
    assert kept() == ["step=12.ckpt", "step=15.ckpt"]


@pytest.mark.slow
def test_numbers_of_float64_are_resumed_as_they_were_saved(pairs: list[str], tmp_path: Path) -> None:
    given = [*pairs, "trainer.precision=64-true", "scheduler=constant", "trainer.limit_train_batches=3"]
    run_here(tmp_path / "long", *given, "trainer.max_epochs=2")
    run_here(tmp_path / "short", *given, "trainer.max_epochs=1")
    run_here(tmp_path / "short", *given, "trainer.max_epochs=2", "resume=auto")
    assert begun[-1] == 3
    ours, theirs = (weights(tmp_path / name, "last.ckpt") for name in ("short", "long"))
    assert {weight.dtype for weight in ours.values() if weight.is_floating_point()} == {torch.float64}
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def parts(scheduler: partial[Any], lr: float, betas: tuple[float, float]) -> tuple[SimpleNamespace, SimpleNamespace]:
    """A module's factories, and a trainer with what they make."""
    optimizer = partial(torch.optim.Adam, lr=lr, betas=betas)
    made = optimizer([nn.Parameter(torch.zeros(1))])
    trainer = SimpleNamespace(
        optimizers=[made], lr_scheduler_configs=[SimpleNamespace(scheduler=scheduler(made))], callbacks=[]
    )
    return SimpleNamespace(optimizer=optimizer, scheduler=scheduler, parameter_groups=list), trainer


SCHEDULES = {
    "constant": partial(torch.optim.lr_scheduler.ConstantLR, factor=0.25, total_iters=7),
    "cosine": partial(cosine, warmup_steps=3, total_steps=11),
    "longer": partial(cosine, warmup_steps=2, total_steps=17),
    "inverse_sqrt": partial(inverse_sqrt, warmup_steps=3),
    "one_cycle": partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.7, total_steps=20, cycle_momentum=False),
    "other_cycle": partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=20, cycle_momentum=False),
}


@pytest.mark.parametrize("new", list(SCHEDULES))
@pytest.mark.parametrize("old", list(SCHEDULES))
def test_a_changed_schedule_has_the_rates_that_it_would_have_had_from_the_start(old: str, new: str) -> None:
    _, before = parts(SCHEDULES[old], 0.1, (0.9, 0.98))
    module, after = parts(SCHEDULES[new], 0.3, (0.8, 0.9))
    _, never_stopped = parts(SCHEDULES[new], 0.3, (0.8, 0.9))
    first_groups = [{name: value for name, value in after.optimizers[0].param_groups[0].items() if name != "params"}]
    for trainer, steps in ((before, 5), (never_stopped, 5)):
        advance(trainer, steps)
    checkpoint = {
        "callbacks": {},
        "optimizer_states": [before.optimizers[0].state_dict()],
        "lr_schedulers": [before.lr_scheduler_configs[0].scheduler.state_dict()],
    }
    changed = changes({"optimizer": {"lr": 0.1, "betas": [0.9, 0.98]}}, {"optimizer": {"lr": 0.3, "betas": [0.8, 0.9]}})
    steps = adopt(changed, checkpoint, after, module)
    assert (steps, checkpoint["lr_schedulers"]) == (5, [])
    after.optimizers[0].load_state_dict(checkpoint["optimizer_states"][0])
    reschedule(after, 5, first_groups)
    assert after.optimizers[0].param_groups[0]["betas"] == (0.8, 0.9)
    assert advance(after, 9) == advance(never_stopped, 9)


def advance(trainer: SimpleNamespace, steps: int) -> list[float]:
    """The rates of so many steps."""
    rates = []
    for _ in range(steps):
        rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        trainer.optimizers[0].step()
        trainer.lr_scheduler_configs[0].scheduler.step()
    return rates


def test_a_plateau_keeps_what_it_has_seen_and_takes_its_new_options_and_rate() -> None:
    plateau = partial(torch.optim.lr_scheduler.ReduceLROnPlateau, mode="max")
    _, before = parts(partial(plateau, factor=0.5, patience=1), 0.1, (0.9, 0.98))
    module, after = parts(partial(plateau, factor=0.1, patience=4), 0.3, (0.9, 0.98))
    schedule = before.lr_scheduler_configs[0].scheduler
    for bleu in (3.0, 2.0, 1.0, 1.0):
        schedule.step(bleu)
    checkpoint = {
        "callbacks": {},
        "optimizer_states": [before.optimizers[0].state_dict()],
        "lr_schedulers": [schedule.state_dict()],
    }
    changed = changes(
        {"optimizer": {"lr": 0.1}, "scheduler": {"factor": 0.5, "patience": 1}},
        {"optimizer": {"lr": 0.3}, "scheduler": {"factor": 0.1, "patience": 4}},
    )
    assert adopt(changed, checkpoint, after, module) is None
    schedule = after.lr_scheduler_configs[0].scheduler
    schedule.load_state_dict(checkpoint["lr_schedulers"][0])
    after.optimizers[0].load_state_dict(checkpoint["optimizer_states"][0])
    assert (schedule.best, schedule.num_bad_epochs) == (3.0, 1)
    assert (schedule.factor, schedule.patience) == (0.1, 4)
    for _ in range(4):
        assert after.optimizers[0].param_groups[0]["lr"] == 0.3
        schedule.step(2.0)
    assert math.isclose(after.optimizers[0].param_groups[0]["lr"], 0.03)


@pytest.mark.parametrize(("old", "new"), [(0.0, 0.03), ([0.0], [0.03]), (None, 0.03), (0.09, None)])
def test_a_plateau_takes_a_changed_lowest_rate(old: Any, new: Any) -> None:
    plateau = partial(torch.optim.lr_scheduler.ReduceLROnPlateau, factor=0.1, patience=0)
    before, after = (partial(plateau, **{} if one is None else {"min_lr": one}) for one in (old, new))
    _, trained = parts(before, 0.1, (0.9, 0.98))
    module, resumed = parts(after, 0.1, (0.9, 0.98))
    checkpoint = {
        "callbacks": {},
        "optimizer_states": [trained.optimizers[0].state_dict()],
        "lr_schedulers": [trained.lr_scheduler_configs[0].scheduler.state_dict()],
    }
    changed = changes({"scheduler": {"min_lr": old}}, {"scheduler": {"min_lr": new}})
    assert adopt(changed, checkpoint, resumed, module) is None
    schedule = resumed.lr_scheduler_configs[0].scheduler
    schedule.load_state_dict(checkpoint["lr_schedulers"][0])
    for loss in (1.0, 2.0, 2.0):
        schedule.step(loss)
    assert resumed.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.001 if new is None else 0.03)


def test_a_lowest_rate_of_each_group_of_parameters_is_adopted() -> None:
    plateau = partial(torch.optim.lr_scheduler.ReduceLROnPlateau, min_lr=[0.01, 0.02])
    optimizer = torch.optim.Adam([{"params": [nn.Parameter(torch.zeros(1))]} for _ in range(2)], lr=0.1)
    saved = plateau(optimizer, min_lr=[0.0, 0.0]).state_dict()
    checkpoint = {"callbacks": {}, "optimizer_states": [optimizer.state_dict()], "lr_schedulers": [saved]}
    changed = changes({"scheduler": {"min_lr": [0.0, 0.0]}}, {"scheduler": {"min_lr": [0.01, 0.02]}})
    module = SimpleNamespace(optimizer=partial(torch.optim.Adam, lr=0.1), scheduler=plateau, parameter_groups=list)
    adopt(changed, checkpoint, SimpleNamespace(callbacks=[]), module)
    assert saved["min_lrs"] == [0.01, 0.02]


def test_a_folder_is_named_and_one_that_begins_alike_is_not() -> None:
    paths = {"run_dir": "/runs/1", "cache_dir": None}
    node = {"own": "/runs/1", "file": "/runs/1/last.ckpt", "other": "/runs/10/last.ckpt"}
    expected = {"own": "${paths.run_dir}", "file": "${paths.run_dir}/last.ckpt", "other": "/runs/10/last.ckpt"}
    assert in_folders(node, paths) == expected


def test_a_reference_in_the_record_of_a_strangers_run_is_not_resolved(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: ${oc.env:HOME}\nmodel: {dropout: 0.1}\n")
    assert read_recorded(tmp_path / "config.yaml") == {"seed": "${oc.env:HOME}", "model": {"dropout": 0.1}}


def test_a_part_is_named_once_and_folders_are_not() -> None:
    saved, now = (
        OmegaConf.to_container(
            composed(
                "model=transformer",
                "attention=multihead",
                f"attention.dropout={dropout}",
                f"paths.run_dir={folder}",
                "choices.attention=null",
                "choices.model=null",
                "choices.data=null",
                *added,
            ),
            resolve=True,
        )
        for dropout, folder, added in (
            (0.1, "/runs/a", []),
            (0.2, "/other/b", ["callback=[default,ema,profile,compile]", "seed=2", "monitor=val/loss"]),
        )
    )
    found = [str(change) for change in changes(saved, now)]
    assert sorted(found) == [
        "attention.dropout 0.1 → 0.2",
        "callback.ema none → EMA",
        "monitor none → val/loss",
        "seed 1 → 2",
    ]
    assert instantiate(now["callback"]["ema"]).decay == 0.999


@pytest.mark.parametrize("command", re.findall(r"^python train\.py (.+)", LONGER, re.MULTILINE))
def test_a_command_of_the_page_for_a_longer_run_composes(command: str) -> None:
    overrides = [word for word in command.split() if not word.startswith("hydra.run.dir=")]
    assert composed(*overrides).trainer.max_epochs == 30


def test_other_devices_do_not_continue_within_an_update() -> None:
    class Data:
        def batches_read(self, state: Any) -> int:
            return 3

    progress: dict[str, Any] = {"total": {"processed": 6}, "current": {"processed": 6}, "is_last_batch": False}
    checkpoint = {Data.__qualname__: None, "loops": {"fit_loop": {"epoch_loop.batch_progress": progress}}}
    trainer = SimpleNamespace(datamodule=Data(), accumulate_grad_batches=2)
    with pytest.raises(
        UserError, match=r"^3 batches of this epoch were read by each device, which trainer.accumulate_g"
    ):
        count_for_devices(checkpoint, trainer)
    trainer.accumulate_grad_batches = 3
    count_for_devices(checkpoint, trainer)
    assert progress == {"total": {"processed": 3}, "current": {"processed": 3}, "is_last_batch": False}
    progress |= {"current": {"processed": 6}, "is_last_batch": True}  # the last update of an epoch may be of fewer
    trainer.accumulate_grad_batches = 2
    count_for_devices(checkpoint, trainer)
    assert progress["current"] == {"processed": 3}
