"""Random statements of one clause: actions, properties, and what there is."""

from dataclasses import replace
from typing import final

from scripts.demo_corpus.clause_sampler import ClauseSampler, Wish
from scripts.demo_corpus.grammar import Clause
from scripts.demo_corpus.links import Parts
from scripts.demo_corpus.pronouns import PRONOUNS

# temporary states, which allow a frequency or the future
STATES = ("happy", "sad", "tired", "sick", "worried", "busy", "ready")


@final
class StatementSampler:
    def __init__(self, clauses: ClauseSampler) -> None:
        self.clauses, self.noun_phrases = clauses, clauses.noun_phrases
        self.circumstances, self.lexicon = clauses.circumstances, clauses.lexicon
        self.rng, self.chance, self.pick = clauses.rng, clauses.chance, clauses.pick
        self.be = self.lexicon.verbs["be"]

    def statement(self) -> Parts:
        return (self.clauses.clause(Wish(detail=2)),)

    def copula(self) -> Parts:
        roll = self.rng.random()
        if roll < 0.6:
            return (self.is_so(),)
        negation = "not" if self.chance(0.2) else ""
        if roll < 0.8:
            singles = self.lexicon.members("name kin man woman boy girl friend neighbour")
            human = self.noun_phrases.subject(singles)
            return (Clause(human, self.be, (self.noun_phrases.profession(),), negation=negation),)
        thing = self.pick(self.lexicon.members("pet portable text clothing"))
        pet = thing in self.lexicon.members("pet")
        phrase = self.clauses.noun_phrase(thing, ("the", "of", "this", "my"), detail=1)
        where = self.circumstances.locate("stands" if pet and self.chance(0.5) else "lies")
        return (Clause(phrase, self.be, (where,), negation=negation),)

    def is_so(self, question: str = "") -> Clause:
        """Draw a clause that states a property: somebody or something is ADJECTIVE."""
        adjective = self.lexicon.adjectives[self.pick(list(self.lexicon.adjectives))]
        while not adjective.predicate_of or adjective.english in ("American", "long", "wild"):
            adjective = self.lexicon.adjectives[self.pick(list(self.lexicon.adjectives))]
        who = [noun for noun in self.lexicon.nouns if noun in adjective.predicate_of]
        noun = self.pick(who)
        if self.clauses.is_human(noun):
            subject = self.noun_phrases.subject([word for word in who if self.clauses.is_human(word)])
        else:
            subject = self.clauses.noun_phrase(noun, ("the", "the", "this", "of", "my", "all"))
            if self.chance(0.4) and subject.det == "the":
                subject = replace(subject, relative=self.clauses.relative(subject))
        if question and getattr(subject, "count", ("", ""))[0]:
            subject = replace(subject, det="the")
        clause = Clause(subject, self.be, (adjective,), question=question)
        if adjective.english in STATES and not question:
            if self.chance(0.25):
                return replace(clause, frequency=self.rng.choice(self.lexicon.frequency))
            if self.chance(0.2):
                return replace(clause, tense="future")
        denied = not question and getattr(subject, "det", "") != "all" and self.chance(0.25)
        return replace(clause, negation="not" if denied else "")

    def there_is(self) -> Parts:
        human = self.chance(0.3)
        noun = self.pick(self.lexicon.members("crowd pet" if human else "portable food vessel text"))
        where = self.circumstances.locate("stands" if human else "lies")
        question = "yes_no" if self.chance(0.25) else ""
        negation = "not" if not question and self.chance(0.25) else ""
        dets = ("a", "some") if negation or question else ("a", "some", "count", "many")
        phrase = self.clauses.noun_phrase(noun, dets, detail=1)
        # "il y a": y takes the place of a reflexive pronoun
        there = replace(PRONOUNS["he"], english="there", reflexive="y", person=4 if phrase.plural else 1)
        have = self.lexicon.verbs["have"]
        verb = replace(have, key="be", english=("be",), reflexive=True, present=("a",) * 5)
        return (Clause(there, verb, (phrase,), negation=negation, adverbials=(where,), question=question),)
