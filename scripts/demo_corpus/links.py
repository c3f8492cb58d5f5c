"""Links between clauses: coordination, subordination and punctuation."""

from dataclasses import dataclass
from typing import final

from scripts.demo_corpus.grammar import Clause
from scripts.demo_corpus.spelling import Words


@final
@dataclass(frozen=True)
class Link:
    english: str
    french: str

    def say_english(self) -> Words:
        return self.english.split()

    def say_french(self) -> Words:
        return self.french.split()


AND, BUT = Link("and", "et"), Link(", but", ", mais")
AND_THEN = Link(", and", ", et")  # after which "and" would otherwise join two names
BECAUSE, WHILE, COMMA = Link("because", "parce que"), Link("while", "pendant que"), Link(",", ",")
THAT = Link("that", "que")
WHEN, IF = Link("when", "quand"), Link("if", "si")
Parts = tuple[Clause | Link, ...]
