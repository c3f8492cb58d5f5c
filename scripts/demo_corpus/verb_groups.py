"""The verb group in both languages: auxiliaries, negation, clitics and participle."""

from typing import TYPE_CHECKING, Any

from scripts.demo_corpus.lexicon import Adverbial, Slot
from scripts.demo_corpus.noun_phrases import Gap
from scripts.demo_corpus.pronouns import Pronoun
from scripts.demo_corpus.spelling import Words

if TYPE_CHECKING:
    from scripts.demo_corpus.grammar import Clause

AUXILIARY = {
    "avoir": ("ai", "a", "avons", "avez", "ont"),
    "être": ("suis", "est", "sommes", "êtes", "sont"),
    "aller": ("vais", "va", "allons", "allez", "vont"),
}
BE = ("am", "is", "are", "are", "are")


def english_verb_group(clause: "Clause") -> tuple[Words, Words]:
    """Return the auxiliary with its "not", which a question separates from the rest, and the rest."""
    person, verb, rest_of_modal = clause.subject.person, clause.verb, []
    head, *particles = verb.english
    frequency = list(clause.frequency.english) if clause.frequency else []
    frequency += ["never"] if clause.negation == "never" else []
    negative = ["not"] if clause.negation == "not" else []
    inverts = clause.question not in ("", "who")
    if clause.tense == "future":
        return [BE[person], *negative], ["going", "to", *frequency, *verb.english]
    if clause.progressive:
        return [BE[person], *negative], [*frequency, verb.progressive, *particles]
    if clause.modal and clause.modal.key in ("can", "must"):
        modal = ["cannot"] if clause.modal.key == "can" and negative and not inverts else [clause.modal.key, *negative]
        return modal, [*frequency, *verb.english]
    if clause.modal:
        rest_of_modal = ["to", *verb.english]
        verb, head, particles = clause.modal, clause.modal.key, []
    if head == "be" or verb.key == "be_born":
        be = BE[person] if clause.tense == "present" else "was" if person in (0, 1) else "were"
        return [be, *negative], [*frequency, *particles]
    if negative or inverts:
        do = "did" if clause.tense == "past" else "does" if person == 1 else "do"
        return [do, *negative], [*frequency, head, *particles, *rest_of_modal]
    finite = verb.past if clause.tense == "past" else verb.third if person == 1 else head
    return [], [*frequency, finite, *particles, *rest_of_modal]


def french_verb_group(clause: "Clause") -> Words:
    person, verb = clause.subject.person, clause.verb
    clitics = _clitics(clause)
    auxiliary = AUXILIARY["être" if verb.être or verb.reflexive else "avoir"]
    infinitive = [*clitics, verb.french]
    if clause.modal:
        infinitive = [*clause.modal.tail, *infinitive]
    if clause.tense == "future":
        modal = [clause.modal.french] if clause.modal else []
        finite, before, after = AUXILIARY["aller"][person], [], [*modal, *infinitive]
    elif clause.modal and clause.tense == "past":
        finite, before, after = AUXILIARY["avoir"][person], [], [clause.modal.participle, *infinitive]
    elif clause.modal:
        finite, before, after = clause.modal.present[person], [], infinitive
    elif clause.tense == "past":
        finite, before, after = auxiliary[person], clitics, [_participle(clause)]
    else:
        finite, before, after = verb.present[person], clitics, []
    ne, pas = {"": ([], []), "not": (["ne"], ["pas"]), "never": (["ne"], ["jamais"])}[clause.negation]
    middle = [clause.frequency, *(part for part in clause.adverbials if is_adverb(part, "mid"))]
    return [*ne, *before, finite, *pas, *(word for part in middle if part for word in part.french), *after]


def _clitics(clause: "Clause") -> Words:
    """Return the clitics in the order me, se, nous, vous < le, la, les < lui, leur < y."""
    clitics = [clause.subject.reflexive] if clause.verb.reflexive else []
    for slot, complement in zip(clause.verb.slots, clause.complements, strict=True):
        if isinstance(complement, Pronoun) and takes_clitic(slot):
            clitics.append(complement.direct if slot.direct else complement.dative)
    order = ("me", "se", "nous", "vous", "le", "la", "les", "lui", "leur", "y")
    return sorted(clitics, key=order.index)


def _participle(clause: "Clause") -> str:
    """Return the participle, which agrees with the subject after être and with a preceding object after avoir."""
    if clause.verb.être or clause.verb.reflexive:
        return inflect_participle(clause.verb.participle, clause.subject)
    for slot, complement in zip(clause.verb.slots, clause.complements, strict=True):
        if slot.direct and isinstance(complement, Pronoun | Gap):
            return inflect_participle(clause.verb.participle, complement)
    return clause.verb.participle


def inflect_participle(participle: str, phrase: Any) -> str:
    form = participle + ("e" if phrase.gender == "f" else "")
    return form + ("s" if phrase.plural and not form.endswith("s") else "")


def takes_clitic(slot: Slot) -> bool:
    """Return whether a pronoun in the slot precedes the French verb."""
    return slot.direct or (slot.french == "à" and not slot.strong)


def is_adverb(part: Any, kind: str) -> bool:
    """Return whether a part is an adverbial of a kind, "mid" or "manner"."""
    return isinstance(part, Adverbial) and getattr(part, kind)
