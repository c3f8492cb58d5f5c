"""Random places, with their prepositions, and times."""

from typing import final

from scripts.demo_corpus.lexicon import Adverbial, Noun, Verb
from scripts.demo_corpus.noun_phrase_sampler import NounPhraseSampler
from scripts.demo_corpus.noun_phrases import NounPhrase, Place

PREPOSITIONS = {"lieu": ("in", "à"), "but": ("to", "à"), "arrivée": ("at", "à"), "source": ("from", "de")}


@final
class CircumstanceSampler:
    def __init__(self, noun_phrases: NounPhraseSampler) -> None:
        self.noun_phrases, self.lexicon = noun_phrases, noun_phrases.lexicon
        self.rng, self.chance = noun_phrases.rng, noun_phrases.chance
        self.locations = self._locations()

    def place(self, noun: Noun, role: str = "lieu", detail: int = 0) -> Place:
        english, french = PREPOSITIONS[role]
        # "au Japon", but "en France"
        if noun.kind == "country":
            feminine = noun.gender == "f"
            return Place(english, "en" if feminine else "à", NounPhrase(noun, "" if feminine else "generic"))
        if noun.kind == "city":
            return Place(english, french, NounPhrase(noun, ""))
        if role == "lieu":
            english, french = self.locations[noun.english]
        adjectives = self.noun_phrases.adjectives(noun) if detail and self.chance(0.25) else ()
        return Place(english, french, NounPhrase(noun, "the", False, adjectives))

    def locate(self, kind: str) -> Place:
        """Draw a place where something "lies" or somebody "stands"."""
        choices = [(key, noun) for key, nouns in self.lexicon.data[kind].items() for noun in nouns.split()]
        where, noun = self.rng.choice(choices)
        english, french = where.split("/")
        return Place(english, french, self.noun_phrases.noun_phrase(noun, ("the_one",), 1))

    def time(self, tense: str, verb: Verb) -> Adverbial:
        if tense in ("past", "future") and self.chance(0.2):
            units = list(self.lexicon.units)[: 4 if verb.key in self.lexicon.data["long_term"].split() else 2]
            unit = self.lexicon.units[self.rng.choice(units)]
            english, french = self.rng.choice(list(self.lexicon.data["numbers"].items())[:9])
            if tense == "past":
                forms = f"{english} {unit.english_plural} ago", f"il y a {french} {unit.french_plural}"
            else:
                forms = f"in {english} {unit.english_plural}", f"dans {french} {unit.french_plural}"
            return Adverbial(tuple(forms[0].split()), tuple(forms[1].split()))
        times = self.lexicon.times[tense]
        if verb.key not in self.lexicon.data["seasonal"].split():
            times = [time for time in times if time.english[-1] not in ("summer", "winter")]
        return self.rng.choice(times)

    def _locations(self) -> dict[str, tuple[str, str]]:
        """Return the prepositions of each noun that can be the place of an event."""
        prepositions: dict[str, tuple[str, str]] = {}
        for key, nouns in self.lexicon.data["locations"].items():
            english, french = key.split("/")
            prepositions |= dict.fromkeys(self.lexicon.members(nouns), (english, french))
        return prepositions
