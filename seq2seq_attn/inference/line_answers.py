"""What is answered to lines: their translations, the maps and the word links of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.alignment.word_alignment import Extraction, Link, chosen_weights, word_links
from seq2seq_attn.inference.placeholders import Placeholder, insert_placeholders, remove_placeholders
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
        if not self.placeholders:
            return translations
        tags = (remove_placeholders(text)[1] for text in texts)
        return [self._with_tags(*one) if one[1] else one[2] for one in zip(plain, tags, translations, strict=True)]

    def attention(self, text: str, translation: Translation | str) -> list[SlotMap]:
        """Return the maps of a translation of a text."""
        most = self.limits["max_source_tokens"]
        return self.translator.attention(self._plain(text), translation, max_source_tokens=most)

    def links(self, text: str, maps: list[SlotMap]) -> list[Link]:
        """Return the links between the words of a text and of its translation, both between blanks, by its maps."""
        words = self.translator.source_words(self._plain(text))
        links = best_links(maps, self.heads, self.extraction)
        return list(dict.fromkeys((word, target) for source, target in links for word in words[source]))

    def _plain(self, text: str) -> str:
        return remove_placeholders(text)[0] if self.placeholders else text

    def _with_tags(self, plain: str, tags: list[Placeholder], translation: Translation) -> Translation:
        links = self.links(plain, self.attention(plain, translation))
        text = insert_placeholders(self.translator.words(translation), tags, links)
        others = translation.alternatives if self.alternatives else []
        alternatives = [self._with_tags(plain, tags, one) for one in others]
        return translation._replace(text=text, alternatives=alternatives)


def best_links(maps: Sequence[SlotMap], heads: Heads, extraction: Extraction) -> list[Link]:
    """Return the word links of a translation; an empty one has none."""
    if not maps:
        return []
    cross = next(one for one in maps if one.slot.startswith("cross/"))
    return word_links(chosen_weights(maps, *heads), cross.columns, cross.rows, extraction)
