"""The model of experiment=d2l_fra_eng, compared with Dive into Deep Learning's, 10.4, written in plain PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from configs import built, composed
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.collate import collate_pairs

HIDDEN, LAYERS, STEPS = 32, 2, 10


class AdditiveAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.W_k = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.W_q = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.w_v = nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, query: Tensor, keys: Tensor, valid_lens: Tensor) -> Tensor:
        features = torch.tanh(self.W_q(query)[:, :, None] + self.W_k(keys)[:, None])
        scores = self.w_v(features).squeeze(-1)
        hidden = torch.arange(keys.shape[1]) >= valid_lens[:, None]
        return scores.masked_fill(hidden[:, None], -1e6).softmax(-1) @ keys


class D2L(nn.Module):
    """The book's encoder and decoder; its sequences come first in time, and these in sentences."""

    def __init__(self, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.encoder_embedding = nn.Embedding(source_vocab, HIDDEN)
        self.encoder = nn.GRU(HIDDEN, HIDDEN, LAYERS, batch_first=True)
        self.embedding = nn.Embedding(target_vocab, HIDDEN)
        self.attention = AdditiveAttention()
        self.rnn = nn.GRU(2 * HIDDEN, HIDDEN, LAYERS, batch_first=True)
        self.dense = nn.Linear(HIDDEN, target_vocab)

    def forward(self, source: Tensor, valid_lens: Tensor, target: Tensor) -> Tensor:
        outputs, _ = self.encoder(self.encoder_embedding(source))
        # The book's encoder reads the padding too; packed, its state is that after the end token, as in ours.
        packed = pack_padded_sequence(
            self.encoder_embedding(source), valid_lens, batch_first=True, enforce_sorted=False
        )
        _, state = self.encoder(packed)
        steps = []
        for token in self.embedding(target).unbind(1):
            context = self.attention(state[-1][:, None], outputs, valid_lens)
            output, state = self.rnn(torch.cat([context, token[:, None]], -1), state)
            steps.append(self.dense(output))
        return torch.cat(steps, 1)


def book_loss(logits: Tensor, labels: Tensor, valid_lens: Tensor) -> Tensor:
    """The book's masked softmax cross-entropy: the mean over ten steps, summed over sentences."""
    each = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return (each * (torch.arange(labels.shape[1]) < valid_lens[:, None])).sum(1).div(STEPS).sum()


def copy_weights(theirs: D2L, ours: Any) -> None:
    stack, score = ours.decoder.stack, ours.decoder.attention.score
    pairs = [
        (theirs.encoder_embedding.weight, ours.embed_source.weight),
        (theirs.embedding.weight, ours.embed_target.weight),
        (theirs.attention.W_q.weight, score.project_query.weight),
        (theirs.attention.W_k.weight, score.project_key.weight),
        (theirs.attention.w_v.weight, score.vector),
        (theirs.dense.weight, ours.output.weight),
        (theirs.dense.bias, ours.output.bias),
        # the book's first layer reads [context; token]
        (theirs.rnn.weight_ih_l0, torch.cat([stack.first.found.weight, stack.first.known.weight], 1)),
        (theirs.rnn.bias_ih_l0, stack.first.known.bias),
        (theirs.rnn.weight_ih_l1, stack.above[0].found.weight),
        (theirs.rnn.bias_ih_l1, stack.above[0].found.bias),
    ]
    for layer, cell in enumerate([stack.first, *stack.above]):
        pairs += [(getattr(theirs.rnn, f"weight_hh_l{layer}"), cell.recurrent.weight)]
        pairs += [(getattr(theirs.rnn, f"bias_hh_l{layer}"), cell.recurrent.bias)]
        pairs += [
            (getattr(theirs.encoder, f"{name}_l{layer}"), getattr(ours.encoder.layers[layer], f"{name}_l0"))
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
    with torch.no_grad():
        for their, own in pairs:
            their.copy_(own)
    assert {id(their) for their, _ in pairs} == {id(parameter) for parameter in theirs.parameters()}


def batch_of_ten_tokens() -> Batch:
    generator = torch.Generator().manual_seed(1)
    pairs = [
        [torch.randint(4, size, (length,), generator=generator).tolist() for size, length in ((17, s), (19, t))]
        for s, t in ((9, 9), (4, 7), (1, 2), (9, 3))
    ]
    return collate_pairs([s for s, _ in pairs], [t for _, t in pairs], [0, 1, 2, 3], pad_id=0, bos_id=2, eos_id=3)


@pytest.mark.usefixtures("double")
def test_logits_and_gradients_are_those_of_the_book() -> None:
    vocabularies = ["model.source_vocab_size=17", "model.target_vocab_size=19"]
    ours = built(composed("experiment=d2l_fra_eng", *vocabularies).model).eval()
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.3)  # biases are 0 at first
    theirs, batch = D2L(17, 19).eval(), batch_of_ten_tokens()
    copy_weights(theirs, ours)
    expected = theirs(batch.source, batch.source_lengths, batch.target_input)
    found = ours.logits(ours(batch.source, batch.source_mask, batch.target_input).hidden)
    mask = batch.target_mask
    torch.testing.assert_close(found[mask], expected[mask], rtol=0, atol=1e-12)

    book_loss(expected, batch.target_output, batch.target_lengths).backward()
    book_loss(found, batch.target_output, batch.target_lengths).backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for parameter in ours.parameters():
        assert (parameter.grad != 0).any()
        parameter.data = parameter.grad
    copy_weights(theirs, ours)  # whose weights are their gradients now
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(parameter.data, gradients[name], rtol=0, atol=1e-12)
