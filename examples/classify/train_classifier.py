"""Classify sentences with one layer of attention.

`python examples/classify/train_classifier.py --attention sparse pattern.k=3`

The IMDB experiment of Su 2018 (kexue.fm/archives/4765): 8 heads of width 16, concatenated sinusoidal positions, mean
pooling. Without `--path` it generates sentences in which half of the opinions are negated. A bag of words does not
determine their labels, so `--attention none` stays at chance.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from examples.classify.read_keras_imdb import PAD, Split, read_keras_imdb
from seq2seq_attn.attention import Attended, SelfAttention, build_attention
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.nn.masked import masked_mean
from seq2seq_attn.position.sinusoidal import SinusoidalPosition
from seq2seq_attn.training.reinforce import Reinforce

DIM, HEADS, BATCH = 128, 8, 32
GOOD = ["good", "great", "moving", "funny", "clever", "fresh"]
BAD = ["bad", "dull", "clumsy", "silly", "weak", "stale"]
NOUNS = ["plot", "cast", "music", "ending", "dialogue", "camera"]
ASIDES = ["", "on monday", "to be honest", "as my sister says", "after all these years"]


class Classifier(nn.Module):
    """Embeddings with positions, attention, the mean of its contexts and a linear output."""

    def __init__(self, attention: SelfAttention, num_words: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_words, DIM)
        self.position = SinusoidalPosition(dim=DIM, join="concat", base=10000.0)
        self.attention, self.dropout, self.output = attention, nn.Dropout(0.5), nn.Linear(DIM, 1)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Attended]:
        mask = tokens != PAD
        attended = self.attention(self.position(self.embed(tokens)), mask)
        return self.output(self.dropout(masked_mean(attended.context, mask)))[:, 0], attended


@reports_user_errors
def main(arguments: list[str] | None = None) -> float:
    """Train, print the accuracy on the test split after every epoch, and return the last."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "overrides", nargs="*", help="overrides of the attention, such as pattern.k=3 or normalizer=entmax15"
    )
    parser.add_argument("--attention", default="multihead", help="a preset of conf/attention")
    parser.add_argument("--path", type=Path, help="Keras' imdb.npz; without it, sentences are generated")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--num-words", type=int, default=20000, help="vocabulary of IMDB; rarer words share one token")
    parser.add_argument("--length", type=int, default=100, help="number of words to read, the last of each review")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    splits, num_words = generated_corpus(options.seed), 1 + len(vocabulary())
    if options.path:
        num_words = options.num_words
        splits = read_keras_imdb(options.path, num_words=num_words, length=options.length)
    attention = build_attention(options.attention, *options.overrides, dim=DIM, num_heads=HEADS)
    return train(Classifier(attention, num_words), splits, options.epochs)


def train(model: Classifier, splits: dict[str, Split], epochs: int) -> float:
    """Train and return the accuracy on `test` after the last epoch."""
    optimizer, reinforce = torch.optim.Adam(model.parameters()), Reinforce(momentum=0.9)
    accuracy = 0.0
    for epoch in range(1, epochs + 1):
        total = 0.0
        for tokens, labels in batches(splits["train"], shuffled=True):
            logits, attended = model.train()(tokens)
            losses = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
            loss = losses.sum()
            total += float(loss.detach())
            if attended.log_prob is not None and attended.entropy is not None:  # hard attention samples positions
                drawn = ((x * (tokens != PAD)).sum(1) for x in (attended.log_prob, attended.entropy))
                loss = loss + reinforce(-losses, torch.ones(len(labels), dtype=torch.long), *drawn)
            optimizer.zero_grad()
            (loss / len(labels)).backward()
            optimizer.step()
        accuracy = evaluate(model, splits["test"])
        print(f"epoch {epoch}: loss {total / len(splits['train'][1]):.4f}, test accuracy {accuracy:.2%}")
    return accuracy


@torch.inference_mode()
def evaluate(model: Classifier, split: Split) -> float:
    """Return the share of sentences that are classified correctly."""
    model.eval()
    return sum(int(((model(tokens)[0] > 0) == (labels > 0)).sum()) for tokens, labels in batches(split)) / len(split[1])


def batches(split: Split, shuffled: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tokens, padded at the end, and labels as 0.0 and 1.0."""
    sentences, labels = split
    order = torch.randperm(len(labels)) if shuffled else torch.arange(len(labels))
    for rows in order.split(BATCH):
        chosen = [torch.tensor(sentences[row]) for row in rows.tolist()]
        yield pad_sequence(chosen, batch_first=True, padding_value=PAD), torch.tensor(labels)[rows].float()


def vocabulary() -> dict[str, int]:
    """Return a token other than PAD for each word of the generated sentences."""
    words = ["the", "was", "not", "very", "and", *NOUNS, *GOOD, *BAD, *" ".join(ASIDES).split()]
    return {word: token for token, word in enumerate(dict.fromkeys(words), PAD + 1)}


def generated_corpus(seed: int) -> dict[str, Split]:
    """Generate sentences of one to three opinions that agree; the label is 1 if they are favourable."""
    generator, tokens = random.Random(seed), vocabulary()
    splits: dict[str, Split] = {}
    for name, count in (("train", 4000), ("test", 1000)):
        labels = [generator.randrange(2) for _ in range(count)]
        sentences = [generated_sentence(generator, favourable=bool(label)) for label in labels]
        splits[name] = [[tokens[word] for word in sentence.split()] for sentence in sentences], labels
    return splits


def generated_sentence(generator: random.Random, *, favourable: bool) -> str:
    """Generate a sentence such as `to be honest the plot was not very dull and the cast was great`."""
    opinions = []
    for _ in range(generator.randint(1, 3)):
        negated = generator.random() < 0.5
        words = ["the", generator.choice(NOUNS), "was", *(["not"] if negated else [])]
        words += ["very"] if generator.random() < 0.5 else []
        opinions.append(" ".join([*words, generator.choice(GOOD if favourable != negated else BAD)]))
    return f"{generator.choice(ASIDES)} {' and '.join(opinions)}"


if __name__ == "__main__":
    main()
