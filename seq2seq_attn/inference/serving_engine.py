"""CTranslate2 behind the contract of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.ctranslate2_engine import CTranslate2Engine, read_exported
from seq2seq_attn.inference.engine import Engine
from seq2seq_attn.paths import given_path
from seq2seq_attn.search.search import Hypothesis, Search


@final
class ServingEngine(Engine):
    """The exported model is read again for another search, since its options are set once.

    Args:
        paths: one folder of `seq2seq-attn export ctranslate2`.

    Raises:
        UserError: for several folders, for prefixes and for attention.
    """

    def __init__(self, paths: Sequence[str], *, device: torch.device, num_threads: int | None) -> None:
        if len(paths) != 1:
            raise UserError("engine=ctranslate2 knows no ensembles; give one ckpt_path, or leave out engine")
        folder = given_path(paths[0], "ckpt_path")
        self._folder, self._device, self._num_threads = str(folder), device, num_threads
        self.tokenizer, self.config, self._positions = read_exported(folder)
        self._read: tuple[Search, CTranslate2Engine] | None = None

    @property
    def positions(self) -> int:
        return self._positions

    def __call__(
        self,
        sources: Sequence[list[int]],
        search: Search,
        *,
        prefixes: Sequence[list[int]] | None,
        batch_sentences: int,
        batch_tokens: int | None,
    ) -> list[list[Hypothesis]]:
        if prefixes is not None and any(prefixes):
            raise UserError("engine=ctranslate2 takes no prefixes; leave out engine, or the prefixes")
        if self._read is None or self._read[0] is not search:
            engine = CTranslate2Engine(self._folder, search=search, device=self._device, num_threads=self._num_threads)
            self._read = search, engine
        if batch_tokens is not None:
            longest = max(map(len, sources), default=0) + 1
            batch_sentences = max(batch_tokens // (longest * search.hypotheses_at_once), 1)
        return self._read[1](list(sources), batch_sentences)

    def attention(self, source: list[int], target: list[int]) -> list[SlotMap]:
        raise UserError("engine=ctranslate2 gives no attention; leave out engine, or maps and alignments")
