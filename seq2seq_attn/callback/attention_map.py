"""Draw the attention of a few fixed validation sentences, at every validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, final

import pytorch_lightning as pl

from seq2seq_attn.alignment.forced_attention import attention_along
from seq2seq_attn.alignment.heat_map import save_attention_map
from seq2seq_attn.callback.after_validation import is_shown_here, logged_step, loggers_that
from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.search.search import Search, TargetVocabulary
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


@final
class AttentionMap(pl.Callback):
    """Writes `attention_maps/step_<step>/<slot>_<sentence>.png` and `.npz` into the run folder, and to loggers.

    The map is one teacher-forced pass over the search's own translation, so its last row is the end token. Loggers get
    the slot, the sentence and its translation as the picture's caption.

    Args:
        log_pictures: hand them to the loggers too.
        slots: which of `cross` (target to source), `self` (target to itself) and `encoder` to draw.
        num_sentences: the first that are neither very short nor very long; then the longest of the short ones.
        min_tokens, max_tokens: of the source, end token not counted; that no sentence is short enough is said.
    """

    def __init__(
        self,
        *,
        folder: str,
        log_pictures: bool,
        slots: list[Literal["cross", "self", "encoder"]],
        num_sentences: int,
        min_tokens: int,
        max_tokens: int,
    ) -> None:
        self.folder, self.log_pictures, self.slots = Path(folder), log_pictures, slots
        self.num_sentences, self.min_tokens, self.max_tokens = num_sentences, min_tokens, max_tokens
        self._told = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not is_shown_here(trainer):
            return
        folder = self.folder / f"step_{trainer.global_step:06d}"
        model, tokenizer = pl_module.model, pl_module.tokenizer
        for number, (sentence, tokens) in enumerate(self._sources(trainer, tokenizer)):
            best = best_translation(model, tokenizer, pl_module.search, tokens)
            for slot, weights, source, target in attention_along(model, tokenizer, tokens, best):
                if slot.partition("/")[0] not in self.slots:
                    continue
                name = f"{slot.replace('/', '_')}_{number}"
                picture = save_attention_map(folder / name, weights, source, target)
                caption = f"{slot}: {sentence} → {tokenizer.decode_target([best])[0]}"
                for logger in loggers_that("log_image", trainer.loggers if self.log_pictures else []):
                    step = logged_step(trainer)
                    logger.log_image(f"attention/{name}", [str(picture)], step=step, caption=[caption])

    def _sources(self, trainer: Any, tokenizer: Any) -> list[tuple[str, list[int]]]:
        sources = trainer.datamodule.corpus.splits["val"].sources[: 50 * self.num_sentences]
        encoded = tokenizer.encode_source(sources)
        fitting = [
            (sentence, tokens)
            for sentence, tokens in zip(sources, encoded, strict=True)
            if 0 < len(tokens) <= self.max_tokens
        ]
        if sources and not fitting and not self._told:
            self._told = True
            print(
                f"no map of attention is drawn: none of the first {len(sources)} validation sentences has 1 to "
                f"{self.max_tokens} tokens; raise callback.attention_map.max_tokens",
                flush=True,
            )
        fitting.sort(key=lambda found: -min(len(found[1]), self.min_tokens))
        return fitting[: self.num_sentences]


def best_translation(
    model: EncoderDecoder, tokenizer: SentencePieceTokenizer, search: Search, tokens: list[int]
) -> list[int]:
    """The tokens that the search finds for one sentence."""
    device = model.embed_source.weight.device
    source, _, mask = collate_sources([tokens], pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
    ((best, *_),) = search(model, source.to(device), mask.to(device), TargetVocabulary.of(tokenizer))
    return best.token_ids
