"""Translations of several systems sentence by sentence, as one self-contained HTML page."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from sacrebleu.metrics import CHRF

from seq2seq_attn.alignment.page import digest
from seq2seq_attn.comparison.draw import histogram
from seq2seq_attn.comparison.figures import counted
from seq2seq_attn.comparison.page import MADE_BY, PAGE, POLICY, STYLE, boxed, named, note
from seq2seq_attn.comparison.system import System
from seq2seq_attn.text import UNSPACED, num_words, printable

TITLE = "Translations compared"
MOST = 3000  # sentences on a page
CONTROLS = """\
<p class="controls" hidden><label>Order <select>{options}</select></label>
<label>Containing <input type="search" placeholder="any text"></label> <output></output></p>
"""
SCRIPT = """\
{
  const list = document.querySelector("main"), cards = [...list.children];
  const controls = document.querySelector(".controls"), [order, search, shown] = controls.querySelectorAll(
    "select, input, output");
  const filter = () => {
    const text = search.value.toLowerCase();
    for (const card of cards) card.hidden = !card.textContent.toLowerCase().includes(text);
    shown.textContent = `${cards.filter(card => !card.hidden).length} of ${cards.length}`;
  };
  order.onchange = () => {
    const [key, sign] = order.value.split(" ");
    list.append(...cards.toSorted((a, b) => sign * (a.dataset[key] - b.dataset[key])));
  };
  search.oninput = filter;
  controls.hidden = false;
  filter();
}
"""


class Sentence(NamedTuple):
    """A sentence whose translations differ.

    Attributes:
        number: of its line, from 1.
        chrf: of each system's translation.
    """

    number: int
    source: str
    references: list[str]
    hypotheses: list[str]
    chrf: list[float]

    def above(self, system: int) -> float:
        """Return by how much chrF is above the baseline's."""
        return self.chrf[system] - self.chrf[0]

    @property
    def largest(self) -> float:
        return max(abs(self.above(system)) for system in range(1, len(self.chrf)))


def differing(systems: Sequence[System], metric: CHRF) -> list[Sentence]:
    """Return the sentences that not all systems translate alike, the largest difference from the baseline first."""
    first = systems[0]
    sentences = []
    for number, (source, references) in enumerate(zip(first.sources, first.references, strict=True), 1):
        hypotheses = [system.hypotheses[number - 1] for system in systems]
        if len(set(hypotheses)) > 1:
            score = {text: metric.sentence_score(text, references).score for text in set(hypotheses)}
            sentences.append(Sentence(number, source, references, hypotheses, [score[text] for text in hypotheses]))
    return sorted(sentences, key=lambda sentence: -sentence.largest)


def sentence_page(systems: Sequence[System], metric: CHRF, head: Sequence[str], scores: Sequence[Sequence[str]]) -> str:
    """Return the page.

    Args:
        systems: the baseline first.
        metric: of single sentences.
        head, scores: of the table of their scores on the whole test set.
    """
    sentences = differing(systems, metric)
    body = [*score_table(head, scores), *summary(systems, sentences)]
    body.append(CONTROLS.format(options="".join(orders(systems))))
    body += ["<main>", *(line for sentence in sentences[:MOST] for line in card(sentence, systems)), "</main>"]
    return PAGE.format(
        title=TITLE,
        policy=POLICY.format(script=digest(f"\n{SCRIPT}")),
        style=STYLE.read_text(encoding="utf-8"),
        body="\n".join(body),
        made_by=f"{MADE_BY}seq2seq-attn compare translations</code>.</p>",
        script=SCRIPT,
    )


def score_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    yield f'<div class="box" tabindex="0"><table><thead><tr>{titles}</tr></thead><tbody>'
    for name, *cells in rows:
        values = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        yield f'<tr><th scope="row">{named(printable(name))}</th>{values}</tr>'
    yield "</tbody></table></div>"


def summary(systems: Sequence[System], sentences: Sequence[Sentence]) -> Iterator[str]:
    """Yield how many sentences differ, and for each system in which direction and by how much."""
    baseline, total = printable(systems[0].name), len(systems[0].sources)
    alike = "All systems translate" if len(systems) > 2 else "Both systems translate"
    yield f"<p>{alike} {total - len(sentences):,} of {counted(total, 'sentence')} alike.</p>"
    yield '<div class="panels wide">'
    for number, system in enumerate(systems[1:], 1):
        name = printable(system.name)
        differences = [s.above(number) for s in sentences if s.hypotheses[number] != s.hypotheses[0]]
        higher, lower = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        description = f"chrF of {name} above {baseline}"
        plot = histogram(differences, "chrF above the baseline", "sentences", description) if higher or lower else ""
        yield (
            f"<figure><figcaption>{named(name)}: {higher:,} higher, {lower:,} lower, "
            f"{len(differences) - higher - lower:,} of equal chrF</figcaption>{boxed(plot)}</figure>"
        )
    yield "</div>"
    rest = f" The {MOST:,} with the largest differences are here." if len(sentences) > MOST else ""
    yield note(f"chrF of single sentences. Underlined: words that no reference has, or not as often.{rest}")


def orders(systems: Sequence[System]) -> Iterator[str]:
    """Yield the options that order the sentences: a key of `data-` and the sign."""
    yield '<option value="largest -1">largest difference first</option>'
    for number, system in enumerate(systems[1:], 1):
        name = escape(printable(system.name))
        yield f'<option value="above{number} -1">{name} is better</option>'
        yield f'<option value="above{number} 1">{name} is worse</option>'
    yield '<option value="number 1">as in the test set</option>'
    yield '<option value="words -1">longest source first</option>'


def card(sentence: Sentence, systems: Sequence[System]) -> Iterator[str]:
    above = "".join(f' data-above{system}="{sentence.above(system):.4g}"' for system in range(1, len(systems)))
    yield (
        f'<article data-number="{sentence.number}" data-words="{num_words(sentence.source)}" '
        f'data-largest="{sentence.largest:.4g}"{above}><dl>'
    )
    yield entry(f"source {sentence.number}", escape(printable(sentence.source)))
    for reference in sentence.references:
        yield entry("reference", escape(printable(reference)))
    for number, (system, text) in enumerate(zip(systems, sentence.hypotheses, strict=True)):
        score = f"{sentence.chrf[number]:.1f}"
        if number:
            score += f", {sentence.above(number):+.1f}".replace("-", "−")
        name = f"{named(printable(system.name))} <span>{score}</span>"
        yield entry(name, "".join(marked(printable(text), [printable(one) for one in sentence.references])))
    yield "</dl></article>"


def entry(name: str, text: str) -> str:
    return f'<dt>{name}</dt><dd dir="auto">{text}</dd>'


def marked(text: str, references: Sequence[str]) -> Iterator[str]:
    """Yield the text as HTML in which what no reference has, or not as often, is underlined."""
    left: Counter[str] = Counter()
    for reference in references:
        left |= Counter(pieces(reference))
    for piece in pieces(text):
        left[piece] -= 1
        yield f"<u>{escape(piece)}</u>" if left[piece] < 0 and not piece.isspace() else escape(piece)


def pieces(text: str) -> list[str]:
    """Return blanks, words, and each mark and each character of a script without spaces; joined they are the text."""

    def kind(item: tuple[int, str]) -> int:
        position, character = item
        if character.isspace():
            return -1
        alone = unicodedata.category(character)[0] in "PS" or any(s.match(character) for s in UNSPACED.values())
        return position if alone else -2

    return ["".join(character for _, character in items) for _, items in groupby(enumerate(text), kind)]
