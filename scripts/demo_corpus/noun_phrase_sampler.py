"""Random noun phrases with determiners, owners, numbers and adjectives, and the pronouns that refer to them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

from scripts.demo_corpus.lexicon import Adjective, Noun, Verb
from scripts.demo_corpus.noun_phrases import Both, NounPhrase, Profession
from scripts.demo_corpus.pronouns import PRONOUNS, Pronoun
from scripts.demo_corpus.word_sampler import WordSampler

SPEAKERS = ("I", "you", "he", "she", "we", "they")
OWNERS = {"I": "my", "you": "your", "we": "our"}
FREE_DETS = ("the", "the", "the", "a", "a", "their_own", "their_own", "this", "of", "some", "count", "many")


@final
class NounPhraseSampler:
    def __init__(self, words: WordSampler) -> None:
        self.lexicon, self.rng, self.humans = words.lexicon, words.rng, words.humans
        self.chance, self.pick, self.is_human = words.chance, words.pick, words.is_human
        self.owned = set(self.lexicon.members(self.lexicon.data["owned"]))
        self.late = self.lexicon.members(self.lexicon.data["colours_and_nations"])
        self.single = set(self.lexicon.members(self.lexicon.data["single"]))
        clashes = self.lexicon.data["adjective_clashes"].split(", ")
        self.clashes = {tuple(pair.split()) for pair in clashes}

    def subject(
        self, who: Sequence[str], detail: int = 0, unlike: Any = None, asked: bool = False
    ) -> NounPhrase | Both | Pronoun:
        """Draw a subject from the nouns `who`; it must not be confused with `unlike`."""
        humans = [noun for noun in who if self.is_human(noun)]
        animals = [noun for noun in who if not self.is_human(noun)]
        if animals and (not humans or self.chance(0.4)):
            return self.noun_phrase(self.pick(animals), ("the", "the", "this", "my", "of"), detail)
        for _ in range(20):
            subject = self._human(humans, detail, asked, unlike is None)
            if unlike is None or (subject != unlike and self.again(subject) != self.again(unlike)):
                return subject
        return self.noun_phrase("neighbour", ("our",))

    def _human(self, humans: Sequence[str], detail: int, asked: bool, alone: bool) -> NounPhrase | Both | Pronoun:
        roll = self.rng.random() if alone else self.rng.uniform(0.3, 1)
        if roll < 0.27:
            return PRONOUNS[self.rng.choice(SPEAKERS[1:] if asked else SPEAKERS)]
        names = [noun for noun in humans if self.lexicon.nouns[noun].kind == "name"]
        if names and roll < 0.45:
            return self._name(names)
        if names and roll < 0.53:
            first, second = self._name(names), self._name(names)
            if self.chance(0.6):
                kin = self.pick(self.lexicon.members("kin friend"))
                second = self.noun_phrase(kin, ("their_own",), subject=first)
            return Both(first, second) if first != second else first
        common = [noun for noun in humans if self.lexicon.nouns[noun].kind != "name"]
        noun = self.lexicon.nouns[self.pick(common)]
        if _is_relation(noun):
            return self.noun_phrase(noun.english, ("my", "my", "of"), detail)
        dets = ("the", "the", "the", "the", "this", "count", "the_count", "the_plural")
        return self.noun_phrase(noun.english, (*dets, "all") if alone else dets, detail)

    def _name(self, names: Sequence[str]) -> NounPhrase:
        return NounPhrase(self.lexicon.nouns[self.pick(names)], "")

    def again(self, phrase: Any) -> Pronoun:
        """Return the pronoun that refers to the phrase."""
        if isinstance(phrase, Pronoun):
            return phrase
        suffix = " (f)" if phrase.gender == "f" else ""
        if phrase.plural:
            return PRONOUNS["they" + suffix]
        if isinstance(phrase, NounPhrase) and self.is_human(phrase.noun.english):
            return PRONOUNS["she" if suffix else "he"]
        return PRONOUNS["it" + suffix]

    def noun_phrase(self, english: str, dets: Sequence[str] = (), detail: int = 0, subject: Any = None) -> NounPhrase:
        """Draw a phrase for a noun; `subject` may own it, None: anyone may."""
        noun = self.lexicon.nouns[english]
        if noun.kind in ("name", "city", "country"):
            return NounPhrase(noun, "")
        det = self.rng.choice(self._fitting(dets, noun))
        plural = noun.always_plural
        unique = noun.kind in ("instrument", "game", "language") or noun.english in self.single
        may_be_many = not (noun.mass or noun.always_plural or unique)
        if det == "bare":
            return NounPhrase(noun, "")
        if det == "generic":
            return NounPhrase(noun, "generic", plural or may_be_many)
        count = ("", "")
        if det in ("count", "the_count", "many", "all", "the_plural", "some") and not noun.mass:
            if not may_be_many:
                det = "the"
            else:
                plural = True
                if det in ("count", "the_count"):
                    numbers = list(self.lexicon.data["numbers"].items())
                    count = self.rng.choice(numbers if self.chance(0.35) else numbers[:4])
                det = {"count": "", "the_count": "the", "the_plural": "the", "some": "a"}.get(det, det)
        elif det in ("the", "this", "their_own", "my") and may_be_many and self.chance(0.25):
            plural = True
        elif det == "some":
            det = "a"
        owner = None
        if det == "their_own":
            det = self._own(subject)
        elif det in ("my", "my_one"):
            det = self.rng.choice(("my", "your", "his", "her", "our", "their"))
        elif det == "the_one":
            det = "the"
        elif det == "of":
            owner = self._owner()
        adjectives = self.adjectives(noun) if detail and self.chance(0.42) else ()
        return NounPhrase(noun, det, plural, adjectives, count, owner)

    def _fitting(self, dets: Sequence[str], noun: Noun) -> list[str]:
        """Return those of the determiners that the noun can take, or suitable ones instead."""
        options = [det for det in dets if det != "name"] or list(FREE_DETS)
        if noun.english not in self.owned:
            options = [det for det in options if det not in ("of", "their_own", "my", "my_one")] or ["the"]
        if noun.kind == "language" and "bare" not in dets:
            return ["generic"]
        if noun.mass:
            options = [det for det in options if det not in ("count", "many", "of", "their_own", "the_count")]
            return options + (["some"] if not dets or "some" in dets or "a" in dets else [])
        if _is_relation(noun):
            personal = ("my", "my_one", "of", "their_own", "generic")
            return [det for det in options if det in personal] or ["my", "of"]
        return options

    def _own(self, subject: Any) -> str:
        if isinstance(subject, Pronoun) and subject.english in OWNERS:
            return OWNERS[subject.english]
        if subject is None:
            return self.rng.choice(("my", "your", "our"))
        noun = getattr(subject, "noun", None)
        if noun is not None and not self.is_human(noun.english):
            return "the"
        return "their" if subject.plural else "her" if subject.gender == "f" else "his"

    def _owner(self) -> NounPhrase:
        roll = self.rng.random()
        if roll < 0.5:
            return self._name(self.lexicon.members("name"))
        noun = self.lexicon.nouns[self.pick(self.lexicon.members("kin" if roll < 0.75 else "profession"))]
        return self.noun_phrase(noun.english, ("my_one" if noun.kind == "kin" else "the_one",))

    def adjectives(self, noun: Noun) -> tuple[Adjective, ...]:
        fitting = [word for word, entry in self.lexicon.adjectives.items() if noun.english in entry.describes]
        if not fitting:
            return ()
        first = self.lexicon.adjectives[self.pick(fitting)]
        others = [word for word in fitting if word in self.late] if first.before else []
        if others and self.chance(0.3):
            return first, self.lexicon.adjectives[self.pick(others)]
        return (first,)

    def without_clash(self, verb: Verb, phrase: NounPhrase) -> NounPhrase:
        """Remove adjectives that clash with the verb: nobody buys a broken clock."""
        if any((verb.key, adjective.english) in self.clashes for adjective in phrase.adjectives):
            return replace(phrase, adjectives=())
        return phrase

    def profession(self) -> Profession:
        professions = [word for word in self.lexicon.members("profession") if word != "policeman"]
        noun = self.lexicon.nouns[self.pick(professions)]
        names = self.lexicon.professions(noun.english, False), self.lexicon.professions(noun.english, True)
        return Profession(*(replace(noun, french=name, french_plural=name + "s") for name in names))


def _is_relation(noun: Noun) -> bool:
    return noun.kind == "kin" or noun.english in ("friend", "neighbour")
