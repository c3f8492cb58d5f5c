"""The Lightning data module: encoded splits and their data loaders."""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections.abc import Mapping
from itertools import islice
from typing import Any, final

import numpy as np
import pytorch_lightning as pl
import torch
from jaxtyping import Int64
from pytorch_lightning.utilities.warnings import PossibleUserWarning
from torch.utils.data import DataLoader

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.batch_dataset import BatchDataset
from seq2seq_attn.data.batch_sampler import TokenBatchSampler
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.encoded import EncodedSplit, encode_split
from seq2seq_attn.data.word_links import WordLinks
from seq2seq_attn.distributed.collectives import gather_from_ranks
from seq2seq_attn.distributed.ranks import end_with
from seq2seq_attn.errors import UserError
from seq2seq_attn.objective.objective import Noise, Objective
from seq2seq_attn.paths import given_path
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

log = logging.getLogger(__name__)


@final
class TranslationDataModule(pl.LightningDataModule):
    """Data loaders of a corpus, with batches of similar cost.

    Args:
        tokenizer: a trained tokenizer.
        batch_tokens: most padded source and target tokens in a training batch, specials included.
        batch_sentences: most pairs in a training batch, in addition to `batch_tokens`; None: any number.
        eval_batch_tokens: as `batch_tokens`, for validation and test; None: as in training.
        num_workers: worker processes of each loader. 0 is fast, since a batch takes a few array operations;
            subword sampling may need 1 or 2.
        cache_dir: folder in which encoded splits are cached.
        val_sentences: number of sentences that validation during training reads, evenly spread over the split and
            the same for every seed; the whole split is then tested too, as "val". None: all.
        links: links between the words of the pairs, for each split that has some.
        objective: noise that makes the pairs, of the targets alone; None: the corpus has them.

    Attributes:
        test_names: names of the test sets, in order.
        max_length: most tokens of a segmentation that is sampled in training, as in `BatchDataset`.
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
        batch_sentences: int | None = None,
        num_workers: int = 0,
        val_sentences: int | None = None,
        links: Mapping[str, WordLinks] | None = None,
        objective: Objective | None = None,
    ) -> None:
        super().__init__()
        self.corpus, self.tokenizer, self.links = corpus, tokenizer, links or {}
        self.noise = None if objective is None else Noise(objective, tokenizer, seed)
        self.batch_tokens, self.eval_batch_tokens = batch_tokens, eval_batch_tokens or batch_tokens
        self.batch_sentences = batch_sentences
        self.seed, self.num_workers = seed, num_workers
        self.cache_dir = given_path(cache_dir, "paths.cache_dir") / "encoded"
        self.test_names = [name for name in corpus.splits if name not in ("train", "val")]
        self.val_rows = None
        if val_sentences is not None and "val" in corpus.splits:
            self.val_rows = evenly_spread(val_sentences, len(corpus.splits["val"]))
            if len(self.val_rows) < len(corpus.splits["val"]):
                self.test_names.append("val")
        self.max_length: int | None = None
        self._encoded: dict[str, EncodedSplit] = {}
        self._samplers: dict[tuple[str, int, int, bool, bool, bool], TokenBatchSampler] = {}
        self._first_epoch = 0

    def prepare_data(self) -> None:
        """Fill the cache; Lightning calls this in one process of each machine, before the others read it."""
        for name in self.corpus.splits:
            self.encoded(name)

    def setup(self, stage: str | None = None) -> None:
        """Check that all ranks have the same data, and silence warnings that do not apply here."""
        links = {split: of_split.digest for split, of_split in self.links.items()}
        check_ranks_agree(self.corpus.fingerprint, self.tokenizer.fingerprint, links)
        # Lightning recommends more workers however cheap a batch is.
        warnings.filterwarnings("ignore", ".*does not have many workers.*", PossibleUserWarning)
        warnings.filterwarnings("ignore", ".*is smaller than the logging interval.*", PossibleUserWarning)
        warnings.filterwarnings("ignore", "Total length of `list` across ranks is zero.*")  # there is no validation

    def encoded(self, name: str) -> EncodedSplit:
        """Return the encoded split of this name, from the cache if it is there."""
        if name not in self._encoded:
            key = "\n".join([self.corpus.fingerprint, self.tokenizer.fingerprint, name])
            folder = self.cache_dir / hashlib.sha256(key.encode()).hexdigest()[:32]
            options = self.corpus.copy_to, self.corpus.num_processes
            self._encoded[name] = encode_split(self.corpus.splits[name], self.tokenizer, folder, *options)
        return self._encoded[name]

    @property
    def longest(self) -> dict[str, tuple[int, int]]:
        """Length in tokens of the longest source and target of each split, with the end or begin token."""
        return {name: self.encoded(name).longest for name in self.corpus.splits}

    @property
    def padding_share(self) -> float:
        """Share of padding in the tokens of the training batches, before subword sampling."""
        return self._sampler("train").padding_share

    def train_dataloader(self) -> DataLoader[Batch]:
        sampler = self._sampler("train")
        # Workers start before Lightning calls set_epoch, and before it restores the epoch of a resumed run.
        sampler.set_epoch(max(self.trainer.current_epoch if self.trainer else 0, self._first_epoch))
        return self._loader("train", sampler)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, how many of its batches each device has read for updates, and the shape of an epoch."""
        trainer: Any = self.trainer
        sampler = self._sampler("train")
        epoch = trainer.fit_loop.epoch_progress.current.processed
        read = batches_of_updates(trainer)
        batch = read if epoch == sampler.epoch else 0  # at the end of an epoch, `read` still counts the last one
        links = {"links": self.links["train"].digest} if "train" in self.links else {}
        limit = {"limit": trainer.num_training_batches}  # lower than "batches" by trainer.limit_train_batches
        of_epoch = {"epoch": epoch, "batch": batch, "corpus": self.corpus.fingerprint}
        return of_epoch | self._shape(sampler) | limit | links

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume where `state_dict` was taken, as `batches_read` says."""
        if state_dict.get("corpus", self.corpus.fingerprint) != self.corpus.fingerprint:
            log.warning(
                "The data is not that with which the run was trained until now; the run continues with the new pairs, "
                "and if the validation set is another one, its scores do not compare with those before"
            )
        if "train" in self.links and state_dict.get("links", self.links["train"].digest) != self.links["train"].digest:
            log.warning(
                "guided_alignment: the word links are not those that the run was trained with until now; the run "
                "continues with the new ones"
            )
        self._first_epoch = state_dict["epoch"]
        self._sampler("train").start_at(state_dict["epoch"], self.batches_read(state_dict))

    def batches_read(self, state_dict: dict[str, Any]) -> int:
        """Return how many batches each device counts as read, where there may be other devices than in `state_dict`.

        Another number of devices resumes within an epoch if it is cut into the same batches for them, and if they can
        share equally those that were read.

        Raises:
            UserError: if they cannot.
        """
        shape, batch = self._shape(self._sampler("train")), state_dict["batch"]
        if batch == 0 or {name: state_dict.get(name, shape[name]) for name in shape} == shape:
            return batch
        if batch >= state_dict.get("limit", state_dict["batches"]):
            return shape["batches"]
        read, rest = divmod(batch * state_dict["devices"], shape["devices"])
        if not rest and all(state_dict.get(name, shape[name]) == shape[name] for name in ("seed", "cuts", "pairs")):
            return read
        raise UserError(
            f"the run was stopped within an epoch, after {batch} of {state_dict['batches']} batches for each of "
            f"{state_dict['devices']} devices with seed={state_dict['seed']}, and here the epoch has "
            f"{shape['batches']} for each of {shape['devices']} with seed={shape['seed']}, which are other batches or "
            "cannot be shared equally from there on; continue it with the data, batch_tokens, batch_sentences, "
            "tokenizer.sampling_alpha, objective, seed and devices that it had"
        )

    def _shape(self, sampler: TokenBatchSampler) -> dict[str, Any]:
        return {
            "batches": len(sampler),
            "devices": sampler.num_replicas,
            "seed": self.seed,
            "cuts": sampler.fingerprint,
            "pairs": self.corpus.train_fingerprint,
        }

    def val_dataloader(self) -> DataLoader[Batch] | list[DataLoader[Batch]]:
        """Return the loader of the validation, or no loader without that split: then Lightning validates nothing."""
        if "val" not in self.corpus.splits:
            return []
        return self._loader("val", self._sampler("val", "limit_val_batches", self.val_rows))

    def test_dataloader(self) -> list[DataLoader[Batch]]:
        """Return one loader per test set, in the order of `test_names`."""
        return [self._loader(name, self._sampler(name, "limit_test_batches")) for name in self.test_names]

    def _sampler(
        self, name: str, limit: str | None = None, rows: Int64[np.ndarray, " some"] | None = None
    ) -> TokenBatchSampler:
        """Return the batches of a split.

        Args:
            limit: the trainer's option that may leave out batches of an evaluation.
            rows: those that are read; None: all.
        """
        rank, num_replicas = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        overfit = self.trainer is not None and self.trainer.overfit_batches > 0  # type: ignore[attr-defined]
        shuffle = name == "train" and not overfit
        spread = overfit if limit is None else self._reads_part(limit)
        key = (name, rank, num_replicas, shuffle, spread, rows is None)
        if key not in self._samplers:
            encoded = self.encoded(name)
            self._samplers[key] = TokenBatchSampler(
                encoded,
                starts=encoded.starts,
                cache=encoded.folder if rows is None else None,
                shuffle=shuffle,
                spread=spread,
                seed=self.seed,
                batch_tokens=self._stored_tokens(name),
                batch_sentences=self.batch_sentences if name == "train" else None,
                rank=rank,
                num_replicas=num_replicas,
                single_device_batches=name != "train",
                rows=rows,
            )
        return self._samplers[key]

    def _reads_part(self, limit: str) -> bool:
        """Return whether an option of the trainer, such as limit_val_batches, leaves out batches."""
        given = 1.0 if self.trainer is None else getattr(self.trainer, limit)
        return isinstance(given, int) or given < 1.0

    def _draws_segmentations(self, name: str) -> bool:
        return name == "train" and self.tokenizer.sampling_alpha > 0.0

    def _stored_tokens(self, name: str) -> int:
        """Return the budget of a batch in stored tokens, lowered where the batches that are made of them have more.

        Segmentations that are sampled in training are longer, and noise makes a source and a target of one text.
        """
        is_train = name == "train"
        batch_tokens = self.batch_tokens if is_train else self.eval_batch_tokens
        draws = self._draws_segmentations(name)
        if not draws and self.noise is None:
            return batch_tokens
        encoded, split = self.encoded(name), self.corpus.splits[name]
        sampler = TokenBatchSampler(
            encoded,
            starts=encoded.starts,
            cache=encoded.folder,
            batch_tokens=batch_tokens,
            shuffle=True,
            seed=self.seed,
        )
        plain = BatchDataset(split, encoded, self.tokenizer)
        drawn = BatchDataset(
            split,
            encoded,
            self.tokenizer,
            seeded_by=sampler if draws else None,
            noise=self.noise,
            noise_epoch=sampler if is_train else None,
        )
        growth = max(num_tokens(drawn, rows) / num_tokens(plain, rows) for rows in islice(sampler, 20))
        return max(1, int(batch_tokens / growth))

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Return the batch on a device, without waiting for a copy from pinned memory."""
        return batch.to(device, non_blocking=device.type == "cuda")

    def _loader(self, name: str, sampler: TokenBatchSampler) -> DataLoader[Batch]:
        dataset = BatchDataset(
            self.corpus.splits[name],
            self.encoded(name),
            self.tokenizer,
            seeded_by=sampler if self._draws_segmentations(name) else None,
            links=self.links.get(name),
            noise=self.noise,
            noise_epoch=sampler if name == "train" else None,
            max_length=self.max_length,
        )
        pin_memory = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        return DataLoader(
            dataset,
            batch_sampler=sampler,
            collate_fn=as_is,  # type: ignore[arg-type]
            num_workers=self.num_workers,
            worker_init_fn=leave_signals_to_parent,
            pin_memory=pin_memory,
        )


def check_ranks_agree(corpus: str, tokenizer: str, links: dict[str, str]) -> None:
    """Refuse ranks whose pairs, vocabulary or word links differ, as with separate caches.

    Args:
        corpus, tokenizer: the fingerprints of this rank.
        links: the digest of each split that has some.

    Raises:
        UserError: on every rank.
    """
    fingerprints = gather_from_ranks((corpus, tokenizer, links))
    names = "other pairs", "another vocabulary", "other word links"
    for what, of_ranks in zip(names, zip(*fingerprints, strict=True), strict=True):
        if others := [rank for rank, one in enumerate(of_ranks) if one != of_ranks[0]]:
            raise UserError(
                f"rank {others[0]} has {what} than rank 0; give every node the same files and options, and one "
                "paths.cache_dir, or empty the cache of the node that differs"
            )


def batches_of_updates(trainer: Any) -> int:
    """Return how many batches of this epoch were read for updates that were made, and not for one that was begun."""
    done = int(trainer.fit_loop.epoch_loop.batch_progress.current.processed)
    if done == trainer.num_training_batches:  # the last update of an epoch may be of fewer
        return done
    return done - done % trainer.accumulate_grad_batches


def evenly_spread(count: int, total: int) -> Int64[np.ndarray, " rows"]:
    """Return `count` row numbers, evenly spread over `total` rows from the first; all rows if there are fewer."""
    count = min(count, total)
    return np.arange(count) * total // count


def as_is(batch: Batch) -> Batch:
    """Return `batch`: the dataset returns whole batches, so there is nothing to collate."""
    return batch


def leave_signals_to_parent(worker: int) -> None:
    """Have a worker end with its parent, and not at a signal to all of the command, such as Ctrl+C, before it saves."""
    os.setpgid(0, 0)
    end_with(os.getppid())


def num_tokens(dataset: BatchDataset, rows: list[int]) -> int:
    batch = dataset.__getitems__(rows)
    return batch.source.numel() + batch.target_input.numel()
