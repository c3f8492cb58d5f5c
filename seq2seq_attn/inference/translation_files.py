"""What a translated line leaves: its translation, and on request the n best, word alignments and attention maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.alignment.heat_map import save_attention_map
from seq2seq_attn.alignment.word_alignment import to_pharaoh, word_links
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.lines import Line
from seq2seq_attn.inference.output import written
from seq2seq_attn.inference.translator import Translation
from seq2seq_attn.text import printable

BARS = "&#124;" * 3  # as Moses escapes them in a text


class WantedFiles(NamedTuple):
    """Files and a folder by the options of `translate.py` that name them.

    Attributes:
        alignment_layer, alignment_head: whose weights align; None: the mean over all.
    """

    output: str | None
    nbest: str | None
    alignments: str | None
    maps: str | None
    alignment_layer: int | None
    alignment_head: int | None


@final
class TranslationFiles:
    """Written as the lines come; `stack` closes the files.

    Control characters that the model writes stay in a file or a pipe, and never reach a terminal or an n-best list.

    Args:
        attention: the maps of a line's best translation, asked for only where they are wanted.
    """

    def __init__(
        self,
        wanted: WantedFiles,
        standard: Any,
        stack: ExitStack,
        attention: Callable[[str, Translation], list[SlotMap]],
    ) -> None:
        self._wanted, self._attention = wanted, attention
        if wanted.maps is not None:
            try:
                Path(wanted.maps).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"maps={wanted.maps} cannot be made ({error.strerror})") from error
        self._output = stack.enter_context(written("output", wanted.output, standard))
        self._nbest = stack.enter_context(written("nbest", wanted.nbest))
        self._alignments = stack.enter_context(written("alignments", wanted.alignments))
        self._shown = printable if self._output.isatty() else str

    def write(self, lines: Sequence[Line], translations: Sequence[Translation]) -> None:
        for line, translation in zip(lines, translations, strict=True):
            self._output.write(f"{self._shown(translation.text)}\n".encode())
            if self._nbest is not None:
                self._nbest.write(moses_list(line.number - 1, translation).encode())
            if self._wanted.alignments is not None or self._wanted.maps is not None:
                self._write_attention(line, translation)
        self._output.flush()

    def _write_attention(self, line: Line, translation: Translation) -> None:
        maps = self._attention(line.text, translation)
        if self._alignments is not None:
            links = alignment(maps, self._wanted.alignment_layer, self._wanted.alignment_head)
            self._alignments.write(f"{links}\n".encode())
        if self._wanted.maps is not None:
            for slot, weights, columns, rows in maps:
                name = f"{line.number:06d}_{slot.replace('/', '_')}"
                save_attention_map(Path(self._wanted.maps) / name, weights, columns, rows)


def moses_list(number: int, translation: Translation) -> str:
    """`number ||| text ||| log_prob ||| score`, best first; as in Moses, lines count from 0."""
    return "".join(
        f"{number} ||| {printable(one.text).replace('|||', BARS)} ||| {one.log_prob:.6f} ||| {one.score:.6f}\n"
        for one in (translation, *translation.alternatives)
    )


def alignment(maps: Sequence[SlotMap], layer: int | None, head: int | None) -> str:
    """Words of the source and of the target in Pharaoh form; none of an empty translation.

    Raises:
        UserError: for a layer or a head that does not read the source.
    """
    if not maps:
        return ""
    cross = {int(one.slot.partition("/")[2]): one for one in maps if one.slot.startswith("cross/")}
    if layer is not None and layer not in cross:
        raise UserError(f"alignment_layer={layer} is not there; choose from: {', '.join(map(str, sorted(cross)))}")
    chosen = list(cross.values()) if layer is None else [cross[layer]]
    weights = np.concatenate([one.weights for one in chosen])
    if head is not None:
        heads = min(len(one.weights) for one in chosen)
        if not 0 <= head < heads:
            raise UserError(f"alignment_head={head} is not there; choose from 0 to {heads - 1}")
        weights = np.stack([one.weights[head] for one in chosen])
    return to_pharaoh(word_links(weights, chosen[0].columns, chosen[0].rows))
