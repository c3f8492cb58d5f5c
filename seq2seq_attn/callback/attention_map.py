"""Heat maps of the attention for a few validation sentences, at each validation."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Literal, final

import pytorch_lightning as pl

from seq2seq_attn.alignment.forced_attention import attention_along
from seq2seq_attn.callback.translation_table import logged_step, logs_validation, translate

log = logging.getLogger(__name__)


@final
class AttentionMap(pl.Callback):
    """Writes `attention_maps/step_<step>/<slot>_<sentence>.png` and `.npz` into the run folder, and logs the pictures.

    A map is one teacher-forced pass over the translation that the search finds, so its last row is the end token. The
    caption names the slot, the sentence and its translation.

    Args:
        log_pictures: whether loggers get them too.
        slots: which of `cross` (target to source), `self` (target to itself) and `encoder` to draw.
        num_sentences: the first of `min_tokens` to `max_tokens` source tokens without the end token; if these are too
            few, the longest of the shorter ones.
    """

    def __init__(
        self,
        *,
        folder: str,
        log_pictures: bool,
        slots: list[Literal["cross", "self", "encoder"]],
        num_sentences: Annotated[int, "[0, 1000000]"],
        min_tokens: Annotated[int, "[0, 1000000]"],
        max_tokens: Annotated[int, "[0, 1000000]"],
    ) -> None:
        self.folder, self.log_pictures, self.slots = Path(folder), log_pictures, slots
        self.num_sentences, self.min_tokens, self.max_tokens = num_sentences, min_tokens, max_tokens
        self._warned = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not (pl_module.translates and logs_validation(trainer)):
            return
        from seq2seq_attn.alignment.heat_map import save_attention_map  # and matplotlib, for which no update waits

        folder = self.folder / f"step_{trainer.global_step:06d}"
        model, tokenizer = pl_module.model, pl_module.tokenizer
        sources = self._sources(trainer, tokenizer)
        if not sources:
            return
        present: set[str] = set()
        translations = translate(model, tokenizer, pl_module.search, [tokens for _, tokens in sources])
        for number, ((sentence, tokens), best) in enumerate(zip(sources, translations, strict=True)):
            for slot, weights, source, target in attention_along(model, tokenizer, tokens, best):
                present.add(slot.partition("/")[0])
                if slot.partition("/")[0] not in self.slots:
                    continue
                name = f"{slot.replace('/', '_')}_{number}"
                picture = save_attention_map(folder / name, weights, source, target)
                caption = f"{slot}: {sentence} → {tokenizer.decode_target([best])[0]}"
                for logger in trainer.loggers if self.log_pictures else []:
                    if hasattr(logger, "log_image"):
                        step = logged_step(trainer)
                        logger.log_image(f"attention/{name}", [str(picture)], step=step, caption=[caption])
        if present and not present & set(self.slots):
            self._warn(f"callback.attention_map.slots names none of this model's: {', '.join(sorted(present))}")

    def _sources(self, trainer: Any, tokenizer: Any) -> list[tuple[str, list[int]]]:
        sources = list(trainer.datamodule.corpus.splits["val"].sources[: 50 * self.num_sentences])
        encoded = zip(sources, tokenizer.encode_source(sources), strict=True)
        fitting = [(sentence, tokens) for sentence, tokens in encoded if 0 < len(tokens) <= self.max_tokens]
        if sources and not fitting:
            self._warn(
                f"none of the first {len(sources)} validation sentences has 1 to {self.max_tokens} tokens; raise "
                "callback.attention_map.max_tokens"
            )
        fitting.sort(key=lambda pair: -min(len(pair[1]), self.min_tokens))
        return fitting[: self.num_sentences]

    def _warn(self, reason: str) -> None:
        if not self._warned:
            log.warning(f"no attention map is drawn: {reason}")
        self._warned = True
