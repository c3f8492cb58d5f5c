"""Random sentences of two clauses: a chain, a contrast, a reason, a condition or simultaneous events."""

from dataclasses import replace
from typing import Any, final

from scripts.demo_corpus.clause_sampler import TENSES, ClauseSampler, Wish, tense_is_hidden
from scripts.demo_corpus.grammar import Clause
from scripts.demo_corpus.lexicon import Verb
from scripts.demo_corpus.links import AND, AND_THEN, BECAUSE, BUT, COMMA, IF, WHEN, WHILE, Parts
from scripts.demo_corpus.noun_phrases import Both


@final
class CompoundSampler:
    def __init__(self, clauses: ClauseSampler) -> None:
        self.clauses, self.noun_phrases = clauses, clauses.noun_phrases
        self.circumstances, self.words, self.lexicon = clauses.circumstances, clauses.words, clauses.lexicon
        self.rng, self.chance, self.pick = clauses.rng, clauses.chance, clauses.pick
        self.data, self.be = self.lexicon.data, self.lexicon.verbs["be"]

    def chain(self) -> Parts:
        """Draw two clauses, the second of which refers to the object of the first by "it" or "them"."""
        key = self.pick(list(self.data["follow_ups"]))
        first = self.lexicon.verbs[key]
        tense = "present" if first.state else "past" if first.unplanned else self.rng.choice(TENSES)
        keys = self.data["follow_ups"][key].split()
        second = self.words.pick_verb([self.lexicon.verbs[key] for key in keys], tense)
        shared = [noun for noun in first.slots[0].nouns if noun in second.slots[0].nouns]
        subject = self.noun_phrases.subject(self._who(first))
        dets = [det for det in first.dets if det not in ("generic", "bare")]
        dets = dets or ["the", "a", "a", "some", "this", "count"]
        noun = self.pick([noun for noun in shared if self.lexicon.nouns[noun].kind != "name"])
        phrase = self.noun_phrases.without_clash(first, self.noun_phrases.noun_phrase(noun, dets, 1, subject))
        opening = self.circumstances.time(tense, first) if self.chance(0.35) and not first.state else None
        leading = Clause(subject, first, (phrase, *self._rest(first, subject)), tense, opening=opening)
        denied = self.chance(0.35)
        same = self.chance(0.5)
        other = (
            self.noun_phrases.again(subject) if same else self.noun_phrases.subject(self._who(second), unlike=subject)
        )
        following = Clause(other, second, (self.noun_phrases.again(phrase), *self._rest(second, other)), tense)
        following = replace(following, negation="not" if denied else "")
        if tense_is_hidden(leading) or tense_is_hidden(following):
            opening = self.circumstances.time("future", first) if opening else None
            leading, following = (replace(leading, tense="future", opening=opening), replace(following, tense="future"))
        if first.state:
            names = ("want",) if not denied else ("can",)
            following = replace(following, modal=self.lexicon.modals[self.rng.choice(names)])
        return leading, BUT if denied else AND, following

    def _rest(self, verb: Verb, subject: Any) -> tuple[Any, ...]:
        bare = Clause(subject, verb)
        return tuple(self.clauses.complement(slot, bare, 0, True) for slot in verb.slots[1:])

    def _who(self, verb: Verb) -> list[str]:
        return [noun for noun in verb.who if self.noun_phrases.is_human(noun)]

    def contrast(self) -> Parts:
        verbs = self.lexicon.verbs
        if self.chance(0.5):
            subject = self.noun_phrases.subject(self.noun_phrases.humans)
            same = self.chance(0.4)
            groups = [self.lexicon.members(group) for group in self.data["rivals"]]
            among = self.rng.choice(groups)
            verb = verbs["hate" if self.chance(0.5) and among is groups[0] else "prefer"]
            liked = self.pick([noun for noun in among if noun in verbs["like"].slots[0].nouns])
            rival = self.pick([noun for noun in among if noun in verb.slots[0].nouns and noun != liked])
            other = (
                self.noun_phrases.again(subject)
                if same
                else self.noun_phrases.subject(self.noun_phrases.humans, unlike=subject)
            )
            likes = Clause(subject, verbs["like"], (self.clauses.noun_phrase(liked, ("generic",)),))
            return likes, BUT, Clause(other, verb, (self.clauses.noun_phrase(rival, ("generic",)),))
        choices = [verb for verb in self.clauses.plain_verbs if verb.slots and verb.slots[0].direct]
        choices = [
            verb for verb in choices if not {"generic", "bare"} & set(verb.dets) and verb.key not in ("become", "throw")
        ]
        wish = Wish(detail=1, negation="", modal=False, time=False, noun_object=True)
        leading = self.clauses.clause(wish, None, choices)
        leading, verb = replace(leading, frequency=None), leading.verb
        other = self.noun_phrases.subject(self._who(verb) or verb.who, unlike=leading.subject)
        complements = (self.noun_phrases.again(leading.complements[0]), *self._rest(verb, other))
        return leading, BUT, Clause(other, verb, complements, leading.tense, "not")

    def reason(self) -> Parts:
        roll = self.rng.random()
        if roll < 0.35:
            leading, state = self._motive(self.rng.choice(("present", "future")))
            return leading, BECAUSE, state
        if roll < 0.75:
            tense = self.rng.choice(("present", "future"))
            doing = [self.lexicon.verbs[key] for key in self.data["errands"].split()]
            leading = self.clauses.clause(Wish(detail=1, negation="", modal=False), None, doing, tense)
            aims = [self.lexicon.verbs[key] for key in self.data["aims"].split() if key != leading.verb.key]
            again = self.noun_phrases.again(leading.subject)
            aim = self.clauses.clause(Wish(detail=1, negation="", modal=False, time=False), again, aims, "present")
            modal = self.lexicon.modals[self.rng.choice(("want", "must", "hope"))]
            return (
                leading,
                BECAUSE,
                replace(aim, tense="present", modal=modal, progressive=False, frequency=None, adverbials=()),
            )
        urgent = [
            self.lexicon.verbs[key] for key in ("call", "phone", "talk_to", "look_for", "come_home", "cry", "go_back")
        ]
        leading = self.clauses.clause(Wish(detail=1, negation="", modal=False), None, self._human_only(urgent), "past")
        mishaps = [self.lexicon.verbs[key] for key in self.data["mishaps"].split()]
        again = self.noun_phrases.again(leading.subject)
        cause = self.clauses.clause(Wish(negation="", modal=False, time=False), again, mishaps, "past")
        return leading, BECAUSE, cause

    def _human_only(self, verbs: list[Verb]) -> list[Verb]:
        return [verb for verb in verbs if len(self._who(verb)) == len(verb.who)]

    def whenever(self) -> Parts:
        leading, state = self._motive(self.rng.choice(("present", "future")))
        subject, pronoun = leading.subject, state.subject
        link = WHEN if leading.tense == "present" else IF
        return link, replace(state, subject=subject), COMMA, replace(leading, subject=pronoun, opening=None)

    def _motive(self, tense: str) -> tuple[Clause, Clause]:
        """Draw an action and the feeling that causes it."""
        feeling = self.pick(list(self.data["motives"]))
        verbs = [self.lexicon.verbs[key] for key in self.data["motives"][feeling].split()]
        subject = self.noun_phrases.subject(self.noun_phrases.humans)
        leading = self.clauses.clause(Wish(detail=1, negation="", modal=False, time=False), subject, verbs, tense)
        again = self.noun_phrases.again(subject)
        if feeling in self.lexicon.adjectives:
            return leading, Clause(again, self.be, (self.lexicon.adjectives[feeling],))
        return leading, Clause(again, self.lexicon.verbs[f"be_{feeling}"])

    def together(self) -> Parts:
        if self.chance(0.3):
            active = [v for v in self.clauses.plain_verbs if not (v.state or v.simple or v.past_only)]
            wish = Wish(detail=1, negation="", modal=False, time=False)
            first = self.clauses.clause(wish, None, active, "present")
            second = self.clauses.clause(
                wish,
                self.noun_phrases.subject(self.noun_phrases.humans, unlike=first.subject),
                self._human_only(active),
                "present",
            )
            first, second = (replace(part, progressive=True, frequency=None) for part in (first, second))
            return first, WHILE, second
        tense = self.rng.choice(TENSES)
        first = self.clauses.clause(Wish(detail=2), tense=tense)
        other = self.noun_phrases.subject(self.noun_phrases.humans, unlike=first.subject)
        second = self.clauses.clause(Wish(detail=2, time=False), other, self.clauses.human_verbs, tense)
        return first, AND_THEN if isinstance(other, Both) else AND, second
