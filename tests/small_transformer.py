"""A Transformer with random weights that says something, for those who decode it in two ways."""

from __future__ import annotations

import random

import torch
from configs import built, composed
from omegaconf import OmegaConf
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.checkpoint.load import Loaded
from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

WORDS = [f"w{i}" for i in range(11)]
DIM, HEADS = 24, 3
LENGTHS = (1, 5, 2, 4, 3, 6, 2, 5)


def sentences(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> list[str]:
    """Of words that the tokenizer knows."""
    drawn = random.Random(seed)
    return [" ".join(drawn.choices(WORDS, k=length)) for length in lengths]


def small_transformer(*overrides: str, joint: bool = True, noise: float = 0.2) -> Loaded:
    """With `noise` no weight is what it began with: no bias is 0, no norm's weight is 1."""
    tokenizer = SentencePieceTokenizer("word", 100, joint=joint, sampling_alpha=0.0, cache_dir=None)
    tokenizer.train([" ".join(WORDS)], [" ".join(WORDS if joint else WORDS[:7])])
    sizes = [f"model.{side}.{size}" for side in ("encoder", "decoder") for size in (f"dim={DIM}", "num_layers=2")]
    config = composed(
        "model=transformer",
        f"model.embedding_dim={DIM}",
        *sizes,
        f"attention.num_heads={HEADS}",
        f"cross_attention.num_heads={HEADS}",
        f"model.source_vocab_size={tokenizer.source_vocab_size}",
        f"model.target_vocab_size={tokenizer.target_vocab_size}",
        *overrides,
    )
    torch.manual_seed(3)
    model = built(config.model).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(noise * torch.randn_like(weight))
    parts = {name: OmegaConf.to_container(config[name], resolve=True) for name in ("search", "data")}
    return Loaded(model, tokenizer, {"search": parts["search"], "data": {"cleaning": parts["data"]["cleaning"]}})


def taught(steps: int = 200) -> Loaded:
    """Half taught to copy, so that its translations end, and its beams hold several that are good.

    It is taught in float64: rounding differs between processors, and in float32 it changes what the model learns.
    """
    loaded = small_transformer(noise=0.0)
    model, tokenizer, _ = loaded
    model.double()
    drawn = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        length = int(torch.randint(1, 7, (), generator=drawn))
        words = torch.randint(4, tokenizer.source_vocab_size, (16, length), generator=drawn)
        source, target = (
            F.pad(words, pad, value=end) for pad, end in (((0, 1), tokenizer.eos_id), ((1, 0), tokenizer.bos_id))
        )
        hidden = model(source, torch.ones_like(source, dtype=torch.bool), target).hidden
        F.cross_entropy(model.logits(hidden).flatten(0, 1), source.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        model.output.bias[list(TargetVocabulary.of(tokenizer).banned_ids)] -= 30.0  # their share of the probability
    model.float()
    return loaded


def search_of(*overrides: str) -> Search:
    return built(composed("model=transformer", *overrides).search)


def collated(loaded: Loaded, lines: list[str]) -> tuple[Tensor, Tensor]:
    """Source and mask of one batch."""
    tokenizer = loaded.tokenizer
    sources = tokenizer.encode_source(lines)
    source, _, mask = collate_sources(sources, pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
    return source, mask


def decoded(loaded: Loaded, search: Search, lines: list[str]) -> list[list[Hypothesis]]:
    """By our own search, in one batch."""
    return search(loaded.model, *collated(loaded, lines), TargetVocabulary.of(loaded.tokenizer))
