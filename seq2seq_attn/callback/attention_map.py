"""Draw the attention of a few fixed validation sentences, at every validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import numpy as np
import pytorch_lightning as pl
import torch
from matplotlib.image import imread
from pytorch_lightning.loggers import TensorBoardLogger, WandbLogger

from seq2seq_attn.callback.heat_map import save_attention_map
from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.search.search import Search
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


@final
class AttentionMap(pl.Callback):
    """Writes `attention_maps/step_<step>/<slot>_<sentence>.png` and `.npz` into the run folder, and to loggers.

    The map is one teacher-forced pass over the search's own translation, so its last row is the end piece.

    Args:
        log_pictures: hand them to the loggers too.
        slots: which of `cross` (target to source), `self` (target to itself) and `encoder` to draw.
        num_sentences: the first that are neither very short nor very long.
        min_pieces, max_pieces: of the source, end piece not counted.
    """

    def __init__(
        self, *, folder: str, log_pictures: bool, slots: list[str], num_sentences: int, min_pieces: int,
        max_pieces: int,
    ) -> None:  # fmt: skip
        self.folder, self.log_pictures, self.slots = Path(folder), log_pictures, slots
        self.num_sentences, self.min_pieces, self.max_pieces = num_sentences, min_pieces, max_pieces

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        folder = self.folder / f"step_{trainer.global_step:06d}"
        for number, pieces in enumerate(self._sources(trainer, pl_module.tokenizer)):
            found = attention_of(pl_module.model, pl_module.tokenizer, pl_module.search, pieces)
            for slot, weights, source, target in found:
                if slot.partition("/")[0] not in self.slots:
                    continue
                name = f"{slot.replace('/', '_')}_{number}"
                picture = save_attention_map(folder / name, weights, source, target)
                if self.log_pictures:
                    log_picture(trainer.loggers, f"attention/{name}", picture, trainer.global_step)

    def _sources(self, trainer: Any, tokenizer: Any) -> list[list[int]]:
        sources = trainer.datamodule.corpus.splits["val"].sources[: 50 * self.num_sentences]
        encoded = tokenizer.encode_source(sources)
        fitting = [pieces for pieces in encoded if self.min_pieces <= len(pieces) <= self.max_pieces]
        return fitting[: self.num_sentences]


def attention_of(
    model: EncoderDecoder, tokenizer: SentencePieceTokenizer, search: Search, pieces: list[int]
) -> list[tuple[str, np.ndarray, list[str], list[str]]]:
    """Slot, weights (heads, rows, columns), pieces of the columns and of the rows, of one sentence's translation.

    A row of the target is named by the piece it predicts, a column by the piece that is read there.
    """
    device = model.embed_source.weight.device
    source, _, mask = collate_sources([pieces], pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
    source, mask = source.to(device), mask.to(device)
    banned = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id)
    with torch.inference_mode():
        (best,) = search(
            model, source, mask, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id, banned_ids=banned
        )
        target = torch.tensor([[tokenizer.bos_id, *best.pieces]], device=device)
        decoded = model(source, mask, target, need_weights=True)
    read = [*tokenizer.source_pieces(pieces), "</s>"]
    written = tokenizer.target_pieces(best.pieces)
    axes = {
        "cross": (read, [*written, "</s>"]),
        "self": (["<s>", *written], [*written, "</s>"]),
        "encoder": (read, read),
    }
    return [
        (slot, weights[0].float().cpu().numpy(), *axes[slot.partition("/")[0]])
        for slot, weights in decoded.weights.items()
    ]


def log_picture(loggers: list[Any], name: str, picture: Path, step: int) -> None:
    """Hand a picture to every logger that takes one."""
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_image(name, imread(picture), step, dataformats="HWC")
        elif isinstance(logger, WandbLogger):
            logger.log_image(name, [str(picture)], step=step)
