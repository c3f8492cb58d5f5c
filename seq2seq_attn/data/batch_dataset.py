"""A dataset that returns whole batches: the DataLoader asks for a list of rows and receives a `Batch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import final

import numpy as np
from torch.utils.data import Dataset

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.batch_sampler import TokenBatchSampler
from seq2seq_attn.data.collate import collate, collate_pairs
from seq2seq_attn.data.corpus import Split
from seq2seq_attn.data.encoded import EncodedSplit
from seq2seq_attn.data.word_links import TokenLinks, WordLinks
from seq2seq_attn.objective.objective import Noise
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


@final
class BatchDataset(Dataset[Batch]):
    """Batches of an encoded split, read from disk or encoded again with sampled segmentations.

    Args:
        seeded_by: the sampler whose seed and epoch, together with the rows, seed the segmentations;
            None: use the encoding on disk.
        links: links between the words of each pair, which the batches have between tokens; None: none.
        noise: what makes a source and a target of each target; None: the pairs are those of the split.
        noise_epoch: the sampler whose epoch the noise depends on; None: the noise is always the same.
        max_length: most tokens of a sampled segmentation or a text with noise, with the end or begin token; a longer
            one is not taken.
    """

    def __init__(
        self,
        split: Split,
        encoded: EncodedSplit,
        tokenizer: SentencePieceTokenizer,
        seeded_by: TokenBatchSampler | None = None,
        links: WordLinks | None = None,
        noise: Noise | None = None,
        noise_epoch: TokenBatchSampler | None = None,
        max_length: int | None = None,
    ) -> None:
        self.split, self.encoded, self.tokenizer = split, encoded, tokenizer
        self.seeded_by, self.noise, self.noise_epoch = seeded_by, noise, noise_epoch
        self.max_length = max_length
        self.token_links = None if links is None else TokenLinks(links, tokenizer)

    def __len__(self) -> int:
        return self.encoded.num_rows

    def __getitem__(self, row: int) -> Batch:
        return self.__getitems__([row])

    def __getitems__(self, rows: list[int]) -> Batch:
        """Return the batch of `rows`; the DataLoader calls this once a batch."""
        batch = self._collated(rows)
        return batch if self.token_links is None else replace(batch, links=self.token_links(batch))

    def _collated(self, rows: list[int]) -> Batch:
        specials = {"pad_id": self.tokenizer.pad_id, "bos_id": self.tokenizer.bos_id, "eos_id": self.tokenizer.eos_id}
        if self.noise is not None:
            epoch = None if self.noise_epoch is None else self.noise_epoch.epoch
            rows_ids = zip(rows, self._target_ids(rows), strict=True)
            pairs = [self.noise(row, ids, epoch, self.max_length) for row, ids in rows_ids]
            return collate_pairs([source for source, _ in pairs], [target for _, target in pairs], rows, **specials)
        if self.seeded_by is None:
            return collate(self.encoded, rows, **specials)
        sources, (source_seed, _) = [self.split.sources[i] for i in rows], self._seeds(rows)
        return collate_pairs(
            self._drawn(self.tokenizer.encode_source, sources, source_seed), self._target_ids(rows), rows, **specials
        )

    def _target_ids(self, rows: list[int]) -> list[list[int]]:
        if self.seeded_by is None:
            shard, index = self.encoded.locate(rows)
            fences = zip(shard.target_offsets[index], shard.target_offsets[index + 1], strict=True)
            return [shard.target_ids[start:end].tolist() for start, end in fences]
        targets, (_, target_seed) = [self.split.targets[i] for i in rows], self._seeds(rows)
        return self._drawn(self.tokenizer.encode_target, targets, target_seed)

    def _drawn(self, encode: Callable[..., list[list[int]]], sentences: list[str], seed: int) -> list[list[int]]:
        """Return sampled segmentations, and the usual one in place of one that is too long."""
        drawn = encode(sentences, sample=True, seed=seed)
        if self.max_length is None:
            return drawn
        fits = (len(ids) < self.max_length for ids in drawn)
        return [ids if ok else encode([text])[0] for ids, text, ok in zip(drawn, sentences, fits, strict=True)]

    def _seeds(self, rows: list[int]) -> list[int]:
        """Return the seeds of the segmentations of a batch's sources and targets."""
        assert self.seeded_by is not None
        entropy = [self.seeded_by.seed, self.seeded_by.epoch, *rows]
        return np.random.SeedSequence(entropy).generate_state(2).tolist()
