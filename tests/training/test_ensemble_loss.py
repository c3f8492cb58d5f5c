"""The loss of an ensemble is training's for one model, and for several that of their mean probability."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from configs import model_of

from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.model.ensemble import Ensemble
from seq2seq_attn.training.ensemble_loss import ensemble_cross_entropy
from seq2seq_attn.training.loss import CHUNK, label_smoothed_cross_entropy
from seq2seq_attn.training.translation_module import TranslationModule

pytestmark = pytest.mark.usefixtures("double")
SOURCES = [[4, 5, 6, 7, 8], [9, 10], [11]] * 23
TARGETS = [[4, 5, 6], [7], [8, 9, 10, 11, 12, 13, 14]] * 23
BATCH = collate_pairs(SOURCES, TARGETS, range(len(SOURCES)), pad_id=0, bos_id=2, eos_id=3)


def test_one_model_has_the_loss_of_training_in_every_part() -> None:
    assert int(BATCH.target_mask.sum()) > CHUNK  # more than one chunk
    model = model_of().eval()
    found, decoded = ensemble_cross_entropy([model], BATCH, 0.1)
    expected = label_smoothed_cross_entropy(
        decoded.hidden[BATCH.target_mask],
        model.output.weight,
        model.output.bias,
        BATCH.target_output[BATCH.target_mask],
        0.1,
        count_correct=True,
    )
    for name in ("smoothed", "nll", "token_nll", "loss_by_token", "correct"):
        assert torch.allclose(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12), name
    assert found.tokens == expected.tokens


def test_two_models_give_a_token_the_mean_of_their_probabilities() -> None:
    models = [model_of().eval(), model_of().eval()]
    probabilities = []
    for model in models:
        logits = model.logits(model(BATCH.source, BATCH.source_mask, BATCH.target_input).hidden)
        probabilities.append(logits.softmax(-1)[BATCH.target_mask])
    mean = (probabilities[0] + probabilities[1]) / 2
    target = BATCH.target_output[BATCH.target_mask]
    found, decoded = ensemble_cross_entropy(models, BATCH, 0.1, need_weights=True)
    assert torch.allclose(found.token_nll, -mean.gather(-1, target[:, None])[:, 0].log(), atol=1e-12)
    assert found.correct == (mean.argmax(-1) == target).sum()
    assert found.smoothed.item() == pytest.approx((0.9 * found.nll - 0.1 * mean.log().mean(-1).sum()).item())
    assert {slot.rpartition("/")[2] for slot in decoded.weights} == {"0", "1"}
    assert all(slot.count("/") == 2 for slot in decoded.weights)


def test_a_module_smooths_the_loss_of_an_ensemble_as_that_of_a_model() -> None:
    model = model_of().eval()
    smoothed = []
    for tested in (model, Ensemble([model, model])):
        module = SimpleNamespace(
            model=tested, label_smoothing=0.3, guided_alignment=None, r_drop_alpha=0.0, training=False
        )
        loss, _ = TranslationModule.loss(module, BATCH, count_correct=True)
        smoothed.append(loss.smoothed.item())
    assert smoothed[1] == pytest.approx(smoothed[0], rel=1e-12)
