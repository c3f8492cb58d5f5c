"""Random clauses that make sense, including their relative clauses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from scripts.demo_corpus.circumstance_sampler import CircumstanceSampler
from scripts.demo_corpus.grammar import Clause
from scripts.demo_corpus.lexicon import PLACES, Slot, Verb
from scripts.demo_corpus.noun_phrase_sampler import FREE_DETS, SPEAKERS, NounPhraseSampler
from scripts.demo_corpus.noun_phrases import Both, Gap, NounPhrase, Place
from scripts.demo_corpus.pronouns import PRONOUNS, Pronoun
from scripts.demo_corpus.word_sampler import WordSampler

TENSES = ("present", "present", "past", "past", "future")
HUMAN_OBJECT_DETS = ("the", "the", "their_own", "of", "this", "a", "count", "the_plural")


@final
@dataclass(frozen=True)
class Wish:
    """Requirements of a clause. `detail` 0 is bare; 1 has adjectives, places and times; 2 has relative clauses too."""

    detail: int = 0
    negation: str | None = None  # None: at random
    question: str = ""
    gap: Gap | None = None
    modal: bool = True
    time: bool = True
    noun_object: bool = False


@final
class ClauseSampler:
    def __init__(self, words: WordSampler) -> None:
        self.words, self.lexicon, self.rng = words, words.lexicon, words.rng
        self.chance, self.pick, self.is_human = words.chance, words.pick, words.is_human
        self.noun_phrases = NounPhraseSampler(words)
        self.circumstances = CircumstanceSampler(self.noun_phrases)
        verbs = self.lexicon.verbs.values()
        self.clause_verbs = [verb for verb in verbs if any("CLAUSE" in slot.nouns for slot in verb.slots)]
        special = {"be", *(verb.key for verb in self.clause_verbs)}
        self.plain_verbs = [verb for verb in verbs if verb.key not in special]
        self.human_verbs = [verb for verb in self.plain_verbs if "man" in verb.who]

    def clause(self, wish: Wish, subject: Any = None, verbs: Sequence[Verb] = (), tense: str = "") -> Clause:
        """Draw a clause; `subject`, `verbs` and `tense` are drawn too if they are not given."""
        tense = tense or self.rng.choice(TENSES)
        verb = self.words.pick_verb(verbs or self.plain_verbs, tense)
        if subject is None:
            subject = self.noun_phrases.subject(verb.who, wish.detail, asked=bool(wish.question))
            subject = self._perhaps_with_relative(subject, wish.detail)
        negation = self._negation() if wish.negation is None else wish.negation
        if negation == "never" and (tense == "future" or verb.state):
            negation = "not"
        if negation and getattr(subject, "det", "") == "all":  # "all do not" would be ambiguous
            subject = replace(subject, det="the")
        clause = Clause(subject, verb, (), tense, negation, question=wish.question)
        if tense_is_hidden(clause):
            clause = replace(clause, tense="future", negation="not" if negation else "")
        complements = []
        for number, slot in enumerate(verb.slots):
            gap = wish.gap if number == 0 and wish.gap else None
            relatives = wish.detail if number == len(verb.slots) - 1 else min(wish.detail, 1)
            complements.append(gap or self.complement(slot, clause, relatives, wish.noun_object and number == 0))
        clause = replace(clause, complements=tuple(complements))
        clause = self._modal(clause, wish)
        return self._adverbials(clause, wish) if wish.detail or wish.time else clause

    def noun_phrase(self, english: str, dets: Sequence[str] = (), detail: int = 0, subject: Any = None) -> NounPhrase:
        """Draw a noun phrase, which may have a relative clause."""
        phrase = self.noun_phrases.noun_phrase(english, dets, detail, subject)
        return self._perhaps_with_relative(phrase, detail)

    def _perhaps_with_relative(self, phrase: Any, detail: int) -> Any:
        if detail < 2 or not isinstance(phrase, NounPhrase):
            return phrase
        open_to_one = phrase.det in ("the", "a") and not phrase.noun.mass and not phrase.adjectives
        if open_to_one and self.chance(0.5):
            return replace(phrase, relative=self.relative(phrase))
        return phrase

    def relative(self, phrase: NounPhrase) -> Clause | None:
        noun, human = phrase.noun, self.is_human(phrase.noun.english)
        gap = Gap(noun, phrase.plural, human)
        wish = Wish(negation="", modal=False, time=False)
        if human and self.chance(0.6):
            if self.chance(0.25):
                adjectives = self.lexicon.adjectives
                state = self.pick([word for word, entry in adjectives.items() if noun.english in entry.predicate_of])
                return Clause(gap, self.lexicon.verbs["be"], (adjectives[state],))
            verbs = [verb for verb in self.plain_verbs if noun.english in verb.who]
            return self.clause(wish, gap, verbs, self.rng.choice(("present", "past")))
        verbs = [v for v in self.plain_verbs if v.slots and v.slots[0].direct and noun.english in v.slots[0].nouns]
        verbs = [verb for verb in verbs if "generic" not in verb.dets and verb.key not in ("want", "have")]
        if not verbs:
            return None
        for _ in range(20):
            tense = self.rng.choice(("present", "past", "past"))
            clause = self.clause(replace(wish, gap=gap), None, verbs, tense)
            same = human and clause.subject == self.noun_phrases.again(phrase)
            if not isinstance(clause.subject, Both) and not same:
                return clause
        return None

    def complement(self, slot: Slot, clause: Clause, detail: int, noun_only: bool = False) -> Any:
        if "PROFESSION" in slot.nouns:
            return self.noun_phrases.profession()
        cities = self.lexicon.data["nouns"]["city"]
        noun = self.lexicon.nouns[self.pick([noun for noun in slot.nouns if not (noun_only and noun in cities)])]
        if slot.french in PLACES:
            return self.circumstances.place(noun, slot.french, detail)
        human = self.is_human(noun.english)
        if human and not noun_only and self.chance(0.45):
            taken = clause.subject.english if isinstance(clause.subject, Pronoun) else ""
            taken = {"I": "I we", "we": "I we", "you": "you"}.get(taken, "").split()
            return PRONOUNS[self.rng.choice([word for word in SPEAKERS if word not in taken])]
        if slot is clause.verb.slots[0]:
            dets = clause.verb.dets or (HUMAN_OBJECT_DETS if human else ())
        else:
            dets = ("the", "their_own", "of", "this") if human else ()
        if clause.negation and slot.direct:
            dets = [det for det in dets or FREE_DETS if det not in ("count", "many")] or ["a"]
        relatives = min(detail, 1) if clause.negation or clause.question else detail
        phrase = self.noun_phrase(noun.english, dets, relatives, clause.subject)
        if phrase.relative and phrase.relative.verb.french == clause.verb.french:
            phrase = replace(phrase, relative=None)
        return self.noun_phrases.without_clash(clause.verb, phrase)

    def _negation(self) -> str:
        return self.rng.choice(("not", "not", "not", "never")) if self.chance(0.22) else ""

    def _modal(self, clause: Clause, wish: Wish) -> Clause:
        verb = clause.verb
        barred = (
            verb.state or verb.past_only or verb.unplanned or clause.tense == "future" or clause.negation == "never"
        )
        if not wish.modal or barred or wish.gap or not self.chance(0.22):
            return clause
        names = (
            ["try", "begin"] if clause.tense == "past" else ["can", "must", "want", "hope", "prefer", "try", "begin"]
        )
        if clause.negation or clause.question:
            names = [name for name in names if name in ("can", "must", "want")]
        if any(isinstance(part, Pronoun) for part in clause.complements) or verb.reflexive:
            names = [
                name for name in names if name not in ("try", "begin")
            ]  # "de le" and "à les" with pronouns are not contracted
        if verb.simple:
            names = [name for name in names if name not in ("begin", "prefer", "must")]
        return replace(clause, modal=self.lexicon.modals[self.pick(names)]) if names else clause

    def _adverbials(self, clause: Clause, wish: Wish) -> Clause:
        verb, chosen = clause.verb, []
        relative = any(getattr(part, "relative", None) for part in clause.complements)
        if verb.manners and not clause.modal and clause.negation != "never" and self.chance(0.4):
            chosen.append(self.lexicon.manners[self.rng.choice(verb.manners)])
        nouns = [
            noun
            for noun in verb.places
            if noun in self.circumstances.locations or noun in self.lexicon.data["nouns"]["country"]
        ]
        has_place = any(isinstance(part, Place) for part in clause.complements)
        if nouns and wish.detail and not has_place and not relative and wish.question != "where" and self.chance(0.45):
            chosen.append(self.circumstances.place(self.lexicon.nouns[self.pick(nouns)], "lieu", wish.detail))
        often = (
            clause.tense == "present"
            and not (verb.state or clause.modal or clause.negation)
            and wish.question != "when"
        )
        if wish.detail and often and verb.key != "become" and self.chance(0.18):
            chosen = [part for part in chosen if isinstance(part, Place)]
            return replace(clause, adverbials=tuple(chosen), frequency=self.rng.choice(self.lexicon.frequency))
        if not wish.time or verb.state or clause.negation == "never" or wish.question == "when" or verb.past_only:
            return replace(clause, adverbials=tuple(chosen))
        if (
            clause.tense == "present"
            and not (verb.simple or clause.modal)
            and self.chance(0.2)
            and not (wish.gap or relative)
        ):
            chosen.append(self.lexicon.times["now"][0])
            return replace(clause, adverbials=tuple(chosen), progressive=True)
        if (clause.modal and clause.tense == "present") or not wish.detail or not self.chance(0.5):
            return replace(clause, adverbials=tuple(chosen))
        time = self.circumstances.time(clause.tense, verb)
        if not wish.question and (relative or self.chance(0.35)):
            return replace(clause, adverbials=tuple(chosen), opening=time)
        return replace(clause, adverbials=(*chosen, time))


def tense_is_hidden(clause: Clause) -> bool:
    """Return whether the English present and past are the same, as in "they read"."""
    same = clause.verb.past == clause.verb.english[0] and clause.tense != "future"
    shown = clause.subject.person == 1 or clause.negation == "not" or clause.question not in ("", "who")
    return same and not shown
