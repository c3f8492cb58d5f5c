"""Classify texts with one layer of attention.

`python -m examples.classify.train_classifier --positions concat,none --plot positions.png`

The IMDB experiment of Su 2018 (kexue.fm/archives/4765): embeddings of width 128, concatenated sinusoidal positions or
none, 8 heads of width 16, mean pooling, dropout 0.5, Adam. Without `--path` the corpus is made by a grammar.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from examples.classify.made_corpora import Split, made_questions, made_sentences, vocabulary
from examples.classify.read_keras_imdb import PAD, read_keras_imdb
from examples.classify.read_tsv import read_tsv
from seq2seq_attn.attention import Attended, CrossAttention, build_attention
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.nn.masked import masked_mean
from seq2seq_attn.position.sinusoidal import SinusoidalPosition
from seq2seq_attn.training.reinforce import Reinforce

DIM, HEADS, BATCH = 128, 8, 32
POSITIONS = ("concat", "add", "none")


class Epoch(NamedTuple):
    """Figures of an epoch: losses in nats per text, and shares of texts that are classified correctly."""

    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float


class Classifier(nn.Module):
    """Embeddings with positions, attention, the mean of its contexts and a linear output.

    The layer takes queries, keys and values apart, so the width of its context is free (Su's Concat(head_1..head_h)).
    """

    def __init__(self, attention: CrossAttention, num_words: int, positions: str = "concat") -> None:
        super().__init__()
        self.embed = nn.Embedding(num_words, DIM)
        self.position = (
            nn.Identity() if positions == "none" else SinusoidalPosition(dim=DIM, join=positions, base=10000.0)
        )
        self.attention, self.dropout = attention, nn.Dropout(0.5)
        self.output = nn.Linear(attention.context_dim, 1)

    def forward(self, *tokens: Tensor) -> tuple[Tensor, Attended]:
        """Return logits; one sequence of tokens attends to itself, three are those of queries, keys and values."""
        embedded = [self.position(self.embed(sequence)) for sequence in tokens]
        query, keys, values = embedded * 3 if len(embedded) == 1 else embedded
        attended = self.attention(query, keys, values, mask=tokens[-1] != PAD)
        return self.output(self.dropout(masked_mean(attended.context, tokens[0] != PAD)))[:, 0], attended


@reports_user_errors
def main(arguments: list[str] | None = None) -> dict[str, list[Epoch]]:
    """Train once for each kind of positions, print the figures after every epoch, and return them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "overrides", nargs="*", help="overrides of the attention, such as pattern.k=3 or normalizer=entmax15"
    )
    parser.add_argument("--attention", default="multihead", help="a preset of conf/attention")
    corpus = parser.add_mutually_exclusive_group()
    corpus.add_argument(
        "--path", type=Path, help="Keras' imdb.npz, or lines of text, tab, and 0 or 1; without it, sentences are made"
    )
    corpus.add_argument(
        "--questions", action="store_true", help="make questions: queries, keys and values are three sequences"
    )
    parser.add_argument("--test-path", type=Path, help="lines to test on; without it, a fifth of the lines of --path")
    parser.add_argument(
        "--positions", type=kinds_of_positions, default=["concat"], help="concat, add or none; several: concat,none"
    )
    parser.add_argument("--plot", type=Path, help="a PNG of the curves")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--num-words", type=int, default=20000, help="vocabulary of --path; rarer words share a token")
    parser.add_argument("--length", type=int, default=100, help="number of words to read, the last of each text")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.plot:
        options.plot.parent.mkdir(parents=True, exist_ok=True)
    splits, num_words = read_corpus(options)
    curves = {}
    for positions in options.positions:
        torch.manual_seed(options.seed)
        attention = build_attention(options.attention, *options.overrides, query_dim=DIM, key_dim=DIM, num_heads=HEADS)
        curves[positions] = []
        for number, epoch in enumerate(train(Classifier(attention, num_words, positions), splits, options.epochs), 1):
            curves[positions].append(epoch)
            print(
                f"positions {positions}, epoch {number}: "
                f"train loss {epoch.train_loss:.4f}, accuracy {epoch.train_accuracy:.2%}; "
                f"test loss {epoch.test_loss:.4f}, accuracy {epoch.test_accuracy:.2%}",
                flush=True,
            )
    if options.plot:
        draw(curves, options.plot)
    return curves


def kinds_of_positions(text: str) -> list[str]:
    """Return the words of `concat,none`."""
    kinds = text.split(",")
    if not set(kinds) <= set(POSITIONS):
        raise argparse.ArgumentTypeError(f"{text!r} is not one or more of {', '.join(POSITIONS)}, with commas between")
    return kinds


def read_corpus(options: argparse.Namespace) -> tuple[dict[str, Split], int]:
    """Return the splits that were asked for and the size of their vocabulary."""
    if options.path is None:
        made = made_questions if options.questions else made_sentences
        return made(options.seed), 1 + len(vocabulary())
    sizes = {"num_words": options.num_words, "length": options.length}
    if options.path.suffix == ".npz":
        return read_keras_imdb(options.path, **sizes), options.num_words
    return read_tsv(options.path, test_path=options.test_path, seed=options.seed, **sizes), options.num_words


def train(model: Classifier, splits: dict[str, Split], epochs: int) -> Iterator[Epoch]:
    """Train, and yield the figures of each epoch: those of training are means over its batches, as Keras shows them."""
    optimizer, reinforce = torch.optim.Adam(model.parameters()), Reinforce(momentum=0.9)
    for _ in range(epochs):
        figures = torch.zeros(2)
        for tokens, labels in batches(splits["train"], shuffled=True):
            logits, attended = model.train()(*tokens)
            losses = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
            figures += torch.stack([losses.sum(), ((logits > 0) == (labels > 0)).sum()]).detach()
            loss = losses.sum()
            if attended.log_prob is not None and attended.entropy is not None:  # hard attention samples positions
                drawn = ((x * (tokens[0] != PAD)).sum(1) for x in (attended.log_prob, attended.entropy))
                loss = loss + reinforce(-losses, torch.ones(len(labels), dtype=torch.long), *drawn)
            optimizer.zero_grad()
            (loss / len(labels)).backward()
            optimizer.step()
        yield Epoch(*(figures / len(splits["train"][-1])).tolist(), *evaluate(model, splits["test"]))


@torch.inference_mode()
def evaluate(model: Classifier, split: Split) -> tuple[float, float]:
    """Return the mean loss and the share of texts that are classified correctly."""
    model.eval()
    found = [(model(*tokens)[0], labels) for tokens, labels in batches(split)]
    logits, labels = (torch.cat(column) for column in zip(*found, strict=True))
    loss = F.binary_cross_entropy_with_logits(logits, labels)
    return loss.item(), ((logits > 0) == (labels > 0)).float().mean().item()


def batches(split: Split, shuffled: bool = False) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Yield the columns of tokens, padded at the end, and labels as 0.0 and 1.0."""
    *columns, labels = split
    order = torch.randperm(len(labels)) if shuffled else torch.arange(len(labels))
    for rows in order.split(BATCH):
        texts = [[torch.tensor(column[row]) for row in rows.tolist()] for column in columns]
        padded = [pad_sequence(text, batch_first=True, padding_value=PAD) for text in texts]
        yield padded, torch.tensor(labels)[rows].float()


def draw(curves: dict[str, list[Epoch]], file: Path) -> None:
    """Draw losses and accuracies by epoch, each kind of positions in its colour; training is dashed."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for number, (positions, epochs) in enumerate(curves.items()):
            for split, line in (("train", "--"), ("test", "-")):
                axes.plot(
                    range(1, len(epochs) + 1),
                    [getattr(epoch, f"{split}_{kind}") for epoch in epochs],
                    line,
                    color=f"C{number}",
                    label=f"{split}, positions {positions}",
                )
        axes.set(xlabel="epoch", ylabel=kind)
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
    figure.savefig(file, format="png", dpi=120)


if __name__ == "__main__":
    main()
