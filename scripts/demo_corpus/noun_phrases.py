"""Noun phrases in both languages: determiners, agreement, owners, and what can replace a phrase."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from scripts.demo_corpus.lexicon import Adjective, Noun
from scripts.demo_corpus.spelling import Words

if TYPE_CHECKING:
    from scripts.demo_corpus.grammar import Clause

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


@final
@dataclass(frozen=True)
class Gap:
    """The gap that a moved subject or object leaves in a relative clause or a question."""

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

    def _relative_word(self, pronoun: str) -> Words:
        """Return the relative pronoun of an object; the clause itself produces that of a subject."""
        return [] if self.relative and isinstance(self.relative.subject, Gap) else [pronoun]

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
    """The predicate of "she is a doctor": in French it has no article, and the gender of the subject."""

    masculine: Noun
    feminine: Noun


@final
@dataclass(frozen=True)
class Place:
    """A noun phrase after a preposition of place."""

    english: str
    french: str
    phrase: NounPhrase

    def say_english(self) -> Words:
        return [*self.english.split(), *self.phrase.say_english()]

    def say_french(self) -> Words:
        return [*self.french.split(), *self.phrase.say_french()]


def agree(adjective: Adjective, phrase: Any, prenominal: bool = False) -> str:
    form = adjective.forms[2 * phrase.plural + (phrase.gender == "f")]
    before_vowel = {"beau": "bel", "nouveau": "nouvel", "vieux": "vieil"}
    if prenominal and not phrase.plural and form in before_vowel:
        return f"{form}/{before_vowel[form]}"
    return form
