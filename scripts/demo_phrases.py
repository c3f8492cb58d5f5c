"""Which phrases and clauses the demo corpus says: drawn at random, within what makes sense."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from demo_grammar import PRONOUNS, Both, Clause, Gap, NounPhrase, Place, Profession, Pronoun
from demo_lexicon import PLACES, Adverbial, Lexicon, Noun, Slot, Verb

TENSES = ("present", "present", "past", "past", "future")
SPEAKERS = ("I", "you", "he", "she", "we", "they")
OWNERS = {"I": "my", "you": "your", "we": "our"}
FREE_DETS = ("the", "the", "the", "a", "a", "their_own", "their_own", "this", "of", "some", "count", "many")


@final
@dataclass(frozen=True)
class Wish:
    """What a clause shall be like. `detail` 0 is bare, 1 has adjectives, places, times, 2 relatives too."""

    detail: int = 0
    negation: str | None = None  # None: now and then
    question: str = ""
    gap: Gap | None = None
    modal: bool = True
    time: bool = True
    noun_object: bool = False


@final
class PhraseSampler:
    def __init__(self, lexicon: Lexicon, rng: random.Random) -> None:
        self.lexicon, self.rng = lexicon, rng
        self.used: Counter[str] = Counter()
        self.humans = lexicon.members("human")
        self.is_human = frozenset(self.humans).__contains__
        self.owned = set(lexicon.members(lexicon.data["owned"]))
        self.late = lexicon.members(lexicon.data["colours_and_nations"])
        self.single = set(lexicon.members(lexicon.data["single"]))
        self.clashes = {tuple(pair.split()) for pair in lexicon.data["adjective_clashes"].split(", ")}
        self.locations = self._by_noun("locations")
        self.clause_verbs = [
            v for v in lexicon.verbs.values() if any("CLAUSE" in slot.nouns for slot in v.slots)
        ]
        special = {"be", *(verb.key for verb in self.clause_verbs)}
        self.plain_verbs = [verb for verb in lexicon.verbs.values() if verb.key not in special]

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, words: Sequence[str]) -> str:
        """The less used of two, so that no word stays rare."""
        chosen = min(self.rng.choice(words), self.rng.choice(words), key=lambda word: self.used[word])
        self.used[chosen] += 1
        return chosen

    def pick_verb(self, verbs: Sequence[Verb], tense: str) -> Verb:
        barred = {"past": ("state",), "future": ("state", "past_only", "unplanned")}.get(
            tense, ("past_only", "unplanned")
        )
        fitting = [verb for verb in verbs if not any(getattr(verb, flag) for flag in barred)]
        return self.lexicon.verbs[self.pick([verb.key for verb in fitting])]

    def negation(self, share: float) -> str:
        return self.rng.choice(("not", "not", "not", "never")) if self.chance(share) else ""

    # Noun phrases

    def subject(self, who: Sequence[str], detail: int = 0, unlike: Any = None, asked: bool = False) -> Any:
        humans = [noun for noun in who if self.is_human(noun)]
        animals = [noun for noun in who if not self.is_human(noun)]
        if animals and (not humans or self.chance(0.4)):
            noun = self.lexicon.nouns[self.pick(animals)]
            return self.noun_phrase(noun, None, ("the", "the", "this", "my", "of"), detail)
        for _ in range(20):
            subject = self._human(humans, detail, asked, unlike is None)
            if unlike is None or (subject != unlike and self.again(subject) != self.again(unlike)):
                return subject
        return self.noun_phrase(self.lexicon.nouns["neighbour"], None, ("our",))

    def _human(self, humans: Sequence[str], detail: int, asked: bool, alone: bool) -> Any:
        roll = self.rng.random() if alone else self.rng.uniform(0.3, 1)
        if roll < 0.27:
            return PRONOUNS[self.rng.choice(SPEAKERS[1:] if asked else SPEAKERS)]
        names = [noun for noun in humans if self.lexicon.nouns[noun].kind == "name"]
        if names and roll < 0.45:
            return self._name(names)
        if names and roll < 0.53:
            first, second = self._name(names), self._name(names)
            if self.chance(0.6):
                kin = self.lexicon.nouns[self.pick(self.lexicon.members("kin friend"))]
                second = self.noun_phrase(kin, first, ("their_own",))
            return Both(first, second) if first != second else first
        common = [noun for noun in humans if self.lexicon.nouns[noun].kind != "name"]
        noun = self.lexicon.nouns[self.pick(common)]
        if noun.kind == "kin" or noun.english in ("friend", "neighbour"):
            return self.noun_phrase(noun, None, ("my", "my", "of"), detail)
        dets = (
            "the",
            "the",
            "the",
            "the",
            "this",
            "count",
            "the_count",
            "the_plural",
            *(("all",) if alone else ()),
        )
        return self.noun_phrase(noun, None, dets, detail)

    def _name(self, names: Sequence[str]) -> NounPhrase:
        return NounPhrase(self.lexicon.nouns[self.pick(names)], "")

    def again(self, phrase: Any) -> Pronoun:
        """The pronoun that takes the phrase up."""
        if isinstance(phrase, Pronoun):
            return phrase
        suffix = " (f)" if phrase.gender == "f" else ""
        if phrase.plural:
            return PRONOUNS["they" + suffix]
        if isinstance(phrase, NounPhrase) and self.is_human(phrase.noun.english):
            return PRONOUNS["she" if suffix else "he"]
        return PRONOUNS["it" + suffix]

    def noun_phrase(self, noun: Noun, subject: Any, dets: Sequence[str] = (), detail: int = 0) -> NounPhrase:
        """A phrase for a noun; `subject` is whose it may be, None for anyone."""
        if noun.kind in ("name", "city", "country"):
            return NounPhrase(noun, "")
        options = [det for det in dets if det != "name"] or list(FREE_DETS)
        if noun.english not in self.owned:
            options = [det for det in options if det not in ("of", "their_own", "my", "my_one")] or ["the"]
        if noun.kind == "language" and "bare" not in dets:
            options = ["generic"]
        elif noun.mass:
            options = [det for det in options if det not in ("count", "many", "of", "their_own", "the_count")]
            options += ["some"] if not dets or "some" in dets or "a" in dets else []
        elif noun.kind == "kin" or noun.english in ("friend", "neighbour"):
            options = [det for det in options if det in ("my", "my_one", "of", "their_own", "generic")] or [
                "my",
                "of",
            ]
        det = self.rng.choice(options)
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
        adjectives = self._adjectives(noun) if detail and self.chance(0.42) else ()
        phrase = NounPhrase(noun, det, plural, adjectives, count, owner)
        if detail >= 2 and det in ("the", "a") and not noun.mass and not adjectives and self.chance(0.5):
            return replace(phrase, relative=self.relative(phrase))
        return phrase

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
        return self.noun_phrase(noun, None, ("my_one" if noun.kind == "kin" else "the_one",))

    def _adjectives(self, noun: Noun) -> tuple[Any, ...]:
        fitting = [word for word, entry in self.lexicon.adjectives.items() if noun.english in entry.describes]
        if not fitting:
            return ()
        first = self.lexicon.adjectives[self.pick(fitting)]
        others = [word for word in fitting if word in self.late] if first.before else []
        if others and self.chance(0.3):
            return first, self.lexicon.adjectives[self.pick(others)]
        return (first,)

    def relative(self, phrase: NounPhrase) -> Clause:
        noun, human = phrase.noun, self.is_human(phrase.noun.english)
        gap = Gap(noun, phrase.plural, human)
        if human and self.chance(0.6):
            if self.chance(0.25):
                state = self.pick(
                    [word for word, entry in self.lexicon.adjectives.items() if noun.english in entry.said_of]
                )
                return Clause(gap, self.lexicon.verbs["be"], (self.lexicon.adjectives[state],))
            verbs = [verb for verb in self.plain_verbs if noun.english in verb.who]
            return self.clause(
                self.rng.choice(("present", "past")), gap, verbs, Wish(negation="", modal=False, time=False)
            )
        verbs = [
            v for v in self.plain_verbs if v.slots and v.slots[0].direct and noun.english in v.slots[0].nouns
        ]
        verbs = [verb for verb in verbs if "generic" not in verb.dets and verb.key not in ("want", "have")]
        if not verbs:
            return None
        wish = Wish(negation="", modal=False, time=False, gap=gap)
        for _ in range(20):
            clause = self.clause(self.rng.choice(("present", "past", "past")), None, verbs, wish)
            if not isinstance(clause.subject, Both) and not (human and clause.subject == self.again(phrase)):
                return clause
        return None

    # Complements and adverbials

    def complement(self, slot: Slot, clause: Clause, detail: int, noun_only: bool = False) -> Any:
        if "PROFESSION" in slot.nouns:
            return self.profession()
        nouns = [
            noun for noun in slot.nouns if not (noun_only and noun in self.lexicon.data["nouns"]["city"])
        ]
        noun = self.lexicon.nouns[self.pick(nouns)]
        if slot.french in PLACES:
            return self.place(noun, slot.french, detail)
        human = self.is_human(noun.english)
        if human and not noun_only and self.chance(0.45):
            taken = clause.subject.english if isinstance(clause.subject, Pronoun) else ""
            taken = {"I": "I we", "we": "I we", "you": "you"}.get(taken, "").split()
            return PRONOUNS[self.rng.choice([word for word in SPEAKERS if word not in taken])]
        dets = (
            clause.verb.dets
            if slot is clause.verb.slots[0]
            else ("the", "their_own", "of", "this")
            if human
            else ()
        )
        if human and not dets:
            dets = ("the", "the", "their_own", "of", "this", "a", "count", "the_plural")
        if clause.negation and slot.direct:
            dets = [det for det in dets or FREE_DETS if det not in ("count", "many")] or ["a"]
        relatives = min(detail, 1) if clause.negation or clause.question else detail
        phrase = self.noun_phrase(noun, clause.subject, dets, relatives)
        if phrase.relative and phrase.relative.verb.french == clause.verb.french:
            phrase = replace(phrase, relative=None)
        return self.without_clash(clause.verb, phrase)

    def without_clash(self, verb: Verb, phrase: NounPhrase) -> NounPhrase:
        """Nobody buys a broken clock."""
        if any((verb.key, adjective.english) in self.clashes for adjective in phrase.adjectives):
            return replace(phrase, adjectives=())
        return phrase

    def profession(self) -> Profession:
        noun = self.lexicon.nouns[
            self.pick([word for word in self.lexicon.members("profession") if word != "policeman"])
        ]
        names = self.lexicon.professions(noun.english, False), self.lexicon.professions(noun.english, True)
        return Profession(*(replace(noun, french=name, french_plural=name + "s") for name in names))

    def place(self, noun: Noun, role: str = "lieu", detail: int = 0) -> Place:
        english, french = {
            "lieu": ("in", "à"),
            "but": ("to", "à"),
            "arrivée": ("at", "à"),
            "source": ("from", "de"),
        }[role]
        # "au Japon", but "en France"
        if noun.kind == "country":
            feminine = noun.gender == "f"
            return Place(english, "en" if feminine else "à", NounPhrase(noun, "" if feminine else "generic"))
        if noun.kind == "city":
            return Place(english, french, NounPhrase(noun, ""))
        if role == "lieu":
            english, french = self.locations[noun.english]
        adjectives = self._adjectives(noun) if detail and self.chance(0.25) else ()
        return Place(english, french, NounPhrase(noun, "the", False, adjectives))

    def locate(self, kind: str) -> Place:
        choices = [(key, noun) for key, nouns in self.lexicon.data[kind].items() for noun in nouns.split()]
        where, noun = self.rng.choice(choices)
        english, french = where.split("/")
        return Place(english, french, self.noun_phrase(self.lexicon.nouns[noun], None, ("the_one",), 1))

    def time(self, tense: str, verb: Verb) -> Adverbial:
        if tense in ("past", "future") and self.chance(0.2):
            units = list(self.lexicon.units)[: 4 if verb.key in self.lexicon.data["long_term"].split() else 2]
            unit = self.lexicon.units[self.rng.choice(units)]
            english, french = self.rng.choice(list(self.lexicon.data["numbers"].items())[:9])
            if tense == "past":
                said = f"{english} {unit.english_plural} ago", f"il y a {french} {unit.french_plural}"
            else:
                said = f"in {english} {unit.english_plural}", f"dans {french} {unit.french_plural}"
            return Adverbial(tuple(said[0].split()), tuple(said[1].split()))
        times = self.lexicon.times[tense]
        if verb.key not in self.lexicon.data["seasonal"].split():
            times = [time for time in times if time.english[-1] not in ("summer", "winter")]
        return self.rng.choice(times)

    def _by_noun(self, kind: str) -> dict[str, tuple[str, str]]:
        found = {}
        for key, nouns in self.lexicon.data[kind].items():
            english, french = key.split("/")
            found |= dict.fromkeys(self.lexicon.members(nouns), (english, french))
        return found

    # Clauses

    def clause(self, tense: str, subject: Any, verbs: Sequence[Verb], wish: Wish) -> Clause:
        verb = self.pick_verb(verbs or self.plain_verbs, tense)
        if subject is None:
            subject = self.subject(verb.who, wish.detail, asked=bool(wish.question))
        negation = self.negation(0.22) if wish.negation is None else wish.negation
        if negation == "never" and (tense == "future" or verb.state):
            negation = "not"
        if negation and getattr(subject, "det", "") == "all":  # not all do, or all do not?
            subject = replace(subject, det="the")
        clause = Clause(subject, verb, (), tense, negation, question=wish.question)
        if tense_is_hidden(clause):
            clause = replace(clause, tense="future", negation="not" if negation else "")
        complements = []
        for number, slot in enumerate(verb.slots):
            gap = wish.gap if number == 0 and wish.gap else None
            relatives = wish.detail if number == len(verb.slots) - 1 else min(wish.detail, 1)
            complements.append(
                gap or self.complement(slot, clause, relatives, wish.noun_object and number == 0)
            )
        clause = replace(clause, complements=tuple(complements))
        clause = self._modal(clause, wish)
        return self._adverbials(clause, wish) if wish.detail or wish.time else clause

    def _modal(self, clause: Clause, wish: Wish) -> Clause:
        verb = clause.verb
        barred = (
            verb.state
            or verb.past_only
            or verb.unplanned
            or clause.tense == "future"
            or clause.negation == "never"
        )
        if not wish.modal or barred or wish.gap or not self.chance(0.22):
            return clause
        names = (
            ["try", "begin"]
            if clause.tense == "past"
            else ["can", "must", "want", "hope", "prefer", "try", "begin"]
        )
        if clause.negation or clause.question:
            names = [name for name in names if name in ("can", "must", "want")]
        if any(isinstance(part, Pronoun) for part in clause.complements) or verb.reflexive:
            names = [name for name in names if name not in ("try", "begin")]  # de le, à les: never contracted
        if verb.simple:
            names = [name for name in names if name not in ("begin", "prefer", "must")]
        return replace(clause, modal=self.lexicon.modals[self.pick(names)]) if names else clause

    def _adverbials(self, clause: Clause, wish: Wish) -> Clause:
        verb, said = clause.verb, []
        relative = any(getattr(part, "relative", None) for part in clause.complements)
        if verb.manners and not clause.modal and clause.negation != "never" and self.chance(0.4):
            said.append(self.lexicon.manners[self.rng.choice(verb.manners)])
        nouns = [
            noun
            for noun in verb.places
            if noun in self.locations or noun in self.lexicon.data["nouns"]["country"]
        ]
        has_place = any(isinstance(part, Place) for part in clause.complements)
        if (
            nouns
            and wish.detail
            and not has_place
            and not relative
            and wish.question != "where"
            and self.chance(0.45)
        ):
            said.append(self.place(self.lexicon.nouns[self.pick(nouns)], "lieu", wish.detail))
        often = (
            clause.tense == "present"
            and not (verb.state or clause.modal or clause.negation)
            and wish.question != "when"
        )
        if wish.detail and often and verb.key != "become" and self.chance(0.18):
            said = [part for part in said if isinstance(part, Place)]
            return replace(clause, adverbials=tuple(said), frequency=self.rng.choice(self.lexicon.frequency))
        if (
            not wish.time
            or verb.state
            or clause.negation == "never"
            or wish.question == "when"
            or verb.past_only
        ):
            return replace(clause, adverbials=tuple(said))
        if (
            clause.tense == "present"
            and not (verb.simple or clause.modal)
            and self.chance(0.2)
            and not (wish.gap or relative)
        ):
            said.append(self.lexicon.times["now"][0])
            return replace(clause, adverbials=tuple(said), progressive=True)
        if (clause.modal and clause.tense == "present") or not wish.detail or not self.chance(0.5):
            return replace(clause, adverbials=tuple(said))
        time = self.time(clause.tense, verb)
        if not wish.question and (relative or self.chance(0.35)):
            return replace(clause, adverbials=tuple(said), opening=time)
        return replace(clause, adverbials=(*said, time))


def tense_is_hidden(clause: Clause) -> bool:
    """They read: today, or yesterday?"""
    same = clause.verb.past == clause.verb.english[0] and clause.tense != "future"
    shown = clause.subject.person == 1 or clause.negation == "not" or clause.question not in ("", "who")
    return same and not shown
