"""Random words, with a preference for those used less."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import final

from scripts.demo_corpus.lexicon import Lexicon, Verb


@final
class WordSampler:
    def __init__(self, lexicon: Lexicon, rng: random.Random) -> None:
        self.lexicon, self.rng = lexicon, rng
        self.used: Counter[str] = Counter()
        self.humans = lexicon.members("human")
        self.is_human = frozenset(self.humans).__contains__

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, words: Sequence[str]) -> str:
        """Draw two words and return the one used less, so that no word stays rare."""
        chosen = min(self.rng.choice(words), self.rng.choice(words), key=lambda word: self.used[word])
        self.used[chosen] += 1
        return chosen

    def pick_verb(self, verbs: Sequence[Verb], tense: str) -> Verb:
        """Draw a verb that can be used in the tense."""
        barred = {"past": ("state",), "future": ("state", "past_only", "unplanned")}.get(
            tense, ("past_only", "unplanned")
        )
        fitting = [verb for verb in verbs if not any(getattr(verb, flag) for flag in barred)]
        return self.lexicon.verbs[self.pick([verb.key for verb in fitting])]
