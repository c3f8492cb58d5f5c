"""An ensemble has the mean of its members' probabilities, and a search treats it as a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from configs import built, composed, model_of, options
from search.test_greedy import BOS, EOS, MASK, SOURCE, TARGET, peaked
from small_checkpoint import SENTENCES, write_checkpoint
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.models import load_models
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble, log_mean_probability

ROWS = torch.tensor([0, 0, 1, 1, 3, 3])  # two hypotheses of three sentences
SENTENCES_KEPT = torch.tensor([0, 1, 3])
LAST = torch.tensor([4, 5, 6, 7, 8, 9])


@pytest.fixture
def members(double: None) -> list[EncoderDecoder]:
    return [peaked("rnn", "rnn"), peaked("conv", "transformer")]


def second_step(model: Any) -> tuple[Tensor, Tensor]:
    """Return probabilities and attention after two tokens, for some of the sentences."""
    first = model.step(torch.full((4,), BOS), model.encode(SOURCE, MASK))
    state = first.state.branch(ROWS).keep(SENTENCES_KEPT)
    log_probs, _, attention = model.step(LAST, state, need_weights=True)
    return log_probs.exp(), attention


def test_probabilities_and_attention_are_the_mean_of_the_members(members: list[EncoderDecoder]) -> None:
    probabilities, attention = zip(*map(second_step, members), strict=True)
    assert (probabilities[0] - probabilities[1]).abs().max() > 0.1
    of_both = second_step(Ensemble(members))
    torch.testing.assert_close(of_both[0], sum(probabilities) / 2)
    torch.testing.assert_close(of_both[1], sum(attention) / 2)


def test_a_certain_member_outweighs_an_uncertain_one() -> None:
    log_probs = [torch.tensor([[0.8, 0.1, 0.1]]).log(), torch.tensor([[0.0, 0.5, 0.5]]).log()]
    torch.testing.assert_close(log_mean_probability(log_probs).exp(), torch.tensor([[0.4, 0.3, 0.3]]))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("decoder", options("decoder"))
def test_twice_the_same_model_is_that_model(decoder: str) -> None:
    model = peaked(decoder=decoder)
    twice = Ensemble([model, model])
    for found, expected in zip(second_step(twice), second_step(model), strict=True):
        torch.testing.assert_close(found, expected)
    search = built(composed("search.limits.max_length=11").search)
    for (best,), (other,) in zip(*(search(m, SOURCE, MASK, TARGET) for m in (model, twice)), strict=True):
        assert best.token_ids == other.token_ids
        assert best.log_prob == pytest.approx(other.log_prob, abs=1e-9)


@pytest.mark.parametrize("name", ["greedy", "beam"])
def test_a_search_translates_with_it_and_reports_the_mean_probability(members: list[EncoderDecoder], name: str) -> None:
    ensemble, search = (Ensemble(members), built(composed(f"search={name}", "search.limits.max_length=11").search))
    together = search(ensemble, SOURCE, MASK, TARGET)
    assert any(
        best.token_ids != alone.token_ids
        for member in members
        for (best, *_), (alone, *_) in zip(together, search(member, SOURCE, MASK, TARGET), strict=True)
    )
    for row, length in enumerate(MASK.sum(-1).tolist()):
        source, mask = SOURCE[row : row + 1, :length], MASK[row : row + 1, :length]
        best = together[row][0]
        assert search(ensemble, source, mask, TARGET)[0][0].token_ids == best.token_ids
        target = torch.tensor([[BOS, *best.token_ids]])
        forced = [m.logits(m(source, mask, target).hidden).log_softmax(-1) for m in members]
        tokens = torch.tensor([[*best.token_ids, EOS]])
        expected = log_mean_probability(forced).gather(-1, tokens[..., None]).sum()
        assert best.log_prob == pytest.approx(expected.item(), abs=1e-9)


def test_its_max_length_is_the_smallest_of_its_members() -> None:
    def of(length: int) -> EncoderDecoder:
        return model_of("attention=synthesizer_random", f"attention.score.max_length={length}")

    assert Ensemble([of(13), model_of(), of(11)]).max_length == 11
    assert Ensemble([model_of()]).max_length is None


def test_vocabularies_of_different_sizes_are_refused() -> None:
    with pytest.raises(UserError, match=r"but its 2 models have target vocabularies of \[19, 23\] tokens; use models"):
        Ensemble([model_of(), model_of(target_vocab_size=23)])
    with pytest.raises(UserError, match=r"but its 2 models have source vocabularies of \[17, 23\] tokens; use models"):
        Ensemble([model_of(), model_of(source_vocab_size=23)])
    sizes = ("model.source_vocab_size=17", "model.target_vocab_size=19")
    assert Ensemble([model_of(), built(composed("model=lm", *sizes).model)]).reads_source  # the second reads no source


def test_checkpoints_of_one_tokenizer_are_loaded_together(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_checkpoint(tmp_path / f"{seed}" / "checkpoints" / "best.ckpt", seed=seed)
    loaded = load_models([str(tmp_path / "0"), str(tmp_path / "1" / "checkpoints" / "best.ckpt")], "cpu")
    assert isinstance(loaded.model, Ensemble)
    assert not loaded.model.training
    weights = [member.output.weight for member in loaded.model.members]
    assert len(weights) == 2
    assert (weights[0] - weights[1]).abs().max() > 0.01
    assert isinstance(load_models([str(tmp_path / "0")], "cpu").model, EncoderDecoder)
    (ids,) = loaded.tokenizer.encode_source(["the dog"])
    found = built(composed("search.limits.max_length=11").search)(
        loaded.model, torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), TARGET
    )
    assert len(found) == 1


def test_checkpoints_of_two_tokenizers_are_refused_by_name(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt")
    write_checkpoint(tmp_path / "b.ckpt", sentences=[*SENTENCES, "grün"])
    with pytest.raises(UserError, match=r"a\.ckpt and .*b\.ckpt have different tokenizers, and an ensemble needs one"):
        load_models([str(tmp_path / "a.ckpt"), str(tmp_path / "a.ckpt"), str(tmp_path / "b.ckpt")], "cpu")


def test_no_checkpoint_is_refused() -> None:
    with pytest.raises(UserError, match=r"^ckpt_path=\[\] names no checkpoint; give a run folder or a \.ckpt file"):
        load_models([], "cpu")


REFUSED_TOGETHER = {
    "data.source_language=fr data.target_language=en": (
        r"a\.ckpt translates from en to fr, and \S+b\.ckpt translates from fr to en, but an ensemble needs one "
        r"direction; give another run \(languages that a run only names wrongly are corrected in config.json of"
    ),
    "data.target_language=de": r"a\.ckpt translates from en to fr, and \S+b\.ckpt translates from en to de, but",
    "data.cleaning.lowercase=true": (
        r"a\.ckpt was trained with data.cleaning.lowercase=false and \S+b\.ckpt with true, and an ensemble reads one "
        r"text; give runs with the same options of data.cleaning$"
    ),
    "data.cleaning.split_punctuation=true": r"with data.cleaning.split_punctuation=false and \S+b\.ckpt with true, and",
}


@pytest.mark.parametrize("options", REFUSED_TOGETHER)
def test_runs_of_other_languages_or_another_cleaning_are_no_ensemble(options: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt")
    write_checkpoint(tmp_path / "b.ckpt", *options.split())
    with pytest.raises(UserError, match=REFUSED_TOGETHER[options]):
        load_models([str(tmp_path / "a.ckpt"), str(tmp_path / "b.ckpt")], "cpu")


@pytest.mark.parametrize(
    "options",
    [
        "data.target_language=FR",
        "data.source_language=both data.target_language=both",  # which says nothing of the direction
        "data.cleaning.max_words=7",
    ],
)
def test_languages_that_name_no_direction_and_filters_of_pairs_refuse_no_ensemble(options: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.ckpt")
    write_checkpoint(tmp_path / "b.ckpt", *options.split())
    assert len(load_models([str(tmp_path / "a.ckpt"), str(tmp_path / "b.ckpt")], "cpu").members) == 2
