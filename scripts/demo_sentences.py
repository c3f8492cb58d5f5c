"""The kinds of sentence that the demo corpus is made of."""

from dataclasses import dataclass, replace
from typing import Any, final

from demo_grammar import PRONOUNS, Both, Clause, Gap, NounPhrase, Pronoun, walk
from demo_lexicon import Verb
from demo_phrases import TENSES, PhraseSampler, Wish, tense_is_hidden

HUMAN_KINDS = ("person", "profession", "kin", "pet", "farm_animal", "wild_animal")
STATES = (
    "happy",
    "sad",
    "tired",
    "sick",
    "worried",
    "busy",
    "ready",
)  # what one may be often, or is going to be


@final
@dataclass(frozen=True)
class Link:
    """Words between clauses."""

    english: str
    french: str

    def say_english(self) -> list[str]:
        return self.english.split()

    def say_french(self) -> list[str]:
        return self.french.split()


AND, BUT = Link("and", "et"), Link(", but", ", mais")
AND_THEN = Link(", and", ", et")  # where a bare "and" would join two names
BECAUSE, WHILE, COMMA = Link("because", "parce que"), Link("while", "pendant que"), Link(",", ",")
THAT = Link("that", "que")
WHEN, IF = Link("when", "quand"), Link("if", "si")
Parts = tuple[Clause | Link, ...]


@final
class SentenceSampler:
    def __init__(self, phrases: PhraseSampler) -> None:
        self.phrases, self.lexicon, self.rng = phrases, phrases.lexicon, phrases.rng
        self.data, self.chance, self.pick = self.lexicon.data, phrases.chance, phrases.pick
        self.be = self.lexicon.verbs["be"]
        self.kinds = {
            self.statement: 24, self.copula: 10, self.there_is: 5, self.yes_no: 8, self.asking: 12,
            self.chain: 10, self.contrast: 6, self.reason: 9, self.reported: 8, self.whenever: 4,
            self.together: 10, self.relayed: 20,
        }  # fmt: skip

    def sentence(self) -> Parts:
        (kind,) = self.rng.choices(list(self.kinds), list(self.kinds.values()))
        parts = kind()
        nodes = walk(parts)
        nouns = [node.noun for node in nodes if isinstance(node, NounPhrase)]
        verbs = [node.verb.key for node in nodes if isinstance(node, Clause) and node.progressive]
        repeats = len(nouns) > len(set(nouns)) or len(verbs) > len(set(verbs))
        return self.sentence() if repeats or not they_are_clear(nodes) else parts

    def statement(self) -> Parts:
        return (self.clause(detail=2),)

    def copula(self) -> Parts:
        roll = self.rng.random()
        if roll < 0.6:
            return (self.is_so(),)
        negation = "not" if self.chance(0.2) else ""
        if roll < 0.8:
            singles = self.lexicon.members("name kin man woman boy girl friend neighbour")
            human = self.phrases.subject(singles)
            return (Clause(human, self.be, (self.phrases.profession(),), negation=negation),)
        thing = self.pick(self.lexicon.members("pet portable text clothing"))
        pet = thing in self.lexicon.members("pet")
        phrase = self.noun_phrase(thing, ("the", "of", "this", "my"), detail=1)
        where = self.phrases.locate("stands" if pet and self.chance(0.5) else "lies")
        return (Clause(phrase, self.be, (where,), negation=negation),)

    def is_so(self, question: str = "") -> Clause:
        """Somebody or something is ADJECTIVE."""
        adjective = self.lexicon.adjectives[self.pick(list(self.lexicon.adjectives))]
        while not adjective.said_of or adjective.english in ("American", "long", "wild"):
            adjective = self.lexicon.adjectives[self.pick(list(self.lexicon.adjectives))]
        who = [noun for noun in self.lexicon.nouns if noun in adjective.said_of]
        noun = self.pick(who)
        human = self.phrases.is_human(noun)
        if human:
            subject = self.phrases.subject([word for word in who if self.phrases.is_human(word)], detail=0)
        else:
            subject = self.noun_phrase(noun, ("the", "the", "this", "of", "my", "all"), detail=0)
            if self.chance(0.4) and subject.det == "the":
                subject = replace(subject, relative=self.phrases.relative(subject))
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
        where = self.phrases.locate("stands" if human else "lies")
        question = "yes_no" if self.chance(0.25) else ""
        negation = "not" if not question and self.chance(0.25) else ""
        dets = ("a", "some") if negation or question else ("a", "some", "count", "many")
        phrase = self.noun_phrase(noun, dets, detail=1)
        # "il y a": the y stands where a reflexive pronoun would
        there = replace(PRONOUNS["he"], english="there", reflexive="y", person=4 if phrase.plural else 1)
        have = self.lexicon.verbs["have"]
        verb = replace(have, key="be", english=("be",), reflexive=True, present=("a",) * 5)
        return (Clause(there, verb, (phrase,), negation=negation, adverbials=(where,), question=question),)

    def yes_no(self) -> Parts:
        if self.chance(0.25):
            return (self.is_so("yes_no"),)
        return (self.clause(question="yes_no", negation="", detail=1),)

    def asking(self) -> Parts:
        kinds = (
            "where",
            "where is",
            "where is",
            "when",
            "why",
            "how",
            "what",
            "whom",
            "which",
            "which",
            "who",
        )
        kind = self.rng.choice(kinds)
        if kind == "where is":
            noun = self.pick(self.lexicon.members("pet portable clothing kin building name transport"))
            phrase = self.noun_phrase(noun, ("the", "the", "my", "of"), detail=2)
            return (Clause(phrase, self.be, (Gap(),), question="where"),)
        if kind == "who":
            return (self.clause(PRONOUNS["who"], self._of_humans(), question="who", negation="", detail=1),)
        if kind in ("what", "whom", "which"):
            return (self._asking_object(kind),)
        choices = [verb for verb in self._of_humans() if not verb.state and not verb.past_only]
        if kind == "where":
            choices = [verb for verb in choices if verb.places]
        elif kind == "how":
            choices = [verb for verb in choices if verb.key in self.data["how"].split()]
        return (self.clause(verbs=choices, question=kind, negation="", detail=1, modal=False),)

    def _of_humans(self) -> list[Verb]:
        return [verb for verb in self.phrases.plain_verbs if "man" in verb.who]

    def _asking_object(self, kind: str) -> Clause:
        choices = [verb for verb in self.phrases.plain_verbs if self._asked(verb, kind)]
        tense = self.rng.choice(TENSES)
        verb = self.phrases.pick_verb(choices, tense)
        noun = self.lexicon.nouns[self.pick(self._asked(verb, kind))]
        clause = self.clause(verbs=[verb], tense=tense, question=kind, negation="", detail=1, gap=Gap())
        if kind != "which":
            return clause
        det = "which" if self.chance(0.5) else "how many"
        plural = det == "how many" or (self.chance(0.3) and noun.english not in self.phrases.single)
        fronted = replace(self.noun_phrase(noun.english, ("the",), detail=1), det=det, plural=plural)
        return replace(clause, fronted=fronted, complements=(Gap(noun, plural), *clause.complements[1:]))

    def _asked(self, verb: Verb, kind: str) -> list[str]:
        """The object nouns after which the question may ask."""
        if not verb.slots or not verb.slots[0].direct or {"generic", "bare"} & set(verb.dets):
            return []
        if kind == "what" and verb.key == "tell":  # "tell somebody", but "tell a story to somebody"
            return []
        nouns = [self.lexicon.nouns[noun] for noun in verb.slots[0].nouns if noun in self.lexicon.nouns]
        if kind == "whom":
            return [noun.english for noun in nouns if self.phrases.is_human(noun.english)]
        things = [
            n for n in nouns if not self.phrases.is_human(n.english) and n.kind not in ("city", "country")
        ]
        return [noun.english for noun in things if kind == "what" or not noun.mass]

    def chain(self) -> Parts:
        """A second clause says "it" or "them" of the first one's object."""
        key = self.pick(list(self.data["follow_ups"]))
        first = self.lexicon.verbs[key]
        tense = "present" if first.state else "past" if first.unplanned else self.rng.choice(TENSES)
        keys = self.data["follow_ups"][key].split()
        second = self.phrases.pick_verb([self.lexicon.verbs[key] for key in keys], tense)
        shared = [noun for noun in first.slots[0].nouns if noun in second.slots[0].nouns]
        subject = self.phrases.subject(self._who(first))
        dets = tuple(det for det in first.dets if det not in ("generic", "bare")) or (
            "the",
            "a",
            "a",
            "some",
            "this",
            "count",
        )
        noun = self.lexicon.nouns[
            self.pick([noun for noun in shared if self.lexicon.nouns[noun].kind != "name"])
        ]
        phrase = self.phrases.without_clash(first, self.phrases.noun_phrase(noun, subject, dets, 1))
        opening = self.phrases.time(tense, first) if self.chance(0.35) and not first.state else None
        leading = Clause(subject, first, (phrase, *self._rest(first, subject)), tense, opening=opening)
        denied = self.chance(0.35)
        own = self.chance(0.5)
        other = (
            self.phrases.again(subject) if own else self.phrases.subject(self._who(second), unlike=subject)
        )
        following = Clause(other, second, (self.phrases.again(phrase), *self._rest(second, other)), tense)
        following = replace(following, negation="not" if denied else "")
        if tense_is_hidden(leading) or tense_is_hidden(following):
            opening = self.phrases.time("future", first) if opening else None
            leading, following = (
                replace(leading, tense="future", opening=opening),
                replace(following, tense="future"),
            )
        if first.state:
            names = ("want",) if not denied else ("can",)
            following = replace(following, modal=self.lexicon.modals[self.rng.choice(names)])
        return leading, BUT if denied else AND, following

    def _rest(self, verb: Verb, subject: Any) -> tuple[Any, ...]:
        bare = Clause(subject, verb)
        return tuple(self.phrases.complement(slot, bare, 0, True) for slot in verb.slots[1:])

    def _who(self, verb: Verb) -> list[str]:
        return [noun for noun in verb.who if self.phrases.is_human(noun)]

    def contrast(self) -> Parts:
        verbs = self.lexicon.verbs
        if self.chance(0.5):
            subject = self.phrases.subject(self.phrases.humans)
            same = self.chance(0.4)
            groups = [self.lexicon.members(group) for group in self.data["rivals"]]
            among = self.rng.choice(groups)
            verb = verbs["hate" if self.chance(0.5) and among is groups[0] else "prefer"]
            liked = self.pick([noun for noun in among if noun in verbs["like"].slots[0].nouns])
            rival = self.pick([noun for noun in among if noun in verb.slots[0].nouns and noun != liked])
            other = (
                self.phrases.again(subject)
                if same
                else self.phrases.subject(self.phrases.humans, unlike=subject)
            )
            likes = Clause(subject, verbs["like"], (self.noun_phrase(liked, ("generic",)),))
            return likes, BUT, Clause(other, verb, (self.noun_phrase(rival, ("generic",)),))
        choices = [verb for verb in self.phrases.plain_verbs if verb.slots and verb.slots[0].direct]
        choices = [
            verb
            for verb in choices
            if not {"generic", "bare"} & set(verb.dets) and verb.key not in ("become", "throw")
        ]
        wish = {"negation": "", "detail": 1, "modal": False, "time": False, "noun_object": True}
        leading = self.clause(None, choices, **wish)
        leading, verb = replace(leading, frequency=None), leading.verb
        other = self.phrases.subject(self._who(verb) or verb.who, unlike=leading.subject)
        complements = (self.phrases.again(leading.complements[0]), *self._rest(verb, other))
        return leading, BUT, Clause(other, verb, complements, leading.tense, "not")

    def reason(self) -> Parts:
        roll = self.rng.random()
        if roll < 0.35:
            leading, state = self._motive(self.rng.choice(("present", "future")))
            return leading, BECAUSE, state
        if roll < 0.75:
            tense = self.rng.choice(("present", "future"))
            doing = [self.lexicon.verbs[key] for key in self.data["errands"].split()]
            leading = self.clause(None, doing, tense, detail=1, modal=False, negation="")
            aims = [self.lexicon.verbs[key] for key in self.data["aims"].split() if key != leading.verb.key]
            again = self.phrases.again(leading.subject)
            aim = self.clause(again, aims, "present", negation="", detail=1, modal=False, time=False)
            modal = self.lexicon.modals[self.rng.choice(("want", "must", "hope"))]
            return (
                leading,
                BECAUSE,
                replace(aim, tense="present", modal=modal, progressive=False, frequency=None, adverbials=()),
            )
        urgent = [
            self.lexicon.verbs[key]
            for key in ("call", "phone", "talk_to", "look_for", "come_home", "cry", "go_back")
        ]
        leading = self.clause(None, self._human_only(urgent), "past", negation="", detail=1, modal=False)
        mishaps = [self.lexicon.verbs[key] for key in self.data["mishaps"].split()]
        cause = self.clause(
            self.phrases.again(leading.subject), mishaps, "past", negation="", time=False, modal=False
        )
        return leading, BECAUSE, cause

    def _human_only(self, verbs: list[Verb]) -> list[Verb]:
        return [verb for verb in verbs if len(self._who(verb)) == len(verb.who)]

    def whenever(self) -> Parts:
        leading, state = self._motive(self.rng.choice(("present", "future")))
        subject, pronoun = leading.subject, state.subject
        link = WHEN if leading.tense == "present" else IF
        return link, replace(state, subject=subject), COMMA, replace(leading, subject=pronoun, opening=None)

    def _motive(self, tense: str) -> tuple[Clause, Clause]:
        """What somebody does, and the feeling that moves them."""
        feeling = self.pick(list(self.data["motives"]))
        verbs = [self.lexicon.verbs[key] for key in self.data["motives"][feeling].split()]
        subject = self.phrases.subject(self.phrases.humans)
        leading = self.clause(subject, verbs, tense, negation="", detail=1, modal=False, time=False)
        again = self.phrases.again(subject)
        if feeling in self.lexicon.adjectives:
            return leading, Clause(again, self.be, (self.lexicon.adjectives[feeling],))
        return leading, Clause(again, self.lexicon.verbs[f"be_{feeling}"])

    def reported(self) -> Parts:
        inner = self.is_so() if self.chance(0.2) else self.clause(detail=2)
        verb = self._reporting(inner)
        subject = self.phrases.subject(self.phrases.humans)
        return (Clause(subject, verb, (replace(inner, opening=None),)),)

    def _reporting(self, *told: Clause) -> Verb:
        """One hopes for what is yet to come."""
        verbs = self.phrases.clause_verbs
        if any(clause.tense != "future" for clause in told):
            verbs = [verb for verb in verbs if verb.key != "hope"]
        return self.phrases.pick_verb(verbs, "present")

    def relayed(self) -> Parts:
        """A report of two clauses; "that" is said before each."""
        kind = self.rng.choice((self.chain, self.contrast, self.reason, self.together, self.together))
        leading, link, following = kind()
        verb = self._reporting(leading, following)
        subject = self.phrases.subject(self.phrases.humans, unlike=leading.subject)
        report = Clause(subject, verb, (replace(leading, opening=None),))
        return (report, link, THAT, following) if link in (AND, AND_THEN, BUT) else (report, link, following)

    def together(self) -> Parts:
        if self.chance(0.3):
            active = [v for v in self.phrases.plain_verbs if not (v.state or v.simple or v.past_only)]
            wish = {"negation": "", "detail": 1, "modal": False, "time": False}
            first = self.clause(None, active, "present", **wish)
            second = self.clause(
                self.phrases.subject(self.phrases.humans, unlike=first.subject),
                self._human_only(active),
                "present",
                **wish,
            )
            first, second = (replace(part, progressive=True, frequency=None) for part in (first, second))
            return first, WHILE, second
        tense = self.rng.choice(TENSES)
        first = self.clause(tense=tense, detail=2)
        other = self.phrases.subject(self.phrases.humans, unlike=first.subject)
        second = self.clause(other, self._of_humans(), tense, detail=2, time=False)
        return first, AND_THEN if isinstance(other, Both) else AND, second

    def clause(self, subject: Any = None, verbs: Any = (), tense: str = "", **wish: Any) -> Clause:
        return self.phrases.clause(tense or self.rng.choice(TENSES), subject, verbs, Wish(**wish))

    def noun_phrase(self, noun: str, dets: tuple[str, ...], detail: int = 0) -> Any:
        return self.phrases.noun_phrase(self.lexicon.nouns[noun], None, dets, detail)


def they_are_clear(nodes: list[Any]) -> bool:
    """Whether each "they" or "them" could only be said as it is: no plural of the other gender is about."""
    phrases = [node for node in nodes if isinstance(node, NounPhrase | Both) and node.plural]
    humans = [phrase for phrase in phrases if isinstance(phrase, Both) or phrase.noun.kind in HUMAN_KINDS]
    for clause in nodes:
        if not isinstance(clause, Clause):
            continue
        for pronoun, others in [(clause.subject, humans), *((part, phrases) for part in clause.complements)]:
            said = isinstance(pronoun, Pronoun) and pronoun.english == "they"
            if said and any(phrase.gender != pronoun.gender for phrase in others):
                return False
    return True
