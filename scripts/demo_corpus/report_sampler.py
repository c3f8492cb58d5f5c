"""Random reports: somebody thinks, hopes, says or knows that a sentence is true."""

from dataclasses import replace
from typing import final

from scripts.demo_corpus.clause_sampler import ClauseSampler, Wish
from scripts.demo_corpus.compound_sampler import CompoundSampler
from scripts.demo_corpus.grammar import Clause
from scripts.demo_corpus.lexicon import Verb
from scripts.demo_corpus.links import AND, AND_THEN, BUT, THAT, Parts
from scripts.demo_corpus.statement_sampler import StatementSampler


@final
class ReportSampler:
    def __init__(self, clauses: ClauseSampler, statements: StatementSampler, compounds: CompoundSampler) -> None:
        self.statements, self.compounds = statements, compounds
        self.clauses, self.noun_phrases = clauses, clauses.noun_phrases
        self.words, self.rng, self.chance = clauses.words, clauses.rng, clauses.chance

    def reported(self) -> Parts:
        inner = self.statements.is_so() if self.chance(0.2) else self.clauses.clause(Wish(detail=2))
        verb = self._reporting(inner)
        subject = self.noun_phrases.subject(self.noun_phrases.humans)
        return (Clause(subject, verb, (replace(inner, opening=None),)),)

    def _reporting(self, *reported: Clause) -> Verb:
        """Draw a verb for the clauses; "hope" is for the future only."""
        verbs = self.clauses.clause_verbs
        if any(clause.tense != "future" for clause in reported):
            verbs = [verb for verb in verbs if verb.key != "hope"]
        return self.words.pick_verb(verbs, "present")

    def relayed(self) -> Parts:
        """Draw a report of two clauses, each after "that" if they are coordinated."""
        two = self.compounds
        kind = self.rng.choice((two.chain, two.contrast, two.reason, two.together, two.together))
        leading, link, following = kind()
        verb = self._reporting(leading, following)
        subject = self.noun_phrases.subject(self.noun_phrases.humans, unlike=leading.subject)
        report = Clause(subject, verb, (replace(leading, opening=None),))
        return (report, link, THAT, following) if link in (AND, AND_THEN, BUT) else (report, link, following)
