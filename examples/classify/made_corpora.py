"""Two corpora made by a small grammar: opinions of which half are negated, and questions about lists of opinions."""

from __future__ import annotations

import random
from collections.abc import Callable

from examples.classify.read_keras_imdb import PAD

GOOD = ["good", "great", "moving", "funny", "clever", "fresh"]
BAD = ["bad", "dull", "clumsy", "silly", "weak", "stale"]
NOUNS = ["plot", "cast", "music", "ending", "dialogue", "camera"]
ASIDES = ["", "on monday", "to be honest", "as my sister says", "after all these years"]
SIZES = {"train": 4000, "test": 1000}
Split = tuple[list[list[int]] | list[int], ...]  # columns of tokens, then the labels


def vocabulary() -> dict[str, int]:
    """Return a token other than PAD for each word of both corpora."""
    words = ["the", "was", "not", "very", "and", *NOUNS, *GOOD, *BAD, *" ".join(ASIDES).split()]
    return {word: token for token, word in enumerate(dict.fromkeys(words), PAD + 1)}


def made_sentences(seed: int) -> dict[str, Split]:
    """Return sentences of one to three opinions that agree; the label is 1 if they are favourable.

    Half of the opinions are negated. A sentence with a good and a bad word and one `not` is decided by the order of
    its words alone.
    """
    return made(lambda generator, favourable: (sentence(generator, favourable),), seed)


def made_questions(seed: int) -> dict[str, Split]:
    """Return a noun, the nouns that some opinions are about, and the opinions; the label is 1 if the noun's is good.

    Query, keys and values: only the keys tell which of the values the query asks for.
    """
    return made(question, seed)


def made(example: Callable[[random.Random, bool], tuple[str, ...]], seed: int) -> dict[str, Split]:
    """Return the splits of examples with random labels, as tokens."""
    generator, tokens = random.Random(seed), vocabulary()
    splits: dict[str, Split] = {}
    for name, count in SIZES.items():
        labels = [generator.randrange(2) for _ in range(count)]
        columns = zip(*(example(generator, bool(label)) for label in labels), strict=True)
        splits[name] = (*([[tokens[word] for word in text.split()] for text in column] for column in columns), labels)
    return splits


def sentence(generator: random.Random, favourable: bool) -> str:
    """Return a sentence such as `to be honest the plot was not very dull and the cast was great`."""
    opinions = []
    for _ in range(generator.randint(1, 3)):
        negated = generator.random() < 0.5
        words = ["the", generator.choice(NOUNS), "was", *(["not"] if negated else [])]
        words += ["very"] if generator.random() < 0.5 else []
        opinions.append(" ".join([*words, generator.choice(GOOD if favourable != negated else BAD)]))
    return f"{generator.choice(ASIDES)} {' and '.join(opinions)}"


def question(generator: random.Random, favourable: bool) -> tuple[str, str, str]:
    """Return texts such as `cast`, `plot cast music` and `dull great stale`."""
    nouns = generator.sample(NOUNS, generator.randint(2, 4))
    asked = generator.choice(nouns)
    good = {noun: favourable if noun == asked else generator.random() < 0.5 for noun in nouns}
    opinions = [generator.choice(GOOD if good[noun] else BAD) for noun in nouns]
    return asked, " ".join(nouns), " ".join(opinions)
