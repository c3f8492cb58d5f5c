"""SentencePiece tokenizer. Kudo and Richardson 2018, arXiv:1808.06226; sampling: Kudo 2018, arXiv:1804.10959."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain, islice, takewhile
from typing import Annotated, Any, Literal, final

import sentencepiece
import torch

from seq2seq_attn.errors import UserError
from seq2seq_attn.files import locked
from seq2seq_attn.paths import given_path
from seq2seq_attn.text import plain_console
from seq2seq_attn.tokenizer.segmentation_sampler import SegmentationSampler
from seq2seq_attn.tokenizer.sentencepiece_model import (
    DEFAULTS,
    MODEL_TYPES,
    NAMES,
    SPECIALS,
    TrainerOptions,
    lack_for_sampling,
    lack_of_words,
    load_model,
    read_model,
    sentinels,
    train_model,
)

log = logging.getLogger(__name__)
WORD_MARK = "▁"  # SentencePiece's mark of a word's first token
SAMPLED = 1 << 19  # sentences, as many as a shard of a prepared corpus has


@final
class SentencePieceTokenizer:
    """A tokenizer with one SentencePiece model for both languages or one for each.

    Args:
        model_type: `unigram`, `bpe`, `char` or `word` (split at blanks).
        vocab_size: number of tokens of a model, specials included; an upper limit for `char` and `word`. `auto`:
            `auto_vocab_size` of the training text; with `joint` it is a number after training.
        joint: train one model on both languages.
        sampling_alpha: segmentation sampling in training; 0: off. `unigram`: exponent of the probabilities, the
            smaller the more varied. `bpe`: share of merges to drop.
        cache_dir: folder in which trained models are cached by content; None: no cache.
        split_by_unicode_script: whether tokens may not contain both letters and other characters. Use False for
            pretokenized text, where `l&apos;` is one token.
        model: a SentencePiece model that exists, which is used instead of training one, or one for each language. Its
            `model_type`, `vocab_size` and `joint` take the place of the arguments.
        input_sentence_size: number of sentence pairs, at most, that a model is trained on, evenly spread over the first
            half million. A larger corpus is stored in blocks drawn from all of its files, so these are a sample of it.
        num_sentinels: number of sentinels of a pre-training among the tokens, which no text has.
        min_count: with `word`, the fewest occurrences of a word in the text that the model is trained on; rarer ones
            have no token.
        character_coverage, byte_fallback, user_defined_symbols: as in `TrainerOptions`.

    Raises:
        UserError: if an argument is out of range.
    """

    pad_id, unk_id, bos_id, eos_id = SPECIALS.values()

    def __init__(
        self,
        model_type: str,
        vocab_size: Annotated[int | Literal["auto"], "[1, 1000000]"],
        joint: bool,
        sampling_alpha: Annotated[int | float, "[0, 1]"],
        cache_dir: str | None,
        split_by_unicode_script: bool = True,
        model: str | list[str] | None = None,
        input_sentence_size: Annotated[int, "[1, inf)"] = 200_000,
        num_sentinels: Annotated[int, "[0, 1000]"] = 0,
        min_count: Annotated[int, "[1, 1000000]"] = 1,
        character_coverage: Annotated[float, "[0.98, 1]"] = 1.0,
        byte_fallback: bool = False,
        user_defined_symbols: list[str] | None = None,
    ) -> None:
        check_settings(model_type, vocab_size, sampling_alpha, min_count, character_coverage)
        self.options = TrainerOptions(
            split_by_unicode_script,
            float(character_coverage),
            byte_fallback,
            tuple(user_defined_symbols or ()),
            num_sentinels,
        )
        check_symbols(model_type, self.options, sampling_alpha)
        self.model_type, self.vocab_size, self.joint = model_type, vocab_size, joint
        self.target_model_type = model_type  # given models may have two
        self.sampling_alpha = float(sampling_alpha)
        self.cache_dir = None if cache_dir is None else given_path(cache_dir, "tokenizer.cache_dir") / "tokenizer"
        self.input_sentence_size, self.min_count = input_sentence_size, min_count
        self.files = [] if model is None else [model] if isinstance(model, str) else model
        if len(self.files) > 2 or (isinstance(model, list) and len(model) < 2):
            raise UserError(f"tokenizer.model={model} must be one file, or [SOURCE,TARGET]")
        self._source: sentencepiece.SentencePieceProcessor | None = None
        self._target: sentencepiece.SentencePieceProcessor | None = None
        self._source_sampler: SegmentationSampler | None = None
        self._target_sampler: SegmentationSampler | None = None

    def train(self, sources: Sequence[str], targets: Sequence[str], progress: bool = False) -> None:
        """Learn the tokens from the training split, or load them from the cache or the given model.

        Args:
            sources, targets: the two sides; without sources, as of one-sided text, there is one model.
        """
        if self.files:
            self._load_files()
            return
        one_sided = any(targets) and not sources
        rows = "lines" if one_sided else "sentence pairs"
        if self.min_count > 1 and len(targets) > self.input_sentence_size:
            log.warning(
                f"tokenizer.min_count={self.min_count} counts the words of {self.input_sentence_size:,} of the "
                f"{len(targets):,} {rows}; tokenizer.input_sentence_size={len(targets)} counts those of all"
            )
        sources, targets = (sample(side, self.input_sentence_size) for side in (sources, targets))
        self.joint = self.joint or one_sided
        symbols = self.options.user_defined_symbols
        if absent := [symbol for symbol in symbols if not any(symbol in text for text in chain(sources, targets))]:
            log.warning(
                f"{', '.join(absent)} of tokenizer.user_defined_symbols is in no text that the tokens are learned "
                "from, which is the text after cleaning, such as by data.cleaning.lowercase=true"
            )
        console = plain_console(quiet=not progress)
        with console.status(f"Learning {self.model_type} tokens from {len(targets):,} {rows}"):
            if self.joint:
                source = target = self._train(sources + targets, "the text" if one_sided else "both languages")
            else:
                source = self._train(sources, "the source language")
                target = self._train(targets, "the target language")
        self._set_models(source, target)
        if self.vocab_size == "auto":
            sizes = f"{self.source_vocab_size:,} tokens"
            if self.joint:
                self.vocab_size = self.source_vocab_size
            else:
                sizes += f" for the source language and {self.target_vocab_size:,} for the target language"
            log.info(f"tokenizer.vocab_size=auto: {sizes}, by the characters and words of the training text")

    def encode_source(self, sentences: list[str], sample: bool = False, seed: int = 0) -> list[list[int]]:
        """Return token ids without begin and end; `sample` draws segmentations, which depend on `seed` alone."""
        if sample and self._source_sampler is not None:
            return self._source_sampler(sentences, seed)
        return self.source_model.encode(sentences)

    def encode_target(self, sentences: list[str], sample: bool = False, seed: int = 0) -> list[list[int]]:
        """Do what `encode_source` does for the target language."""
        if sample and self._target_sampler is not None:
            return self._target_sampler(sentences, seed)
        return self.target_model.encode(sentences)

    def decode_target(self, ids: list[list[int]]) -> list[str]:
        """Return detokenized sentences, without padding, begin and end tokens."""
        specials = (self.pad_id, self.bos_id, self.eos_id)
        return [self.target_model.decode([i for i in row if i not in specials]).strip() if row else "" for row in ids]

    def source_tokens(self, ids: list[int]) -> list[str]:
        """Return the tokens as text, with "▁" for a preceding blank."""
        return [self.source_model.id_to_piece(i) for i in ids]

    def target_tokens(self, ids: list[int]) -> list[str]:
        """Do what `source_tokens` does for the target language."""
        return [self.target_model.id_to_piece(i) for i in ids]

    @property
    def source_model(self) -> sentencepiece.SentencePieceProcessor:
        assert self._source is not None, "train the tokenizer first"
        return self._source

    @property
    def target_model(self) -> sentencepiece.SentencePieceProcessor:
        assert self._target is not None, "train the tokenizer first"
        return self._target

    @property
    def source_vocab_size(self) -> int:
        return self.source_model.get_piece_size()

    @property
    def target_vocab_size(self) -> int:
        return self.target_model.get_piece_size()

    @property
    def is_of_one_model(self) -> bool:
        """Whether both languages have the same tokens."""
        return self.joint or self.source_model.serialized_model_proto() == self.target_model.serialized_model_proto()

    @property
    def sentinels(self) -> list[int]:
        """Ids of the sentinels of both models, in their order; none but of a pre-training."""
        models = (self.source_model, self.target_model)
        pairs = takewhile(lambda ids: self.unk_id not in ids, ([m.piece_to_id(s) for m in models] for s in sentinels()))
        return [target for _, target in pairs]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the two models, which determine the encoding without sampling."""
        digest = hashlib.sha256(self.source_model.serialized_model_proto())
        digest.update(self.target_model.serialized_model_proto())
        return digest.hexdigest()

    def get_state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: plain data and tensors that `torch.load(weights_only=True)` can read."""
        source = as_tensor(self.source_model)
        return {
            "model_type": self.model_type,
            "target_model_type": self.target_model_type,
            "vocab_size": self.vocab_size,
            "joint": self.joint,
            "sampling_alpha": self.sampling_alpha,
            "source_model": source,
            "target_model": source if self.joint else as_tensor(self.target_model),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> SentencePieceTokenizer:
        """Return the trained tokenizer whose state this is."""
        settings = {name: state[name] for name in ("model_type", "vocab_size", "joint", "sampling_alpha")}
        tokenizer = cls(**settings, cache_dir=None)
        tokenizer.target_model_type = state.get("target_model_type", tokenizer.model_type)
        source = load_model(state["source_model"].numpy().tobytes())
        target = source if tokenizer.joint else load_model(state["target_model"].numpy().tobytes())
        tokenizer._set_models(source, target)
        return tokenizer

    def _load_files(self) -> None:
        """Load the given models, with the special tokens at the ids that they have here.

        Raises:
            UserError: for an option of training a model, which would change nothing.
        """
        of_training = zip(self.options._fields[1:-1], self.options[1:-1], DEFAULTS[1:-1], strict=True)
        typed = [name for name, value, default in of_training if value != default]
        if self.min_count > 1:
            typed.append("min_count")
        if typed:
            raise UserError(
                f"tokenizer.{typed[0]} would change nothing, since tokenizer.model={','.join(map(str, self.files))} is "
                "trained already; leave one of them out"
            )
        contents, types = zip(*(read_model(given_path(file, "tokenizer.model")) for file in self.files), strict=True)
        models = [load_model(content) for content in contents]
        self.joint, self.vocab_size = len(models) == 1, models[0].get_piece_size()
        self.model_type, self.target_model_type = types[0], types[-1]
        self._source, self._target = models[0], models[-1]
        self.check_sampling()
        self._set_models(models[0], models[-1])

    def check_words(self) -> None:
        """Refuse models whose tokens do not show which word each is of.

        Raises:
            UserError: if words cannot be linked for that reason.
        """
        for model in (self.source_model, self.target_model):
            if lack := lack_of_words(model.serialized_model_proto()):
                raise UserError(
                    f"words cannot be linked with a tokenizer whose model {lack}; leave out alignments, placeholders "
                    "and guided_alignment.links, or train with another tokenizer"
                )

    def check_sampling(self) -> None:
        """Refuse to sample from given or kept models whose segmentations would not be drawn.

        Raises:
            UserError: if `sampling_alpha` is above 0, and a model has one segmentation of each text, or draws others
                than ours.
        """
        if self.sampling_alpha == 0.0:
            return
        types = (self.model_type, self.target_model_type)
        for model_type, model, file in zip(
            types, (self.source_model, self.target_model), [*self.files[:1], *self.files[-1:]] or ["", ""], strict=True
        ):
            check_settings(model_type, self.vocab_size, self.sampling_alpha)
            if lack := lack_for_sampling(model.serialized_model_proto()):
                raise UserError(
                    f"tokenizer.sampling_alpha={self.sampling_alpha} cannot draw segmentations of a model that {lack}"
                    f"{file and f', as {file}'}; use tokenizer.sampling_alpha=0"
                )
        if len(set(types)) > 1:
            raise UserError(
                f"tokenizer.sampling_alpha={self.sampling_alpha} needs models of one type, and those of the two "
                f"languages are {' and '.join(types)}; use tokenizer.sampling_alpha=0"
            )

    def _train(self, sentences: list[str], language: str) -> sentencepiece.SentencePieceProcessor:
        file = None if self.cache_dir is None else self.cache_dir / f"{self._cache_key(sentences)}.model"
        with nullcontext() if file is None or file.is_file() else locked(file.with_suffix(".lock")):
            return train_model(
                sentences,
                model_type=self.model_type,
                vocab_size=self.vocab_size,
                language=language,
                cache=file,
                options=self.options,
                min_count=self.min_count,
            )

    def _cache_key(self, sentences: list[str]) -> str:
        split, *others, num_sentinels = self.options
        settings: list[Any] = [sentencepiece.__version__, self.model_type, self.vocab_size, split]
        settings += [num_sentinels] if num_sentinels else []
        settings += [others] if self.options[1:-1] != DEFAULTS[1:-1] else []
        settings += [f"min_count={self.min_count}"] if self.min_count > 1 else []
        digest = hashlib.sha256(json.dumps(settings).encode())
        for sentence in sentences:
            digest.update(sentence.encode() + b"\n")
        return digest.hexdigest()[:32]

    def _set_models(
        self, source: sentencepiece.SentencePieceProcessor, target: sentencepiece.SentencePieceProcessor
    ) -> None:
        self._source, self._target = source, target
        if self.sampling_alpha > 0.0:
            self._source_sampler = SegmentationSampler(source, self.model_type, self.sampling_alpha)
            self._target_sampler = SegmentationSampler(target, self.model_type, self.sampling_alpha)


def check_symbols(model_type: str, options: TrainerOptions, sampling_alpha: int | float) -> None:
    """Raise a UserError for bytes or symbols that a type of model does not have, or that no sampler draws."""
    option = (
        "byte_fallback=true" if options.byte_fallback else f"user_defined_symbols={[*options.user_defined_symbols]}"
    )
    if not options.byte_fallback and not options.user_defined_symbols:
        return
    if model_type not in ("unigram", "bpe"):
        raise UserError(f"tokenizer.{option} needs tokenizer=unigram or bpe; {model_type} does not have it")
    if model_type == "bpe" and sampling_alpha > 0.0:
        raise UserError(
            f"tokenizer.sampling_alpha={sampling_alpha} drops merges of characters, and not with tokenizer.{option}; "
            "use tokenizer=unigram or tokenizer.sampling_alpha=0"
        )
    if wrong := [
        symbol for symbol in options.user_defined_symbols if not symbol or " " in symbol or WORD_MARK in symbol
    ]:
        raise UserError(f"tokenizer.user_defined_symbols has {wrong[0]!r}; a symbol has no blank, and is not empty")
    there = {*NAMES.values(), *islice(sentinels(), options.num_sentinels)}
    there |= {f"<0x{byte:02X}>" for byte in range(256)} if options.byte_fallback else set()
    if special := next((symbol for symbol in options.user_defined_symbols if symbol in there), None):
        raise UserError(f"tokenizer.user_defined_symbols has {special}, which the vocabulary has anyway; leave it out")
    if len(set(options.user_defined_symbols)) < len(options.user_defined_symbols):
        raise UserError(f"tokenizer.{option} names a symbol twice; name each once")


def sample(sentences: Sequence[str], size: int) -> list[str]:
    """Return `size` sentences, evenly spread over the first `SAMPLED`; all if there are fewer."""
    total = min(len(sentences), max(size, SAMPLED))
    if len(sentences) <= size:
        return list(sentences)
    return [
        text for row, text in enumerate(islice(sentences, total)) if row * size // total != (row - 1) * size // total
    ]


def check_settings(
    model_type: str,
    vocab_size: int | Literal["auto"],
    sampling_alpha: int | float,
    min_count: int = 1,
    character_coverage: int | float = 1.0,
) -> None:
    """Raise a UserError for settings that are invalid for every corpus."""
    if model_type not in MODEL_TYPES:
        raise UserError(f"tokenizer.model_type={model_type} is unknown; choose from: {', '.join(MODEL_TYPES)}")
    if vocab_size != "auto" and vocab_size <= len(SPECIALS):
        raise UserError(
            f"tokenizer.vocab_size={vocab_size} must be greater than {len(SPECIALS)}, the number of special "
            "tokens; use 8000"
        )
    if not 0.0 <= sampling_alpha <= 1.0:
        raise UserError(f"tokenizer.sampling_alpha={sampling_alpha} is not between 0 (off) and 1; use 0.1 or 0")
    if sampling_alpha > 0.0 and model_type not in ("unigram", "bpe"):
        raise UserError(
            f"tokenizer.sampling_alpha={sampling_alpha} needs a model with several segmentations of a word, which "
            f"{model_type} does not have; use tokenizer=unigram, tokenizer=bpe or tokenizer.sampling_alpha=0"
        )
    if min_count > 1 and model_type != "word":
        raise UserError(
            f"tokenizer.min_count={min_count} counts words, which {model_type} does not have; use tokenizer=word, or "
            "tokenizer.min_count=1"
        )
    if min_count > 1 and character_coverage < 1:
        raise UserError(
            f"tokenizer.min_count={min_count} counts all words, and tokenizer.character_coverage={character_coverage} "
            "leaves out those with rare characters, in whose place rarer words would get tokens; leave out one of them"
        )


def as_tensor(model: sentencepiece.SentencePieceProcessor) -> torch.Tensor:
    return torch.frombuffer(bytearray(model.serialized_model_proto()), dtype=torch.uint8)
