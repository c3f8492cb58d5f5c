"""A small bilingual grammar: a meaning is a tree of which each node has an English and a French form."""

from dataclasses import dataclass
from typing import Any, final

from scripts.demo_corpus.lexicon import Adjective, Adverbial, Slot, Verb
from scripts.demo_corpus.noun_phrases import Both, Gap, NounPhrase, Place, Profession, agree
from scripts.demo_corpus.pronouns import Pronoun
from scripts.demo_corpus.spelling import Words
from scripts.demo_corpus.verb_groups import english_verb_group, french_verb_group, is_adverb, takes_clitic

QUESTIONS = {
    "who": ("", ""),
    "yes_no": ("", "est-ce que"),
    "which": ("", "est-ce que"),
    "where": ("where", "où est-ce que"),
    "when": ("when", "quand est-ce que"),
    "why": ("why", "pourquoi est-ce que"),
    "how": ("how", "comment est-ce que"),
    "what": ("what", "qu'est-ce que"),
    "whom": ("who", "qui est-ce que"),
}


@final
@dataclass(frozen=True)
class Clause:
    subject: Any  # Pronoun | NounPhrase | Both | Gap
    verb: Verb
    complements: tuple[Any, ...] = ()  # one for each slot of the verb
    tense: str = "present"
    negation: str = ""  # "not" or "never"
    modal: Verb | None = None
    frequency: Adverbial | None = None
    adverbials: tuple[Any, ...] = ()
    opening: Adverbial | None = None
    question: str = ""
    fronted: NounPhrase | None = None
    progressive: bool = False

    def say_english(self) -> Words:
        opening = [*self.opening.english, ","] if self.opening else []
        subject = _subject(self.subject, "english")
        auxiliary, rest = english_verb_group(self)
        if self.question not in ("", "who"):
            asked = self.fronted.say_english() if self.fronted else QUESTIONS[self.question][0].split()
            words = [*asked, *auxiliary[:1], *subject, *auxiliary[1:], *rest]
        else:
            words = [*subject, *auxiliary, *rest]
        any_ = bool(self.negation) or self.question == "yes_no"
        for slot, complement in zip(self.verb.slots, self.complements, strict=True):
            words += [*slot.english, *_complement_english(complement, self.subject, any_)]
        return opening + words + [word for part in self.adverbials for word in _adverbial(part, "english")]

    def say_french(self) -> Words:
        words = [*self.opening.french, ","] if self.opening else []
        subject, asked = _subject(self.subject, "french"), []
        if self.question:
            asked = QUESTIONS[self.question][1].split()
            asked = (self.fronted.say_french() if self.fronted else []) + asked
        verb = french_verb_group(self)
        if self.question == "where" and self.verb.french == "être":
            words += ["où", *verb, *subject]
        else:
            words += [*asked, *subject, *verb]
        words += self.verb.tail
        manners = [part for part in self.adverbials if is_adverb(part, "manner") and not part.mid]
        words += [word for part in manners for word in part.french]
        for slot, complement in zip(self.verb.slots, self.complements, strict=True):
            words += _complement_french(complement, slot, self)
        later = [part for part in self.adverbials if not (is_adverb(part, "manner") or is_adverb(part, "mid"))]
        return words + [word for part in later for word in _adverbial(part, "french")]


def _subject(subject: Any, language: str) -> Words:
    if isinstance(subject, Pronoun):
        return [getattr(subject, language)]
    if isinstance(subject, Gap):
        return ["qui"] if language == "french" else ["who" if subject.human else "that"]
    return subject.say_english() if language == "english" else subject.say_french()


def _adverbial(part: Any, language: str) -> Words:
    if isinstance(part, Adverbial):
        return list(getattr(part, language))
    return part.say_english() if language == "english" else part.say_french()


def _complement_english(complement: Any, subject: Any, any_: bool) -> Words:
    if isinstance(complement, Pronoun):
        return [complement.english_object]
    if isinstance(complement, Gap):
        return []
    if isinstance(complement, Adjective):
        return [complement.english]
    if isinstance(complement, Profession):
        noun = complement.masculine
        return [noun.english_plural] if subject.plural else ["a", noun.english]
    if isinstance(complement, NounPhrase | Both):
        return complement.say_english(any_)
    return complement.say_english()


def _complement_french(complement: Any, slot: Slot, clause: Clause) -> Words:
    if isinstance(complement, Gap):
        return []
    if isinstance(complement, Pronoun):
        return [] if takes_clitic(slot) else [slot.french, complement.strong]
    if isinstance(complement, Adjective):
        return [agree(complement, clause.subject)]
    if isinstance(complement, Profession):
        noun = complement.feminine if clause.subject.gender == "f" else complement.masculine
        return [noun.french_plural if clause.subject.plural else noun.french]
    if isinstance(complement, Place):
        return complement.say_french()
    if isinstance(complement, Clause):
        return [slot.french, *complement.say_french()]
    return [*slot.french.split(), *complement.say_french(bool(clause.negation) and slot.direct)]


def walk(node: Any) -> list[Any]:
    """Return a meaning and all its parts, down to words."""
    nodes, waiting = [], [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif not isinstance(part, str | int | None):
            nodes.append(part)
            if type(part) in (Clause, NounPhrase, Both, Place, Profession, Gap):
                waiting += vars(part).values()
    return nodes
