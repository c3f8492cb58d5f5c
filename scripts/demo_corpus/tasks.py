"""Generate data/demo/summary and data/demo/dialogue: documents with a headline, and dialogues, from the same grammar.

    python -m scripts.demo_corpus.tasks [--seed N] [--output data/demo]

A document tells one event of its hero, continues with that hero as "he" or "she", and is filled with sentences about
others; its headline is the event without adjectives, places and times. A dialogue is a few statements, each question
about one of them, and its answer: a place, a time, who it is, or yes or no.
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from scripts.demo_corpus.__main__ import DATA
from scripts.demo_corpus.clause_sampler import ClauseSampler, Wish
from scripts.demo_corpus.grammar import Clause
from scripts.demo_corpus.lexicon import Adverbial, Lexicon
from scripts.demo_corpus.noun_phrases import NounPhrase, Place
from scripts.demo_corpus.pronouns import PRONOUNS
from scripts.demo_corpus.spelling import join_english
from scripts.demo_corpus.word_sampler import WordSampler
from seq2seq_attn.errors import reports_user_errors

SIZES = {"train": 2_000, "val": 200, "test": 200}  # documents, and dialogues
FEWEST, MOST = 5, 12  # sentences of a document
QUESTIONS = 3  # of a dialogue
SHORT = {"present": "does", "past": "did", "future": "is"}  # verbs of a short answer
Pair = tuple[str, str]


@final
class TaskSampler:
    def __init__(self, lexicon: Lexicon, rng: random.Random) -> None:
        self.rng, self.lexicon = rng, lexicon
        self.clauses = ClauseSampler(WordSampler(lexicon, rng))
        self.names = list(lexicon.data["nouns"]["name"])

    def document(self) -> list[Pair]:
        """Return a document and its headline."""
        name, *others = self.rng.sample(self.names, 4)
        hero = self.named(name)
        event = self.event(hero)
        after = [self.event(self.clauses.noun_phrases.again(hero)) for _ in range(self.rng.randint(1, 3))]
        told = [event, *after]
        filling = [self.event(self.named(other)) for other in others]
        filling += [self.clauses.clause(Wish(detail=1)) for _ in range(MOST)]
        filling = filling[: self.rng.randint(max(FEWEST - len(told), 1), MOST - len(told))]
        before = self.rng.randint(0, len(filling))
        sentences = [*filling[:before], *told, *filling[before:]]
        return [(" ".join(map(statement, sentences)), join_english(bare(event).say_english()))]

    def dialogue(self) -> list[Pair]:
        """Return a turn of a dialogue for each of its questions: all that was said so far, and the answer."""
        facts = [self.event(self.named(name)) for name in self.rng.sample(self.names, self.rng.randint(2, 4))]
        said = [f"A: {statement(fact)}" for fact in facts]
        pairs = []
        for fact in self.rng.sample(facts, min(QUESTIONS, len(facts))):
            question, answer = self.rng.choice(list(self.questions(fact)))
            said.append(f"B: {join_english(question.say_english())}?")
            pairs.append((" ".join(said), answer))
            said.append(f"A: {answer}")
        return pairs

    def questions(self, fact: Clause) -> Iterator[tuple[Clause, str]]:
        """Yield the questions that a fact answers, with the answers."""
        plain = replace(bare(fact), tense=fact.tense)
        yield replace(plain, subject=PRONOUNS["who"], question="who"), f"{' '.join(fact.subject.say_english())}."
        other = self.named(self.rng.choice([name for name in self.names if name != fact.subject.noun.english]))
        pronoun = self.clauses.noun_phrases.again(fact.subject).english
        yield replace(plain, question="yes_no"), f"Yes, {pronoun} {SHORT[plain.tense]}."
        other = self.named(self.rng.choice([name for name in self.names if name != fact.subject.noun.english]))
        yield replace(plain, subject=other, question="yes_no"), f"No, {' '.join(fact.subject.say_english())}."
        for part in (fact.opening, *fact.adverbials):
            if isinstance(part, Place):
                yield replace(plain, question="where"), f"{join_english(part.say_english())}."
            elif isinstance(part, Adverbial) and part in self.times:
                yield replace(plain, question="when"), f"{join_english(list(part.english))}."

    @property
    def times(self) -> list[Adverbial]:
        return [time for times in self.lexicon.times.values() for time in times]

    def named(self, name: str) -> NounPhrase:
        return self.clauses.noun_phrases.noun_phrase(name)

    def event(self, subject: Any) -> Clause:
        """Draw an affirmative clause of what somebody does."""
        wish = Wish(detail=1, negation="", modal=False)
        verbs = [verb for verb in self.clauses.human_verbs if not verb.state and verb.slots and verb.slots[0].direct]
        tense = self.rng.choice(("present", "past", "future"))
        return self.clauses.clause(wish, subject, verbs, tense)


def bare(clause: Clause) -> Clause:
    """Return the clause without adjectives, places and times."""
    objects = tuple(
        replace(part, adjectives=()) if isinstance(part, NounPhrase) else part for part in clause.complements
    )
    return replace(clause, complements=objects, adverbials=(), opening=None, frequency=None, progressive=False)


def statement(clause: Clause) -> str:
    return f"{join_english(clause.say_english())}."


def build(task: str, seed: int) -> dict[str, list[Pair]]:
    """Return the pairs of each split of `summary` or `dialogue`; none has a document or dialogue of another."""
    sampler = TaskSampler(Lexicon(DATA / "lexicon.yaml"), random.Random(f"{task} {seed}"))
    draw = sampler.document if task == "summary" else sampler.dialogue
    seen: set[str] = set()
    splits: dict[str, list[Pair]] = {}
    for name, size in SIZES.items():
        splits[name] = []
        drawn = 0
        while drawn < size:
            pairs = draw()
            if pairs[0][0] not in seen:
                seen.add(pairs[0][0])
                splits[name] += pairs
                drawn += 1
    return splits


@reports_user_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=DATA)
    arguments = parser.parse_args()
    for task in ("summary", "dialogue"):
        (arguments.output / task).mkdir(parents=True, exist_ok=True)
        for name, pairs in build(task, arguments.seed).items():
            text = "".join(f"{source}\t{target}\n" for source, target in pairs)
            (arguments.output / task / f"{name}.tsv").write_text(text, encoding="utf-8", newline="\n")
            words = sum(len(source.split()) for source, _ in pairs) / len(pairs)
            print(f"{task}/{name}: {len(pairs):,} pairs, {words:.0f} words in a source")


if __name__ == "__main__":
    main()
