"""The kinds of sentences in the demo corpus, with their relative frequencies."""

import random
from typing import Any, final

from scripts.demo_corpus.clause_sampler import ClauseSampler
from scripts.demo_corpus.compound_sampler import CompoundSampler
from scripts.demo_corpus.grammar import Clause, walk
from scripts.demo_corpus.lexicon import Lexicon
from scripts.demo_corpus.links import Parts
from scripts.demo_corpus.noun_phrases import Both, NounPhrase
from scripts.demo_corpus.pronouns import Pronoun
from scripts.demo_corpus.question_sampler import QuestionSampler
from scripts.demo_corpus.report_sampler import ReportSampler
from scripts.demo_corpus.statement_sampler import StatementSampler
from scripts.demo_corpus.word_sampler import WordSampler

HUMAN_KINDS = ("person", "profession", "kin", "pet", "farm_animal", "wild_animal")


@final
class SentenceSampler:
    def __init__(self, lexicon: Lexicon, rng: random.Random) -> None:
        self.rng = rng
        clauses = ClauseSampler(WordSampler(lexicon, rng))
        statements, compounds = StatementSampler(clauses), CompoundSampler(clauses)
        questions = QuestionSampler(clauses, statements)
        reports = ReportSampler(clauses, statements, compounds)
        self.kinds = {
            statements.statement: 24,
            statements.copula: 10,
            statements.there_is: 5,
            questions.yes_no: 8,
            questions.asking: 12,
            compounds.chain: 10,
            compounds.contrast: 6,
            compounds.reason: 9,
            reports.reported: 8,
            compounds.whenever: 4,
            compounds.together: 10,
            reports.relayed: 20,
        }

    def sentence(self) -> Parts:
        (kind,) = self.rng.choices(list(self.kinds), list(self.kinds.values()))
        parts = kind()
        nodes = walk(parts)
        nouns = [node.noun for node in nodes if isinstance(node, NounPhrase)]
        verbs = [node.verb.key for node in nodes if isinstance(node, Clause) and node.progressive]
        repeats = len(nouns) > len(set(nouns)) or len(verbs) > len(set(verbs))
        return self.sentence() if repeats or not they_are_clear(nodes) else parts


def they_are_clear(nodes: list[Any]) -> bool:
    """Return whether each "they" or "them" has one French form: there is no plural of the other gender."""
    phrases = [node for node in nodes if isinstance(node, NounPhrase | Both) and node.plural]
    humans = [phrase for phrase in phrases if isinstance(phrase, Both) or phrase.noun.kind in HUMAN_KINDS]
    for clause in nodes:
        if not isinstance(clause, Clause):
            continue
        for pronoun, others in [(clause.subject, humans), *((part, phrases) for part in clause.complements)]:
            is_they = isinstance(pronoun, Pronoun) and pronoun.english == "they"
            if is_they and any(phrase.gender != pronoun.gender for phrase in others):
                return False
    return True
