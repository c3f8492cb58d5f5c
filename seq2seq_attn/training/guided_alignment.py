"""Guided alignment: links between words, the head whose weights they guide, and the weight of that loss."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, final

from jaxtyping import Bool
from torch import Tensor

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.data.corpus import Corpus, LoadedCorpus
from seq2seq_attn.data.store.local_copy import local_copy
from seq2seq_attn.data.word_links import WordLinks, prepared_links, read_links
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import locked, replacing, sha256
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.paths import given_path

FORMAT = 1  # of the stored links; those of another one are made anew


@final
class GuidedAlignment:
    """A second loss, by which one head of the attention to the source learns links between words.

    The loss of a target token that is linked is that of the head's weights in the step that writes it against the
    uniform distribution over the source tokens that it is linked to. As in fairseq, its sum is divided by the number
    of all target tokens and multiplied by `weight`, so that each link counts the same, whatever batch it is in. RNN:
    Chen et al. 2016, arXiv:1607.01628; one head of a Transformer: Garg et al. 2019, section 4.2, arXiv:1909.02074.

    Args:
        links: a file with a line for each training pair, in Pharaoh form; None: no guidance.
        weight: of the loss; 0: no guidance.
        layer: of the decoder, from 0; None: the last but one, as in the paper.
        head: of this layer, from 0.
    """

    def __init__(
        self,
        *,
        links: str | None,
        weight: Annotated[float, "[0, inf)"],
        layer: Annotated[int | None, "[0, 1000]"],
        head: Annotated[int, "[0, 1000]"],
    ) -> None:
        self.links, self.weight, self.layer, self.head = links, weight, layer, head

    @property
    def is_on(self) -> bool:
        return self.links is not None and self.weight > 0

    def chosen_layer(self, model: EncoderDecoder) -> int:
        """Return the number of the layer that is guided.

        Raises:
            UserError: if there is none, or it cannot be guided.
        """
        layers = model.decoder.source_attentions
        layer = max(0, len(layers) - 2) if self.layer is None else self.layer
        if layer >= len(layers):
            raise UserError(
                f"guided_alignment.layer={layer} is no layer of a decoder with {len(layers)} that attend to the "
                f"source; give one from 0 to {len(layers) - 1}"
            )
        layers[layer].check_guide(self.head)
        return layer

    def guide(self, model: EncoderDecoder, links: Bool[Tensor, "batch target source"]) -> Guide:
        """Return the links of a batch for the chosen head."""
        return Guide(self.chosen_layer(model), self.head, links)

    def prepare(self, reader: Corpus, corpus: LoadedCorpus, cache_dir: str) -> dict[str, WordLinks]:
        """Return the links of each split that has some, made now or before.

        Args:
            reader: of `corpus`.

        Raises:
            UserError: if the links are not those of the training pairs.
        """
        assert self.links is not None
        file = given_path(self.links, "guided_alignment.links")
        if not file.is_file():
            raise UserError(f"guided_alignment.links={self.links} does not exist; give a file of links in Pharaoh form")
        key = hashlib.sha256(json.dumps([FORMAT, corpus.fingerprint, sha256(file)]).encode()).hexdigest()[:32]
        folder = given_path(cache_dir, "paths.cache_dir") / "links" / key
        with locked(folder / "lock"):
            if not (folder / "complete.json").exists():
                self._read(file, reader, corpus, folder)
        folder = folder if corpus.copy_to is None else local_copy(folder, corpus.copy_to)
        return prepared_links(folder, corpus.splits)

    def _read(self, file: Path, reader: Corpus, corpus: LoadedCorpus, folder: Path) -> None:
        links = read_links(file, reader.training_pairs())
        for name, split in corpus.splits.items():
            links.write(split, folder / name)
        with replacing(folder / "complete.json") as stream:
            stream.write(b"{}")
