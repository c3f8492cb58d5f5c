"""Answers to lines of text: their translations, with attention maps and word links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, final

from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.alignment.word_alignment import Extraction, Link, chosen_weights, word_links
from seq2seq_attn.inference.placeholders import insert_placeholders, remove_placeholders
from seq2seq_attn.inference.translator import Translation, Translator
from seq2seq_attn.search.search import Search


@final
class LineAnswers:
    """Answers of a translator; with `placeholders`, tags are taken out of a line and put back at the aligned words.

    Args:
        limits: those of `Translator.translate`.
        heads, extraction: which weights link words, and how.
        alternatives: put the tags into the other hypotheses, too, which takes a pass for each; else they are left out.
    """

    def __init__(
        self,
        translator: Translator,
        search: Search,
        *,
        limits: dict[str, Any],
        heads: Heads,
        extraction: Extraction,
        placeholders: bool,
        alternatives: bool = True,
    ) -> None:
        self.translator, self.search, self.limits = translator, search, limits
        self.heads, self.extraction = heads, extraction
        self.placeholders, self.alternatives = placeholders, alternatives

    def translate(self, texts: Sequence[str], prefixes: Sequence[str] | None = None) -> list[Translation]:
        """Return the translation of each text."""
        plain = [self._plain(text) for text in texts]
        begun = None if prefixes is None else [self._plain(prefix) for prefix in prefixes]
        translations = self.translator.translate(plain, search=self.search, prefixes=begun, **self.limits)
        return self._with_tags(texts, plain, translations) if self.placeholders else translations

    def attention(
        self, texts: Sequence[str], translations: Sequence[Translation]
    ) -> Iterator[tuple[int, list[SlotMap]]]:
        """Yield the number of each text and the maps of its translation, as `Translator.attentions` does."""
        return self._attention([self._plain(text) for text in texts], translations)

    def links(self, text: str, maps: list[SlotMap]) -> list[Link]:
        """Return the links between the words of a text and of its translation, both between blanks, by its maps."""
        return self._links(self._plain(text), maps)

    def _plain(self, text: str) -> str:
        return remove_placeholders(text)[0] if self.placeholders else text

    def _attention(
        self, plain: Sequence[str], translations: Sequence[Translation]
    ) -> Iterator[tuple[int, list[SlotMap]]]:
        most = self.limits["max_source_tokens"]
        return self.translator.attentions(plain, translations, max_source_tokens=most)

    def _links(self, plain: str, maps: list[SlotMap]) -> list[Link]:
        words = self.translator.source_words(plain)
        links = best_links(maps, self.heads, self.extraction)
        return list(dict.fromkeys((word, target) for source, target in links for word in words[source]))

    def _with_tags(
        self, texts: Sequence[str], plain: Sequence[str], translations: Sequence[Translation]
    ) -> list[Translation]:
        """Put the tags of each text into its translation and, where they are read, into the other hypotheses."""
        tags = [remove_placeholders(text)[1] for text in texts]
        hypotheses = [
            (row, one)
            for row, best in enumerate(translations)
            if tags[row]
            for one in (best, *(best.alternatives if self.alternatives else ()))
        ]
        tagged = [one for _, one in hypotheses]
        for number, maps in self._attention([plain[row] for row, _ in hypotheses], tagged):
            row, one = hypotheses[number]
            links = self._links(plain[row], maps)
            text = insert_placeholders(self.translator.words(one), tags[row], links)
            tagged[number] = one._replace(text=text, links=links)
        answers = list(translations)
        rows = (row for row, _ in hypotheses)
        for row, group in groupby(zip(rows, tagged, strict=True), key=itemgetter(0)):
            best, *others = (one for _, one in group)
            answers[row] = best._replace(alternatives=others)
        return answers


def best_links(maps: Sequence[SlotMap], heads: Heads, extraction: Extraction) -> list[Link]:
    """Return the word links of a translation; an empty one has none."""
    if not maps:
        return []
    cross = next(one for one in maps if one.slot.startswith("cross/"))
    return word_links(chosen_weights(maps, *heads), cross.columns, cross.rows, extraction)
