"""Random questions: yes or no, where, when, why, how, who, and what or which for an object."""

from dataclasses import replace
from typing import final

from scripts.demo_corpus.clause_sampler import TENSES, ClauseSampler, Wish
from scripts.demo_corpus.grammar import Clause
from scripts.demo_corpus.lexicon import Verb
from scripts.demo_corpus.links import Parts
from scripts.demo_corpus.noun_phrases import Gap
from scripts.demo_corpus.pronouns import PRONOUNS
from scripts.demo_corpus.statement_sampler import StatementSampler

KINDS = ("where", "where is", "where is", "when", "why", "how", "what", "whom", "which", "which", "who")


@final
class QuestionSampler:
    def __init__(self, clauses: ClauseSampler, statements: StatementSampler) -> None:
        self.statements = statements
        self.clauses, self.noun_phrases = clauses, clauses.noun_phrases
        self.words, self.lexicon = clauses.words, clauses.lexicon
        self.rng, self.chance, self.pick = clauses.rng, clauses.chance, clauses.pick

    def yes_no(self) -> Parts:
        if self.chance(0.25):
            return (self.statements.is_so("yes_no"),)
        return (self.clauses.clause(Wish(detail=1, negation="", question="yes_no")),)

    def asking(self) -> Parts:
        kind = self.rng.choice(KINDS)
        if kind == "where is":
            noun = self.pick(self.lexicon.members("pet portable clothing kin building name transport"))
            phrase = self.clauses.noun_phrase(noun, ("the", "the", "my", "of"), detail=2)
            return (Clause(phrase, self.lexicon.verbs["be"], (Gap(),), question="where"),)
        if kind == "who":
            wish = Wish(detail=1, negation="", question="who")
            return (self.clauses.clause(wish, PRONOUNS["who"], self.clauses.human_verbs),)
        if kind in ("what", "whom", "which"):
            return (self._asking_object(kind),)
        choices = [verb for verb in self.clauses.human_verbs if not verb.state and not verb.past_only]
        if kind == "where":
            choices = [verb for verb in choices if verb.places]
        elif kind == "how":
            choices = [verb for verb in choices if verb.key in self.lexicon.data["how"].split()]
        return (self.clauses.clause(Wish(detail=1, negation="", question=kind, modal=False), verbs=choices),)

    def _asking_object(self, kind: str) -> Clause:
        choices = [verb for verb in self.clauses.plain_verbs if self._asked(verb, kind)]
        tense = self.rng.choice(TENSES)
        verb = self.words.pick_verb(choices, tense)
        noun = self.lexicon.nouns[self.pick(self._asked(verb, kind))]
        wish = Wish(detail=1, negation="", question=kind, gap=Gap())
        clause = self.clauses.clause(wish, None, [verb], tense)
        if kind != "which":
            return clause
        det = "which" if self.chance(0.5) else "how many"
        plural = det == "how many" or (self.chance(0.3) and noun.english not in self.noun_phrases.single)
        fronted = replace(self.clauses.noun_phrase(noun.english, ("the",), detail=1), det=det, plural=plural)
        return replace(clause, fronted=fronted, complements=(Gap(noun, plural), *clause.complements[1:]))

    def _asked(self, verb: Verb, kind: str) -> list[str]:
        """Return the object nouns for which the question may ask."""
        if not verb.slots or not verb.slots[0].direct or {"generic", "bare"} & set(verb.dets):
            return []
        if kind == "what" and verb.key == "tell":  # "tell somebody", but "tell a story to somebody"
            return []
        nouns = [self.lexicon.nouns[noun] for noun in verb.slots[0].nouns if noun in self.lexicon.nouns]
        if kind == "whom":
            return [noun.english for noun in nouns if self.clauses.is_human(noun.english)]
        things = [n for n in nouns if not self.clauses.is_human(n.english) and n.kind not in ("city", "country")]
        return [noun.english for noun in things if kind == "what" or not noun.mass]
