"""A small bilingual grammar: one meaning, said in English and in French.

A meaning is a tree of `Clause`, `NounPhrase`, `Pronoun` and friends. Each knows its words in both languages;
agreement, clitics and negation are decided here, elision and contraction last, over the French words.
"""

import re
from dataclasses import dataclass
from typing import Any, final

from demo_lexicon import Adjective, Adverbial, Noun, Slot, Verb

VOWELS = "aàâeéèêëiîïoôuûœ"
NO_ELISION = ("haricot", "homard", "hamster", "hibou", "héros", "haut", "hache", "harpe", "huit", "onze")
ELIDED = {"le", "la", "je", "me", "se", "ne", "de", "que"}
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
AUXILIARY = {
    "avoir": ("ai", "a", "avons", "avez", "ont"),
    "être": ("suis", "est", "sommes", "êtes", "sont"),
    "aller": ("vais", "va", "allons", "allez", "vont"),
}
BE = ("am", "is", "are", "are", "are")
POSSESSIVES = {
    "my": ("mon", "ma/mon", "mes"), "your": ("votre", "votre", "vos"), "his": ("son", "sa/son", "ses"),
    "her": ("son", "sa/son", "ses"), "our": ("notre", "notre", "nos"), "their": ("leur", "leur", "leurs"),
}  # fmt: skip
DETERMINERS = POSSESSIVES | {
    "the": ("le", "la", "les"), "generic": ("le", "la", "les"), "this": ("ce/cet", "cette", "ces"),
    "a": ("un", "une", "des"), "which": ("quel", "quelle", "quels"),
    "all": ("tout le", "toute la", "tous les"), "of": ("le", "la", "les"),
    "many": ("", "", "beaucoup de"), "how many": ("", "", "combien de"),
}  # fmt: skip
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
Words = list[str]


@final
@dataclass(frozen=True)
class Pronoun:
    english: str
    english_object: str
    french: str
    direct: str
    dative: str
    strong: str
    reflexive: str
    person: int  # place in AUXILIARY's rows
    gender: str = "m"
    plural: bool = False


PRONOUNS = {
    "I": Pronoun("I", "me", "je", "me", "me", "moi", "me", 0),
    "you": Pronoun("you", "you", "vous", "vous", "vous", "vous", "vous", 3),
    "he": Pronoun("he", "him", "il", "le", "lui", "lui", "se", 1),
    "she": Pronoun("she", "her", "elle", "la", "lui", "elle", "se", 1, "f"),
    "it": Pronoun("it", "it", "il", "le", "lui", "lui", "se", 1),
    "it (f)": Pronoun("it", "it", "elle", "la", "lui", "elle", "se", 1, "f"),
    "we": Pronoun("we", "us", "nous", "nous", "nous", "nous", "nous", 2, "m", True),
    "they": Pronoun("they", "them", "ils", "les", "leur", "eux", "se", 4, "m", True),
    "they (f)": Pronoun("they", "them", "elles", "les", "leur", "elles", "se", 4, "f", True),
    "who": Pronoun("who", "whom", "qui", "", "", "", "se", 1),
}


@final
@dataclass(frozen=True)
class Gap:
    """Where a relative clause or a question has moved its subject or object away from."""

    noun: Noun | None = None
    plural: bool = False
    human: bool = False
    reflexive: str = "se"

    @property
    def person(self) -> int:
        return 4 if self.plural else 1

    @property
    def gender(self) -> str:
        return self.noun.gender if self.noun else "m"


@final
@dataclass(frozen=True)
class NounPhrase:
    noun: Noun
    det: str = "the"
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    count: tuple[str, str] = ("", "")
    owner: "NounPhrase | None" = None
    relative: "Clause | None" = None
    reflexive: str = "se"

    @property
    def person(self) -> int:
        return 4 if self.plural else 1

    @property
    def gender(self) -> str:
        return self.noun.gender

    def say_english(self, any_: bool = False) -> Words:
        many = self.plural and not self.noun.mass
        det = "all the" if self.det == "all" else "these" if self.det == "this" and many else self.det
        if self.det == "of" and self.owner:
            *start, last = self.owner.say_english()
            det = " ".join([*start, last + ("'" if last.endswith("s") and self.owner.plural else "'s")])
        elif self.det == "a" and (many or self.noun.mass):
            det = "any" if any_ else "some"
        elif self.det in ("generic", ""):
            det = ""
        words = [*det.split(), *self.count[0].split(), *(adjective.english for adjective in self.adjectives)]
        words.append(self.noun.english_plural if many else self.noun.english)
        if self.relative:
            words += [*self._relative_word("that"), *self.relative.say_english()]
        return words

    def say_french(self, negated: bool = False) -> Words:
        before = [adjective for adjective in self.adjectives if adjective.before]
        words = self._french_determiner(negated, bool(before)) + self.count[1].split()
        words += [agree(adjective, self, prenominal=True) for adjective in before]
        words += (self.noun.french_plural if self.plural else self.noun.french).split()
        words += [agree(adjective, self) for adjective in self.adjectives if not adjective.before]
        if self.owner:
            words += ["de", *self.owner.say_french()]
        if self.relative:
            words += [*self._relative_word("que"), *self.relative.say_french()]
        return words

    def _relative_word(self, of_object: str) -> Words:
        """That of a subject is said by the clause, in the subject's place."""
        return [] if self.relative and isinstance(self.relative.subject, Gap) else [of_object]

    def _french_determiner(self, negated: bool, adjective_first: bool) -> Words:
        if not self.det:
            return []
        row = 2 if self.plural else int(self.noun.gender == "f")
        if self.det == "a" and (negated or (self.plural and adjective_first)):
            return ["de"]
        if self.det == "a" and self.noun.mass:
            return ["de", DETERMINERS["the"][row]]
        if self.det == "which" and self.plural and self.noun.gender == "f":
            return ["quelles"]
        if self.det == "all" and self.plural and self.noun.gender == "f":
            return ["toutes", "les"]
        return DETERMINERS[self.det][row].split()


@final
@dataclass(frozen=True)
class Both:
    """Two noun phrases joined by "and"."""

    first: NounPhrase
    second: NounPhrase
    reflexive: str = "se"
    person: int = 4
    plural: bool = True

    @property
    def gender(self) -> str:
        return "f" if self.first.gender == self.second.gender == "f" else "m"

    def say_english(self, any_: bool = False) -> Words:
        return [*self.first.say_english(any_), "and", *self.second.say_english(any_)]

    def say_french(self, negated: bool = False) -> Words:
        return [*self.first.say_french(negated), "et", *self.second.say_french(negated)]


@final
@dataclass(frozen=True)
class Profession:
    """The predicate of "she is a doctor": no article in French, and the subject's gender."""

    masculine: Noun
    feminine: Noun


@final
@dataclass(frozen=True)
class Place:
    """A noun phrase behind a preposition that says where."""

    english: str
    french: str
    phrase: NounPhrase

    def say_english(self) -> Words:
        return [*self.english.split(), *self.phrase.say_english()]

    def say_french(self) -> Words:
        return [*self.french.split(), *self.phrase.say_french()]


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
        auxiliary, rest = self._english_verb()
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
        verb = self._french_verb()
        if self.question == "where" and self.verb.french == "être":
            words += ["où", *verb, *subject]
        else:
            words += [*asked, *subject, *verb]
        words += self.verb.tail
        manners = [part for part in self.adverbials if _is(part, "manner") and not part.mid]
        words += [word for part in manners for word in part.french]
        for slot, complement in zip(self.verb.slots, self.complements, strict=True):
            words += _complement_french(complement, slot, self)
        later = [part for part in self.adverbials if not (_is(part, "manner") or _is(part, "mid"))]
        return words + [word for part in later for word in _adverbial(part, "french")]

    def _english_verb(self) -> tuple[Words, Words]:
        """The auxiliary with its "not", which a question splits from the rest."""
        person, verb, rest_of_modal = self.subject.person, self.verb, []
        head, *particles = verb.english
        frequency = list(self.frequency.english) if self.frequency else []
        frequency += ["never"] if self.negation == "never" else []
        negative = ["not"] if self.negation == "not" else []
        inverts = self.question not in ("", "who")
        if self.tense == "future":
            return [BE[person], *negative], ["going", "to", *frequency, *verb.english]
        if self.progressive:
            return [BE[person], *negative], [*frequency, verb.progressive, *particles]
        if self.modal and self.modal.key in ("can", "must"):
            modal = (
                ["cannot"]
                if self.modal.key == "can" and negative and not inverts
                else [self.modal.key, *negative]
            )
            return modal, [*frequency, *verb.english]
        if self.modal:
            rest_of_modal = ["to", *verb.english]
            verb, head, particles = self.modal, self.modal.key, []
        if head == "be" or verb.key == "be_born":
            be = BE[person] if self.tense == "present" else "was" if person in (0, 1) else "were"
            return [be, *negative], [*frequency, *particles]
        if negative or inverts:
            do = "did" if self.tense == "past" else "does" if person == 1 else "do"
            return [do, *negative], [*frequency, head, *particles, *rest_of_modal]
        finite = verb.past if self.tense == "past" else verb.third if person == 1 else head
        return [], [*frequency, finite, *particles, *rest_of_modal]

    def _french_verb(self) -> Words:
        person, verb = self.subject.person, self.verb
        clitics = self._clitics()
        auxiliary = AUXILIARY["être" if verb.être or verb.reflexive else "avoir"]
        infinitive = [*clitics, verb.french]
        if self.modal:
            infinitive = [*self.modal.tail, *infinitive]
        if self.tense == "future":
            modal = [self.modal.french] if self.modal else []
            finite, before, after = AUXILIARY["aller"][person], [], [*modal, *infinitive]
        elif self.modal and self.tense == "past":
            finite, before, after = AUXILIARY["avoir"][person], [], [self.modal.participle, *infinitive]
        elif self.modal:
            finite, before, after = self.modal.present[person], [], infinitive
        elif self.tense == "past":
            finite, before, after = auxiliary[person], clitics, [self._participle()]
        else:
            finite, before, after = verb.present[person], clitics, []
        ne, pas = {"": ([], []), "not": (["ne"], ["pas"]), "never": (["ne"], ["jamais"])}[self.negation]
        middle = [self.frequency, *(part for part in self.adverbials if _is(part, "mid"))]
        return [
            *ne,
            *before,
            finite,
            *pas,
            *(word for part in middle if part for word in part.french),
            *after,
        ]

    def _clitics(self) -> Words:
        """me, se, nous, vous < le, la, les < lui, leur."""
        found = [self.subject.reflexive] if self.verb.reflexive else []
        for slot, complement in zip(self.verb.slots, self.complements, strict=True):
            if isinstance(complement, Pronoun) and (slot.direct or (slot.french == "à" and not slot.strong)):
                found.append(complement.direct if slot.direct else complement.dative)
        order = ("me", "se", "nous", "vous", "le", "la", "les", "lui", "leur", "y")
        return sorted(found, key=order.index)

    def _participle(self) -> str:
        """Agrees with the subject after être, with an object that precedes it after avoir."""
        if self.verb.être or self.verb.reflexive:
            return inflect_participle(self.verb.participle, self.subject)
        for slot, complement in zip(self.verb.slots, self.complements, strict=True):
            if slot.direct and isinstance(complement, Pronoun | Gap):
                return inflect_participle(self.verb.participle, complement)
        return self.verb.participle


def walk(node: Any) -> list[Any]:
    """A meaning and all its parts, down to words."""
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


def agree(adjective: Adjective, phrase: Any, prenominal: bool = False) -> str:
    form = adjective.forms[2 * phrase.plural + (phrase.gender == "f")]
    before_vowel = {"beau": "bel", "nouveau": "nouvel", "vieux": "vieil"}
    if prenominal and not phrase.plural and form in before_vowel:
        return f"{form}/{before_vowel[form]}"
    return form


def inflect_participle(participle: str, phrase: Any) -> str:
    form = participle + ("e" if phrase.gender == "f" else "")
    return form + ("s" if phrase.plural and not form.endswith("s") else "")


def _is(part: Any, kind: str) -> bool:
    return isinstance(part, Adverbial) and getattr(part, kind)


def _adverbial(part: Any, language: str) -> Words:
    if isinstance(part, Adverbial):
        return list(getattr(part, language))
    return part.say_english() if language == "english" else part.say_french()


def _subject(subject: Any, language: str) -> Words:
    if isinstance(subject, Pronoun):
        return [getattr(subject, language)]
    if isinstance(subject, Gap):
        return ["qui"] if language == "french" else ["who" if subject.human else "that"]
    return subject.say_english() if language == "english" else subject.say_french()


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
        clitic = slot.direct or (slot.french == "à" and not slot.strong)
        return [] if clitic else [slot.french, complement.strong]
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


def join_french(words: Words) -> str:
    """Elision, contraction and the forms before a vowel ("X/Y": Y before one), from the last word back."""
    said: Words = []
    for word in reversed(" ".join(words).split()):
        following = said[0] if said else ""
        vowel = _starts_with_vowel(following)
        if "/" in word:
            word = word.split("/")[vowel]
        if (word in ELIDED and vowel) or (word == "si" and following in ("il", "ils")):
            said[0] = word[:-1] + "'" + following
        elif (word, following) in CONTRACTED:
            said[0] = CONTRACTED[word, following]
        else:
            said.insert(0, word)
    return _finish(said)


def join_english(words: Words) -> str:
    said: Words = []
    for word in reversed(words):
        article = word == "a" and said and re.match(r"[aeio]|u(?!ni|se)|hon|hour", said[0].lower())
        said.insert(0, "an" if article else word)
    return _finish(said)


def _starts_with_vowel(word: str) -> bool:
    lower = word.lower()
    if not lower or lower.startswith(NO_ELISION):
        return False
    return lower[0] in VOWELS + "h" or lower == "y"


def _finish(words: Words) -> str:
    text = " ".join(words).replace(" ,", ",").replace(" .", ".")
    return text[0].upper() + text[1:]
