"""One SentencePiece model, trained in memory with a cache, or read from a file, with helpful error messages."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import sentencepiece

from seq2seq_attn.errors import UserError
from seq2seq_attn.files import replacing
from seq2seq_attn.text import split_words

MODEL_TYPES = ("unigram", "bpe", "char", "word")
SPECIALS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
MOST_AUTO = {"unigram": 8000, "bpe": 8000, "char": 8000, "word": 20_000}  # tokens for vocab_size=auto
TOKENS_PER_WORD = 0.4
LEAST_OF_WORDS = 4000  # tokens for words, if there are as many, however many characters there are
NAMES = {"pad_id": "<pad>", "unk_id": "<unk>", "bos_id": "<s>", "eos_id": "</s>"}  # of those that a file lacks


class TrainerOptions(NamedTuple):
    """Options of SentencePiece's trainer, under its names.

    Attributes:
        split_by_unicode_script: whether pieces may not contain both letters and other characters.
        character_coverage: share of the text's characters that get a token; the rarest ones get none.
        byte_fallback: whether a character without a token is written as its bytes, which have 256 tokens.
        user_defined_symbols: texts that are one token each, wherever they occur.
        num_sentinels: number of sentinels among the tokens.
    """

    split_by_unicode_script: bool = True
    character_coverage: float = 1.0
    byte_fallback: bool = False
    user_defined_symbols: tuple[str, ...] = ()
    num_sentinels: int = 0

    @property
    def num_reserved(self) -> int:
        """Tokens that are not learned, beside the special ones."""
        return self.num_sentinels + len(self.user_defined_symbols) + 256 * self.byte_fallback


DEFAULTS = TrainerOptions()


def train_model(
    sentences: list[str],
    *,
    model_type: str,
    vocab_size: int | Literal["auto"],
    language: str,
    cache: Path | None,
    options: TrainerOptions = DEFAULTS,
    min_count: int = 1,
) -> sentencepiece.SentencePieceProcessor:
    """Return the model of `sentences`, read from the file `cache` if it exists, else trained and written to it.

    Args:
        vocab_size: "auto": `auto_vocab_size`, or the next number that the text allows.
        language: name of the sentences' language, for error messages.
        min_count: of a word model: how often each of its words occurs at least.

    Raises:
        UserError: if the vocabulary is too large or too small for the text.
    """
    if cache is not None and (known := cached_model(cache)) is not None:
        return known
    if min_count > 1:  # the trainer takes the most frequent words
        frequent = num_frequent_words(sentences, min_count, language)
        most = MOST_AUTO[model_type] + options.num_reserved if vocab_size == "auto" else vocab_size
        vocab_size = min(frequent + options.num_reserved, most)
    if vocab_size == "auto":
        model = fit_auto(sentences, model_type, language, options)
    else:
        model = fit(sentences, model_type, vocab_size, language, options)
    if cache is not None:
        with replacing(cache) as stream:
            stream.write(model)
    return load_model(model)


def cached_model(file: Path) -> sentencepiece.SentencePieceProcessor | None:
    """Return a model that was trained before; None: there is none, or it was cut, as by an interrupted copy."""
    from google.protobuf.message import DecodeError  # which a translation does not load
    from sentencepiece import sentencepiece_model_pb2

    try:
        content = file.read_bytes()
        model = sentencepiece_model_pb2.ModelProto.FromString(content)  # type: ignore[attr-defined]
        return load_model(content) if model.HasField("normalizer_spec") else None  # which is written last
    except (OSError, DecodeError, RuntimeError):
        return None


def load_model(model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def read_model(file: Path) -> tuple[bytes, str]:
    """Return a model that another program trained, with the special tokens first as in `SPECIALS`, and its type.

    Most models have other ids for them and no padding; ids are positions in the list of tokens, and no segmentation
    depends on them. The names of the training files, which a model holds too, are left out.

    Raises:
        UserError: if it cannot be read, or is not a SentencePiece model.
    """
    from google.protobuf.message import DecodeError  # which a translation does not load
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined] # made when it is imported
    try:
        model.ParseFromString(file.read_bytes())
        if not model.pieces:
            raise DecodeError
        processor = load_model(model.SerializeToString())
    except OSError as error:
        raise UserError(f"tokenizer.model={file} cannot be read ({error.strerror}); give a .model file") from error
    except (DecodeError, RuntimeError) as error:
        raise UserError(f"tokenizer.model={file} is not a SentencePiece model; give the .model file") from error
    spec, rest = model.trainer_spec, list(model.pieces)
    specials = []
    for name in SPECIALS:
        token_id = getattr(processor, name)()
        if token_id < 0 and processor.id_to_piece(named := processor.piece_to_id(NAMES[name])) == NAMES[name]:
            token_id = named
        special = model.SentencePiece(piece=NAMES[name]) if token_id < 0 else rest[token_id]
        special.type = model.SentencePiece.UNKNOWN if name == "unk_id" else model.SentencePiece.CONTROL
        specials.append(special)
    rest = [piece for piece in rest if piece not in specials]
    del model.pieces[:]
    model.pieces.extend([*specials, *rest])
    for name, index in SPECIALS.items():
        setattr(spec, name, index)
        setattr(spec, name.replace("id", "piece"), specials[index].piece)
    spec.ClearField("input")
    spec.ClearField("model_prefix")
    return model.SerializeToString(), type(spec).ModelType.Name(spec.model_type).lower()


def proto_of(content: bytes) -> Any:
    """Return the fields of a model."""
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(content)  # type: ignore[attr-defined]


def lack_of_words(content: bytes) -> str | None:
    """Return why the tokens of a model do not show which word each is of, or None."""
    spec = proto_of(content).trainer_spec
    if spec.treat_whitespace_as_suffix:
        return "puts the mark of a blank after a word"
    return None if spec.split_by_whitespace else "has tokens that span blanks"


def lack_for_sampling(content: bytes) -> str | None:
    """Return why segmentations of a model are not those of single words, as SegmentationSampler draws them, or None."""
    model = proto_of(content)
    if not model.normalizer_spec.add_dummy_prefix or model.trainer_spec.treat_whitespace_as_suffix:
        return "puts no mark before the first word"
    if lack := lack_of_words(content):
        return lack
    is_bpe = model.trainer_spec.model_type == model.trainer_spec.BPE  # whose merges are drawn here
    if is_bpe and model.trainer_spec.byte_fallback:
        return "writes unknown characters as bytes"
    if is_bpe and any(piece.type == model.SentencePiece.USER_DEFINED for piece in model.pieces):
        return "has user-defined symbols"
    return None


def fit(sentences: list[str], model_type: str, vocab_size: int, language: str, options: TrainerOptions) -> bytes:
    """Train a model; translate SentencePiece's errors about the size of the vocabulary into advice.

    Raises:
        UserError: if the text has too few tokens, or more characters than the vocabulary has tokens.
    """
    check_text(sentences, language)
    if vocab_size <= len(SPECIALS) + options.num_reserved:
        reserved = {
            "sentinels": options.num_sentinels, "symbols": len(options.user_defined_symbols),
            "bytes": 256 * options.byte_fallback, "special tokens": len(SPECIALS),
        }  # fmt: skip
        raise UserError(
            f"tokenizer.vocab_size={vocab_size} has no place for tokens of {language} beside the "
            f"{' and '.join(f'{number} {name}' for name, number in reserved.items() if number)}; use a larger one"
        )
    try:
        return run_trainer(sentences, model_type, vocab_size, options)
    except RuntimeError as error:
        needed = fewest_pieces(error)
        if needed:
            raise UserError(
                f"tokenizer.vocab_size={vocab_size} is less than the {needed} characters and special "
                f"tokens of {language} in this corpus; use tokenizer.vocab_size={needed} or more"
            ) from error
        most = most_pieces(sentences, model_type, error, options)
        raise UserError(
            f"tokenizer.vocab_size={vocab_size} is more than this corpus supports; at most {most} "
            f"{model_type} tokens for {language}; use tokenizer.vocab_size={most}"
        ) from error


def fit_auto(sentences: list[str], model_type: str, language: str, options: TrainerOptions) -> bytes:
    """Train a model of `auto_vocab_size`, or of the next size that the text allows.

    Raises:
        UserError: if there is no text.
    """
    check_text(sentences, language)
    vocab_size = auto_vocab_size(sentences, model_type) + options.num_reserved
    try:
        return run_trainer(sentences, model_type, vocab_size, options)
    except RuntimeError as error:
        allowed = fewest_pieces(error) or most_pieces(sentences, model_type, error, options)
        return run_trainer(sentences, model_type, allowed, options)


def auto_vocab_size(sentences: list[str], model_type: str) -> int:
    """Return the number of distinct characters plus 0.4 of the number of distinct words, at most 8,000.

    Text of thousands of characters, as Chinese, may have more: all of them, and 4,000 for words. Words are those of
    `text.split_words`. This is about what the recipes of the known corpora have: 8,000 tokens for
    the 30,000 words of Multi30k, and 2,300 for the 5,700 words of the demo corpus. Single characters are all taken, up
    to 8,000, and whole words up to 20,000.
    """
    if model_type in ("char", "word"):
        return MOST_AUTO[model_type]
    words: set[str] = set()
    for sentence in sentences:
        words.update(split_words(sentence))
    characters = set().union(*words)
    single, of_words = len(SPECIALS) + 1 + len(characters), int(TOKENS_PER_WORD * len(words))
    return single + min(of_words, max(LEAST_OF_WORDS, MOST_AUTO[model_type] - single))


def sentinels() -> Iterator[str]:
    """Yield the names of the sentinels, as of T5; they are control symbols, which no text is segmented into."""
    return (f"<extra_id_{number}>" for number in count())


def num_frequent_words(sentences: list[str], min_count: int, language: str) -> int:
    """Return the number of words between blanks that occur at least `min_count` times, and of special tokens."""
    counts = Counter(word for sentence in sentences for word in sentence.split(" ") if word)
    frequent = sum(count >= min_count for count in counts.values())
    if not frequent:
        raise UserError(f"no word of {language} occurs {min_count} times; use a smaller tokenizer.min_count")
    return len(SPECIALS) + frequent


def check_text(sentences: list[str], language: str) -> None:
    if not any(sentences):
        raise UserError(f"the training split has no text in {language}; check data.path and data.cleaning")


def fewest_pieces(error: RuntimeError) -> int | None:
    """Return the size that the characters of the text need, if that is what SentencePiece complains about."""
    needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    return int(needed[1]) if needed else None


def most_pieces(sentences: list[str], model_type: str, error: RuntimeError, options: TrainerOptions) -> int:
    """Return the size that SentencePiece proposes, tested by training, since it may propose a smaller one again."""
    while True:
        proposed = re.search(r"set it to a value <= (\d+)", str(error))
        if proposed is None:
            raise error
        try:
            run_trainer(sentences, model_type, int(proposed[1]), options)
        except RuntimeError as next_error:
            error = next_error
        else:
            return int(proposed[1])


def run_trainer(sentences: list[str], model_type: str, vocab_size: int, options: TrainerOptions) -> bytes:
    """Train and return the model's bytes, which are the same for the same arguments on any machine."""
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=writer,
        model_type=model_type,
        vocab_size=vocab_size,
        character_coverage=options.character_coverage,
        byte_fallback=options.byte_fallback,
        user_defined_symbols=list(options.user_defined_symbols),
        normalization_rule_name="identity",
        split_by_unicode_script=options.split_by_unicode_script,
        hard_vocab_limit=model_type in ("unigram", "bpe"),
        max_sentence_length=1_000_000,  # bytes; cleaning has dropped longer sentences
        num_threads=2,  # fixed, because the order of summation, and so the model, depends on it
        minloglevel=9,
        control_symbols=list(islice(sentinels(), options.num_sentinels)),
        **SPECIALS,  # type: ignore[arg-type]
    )
    return writer.getvalue()
