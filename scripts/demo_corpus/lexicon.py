"""The words of the demo corpus and their inflection, read from data/demo/lexicon.yaml."""

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, final

import yaml

PLACES = ("lieu", "but", "arrivée", "source")  # location, goal, arrival, origin


@final
@dataclass(frozen=True)
class Noun:
    english: str
    english_plural: str
    french: str
    french_plural: str
    gender: str
    kind: str
    mass: bool = False
    always_plural: bool = False


@final
@dataclass(frozen=True)
class Adjective:
    english: str
    forms: tuple[str, str, str, str]  # masculine, feminine, masculine plural, feminine plural
    before: bool
    describes: frozenset[str]  # nouns that it may modify
    predicate_of: frozenset[str]  # nouns of which it may be the predicate


@final
@dataclass(frozen=True)
class Slot:
    """One complement of a verb: its prepositions and the nouns that may fill it."""

    english: tuple[str, ...]
    french: str
    nouns: tuple[str, ...]
    strong: bool = False

    @property
    def direct(self) -> bool:
        return not self.french


@final
@dataclass(frozen=True)
class Verb:
    key: str
    english: tuple[str, ...]
    third: str
    past: str
    progressive: str
    french: str
    present: tuple[str, ...]
    participle: str
    être: bool
    reflexive: bool
    tail: tuple[str, ...]  # the noun of "avoir faim", the link of "essayer de"
    slots: tuple[Slot, ...] = ()
    who: tuple[str, ...] = ()
    state: bool = False
    simple: bool = False  # never progressive
    past_only: bool = False
    unplanned: bool = False  # used in the past only, unless a modal precedes
    dets: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    manners: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Adverbial:
    english: tuple[str, ...]
    french: tuple[str, ...]
    mid: bool = False  # in French directly after the finite verb
    manner: bool = False  # in French before the objects


@final
class Lexicon:
    def __init__(self, path: Path) -> None:
        self.data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        entries = [
            (english, kind, str(french))
            for kind, words in self.data["nouns"].items()
            for english, french in words.items()
        ]
        mass = set(self.data["mass"].split())
        plurals = self.data["english_plurals"]
        self.nouns = {en: _noun(en, fr, kind, kind in mass, plurals) for en, kind, fr in entries}
        self.adjectives = {en: self._adjective(en, entry) for en, entry in self.data["adjectives"].items()}
        self.verbs = {key: self._verb(key, entry) for key, entry in self.data["verbs"].items()}
        self.modals = {en: self._verb(en, entry) for en, entry in self.data["modals"].items()}
        middle = self.data["before_participle"].split()
        self.manners = {
            key: Adverbial(tuple(key.split("_")), tuple(french.split()), french in middle, True)
            for key, french in self.data["adverbs"].items()
        }
        self.frequency = [Adverbial((en,), (fr,), True) for en, fr in self.data["frequency"].items()]
        self.times = {
            tense: [Adverbial(tuple(en.split()), tuple(fr.split())) for en, fr in entries.items()]
            for tense, entries in self.data["times"].items()
        }
        self.units = {en: _noun(en, fr, "unit", False, {}) for en, fr in self.data["units"].items()}

    @cache  # noqa: B019 (one lexicon lives as long as the program)
    def members(self, names: str) -> tuple[str, ...]:
        """Return the nouns of a list of classes, groups and nouns."""
        nouns: dict[str, None] = {}
        for name in names.split():
            if name in self.data["groups"]:
                nouns.update(dict.fromkeys(self.members(self.data["groups"][name])))
            elif name in self.data["nouns"]:
                nouns.update(dict.fromkeys(self.data["nouns"][name]))
            else:
                nouns[name] = None
        return tuple(nouns)

    def professions(self, english: str, feminine: bool) -> str:
        two_forms = self.data["feminine_professions" if feminine else "masculine_professions"]
        return two_forms.get(english, self.nouns[english].french)

    @cached_property
    def lemmas(self) -> set[tuple[str, str]]:
        """Content words: pairs of an English and a French dictionary form."""
        words = {(noun.english, noun.french) for noun in self.nouns.values()}
        words |= {(word.english, word.forms[0]) for word in self.adjectives.values()}
        words |= {(" ".join(verb.english), verb.french) for verb in self.verbs.values()}
        words |= {(" ".join(verb.english), verb.french) for verb in self.modals.values()}
        return words | {(" ".join(word.english), " ".join(word.french)) for word in self.manners.values()}

    def _adjective(self, english: str, entry: dict[str, Any]) -> Adjective:
        given = entry.get("forms")
        forms = tuple(given.split()) if given else _adjective_forms(entry["fr"])
        describes = self.members(entry.get("of", ""))
        predicate_of = self.members(entry["says"]) if "says" in entry else describes
        return Adjective(english, forms, entry.get("before", False), frozenset(describes), frozenset(predicate_of))

    def _verb(self, key: str, entry: dict[str, Any]) -> Verb:
        english = entry.get("en", key.replace("_", " ") if key.startswith("be_") else "").split()
        slots = [self._slot(slot, entry) for slot in entry.get("slots", [])]
        if not english:
            # "look_for" has its preposition in the slot, since the noun may be separated from it
            english = key.split("_")
            if slots and english[-1] == " ".join(slots[0].english):
                english.pop()
        head = english[0]
        french, reflexive = _without_reflexive(entry["fr"])
        infinitive, *tail = french.split()
        present, participle = self._conjugation(infinitive)
        return Verb(
            key=key,
            english=tuple(english),
            third="has" if head == "have" else _plus_s(head),
            past=entry.get("past", _plus_ed(head)),
            progressive=_plus_ing(head, head in self.data["doubled"].split()),
            french=infinitive,
            present=present,
            participle=participle,
            être=infinitive in self.data["with_être"].split(),
            reflexive=reflexive,
            tail=tuple(tail),
            slots=tuple(slots),
            who=self.members(entry.get("who", "human")),
            dets=tuple(entry.get("dets", "").split()),
            places=self.members(entry.get("at", "")),
            manners=tuple(entry.get("how", "").split()),
            **{flag: entry.get(flag, False) for flag in ("state", "simple", "past_only", "unplanned")},
        )

    def _slot(self, text: str, entry: dict[str, Any]) -> Slot:
        prepositions, _, nouns = text.partition(" ")
        english, french = ("" if word == "-" else word for word in prepositions.split("/"))
        if french in PLACES:  # a place has its own prepositions
            english = ""
        return Slot(tuple(english.split()), french, self.members(nouns), entry.get("strong", False))

    def _conjugation(self, infinitive: str) -> tuple[tuple[str, ...], str]:
        if infinitive in self.data["conjugations"]:
            *present, participle = self.data["conjugations"][infinitive].split()
            return tuple(present), participle
        stem, ending = infinitive[:-2], infinitive[-2:]
        if infinitive == "naître":
            return ("nais", "naît", "naissons", "naissez", "naissent"), "né"
        if ending == "ir":
            return tuple(stem + end for end in ("is", "it", "issons", "issez", "issent")), stem + "i"
        if ending == "re":
            return tuple(stem + end for end in ("s", "", "ons", "ez", "ent")), stem + "u"
        strong = self.data["strong_stems"].get(infinitive, stem)
        we = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
        return (strong + "e", strong + "e", we + "ons", stem + "ez", strong + "ent"), stem + "é"


def _noun(english: str, french: str, kind: str, mass: bool, english_plurals: dict[str, str]) -> Noun:
    given, _, irregular = french.partition(" | ")
    always_plural = given.endswith(" plural")
    form, gender = given.removesuffix(" plural").rsplit(" ", 1)
    plural = form if always_plural else irregular or _french_plural(form)
    english_plural = english if always_plural else english_plurals.get(english, _plus_s(english))
    return Noun(english, english_plural, form, plural, gender, kind, mass, always_plural)


def _french_plural(word: str) -> str:
    if word[-1] in "sxz":
        return word
    if word.endswith(("eau", "eu")):
        return word + "x"
    return word[:-2] + "aux" if word.endswith("al") else word + "s"


def _adjective_forms(masculine: str) -> tuple[str, str, str, str]:
    irregular = {
        "beau": "belle",
        "nouveau": "nouvelle",
        "vieux": "vieille",
        "bon": "bonne",
        "long": "longue",
        "blanc": "blanche",
        "frais": "fraîche",
        "inquiet": "inquiète",
        "gentil": "gentille",
        "gros": "grosse",
    }
    feminine = irregular.get(masculine)
    if feminine is None:
        if masculine.endswith("e"):
            feminine = masculine
        elif masculine.endswith("er"):
            feminine = masculine[:-2] + "ère"
        elif masculine.endswith("eux"):
            feminine = masculine[:-1] + "se"
        elif masculine.endswith("en"):
            feminine = masculine + "ne"
        else:
            feminine = masculine + "e"
    plural = "bleus" if masculine == "bleu" else _french_plural(masculine)
    return masculine, feminine, plural, feminine + "s"


def _without_reflexive(infinitive: str) -> tuple[str, bool]:
    for pronoun in ("se ", "s'"):
        if infinitive.startswith(pronoun):
            return infinitive.removeprefix(pronoun), True
    return infinitive, False


def _plus_s(word: str) -> str:
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "o")) else "s")


def _plus_ed(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    return word[:-1] + "ied" if word.endswith("y") and word[-2] not in "aeou" else word + "ed"


def _plus_ing(word: str, doubled: bool) -> str:
    if doubled:
        return word + word[-1] + "ing"
    return word[:-1] + "ing" if word.endswith("e") and word != "be" else word + "ing"
