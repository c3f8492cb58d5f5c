"""Training in plain PyTorch, as one would write it in a day: a baseline for `training.py`, which starts it.

Our two models written with modules of PyTorch, and a training loop: batches of our sampler, forward, loss, backward,
clipping, Adam. There is no logging, progress bar, schedule or checkpoint.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from scripts.benchmarks.pace_training import Pace
from seq2seq_attn.batch import Batch
from seq2seq_attn.data.batch_sampler import TokenBatchSampler
from seq2seq_attn.data.collate import collate
from seq2seq_attn.data.encoded import open_encoded
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.training.loss import label_smoothed_cross_entropy

POSITIONS = 1024


@reports_user_errors
def main(folder: Path, loss: str) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    torch.manual_seed(settings["seed"])
    model = MODELS[settings["model"]](settings)
    optimizer = torch.optim.Adam(model.parameters(), settings["lr"], betas=(0.9, 0.98), eps=1e-9, fused=True)
    pace = Pace.of_benchmark()
    model.train()
    for batch in batches(folder, settings):
        optimizer.zero_grad()
        LOSSES[loss](model, batch, settings["smoothing"]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
        optimizer.step()
        paced(pace, batch)


def batches(folder: Path, settings: dict[str, Any]) -> Iterator[Batch]:
    """Yield the batches of our training in its order, without end."""
    split = open_encoded(folder / "encoded")
    sampler = TokenBatchSampler(
        split, starts=split.starts, batch_tokens=settings["batch_tokens"], shuffle=True, seed=settings["seed"]
    )
    specials = {name: settings[name] for name in ("pad_id", "bos_id", "eos_id")}
    while True:
        for rows in sampler:
            yield collate(split, rows, **specials)
        sampler.set_epoch(sampler.epoch + 1)


def paced(pace: Pace, batch: Batch) -> None:
    tokens = int(batch.source_lengths.sum() + batch.target_lengths.sum())
    pace.updated(tokens, batch.source.numel() + batch.target_output.numel())


@final
class Transformer(nn.Module):
    """A pre-norm Transformer with packed queries, keys and values, and tied embeddings."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        dim, self.pad_id = settings["dim"], settings["pad_id"]
        self.embed = nn.Embedding(settings["tokens"], dim)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)
        self.dropout = nn.Dropout(settings["dropout"])
        self.encoder = nn.ModuleList(Layer(settings, reads_source=False) for _ in range(settings["layers"]))
        self.decoder = nn.ModuleList(Layer(settings, reads_source=True) for _ in range(settings["layers"]))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.output = nn.Linear(dim, settings["tokens"])
        self.output.weight = self.embed.weight
        self.register_buffer("positions", sinusoids(POSITIONS, dim), persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        mask = batch.source_mask[:, None, None]
        x = self._embedded(batch.source)
        for layer in self.encoder:
            x = layer(x, mask)
        memory = self.encoder_norm(x)
        x = self._embedded(batch.target_input)
        for layer in self.decoder:
            x = layer(x, mask, memory)
        return self.decoder_norm(x)

    def _embedded(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embed(tokens) * self.embed.embedding_dim**0.5 + self.positions[: tokens.shape[1]])


@final
class Layer(nn.Module):
    """A layer of the encoder or, with `reads_source`, of the decoder, where it is causal."""

    def __init__(self, settings: dict[str, Any], reads_source: bool) -> None:
        super().__init__()
        dim, self.heads, self.causal = settings["dim"], settings["heads"], reads_source
        self.joined, self.merge = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        if reads_source:
            self.query, self.source = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
            self.source_merge = nn.Linear(dim, dim, bias=False)
        self.expand, self.reduce = (nn.Linear(dim, settings["ff_dim"]), nn.Linear(settings["ff_dim"], dim))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3 if reads_source else 2))
        self.dropout = nn.Dropout(settings["dropout"])

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None = None) -> Tensor:
        query, keys, values = (self._heads(part) for part in self.joined(self.norms[0](x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(
            query, keys, values, None if self.causal else mask, is_causal=self.causal
        )
        x = x + self.dropout(self.merge(attended.transpose(1, 2).flatten(2)))
        if memory is not None:
            query = self._heads(self.query(self.norms[1](x)))
            keys, values = (self._heads(part) for part in self.source(memory).chunk(2, -1))
            attended = F.scaled_dot_product_attention(query, keys, values, mask)
            x = x + self.dropout(self.source_merge(attended.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.reduce(F.relu(self.expand(self.norms[-1](x)))))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


@final
class Recurrent(nn.Module):
    """A bidirectional GRU and a GRU decoder with additive attention, input feeding and tied embeddings."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        dim, self.pad_id = settings["dim"], settings["pad_id"]
        self.embed = nn.Embedding(settings["tokens"], dim)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)
        self.encoder = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(dim, dim)
        self.cell = nn.GRUCell(2 * dim, dim)
        self.query, self.keys = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.score = nn.Linear(dim, 1, bias=False)
        self.combine = nn.Linear(2 * dim, dim)
        self.dropout = nn.Dropout(settings["dropout"])
        self.output = nn.Linear(dim, settings["tokens"])
        self.output.weight = self.embed.weight

    def forward(self, batch: Batch) -> Tensor:
        packed = pack_padded_sequence(
            self.dropout(self.embed(batch.source)), batch.source_lengths, batch_first=True, enforce_sorted=False
        )
        packed, last = self.encoder(packed)
        values = self.dropout(pad_packed_sequence(packed, batch_first=True)[0])
        keys = self.keys(values)
        hidden = torch.tanh(self.bridge(last.transpose(0, 1).flatten(1)))
        fed, outputs = torch.zeros_like(hidden), []
        for embedded in self.dropout(self.embed(batch.target_input)).unbind(1):
            hidden = self.cell(torch.cat([embedded, fed], -1), hidden)
            scores = self.score(torch.tanh(self.query(hidden)[:, None] + keys))[..., 0]
            weights = scores.masked_fill(~batch.source_mask, -math.inf).softmax(-1)
            context = (weights[:, None] @ values)[:, 0]
            fed = self.dropout(torch.tanh(self.combine(torch.cat([context, hidden], -1))))
            outputs.append(fed)
        return torch.stack(outputs, 1)


MODELS = {"transformer": Transformer, "rnn": Recurrent}


def chunked(model: nn.Module, batch: Batch, smoothing: float) -> Tensor:
    """Return our loss."""
    hidden, target = model(batch)[batch.target_mask], batch.target_output[batch.target_mask]
    loss = label_smoothed_cross_entropy(hidden, model.output.weight, model.output.bias, target, smoothing)
    return loss.smoothed / loss.tokens


def cross_entropy(model: nn.Module, batch: Batch, smoothing: float) -> Tensor:
    """Return PyTorch's loss, for which all logits are stored."""
    logits = model.output(model(batch)).flatten(0, 1)
    return F.cross_entropy(logits, batch.target_output.flatten(), ignore_index=model.pad_id, label_smoothing=smoothing)


LOSSES = {"chunked": chunked, "cross_entropy": cross_entropy}


def sinusoids(length: int, dim: int) -> Tensor:
    angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, dim, 2) / dim)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
