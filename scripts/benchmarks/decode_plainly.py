"""Greedy and beam search in plain PyTorch, as one would write it in an afternoon: a baseline for `decoding.py`.

Keys and values are cached and extended by `torch.cat`; every hypothesis has its own copy of the source; rows are
reordered by `index_select`; finished sentences leave the batch. It uses the weights of a pre-norm Transformer of ours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.attention.score.scaled_dot import ScaledDotScore
from seq2seq_attn.decoder.transformer import TransformerDecoder
from seq2seq_attn.encoder.transformer import TransformerEncoder
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.position.sinusoidal import SinusoidalPosition, sinusoids
from seq2seq_attn.search.search import TargetVocabulary

POSITIONS = 1024
Pair = tuple[Tensor, Tensor]  # keys and values, each (rows, heads, length, width)


class PlainTransformer:
    """A decoder of our weights, with one packed matrix for the queries, keys and values of one input.

    Raises:
        UserError: if the model is not a pre-norm Transformer with sinusoidal positions and scaled dot products.
    """

    def __init__(self, model: EncoderDecoder, target: TargetVocabulary) -> None:
        for side, of in ((model.encoder, TransformerEncoder), (model.decoder, TransformerDecoder)):
            plain = isinstance(side, of) and isinstance(side.norm, nn.LayerNorm) and not getattr(side, "causal", False)
            plain = plain and all(
                isinstance(part.score, ScaledDotScore) for part in side.modules() if isinstance(part, Attention)
            )
            if not (plain and isinstance(side.position, SinusoidalPosition) and side.position.join.project is None):
                raise UserError(
                    "the plain loop supports only model=transformer with norm=pre, position=sinusoidal, "
                    "attention=multihead and an encoder that is not causal; use such a run"
                )
        self.model, self.bos_id, self.eos_id = model, target.bos_id, target.eos_id
        self.banned = torch.tensor(target.banned_ids)
        self.table = sinusoids(POSITIONS, model.embed_source.embedding_dim, model.encoder.position.base).float()
        self.read, self.write = (list(side.layers) for side in (model.encoder, model.decoder))
        self.heads = self.write[0].cross_attention.num_heads
        self.packed = {layer: packed(layer.attention, 3) for layer in self.read}
        self.packed |= {layer: packed(layer.self_attention, 3) for layer in self.write}
        self.source = {layer: packed(layer.cross_attention, 2) for layer in self.write}

    def encode(self, tokens: Tensor, mask: Tensor) -> list[Pair]:
        """Return keys and values of the source for each layer of the decoder."""
        x = self.model.embed_source(tokens) * self.model.scale + self.table[: tokens.shape[1]]
        for layer in self.read:
            query, keys, values = self.split(F.linear(layer.attention_residual.before(x), *self.packed[layer]), 3)
            attended = F.scaled_dot_product_attention(query, keys, values, mask[:, None, None])
            x = x + output(layer.attention, attended)
            x = x + layer.feed_forward(layer.feed_forward_residual.before(x))
        x = self.model.encoder.norm(x)
        return [self.split(F.linear(x, *self.source[layer]), 2) for layer in self.write]

    def step(
        self, last: Tensor, position: int, caches: list[Pair], sources: list[Pair], mask: Tensor
    ) -> tuple[Tensor, list[Pair]]:
        """Return the logits of the next token, and the caches extended by this one."""
        x, grown = self.model.embed_target(last)[:, None] * self.model.scale + self.table[position], []
        for i, layer in enumerate(self.write):
            query, key, value = self.split(F.linear(layer.self_residual.before(x), *self.packed[layer]), 3)
            if caches:
                key, value = torch.cat([caches[i][0], key], 2), torch.cat([caches[i][1], value], 2)
            grown.append((key, value))
            x = x + output(layer.self_attention, F.scaled_dot_product_attention(query, key, value))
            (query,) = self.split(layer.cross_attention.score.project_query(layer.cross_residual.before(x)), 1)
            attended = F.scaled_dot_product_attention(query, *sources[i], mask[:, None, None])
            x = x + output(layer.cross_attention, attended)
            x = x + layer.feed_forward(layer.feed_forward_residual.before(x))
        return self.model.output(self.model.decoder.norm(x)[:, 0]), grown

    def split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        return x.unflatten(-1, (parts, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    @torch.inference_mode()
    def greedy(self, tokens: Tensor, mask: Tensor, most: int, least: int = 0) -> list[list[int]]:
        """Return at least `least` and at most `most` tokens for each sentence."""
        sources, caches = self.encode(tokens, mask), []
        rows, last = torch.arange(len(tokens)), torch.full((len(tokens),), self.bos_id)
        written = torch.full((len(tokens), most), self.eos_id)
        for position in range(most):
            logits, caches = self.step(last, position, caches, sources, mask)
            logits[:, self.banned] = -torch.inf
            if position < least:
                logits[:, self.eos_id] = -torch.inf
            last = logits.argmax(-1)
            written[rows, position] = last
            unfinished = (last != self.eos_id).nonzero()[:, 0]
            if len(unfinished) == 0:
                break
            if len(unfinished) < len(rows):
                rows, last, mask = rows[unfinished], last[unfinished], mask[unfinished]
                caches, sources = picked(caches, unfinished), picked(sources, unfinished)
        return [before(row, self.eos_id) for row in written.tolist()]

    @torch.inference_mode()
    def beam(self, tokens: Tensor, mask: Tensor, most: int, size: int, alpha: float) -> list[list[int]]:
        """Run beam search with Wu's penalty; a sentence stops after `size` finished hypotheses, or if none can win."""
        batch, vocabulary = len(tokens), self.model.output.out_features
        sources = [(k.repeat_interleave(size, 0), v.repeat_interleave(size, 0)) for k, v in self.encode(tokens, mask)]
        mask, caches = mask.repeat_interleave(size, 0), []
        sentences, last = torch.arange(batch), torch.full((batch * size,), self.bos_id)
        totals = torch.full((batch, size), -torch.inf)
        totals[:, 0] = 0.0
        written = torch.empty(batch, size, 0, dtype=torch.long)
        best, count = torch.full((batch,), -torch.inf), torch.zeros(batch, dtype=torch.long)
        token_ids: list[list[int]] = [[] for _ in range(batch)]
        for position in range(most + 1):
            logits, caches = self.step(last, position, caches, sources, mask)
            log_probs = logits.log_softmax(-1)
            log_probs[:, self.banned] = -torch.inf
            if position == most:
                log_probs[:, torch.arange(vocabulary) != self.eos_id] = -torch.inf
            scores = (totals[..., None] + log_probs.unflatten(0, (-1, size))).flatten(1)
            top, index = scores.topk(2 * size, -1)  # at least half of them are unfinished
            beam, token = index // vocabulary, index % vocabulary
            ended = token == self.eos_id
            finished = (ended & (top > -torch.inf))[:, :size]
            count[sentences] += finished.sum(-1)
            at_best, which = top[:, :size].where(finished, -torch.inf).max(-1)
            at_best = at_best / ((6 + position) / 6) ** alpha
            for row in (at_best > best[sentences]).nonzero()[:, 0].tolist():
                best[sentences[row]] = at_best[row]
                token_ids[sentences[row]] = written[row, beam[row, which[row]]].tolist()
            order = ended.int().argsort(dim=-1, stable=True)[:, :size]
            totals = top.where(~ended, -torch.inf).gather(-1, order)
            beam, token = beam.gather(-1, order), token.gather(-1, order)
            bound = totals[:, 0] / ((6 + most) / 6) ** alpha
            kept = ((bound > best[sentences]) & (count[sentences] < size)).nonzero()[:, 0]
            if len(kept) == 0:
                break
            rows = (kept[:, None] * size + beam[kept]).flatten()
            written = torch.cat([written.flatten(0, 1)[rows].unflatten(0, (-1, size)), token[kept][..., None]], -1)
            if len(kept) < len(sentences):
                sources, mask = picked(sources, rows), mask[rows]
            caches = picked(caches, rows)
            sentences, totals, last = sentences[kept], totals[kept], token[kept].flatten()
        return token_ids


def packed(attention: nn.Module, parts: int) -> tuple[Tensor, Tensor | None]:
    """Return the concatenated weight and bias of the last `parts` of query, key and value projections."""
    linears = [*attention.score.projections, attention.project_values][-parts:]
    weight = torch.cat([linear.weight for linear in linears]).detach()
    if linears[0].bias is None:
        return weight, None
    return weight, torch.cat([linear.bias for linear in linears]).detach()


def output(attention: nn.Module, attended: Tensor) -> Tensor:
    return attention.project_output[0](attended.transpose(1, 2).flatten(2))


def picked(pairs: list[Pair], rows: Tensor) -> list[Pair]:
    return [(keys.index_select(0, rows), values.index_select(0, rows)) for keys, values in pairs]


def before(row: list[int], end: int) -> list[int]:
    return row[: row.index(end)] if end in row else row
