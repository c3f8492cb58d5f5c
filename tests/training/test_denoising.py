"""objective=denoising: pre-training on one-sided text, the same when resumed, and a start for fine-tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import compose_train
from omegaconf import OmegaConf
from one_sided import run_on_text, write_text
from shared_folder import shared_folder
from small_run import KilledError, begun, rows, weights

from seq2seq_attn.checkpoint.load import find_checkpoint, load
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.errors import UserError
from seq2seq_attn.evaluation.evaluate import evaluate_splits
from seq2seq_attn.inference import export_ctranslate2
from seq2seq_attn.inference.models import load_models
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.search.search import TargetVocabulary
from seq2seq_attn.training.build import build
from seq2seq_attn.training.check_config import check_config

DENOISING = ["model=transformer", "model.encoder.dim=12", "model.encoder.num_layers=1", "model.decoder.num_layers=1"]
DENOISING += ["objective=denoising", "objective.num_sentinels=8", "tokenizer.vocab_size=48"]
KILLED = "+callback.killed={_target_:small_run.Killed,hook:batch_end,step:5}"

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        run_on_text(folder / "run", write_text(folder), *DENOISING)

    return shared_folder(tmp_path_factory, "denoising", make) / "run"


def data_of(run: Path, *overrides: str, options: list[str] = DENOISING) -> TranslationDataModule:
    given = ["data=text", f"data.train={run.parent / 'text.txt'}", f"paths.cache_dir={run.parent / 'cache'}"]
    small = ["metric=[]", "recipe=none", "model.embedding_dim=12", "model.decoder.dim=12", "attention.num_heads=2"]
    config = compose_train(*options, *given, *small, "callback=[]", "batch_tokens=300", *overrides)
    config.paths.run_dir = str(run)
    config.choices = dict.fromkeys(config.choices)
    return build(config)[1]


def noise_of(data: TranslationDataModule, epoch: int, row: int, stage: str = "train") -> list[Any]:
    loader = data.train_dataloader() if stage == "train" else data.val_dataloader()
    loader.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]
    batch = loader.dataset[row]
    return [batch.source.tolist(), batch.target_output.tolist()]


@pytest.mark.slow
def test_noise_is_a_function_of_seed_epoch_and_row(run: Path) -> None:
    data, again, other = data_of(run), data_of(run), data_of(run, "seed=2")
    found = [noise_of(data, epoch, row) for epoch in (0, 1) for row in (5, 6, 7)]
    assert found == [noise_of(again, epoch, row) for epoch in (0, 1) for row in (5, 6, 7)]
    assert found[:3] != found[3:]
    assert found[:3] != [noise_of(other, 0, row) for row in (5, 6, 7)]
    validated = [noise_of(data, 0, row, "val") for row in range(8)]
    assert validated == [noise_of(again, 1, row, "val") for row in range(8)]
    # The noise of a row does not depend on its batch.
    batch = data.train_dataloader().dataset.__getitems__([5, 9])  # type: ignore[attr-defined]
    length = len(found[0][0][0])
    assert batch.source[0, :length].tolist() == found[0][0][0]


def test_a_run_learns_from_it_and_has_losses_alone(run: Path) -> None:
    found = json.loads((run / "results.json").read_text())
    assert found["test/ppl"] > 1
    assert not [name for name in found if name.startswith("test/b")]
    losses = [float(row["train/loss"]) for row in rows(run) if row["train/loss"]]
    assert losses[-1] < losses[0]
    tokenizer = load(str(run)).tokenizer
    assert len(tokenizer.sentinels) == 8
    assert set(tokenizer.sentinels) <= set(TargetVocabulary.of(tokenizer).banned_ids)
    assert tokenizer.decode_target([[tokenizer.sentinels[0], 20, tokenizer.sentinels[1]]]) == tokenizer.decode_target(
        [[20]]
    )


@pytest.mark.slow
def test_a_run_that_was_killed_resumes_to_the_same_numbers(run: Path, tmp_path: Path) -> None:
    text = run.parent / "text.txt"
    with pytest.raises(KilledError):
        run_on_text(tmp_path / "run", text, *DENOISING, KILLED, "callback.autosave.every_steps=1")
    run_on_text(tmp_path / "run", text, *DENOISING, "resume=auto")
    assert begun[-1] == 4
    ours, theirs = weights(tmp_path / "run", "last.ckpt"), weights(run, "last.ckpt")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert [row["train/loss"] for row in rows(tmp_path / "run")] == [row["train/loss"] for row in rows(run)]


@pytest.mark.slow
def test_infilling_trains_too(run: Path, tmp_path: Path) -> None:
    others = [o for o in DENOISING if not o.startswith(("objective", "tokenizer"))]
    found = run_on_text(
        tmp_path / "run", run.parent / "text.txt", *others, "objective=infilling", "trainer.max_steps=2"
    )
    assert found["test/loss"] > 0


@pytest.mark.slow
def test_the_model_is_fine_tuned_with_its_vocabulary(run: Path, pairs: list[str], tmp_path: Path) -> None:
    from small_run import run_here

    loaded = load(str(run))
    config = loaded.config
    sizes = ["model=transformer", "model.encoder.num_layers=1", "model.decoder.num_layers=1", "attention.num_heads=2"]
    sizes += ["attention=multihead", "tokenizer.sampling_alpha=0.0", "model.dropout=0.0", "tokenizer.joint=true"]
    sizes += ["tokenizer.vocab_size=48", "trainer.max_steps=1", f"init_from.run={run}"]
    found = run_here(tmp_path / "run", *pairs, *sizes)
    assert "test/bleu" in found
    tuned = load(str(tmp_path / "run"))
    assert tuned.tokenizer.fingerprint == loaded.tokenizer.fingerprint
    assert tuned.config.get("objective") is None
    assert config["objective"] is not None


def test_a_model_that_restores_text_does_not_translate(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Translator.load(run, device="cpu")
    (message,) = caplog.messages
    assert "is pre-trained to restore text, and has not learned to translate; fine-tune it with" in message
    checkpoint = torch.load(find_checkpoint(str(run)), weights_only=True)
    torch.save(checkpoint | {"config": checkpoint["config"] | {"objective": None}}, tmp_path / "tuned.ckpt")
    Translator.load([tmp_path / "tuned.ckpt", run], device="cpu")
    assert caplog.messages == [message] * 2  # also as the second of an ensemble
    both = load_models([str(tmp_path / "tuned.ckpt"), str(run)], "cpu")
    with pytest.raises(UserError, match=r"best.ckpt is pre-trained to restore text, and its results.json has its loss"):
        evaluate_splits(OmegaConf.create({}), both, tmp_path, ())
    loaded = load(str(run))
    with pytest.raises(UserError, match=r"^a model that is pre-trained to restore text does not translate"):
        export_ctranslate2.check(loaded.model, loaded.config)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="model=lm has none"):
        check_config(compose_train("model=lm", "objective=denoising"))
    with pytest.raises(UserError, match=r"metric\.bleu compares"):
        check_config(compose_train("objective=denoising", "metric=[bleu]"))


@pytest.mark.parametrize("objective", ["denoising", "infilling"])
def test_batches_with_noise_keep_to_the_budget(objective: str, run: Path) -> None:
    infilling = [*DENOISING[:4], "objective=infilling", "tokenizer.vocab_size=40"]
    data = data_of(run, options=DENOISING if objective == "denoising" else infilling)
    tokens = [batch.source.numel() + batch.target_input.numel() for batch in data.train_dataloader()]
    assert len(tokens) > 3
    assert max(tokens) <= 1.1 * 300
    assert max(tokens) > 0.7 * 300
    data.eval_batch_tokens = 150
    tokens = [batch.source.numel() + batch.target_input.numel() for batch in data.val_dataloader()]
    assert len(tokens) > 1
    assert 0.7 * 150 < max(tokens) <= 1.1 * 150
