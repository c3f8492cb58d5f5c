"""DDP lets every attention take its steps: it refuses a model that leaves a parameter out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from configs import attentions_at_once, model_of, options
from distributed.ranks import on_ranks
from distributed.test_many_devices import connect, data, tokenizer
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seq2seq_attn.attention.build import option_reads_history
from seq2seq_attn.batch import Batch
from seq2seq_attn.training.loss import label_smoothed_cross_entropy
from seq2seq_attn.training.reinforce import Reinforce, drawn_loss

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")  # Python 3.12's


class Training(nn.Module):
    """A model's loss as the forward pass that DDP watches."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.reinforce = model, Reinforce(momentum=0.9)

    def forward(self, batch: Batch) -> Tensor:
        decoded = self.model(batch.source, batch.source_mask, batch.target_input)
        hidden, target = decoded.hidden[batch.target_mask], batch.target_output[batch.target_mask]
        loss = label_smoothed_cross_entropy(hidden, self.model.output.weight, self.model.output.bias, target, 0.1)
        drawn = drawn_loss(self.reinforce, batch, loss.loss_by_token, decoded)
        return loss.smoothed if drawn is None else loss.smoothed + drawn


def two_steps(folder: Path, models: dict[str, Any]) -> list[str]:
    """Names of those that DDP lets take them: at the second it refuses one that left a parameter out of the first."""
    connect()
    done, batch = [], data(folder).train_dataloader().dataset[0]
    for name, model in models.items():
        training = DistributedDataParallel(Training(model.train()))
        for _ in range(2):
            training(batch).backward()
        done.append(name)
    return done


def check_no_parameter_is_unused(folder: Path, models: list[str], attentions: list[str]) -> None:
    data(folder)
    size = tokenizer().source_vocab_size
    wide = [f"model.{part}dim=16" for part in ("embedding_", "encoder.", "decoder.")]  # for eight heads
    built = {
        f"{model} {attention}": model_of(
            f"model={model}", f"attention={attention}", *wide, source_vocab_size=size, target_vocab_size=size
        )
        for model in models
        for attention in attentions
    }
    assert on_ranks(2, two_steps, folder, folder, built) == [list(built)] * 2


# Of those that read no query, or draw: the ConvS2S decoder has a layer for queries alone.
@pytest.mark.parametrize("attention", ["none", "synthesizer_random", "luong_location", "hard", "local_p"])
def test_ddp_finds_no_unused_parameter_in_an_attention_that_could_have_one(attention: str, tmp_path: Path) -> None:
    check_no_parameter_is_unused(tmp_path, ["conv"], [attention])


@pytest.mark.slow
def test_ddp_finds_no_unused_parameter_in_any_attention(tmp_path: Path) -> None:
    models = [model for model in options("model") if model != "lm"]  # the decoder of a Transformer
    check_no_parameter_is_unused(tmp_path, models, attentions_at_once())


@pytest.mark.slow
def test_ddp_finds_no_unused_parameter_in_an_attention_that_reads_its_history(tmp_path: Path) -> None:
    reading = [preset for preset in options("attention") if option_reads_history(preset)]
    assert reading
    check_no_parameter_is_unused(tmp_path, ["rnn"], reading)
