"""Encoded splits and their loaders, as Lightning asks for them."""

from __future__ import annotations

import hashlib
import warnings
from itertools import islice
from typing import Any, final

import numpy as np
import pytorch_lightning as pl
from jaxtyping import Int64
from pytorch_lightning.utilities.warnings import PossibleUserWarning
from torch.utils.data import DataLoader

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.batch_dataset import BatchDataset
from seq2seq_attn.data.batch_sampler import TokenBatchSampler
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.encoded import EncodedSplit, encode_split
from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import given_path
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


@final
class TranslationDataModule(pl.LightningDataModule):
    """Loaders of batches of equal work.

    Args:
        tokenizer: trained.
        batch_tokens: padded source and target tokens of a training batch, specials included.
        eval_batch_tokens: the same for validation and test; None: as in training.
        num_workers: 0 is fast, a batch being a few array operations; subword sampling may want 1 or 2.
        cache_dir: encoded splits are kept there.
        val_sentences: validation during training reads so many, evenly spread over the split, and the same each time
            and for every seed; the whole split is then tested too, as "val". None, or as many as there are: all.

    Attributes:
        test_names: of the sets that are tested, in order.

    Raises:
        UserError: for a number of validation sentences that is none.
    """

    def __init__(
        self,
        corpus: LoadedCorpus,
        tokenizer: SentencePieceTokenizer,
        *,
        batch_tokens: int,
        seed: int,
        cache_dir: str,
        eval_batch_tokens: int | None = None,
        num_workers: int = 0,
        val_sentences: int | None = None,
    ) -> None:
        super().__init__()
        self.corpus, self.tokenizer = corpus, tokenizer
        self.batch_tokens, self.eval_batch_tokens = batch_tokens, eval_batch_tokens or batch_tokens
        self.seed, self.num_workers = seed, num_workers
        self.cache_dir = given_path(cache_dir, "paths.cache_dir") / "encoded"
        self.test_names = [name for name in corpus.splits if name not in ("train", "val")]
        self.val_rows = evenly_spread(val_sentences, len(corpus.splits["val"])) if val_sentences is not None else None
        if self.val_rows is not None and len(self.val_rows) < len(corpus.splits["val"]):
            self.test_names.append("val")
        self._encoded: dict[str, EncodedSplit] = {}
        self._samplers: dict[tuple[str, int, int, bool, bool], TokenBatchSampler] = {}
        self._first_epoch = 0

    def prepare_data(self) -> None:
        """One process of a machine fills the cache, before the others read it."""
        for name in self.corpus.splits:
            self.encoded(name)

    def setup(self, stage: str | None = None) -> None:
        # Lightning asks for more workers whatever a batch costs.
        warnings.filterwarnings("ignore", ".*does not have many workers.*", PossibleUserWarning)

    def encoded(self, name: str) -> EncodedSplit:
        """The split of this name, from the cache or encoded now."""
        if name not in self._encoded:
            key = "\n".join([self.corpus.fingerprint, self.tokenizer.fingerprint, name])
            folder = self.cache_dir / hashlib.sha256(key.encode()).hexdigest()[:32]
            self._encoded[name] = encode_split(self.corpus.splits[name], self.tokenizer, folder)
        return self._encoded[name]

    @property
    def longest(self) -> dict[str, tuple[int, int]]:
        """Tokens of the longest source and target of each split, the end or begin token included."""
        splits = {name: self.encoded(name) for name in self.corpus.splits}
        return {name: (int(s.source_lengths.max()) + 1, int(s.target_lengths.max()) + 1) for name, s in splits.items()}

    @property
    def padding_share(self) -> float:
        """Of the training batches' tokens, those that are padding, before subword sampling."""
        return self._sampler("train").padding_share

    def train_dataloader(self) -> DataLoader[Batch]:
        sampler = self._sampler("train")
        # Workers begin to fetch before Lightning calls set_epoch, and even before it knows the epoch of a resumed run.
        sampler.set_epoch(max(self.trainer.current_epoch if self.trainer else 0, self._first_epoch))
        return self._loader("train", sampler)

    def state_dict(self) -> dict[str, Any]:
        """Where training stands: batches of the epoch that each device has read, of how many."""
        trainer: Any = self.trainer
        sampler = self._sampler("train")
        epoch = trainer.fit_loop.epoch_progress.current.processed
        read = trainer.fit_loop.epoch_loop.batch_progress.current.processed
        batch = read if epoch == sampler.epoch else 0  # an epoch that has ended has all of them
        return {"epoch": epoch, "batch": batch} | self._shape(sampler)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there.

        Raises:
            UserError: if the rest of the epoch cannot be had, its batches being others.
        """
        sampler = self._sampler("train")
        shape = self._shape(sampler)
        within = 0 < state_dict["batch"] < state_dict["batches"]
        if within and {name: state_dict[name] for name in shape} != shape:
            raise UserError(
                f"the run was stopped within an epoch of {state_dict['batches']} batches for each of "
                f"{state_dict['devices']} devices with seed={state_dict['seed']}, here it has {shape['batches']} for "
                f"each of {shape['devices']} with seed={shape['seed']}; continue it with the data, batch_tokens, seed "
                "and devices that it had"
            )
        self._first_epoch = state_dict["epoch"]
        sampler.start_at(state_dict["epoch"], state_dict["batch"])

    def _shape(self, sampler: TokenBatchSampler) -> dict[str, int]:
        return {"batches": len(sampler), "devices": sampler.num_replicas, "seed": self.seed}

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._loader("val", self._sampler("val", self.val_rows))

    def test_dataloader(self) -> list[DataLoader[Batch]]:
        """One loader a test set, in the order of `test_names`."""
        return [self._loader(name, self._sampler(name)) for name in self.test_names]

    def _sampler(self, name: str, rows: Int64[np.ndarray, "some"] | None = None) -> TokenBatchSampler:
        rank, num_replicas = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        overfit = self.trainer is not None and self.trainer.overfit_batches > 0  # type: ignore[attr-defined]
        shuffle = name == "train" and not overfit
        key = (name, rank, num_replicas, shuffle, rows is None)
        if key not in self._samplers:
            encoded = self.encoded(name)
            self._samplers[key] = TokenBatchSampler(
                encoded.source_lengths,
                encoded.target_lengths,
                shuffle=shuffle,
                seed=self.seed,
                batch_tokens=self._train_tokens() if name == "train" else self.eval_batch_tokens,
                rank=rank,
                num_replicas=num_replicas,
                as_alone=name != "train",
                rows=rows,
            )
        return self._samplers[key]

    def _train_tokens(self) -> int:
        """The budget before sampling: drawn segmentations are longer, and shall stay near `batch_tokens`."""
        if self.tokenizer.sampling_alpha == 0.0:
            return self.batch_tokens
        encoded, split = self.encoded("train"), self.corpus.splits["train"]
        sampler = TokenBatchSampler(
            encoded.source_lengths, encoded.target_lengths, batch_tokens=self.batch_tokens, shuffle=True, seed=self.seed
        )
        plain = BatchDataset(split, encoded, self.tokenizer)
        drawn = BatchDataset(split, encoded, self.tokenizer, drawn_by=sampler)
        growth = max(num_tokens(drawn, rows) / num_tokens(plain, rows) for rows in islice(sampler, 20))
        return max(1, int(self.batch_tokens / growth))

    def _loader(self, name: str, sampler: TokenBatchSampler) -> DataLoader[Batch]:
        draws = name == "train" and self.tokenizer.sampling_alpha > 0.0
        dataset = BatchDataset(
            self.corpus.splits[name], self.encoded(name), self.tokenizer, drawn_by=sampler if draws else None
        )
        pin_memory = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        return DataLoader(
            dataset,
            batch_sampler=sampler,
            collate_fn=as_is,  # type: ignore[arg-type]
            num_workers=self.num_workers,
            pin_memory=pin_memory,
        )


def evenly_spread(val_sentences: int, total: int) -> Int64[np.ndarray, "rows"]:
    """So many rows of all."""
    if val_sentences < 1:
        raise UserError(f"val_sentences={val_sentences} leaves nothing to validate on; use 1 or more, or null for all")
    count = min(val_sentences, total)
    return np.arange(count) * total // count


def as_is(batch: Batch) -> Batch:
    """The dataset gives whole batches: nothing is left to collate."""
    return batch


def num_tokens(dataset: BatchDataset, rows: list[int]) -> int:
    batch = dataset.__getitems__(rows)
    return batch.source.numel() + batch.target_input.numel()
