"""Our engine in several processes, for many batches on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import final

import torch

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.checkpoint.admitted import Trust
from seq2seq_attn.distributed.workers import Workers
from seq2seq_attn.inference.engine import Engine, SearchBatch, TorchEngine
from seq2seq_attn.inference.models import unpack
from seq2seq_attn.process import keep_freed_memory
from seq2seq_attn.search.search import Hypothesis, Search

OWN: list[TorchEngine] = []  # the engine of a worker process


@final
class ProcessEngine(Engine):
    """Processes that each hold the model and a share of the threads, and translate whole batches.

    A small model leaves the second thread of a process idle for much of each step. Translations are those of one
    process. The processes are started when there are two batches at once, and then stay.

    Args:
        engine: the model in this process, which translates single batches and gives the attention.
        models: from `pack`, since the files of a run that still trains are replaced.
        trust: as of `load_models`.
        precision: as of `TorchEngine`.
    """

    def __init__(
        self, engine: TorchEngine, models: bytes, trust: Trust, num_processes: int, precision: str | int | None = None
    ) -> None:
        self.engine, self.num_processes = engine, num_processes
        self.max_length, self.reads_source = engine.max_length, engine.reads_source
        num_threads = max(1, torch.get_num_threads() // num_processes)
        self._start = partial(load_engine, models, trust, num_threads, precision)
        self._workers: Workers | None = None

    def __call__(
        self, sources: list[list[int]], search: Search, prefixes: list[list[int]] | None = None
    ) -> list[list[Hypothesis]]:
        return self.engine(sources, search, prefixes)

    def translate_batches(self, batches: Sequence[SearchBatch], search: Search) -> Iterator[list[list[Hypothesis]]]:
        if len(batches) < 2:
            yield from super().translate_batches(batches, search)
            return
        if self._workers is None:
            self._workers = Workers(self.num_processes, option="num_processes", start=self._start).__enter__()
        try:
            # from the last, which has the longest sentences, so that the processes end together
            results = list(self._workers.map(translate_batch, ((batch, search) for batch in reversed(batches))))
            yield from reversed(results)
        except BaseException:  # interrupted: nobody waits for what the processes translate
            self._workers.terminate()
            self.close()
            raise

    def close(self) -> None:
        if self._workers is not None:  # at its exit, Python would end them in no fixed order
            self._workers.__exit__()
            self._workers = None

    def token_log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        return self.engine.token_log_probs(sources, targets)

    def attention(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[SlotMap]]:
        return self.engine.attention(sources, targets)


def load_engine(packed: bytes, trust: Trust, num_threads: int, precision: str | int | None) -> None:
    """Build the model in a worker process."""
    torch.set_num_threads(num_threads)
    keep_freed_memory()
    models = unpack(packed, trust)
    OWN[:] = [TorchEngine(models.model, models.tokenizer, models.device, precision)]


def translate_batch(batch: SearchBatch, search: Search) -> list[list[Hypothesis]]:
    """Translate in a worker process."""
    (engine,) = OWN
    return engine(batch.sources, search, batch.prefixes)
