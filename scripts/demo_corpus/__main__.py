"""Generate data/demo, English-French sentence pairs, from a grammar and a lexicon.

    python -m scripts.demo_corpus [--seed N] [--output data/demo]

`unseen.tsv` contains word pairs (adjective and noun, subject and verb, verb and object) that never occur together in
the other three files, made of words that occur in `train.tsv`.
"""

import argparse
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from scripts.demo_corpus.grammar import Clause, walk
from scripts.demo_corpus.lexicon import Adjective, Adverbial, Lexicon, Noun, Verb
from scripts.demo_corpus.links import Parts
from scripts.demo_corpus.noun_phrases import Gap, NounPhrase
from scripts.demo_corpus.sentence_sampler import SentenceSampler
from scripts.demo_corpus.spelling import Words, join_english, join_french
from seq2seq_attn.errors import reports_user_errors

DATA = Path(__file__).resolve().parents[2] / "data" / "demo"
SIZES = {"train": 20_000, "val": 1_000, "test": 1_000, "unseen": 1_000}
HELD_OUT_ONE_IN = 25  # word pairs
CLOSED_KINDS = ("name", "city", "country", "game", "instrument", "language")  # used too little to hold pairs out
SHORTEST, LONGEST = 3, 25  # lengths of a sentence, in English words


@final
@dataclass(frozen=True)
class Example:
    english: str
    french: str
    lemmas: tuple[str, ...]
    pairs: frozenset[tuple[str, str, str]]

    @property
    def line(self) -> str:
        return f"{self.english}\t{self.french}\n"

    @property
    def words(self) -> set[str]:
        return set(tokens(self.english)) | set(tokens(self.french))


@reports_user_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=DATA)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    splits = build(arguments.seed)
    for name, examples in splits.items():
        text = "".join(example.line for example in examples)
        (arguments.output / f"{name}.tsv").write_text(text, encoding="utf-8", newline="\n")
    print(report(splits))


def build(seed: int) -> dict[str, list[Example]]:
    sampler = SentenceSampler(Lexicon(DATA / "lexicon.yaml"), random.Random(seed))
    known = SIZES["train"] + SIZES["val"] + SIZES["test"]
    seen: dict[str, str] = {}
    common: list[Example] = []
    rare: list[Example] = []
    while len(common) < known or len(rare) < 3 * SIZES["unseen"]:
        example = realise(sampler.sentence())
        length = len(example.english.split())
        if not SHORTEST <= length <= LONGEST or example.english in seen:
            # two meanings may have the same English sentence only if they have the same French one
            assert seen.get(example.english, example.french) == example.french, example
            continue
        seen[example.english] = example.french
        (rare if any(map(held_out, example.pairs)) else common).append(example)
    train, rest = common[: SIZES["train"]], common[SIZES["train"] : known]
    vocabulary = set().union(*(example.words for example in train))
    unseen = [example for example in rare if example.words <= vocabulary]
    return {
        "train": train,
        "val": rest[: SIZES["val"]],
        "test": rest[SIZES["val"] :],
        "unseen": unseen[: SIZES["unseen"]],
    }


def realise(sentence: Parts) -> Example:
    english: Words = []
    french: Words = []
    for part in sentence:
        english += part.say_english()
        french += part.say_french()
    question = isinstance(sentence[0], Clause) and sentence[0].question
    nodes = walk(sentence)
    return Example(
        join_english(english) + ("?" if question else "."),
        join_french(french) + (" ?" if question else "."),
        tuple(lemma for node in nodes for lemma in lemma_of(node)),
        frozenset(pair for node in nodes for pair in pairs_of(node)),
    )


def lemma_of(node: Any) -> list[str]:
    if isinstance(node, Noun | Adjective):
        return [node.english]
    if isinstance(node, Verb):
        return [node.key]
    return [" ".join(node.english)] if isinstance(node, Adverbial) else []


def pairs_of(node: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(node, NounPhrase):
        for adjective in node.adjectives:
            yield "adjective", adjective.english, node.noun.english
    if isinstance(node, Clause):
        subject = _common_noun(node.subject)
        if subject and node.verb.key != "be":
            yield "subject", subject, node.verb.key
        for complement in node.complements:
            if isinstance(complement, Adjective) and subject:
                yield "adjective", complement.english, subject
            noun = _common_noun(complement)
            if noun:
                yield "object", node.verb.key, noun


def _common_noun(phrase: Any) -> str:
    noun = phrase.noun if isinstance(phrase, NounPhrase | Gap) else None
    return noun.english if noun and noun.kind not in CLOSED_KINDS else ""


def held_out(pair: tuple[str, str, str]) -> bool:
    """Return whether a pair is held out for unseen.tsv; the pairs are the same for every seed."""
    return zlib.crc32(" ".join(pair).encode()) % HELD_OUT_ONE_IN == 0


def tokens(text: str) -> list[str]:
    for mark in ",.?":
        text = text.replace(mark, " ")
    return text.replace("'", "' ").lower().split()


def report(splits: dict[str, list[Example]]) -> str:
    lengths = [len(example.english.split()) for example in splits["train"]]
    lexicon = Lexicon(DATA / "lexicon.yaml")
    counts = Counter(dict.fromkeys([*lexicon.nouns, *lexicon.adjectives, *lexicon.verbs, *lexicon.modals], 0))
    counts.update(lemma for example in splits["train"] for lemma in example.lemmas if lemma in counts)
    rarest = ", ".join(f"{lemma} {count}" for lemma, count in counts.most_common()[:-16:-1])
    return "\n".join(
        [
            *(f"{name}: {len(examples)} pairs" for name, examples in splits.items()),
            f"English words per sentence: {sum(lengths) / len(lengths):.1f} on average, "
            f"{sum(length >= 16 for length in lengths) / len(lengths):.0%} with 16 or more",
            f"{len(lexicon.lemmas)} lemmas; the rarest in train: {rarest}",
        ]
    )


if __name__ == "__main__":
    main()
