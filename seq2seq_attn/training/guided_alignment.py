"""Guided alignment: links between words, the head whose weights they guide, and the weight of that loss."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, final

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.alignment.guided import last_but_one
from seq2seq_attn.alignment.symmetrize import Method
from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.batch import Batch
from seq2seq_attn.checkpoint.admitted import Trust
from seq2seq_attn.checkpoint.load import find_checkpoint
from seq2seq_attn.data.corpus import Corpus, LoadedCorpus
from seq2seq_attn.data.store.local_copy import local_copy
from seq2seq_attn.data.word_links import WordLinks, is_complete, prepared_links, read_links, write_complete, write_links
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import locked, sha256
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.paths import given_path

FORMAT = 3  # of the stored links; those of another one are made anew


@final
class GuidedAlignment:
    """A second loss, by which one head of the attention to the source learns links between words.

    The loss of a target token that is linked is that of the head's weights in the step that writes it against the
    uniform distribution over the source tokens that it is linked to. As in fairseq, its sum is divided by the number
    of all target tokens and multiplied by `weight`, so that each link counts the same, whatever batch it is in. RNN:
    Chen et al. 2016, arXiv:1607.01628; one head of a Transformer: Garg et al. 2019, section 4.2, arXiv:1909.02074.

    Args:
        links: a file with a line for each training pair, in Pharaoh form; "eflomal": this statistical aligner links the
            words of training and validation pairs; "self": two trained runs do; None: no guidance.
        weight: of the loss; 0: no guidance.
        layer: of the decoder, from 0; None: the last but one, as in the paper, or the only one.
        head: of this layer, from 0.
        runs: for links=self, a trained run of this direction and one of the other. Each links words by the mean of the
            heads of a layer, or of all layers, in the step that writes or reads a word: those by which both runs agree
            most (Chen et al. 2020).
        symmetrization: of the links of two directions, by eflomal or by two runs; see `symmetrize`.
        shift: the links of a target token guide the step that reads it, whose query knows it except in decoder `rnn`,
            instead of the one that writes it (Chen et al. 2020, section 3.1, arXiv:2004.14837).
        unlinked: "end": a token without links, in a pair that has some, is linked to the source's end token; the head
            learns which words have no counterpart. "ignore": it has no loss, as in Garg et al.
    """

    def __init__(
        self,
        *,
        links: str | None,
        weight: Annotated[int | float, "[0, inf)"],
        layer: Annotated[int | None, "[0, 1000]"],
        head: Annotated[int, "[0, 1000]"],
        runs: list[str] | None = None,
        symmetrization: Method = "grow-diag",
        shift: bool = False,
        unlinked: Literal["ignore", "end"] = "ignore",
    ) -> None:
        self.links, self.weight, self.layer, self.head = links, weight, layer, head
        self.runs, self.symmetrization, self.shift, self.unlinked = runs, symmetrization, shift, unlinked

    @property
    def is_on(self) -> bool:
        return self.links is not None and self.weight > 0

    def chosen_layer(self, model: EncoderDecoder) -> int:
        """Return the number of the layer whose weights are links.

        Raises:
            UserError: if there is none.
        """
        layers = model.decoder.source_attentions
        layer = last_but_one(model) if self.layer is None else self.layer
        if layer >= len(layers):
            raise UserError(
                f"guided_alignment.layer={layer} is no layer of a decoder with {len(layers)} that attend to the "
                f"source; give one from 0 to {len(layers) - 1}"
            )
        return layer

    def check(self, model: EncoderDecoder) -> None:
        """Refuse a head that is not there, or that no links can guide.

        Raises:
            UserError: for such a head, and for links of the token that a step reads before it attends.
        """
        if self.shift and not model.decoder.query_knows_token:
            raise UserError(
                "guided_alignment.shift=true guides the attention of the step that reads a word, and in this decoder "
                "attention is computed before the step reads it; use decoder@model.decoder=rnn_conditional or "
                "rnn_luong, or leave it out"
            )
        model.decoder.source_attentions[self.chosen_layer(model)].check_guide(self.head)

    def guide(self, model: EncoderDecoder, batch: Batch) -> Guide:
        """Return the links of a batch for the chosen head, each in the row of the step that it guides."""
        assert batch.links is not None
        links = batch.links if self.unlinked == "ignore" else with_links_to_the_end(batch.links, batch)
        if self.shift:
            links = F.pad(links[:, :-1], (0, 0, 1, 0))
        return Guide(self.chosen_layer(model), self.head, links)

    def prepare(self, reader: Corpus, corpus: LoadedCorpus, cache_dir: str, trust: Trust = ()) -> dict[str, WordLinks]:
        """Return the links of each split that has some, made now or before.

        Args:
            reader: of `corpus`.
            trust: packages whose classes the runs may name.

        Raises:
            UserError: if there are no such links, they are not those of the training pairs, or no pair has one.
        """
        assert self.links is not None
        origin: list[Any] = ["eflomal", self.symmetrization]
        if self.links == "self":
            origin = [*map(sha256, self._checkpoints()), self.symmetrization, "by agreement"]
        elif self.links != "eflomal":
            origin = [sha256(self._file()), reader.training_identity()]
        key = hashlib.sha256(json.dumps([FORMAT, corpus.fingerprint, *origin]).encode()).hexdigest()[:32]
        folder = given_path(cache_dir, "paths.cache_dir") / "links" / key
        with nullcontext() if is_complete(folder) else locked(folder / "lock"):
            if not is_complete(folder):
                self._make(reader, corpus, folder, trust)
                write_complete(folder)
        folder = folder if corpus.copy_to is None else local_copy(folder, corpus.copy_to)
        links = prepared_links(folder, corpus.splits)
        if "train" not in links or not links["train"].num_linked:
            raise UserError(
                f"guided_alignment.links={self.links} links no word of a training pair; give links of the pairs of "
                "data.train, or guided_alignment.links=null"
            )
        return links

    def _file(self) -> Path:
        file = given_path(str(self.links), "guided_alignment.links")
        if not file.is_file():
            raise UserError(
                f"guided_alignment.links={self.links} does not exist; give a file of links in Pharaoh form, eflomal or "
                "self"
            )
        return file

    def _checkpoints(self) -> list[Path]:
        if self.runs is None or len(self.runs) != 2:
            raise UserError(
                "guided_alignment.links=self needs guided_alignment.runs=[FORWARD,REVERSE], a trained run of this "
                "direction and one of the other"
            )
        return [find_checkpoint(run, "guided_alignment.runs") for run in self.runs]

    def _make(self, reader: Corpus, corpus: LoadedCorpus, folder: Path, trust: Trust) -> None:
        """Write the links of training pairs, and of validation pairs that are linked too or are in the file."""
        splits = [name for name in ("train", "val") if name in corpus.splits]
        if self.links not in ("eflomal", "self"):
            read = read_links(self._file(), reader.training_pairs())
            for name in splits:
                read.write(corpus.splits[name], folder / name)
            return
        from seq2seq_attn.training.aligned_links import attention_links, eflomal_links, load_aligner

        sources, targets = (
            [text.split() for name in splits for text in getattr(corpus.splits[name], side)]
            for side in ("sources", "targets")
        )
        if self.links == "eflomal":
            links = eflomal_links(sources, targets, self.symmetrization)
        else:
            languages = (corpus.source_language, corpus.target_language)
            forward, reverse = (
                load_aligner(file, run_languages, trust)
                for file, run_languages in zip(self._checkpoints(), (languages, languages[::-1]), strict=True)
            )
            links = attention_links(forward, reverse, sources, targets, self.symmetrization)
        words = np.array([(len(source), len(target)) for source, target in zip(sources, targets, strict=True)])
        counts = np.array([len(pair_links) for pair_links in links])
        pairs = np.array([link for pair_links in links for link in pair_links], np.int64).reshape(-1, 2)
        row, ends = 0, np.cumsum([0, *counts])
        for name in splits:
            end = row + len(corpus.splits[name])
            write_links(folder / name, pairs[ends[row] : ends[end]], counts[row:end], words[row:end])
            row = end


def with_links_to_the_end(
    links: Bool[Tensor, "batch target source"], batch: Batch
) -> Bool[Tensor, "batch target source"]:
    """Return the links of a batch, with one to the source's end token for each token that has none.

    Pairs without any link, and the end token of the target, get none.
    """
    position = torch.arange(links.shape[1], device=links.device)
    is_word = position < batch.target_lengths[:, None] - 1
    unlinked = is_word & ~links.any(2) & links.flatten(1).any(1, keepdim=True)
    is_end = torch.arange(links.shape[2], device=links.device) == batch.source_lengths[:, None] - 1
    return links | (unlinked[:, :, None] & is_end[:, None])
