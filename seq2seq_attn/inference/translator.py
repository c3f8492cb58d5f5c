"""Translation from Python; `translate.py` calls it for each window of lines."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, TypeVar, final

import torch
from hydra.utils import instantiate

from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.bertviz import to_bertviz
from seq2seq_attn.alignment.forced_attention import SlotMap, marked_words
from seq2seq_attn.alignment.guided import guided_head, guided_shift
from seq2seq_attn.alignment.page import widget
from seq2seq_attn.alignment.word_alignment import Link, word_of_each
from seq2seq_attn.checkpoint.admitted import Trust
from seq2seq_attn.data.cleaning import CONTROL, Cleaning, cleaning_options
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.choose_search import WantedSearch, choose_search, with_defaults
from seq2seq_attn.inference.ctranslate2_engine import CTranslate2Engine
from seq2seq_attn.inference.engine import Engine, SearchBatch, TorchEngine
from seq2seq_attn.inference.models import choose_device, load_models, pack
from seq2seq_attn.inference.process_engine import ProcessEngine
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search
from seq2seq_attn.text import printable
from seq2seq_attn.tokenizer.sentencepiece import WORD_MARK, SentencePieceTokenizer

log = logging.getLogger(__name__)
Given = TypeVar("Given")
SURROGATE = re.compile(r"[\ud800-\udfff]")
EMPTY = Hypothesis([], 0.0, 0.0)
CONTINUES = "a language model continues the texts themselves; leave out the prefixes"
ATTENTION_TOKENS = 1024  # padded tokens of a batch whose weights are wanted, of every slot and head


class Translation(NamedTuple):
    """The translation of one text; that of an empty text is empty.

    Attributes:
        text: on one line.
        log_prob: in nats, end token included.
        score: what the search ranks by.
        tokens: of the text; "▁" is the blank before a word.
        alternatives: the other hypotheses, best first.
        maps: the attention of every slot, where asked for.
        notes: how the source was changed before it was translated, and whether its translation may be cut, for a
            reader.
        shift: whether a word's links are in the step that reads it, as guided alignment taught the run.
        fingerprint: of the tokenizer whose tokens they are; another model's tokens are read from the text.
        links: between the words of a text with placeholders and its own; None: they were not needed.
    """

    text: str
    log_prob: float
    score: float
    tokens: list[str]
    alternatives: list[Translation]
    maps: list[SlotMap]
    notes: list[str]
    shift: bool = False
    fingerprint: str = ""
    links: list[Link] | None = None

    def to_bertviz(self, kinds: Collection[str] = ("encoder", "self", "cross")) -> dict[str, Any]:
        """Return the maps as arguments of BertViz's views: `head_view(**translation.to_bertviz())`."""
        return to_bertviz(self.maps, kinds)

    def _repr_html_(self) -> str:
        """Show a translation in a notebook: the explorer's page if it has maps, else a table."""
        if self.maps:
            return widget(self.text, self.log_prob, self.score, self.maps, shift=self.shift)
        rows = "".join(
            f"<tr><td>{one.score:.3f}</td><td>{one.log_prob:.3f}</td><td>{escape(printable(one.text))}</td></tr>"
            for one in (self, *self.alternatives)
        )
        return f"<table><tr><th>score</th><th>log-prob</th><th>translation</th></tr>{rows}</table>"


class Scored(NamedTuple):
    """The log-probabilities of a given translation, its target read at once.

    They equal those that a search reports, except with `attention=monotonic`, whose probabilities a search rounds.

    Attributes:
        tokens: of the translation, and the end token.
        log_probs: of each token given the source and the tokens before it, in nats.
        notes: how the text and its translation were changed before they were read.
    """

    tokens: list[str]
    log_probs: list[float]
    notes: list[str]

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs)


@final
class Translator:
    """A trained model or an ensemble, with the cleaning and the tokenizer that its texts need.

    `Translator.load("runs/train/...").translate(["Where is the library?"])[0].text`
    """

    def __init__(self, engine: Engine, tokenizer: SentencePieceTokenizer, config: dict[str, Any]) -> None:
        self.engine, self.tokenizer = engine, tokenizer
        self.config = config | {"search": with_defaults(config["search"])}
        self._cleaning: Cleaning = instantiate(cleaning_options(config["data"]), _convert_="all")

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        *,
        device: str = "auto",
        engine: str = "torch",
        num_threads: int | None = None,
        num_processes: int = 1,
        precision: str | int | None = None,
        compute_type: str | None = None,
        trust: Trust = (),
    ) -> Translator:
        """Load checkpoints, without running code from them.

        Args:
            path: a run folder or a .ckpt file; several are an ensemble. With engine ctranslate2, a folder that
                `seq2seq-attn export ctranslate2` wrote.
            engine: torch, or ctranslate2.
            num_threads: of ctranslate2; those of torch are `torch.set_num_threads`.
            num_processes: processes on a CPU that share the batches of a call and the threads of torch.
            precision: of engine torch, as Lightning's Trainer names it, such as "bf16-mixed"; None: float32.
            compute_type: of engine ctranslate2, such as "int8"; None: float32.
            trust: packages of your own whose classes the checkpoints may name, such as `["own_attention"]`.
        """
        paths = [str(path)] if isinstance(path, str | Path) else [str(one) for one in path]
        if num_processes < 1:
            raise UserError(f"num_processes={num_processes} must be at least 1; leave it out for one process")
        if num_processes > 1 and (engine != "torch" or choose_device(device).type != "cpu"):
            raise UserError(
                f"num_processes={num_processes} is for engine=torch on a CPU; leave it out, or give device=cpu"
            )
        check_engine(engine, precision, compute_type)
        if engine == "ctranslate2":
            served = CTranslate2Engine(
                paths, device=choose_device(device), num_threads=num_threads, compute_type=compute_type, trust=trust
            )
            return cls(served, served.tokenizer, served.config)
        models = load_models(paths, device, trust)
        for file, config in zip(models.files, models.configs, strict=True):
            if config.get("objective") is not None:
                log.warning(
                    f"{file} is pre-trained to restore text, and has not learned to translate; fine-tune it with "
                    "train.py init_from.run="
                )
        packed = None if num_processes == 1 else pack(models)  # before the engine converts the weights
        ours = TorchEngine(models.model.to(models.device), models.tokenizer, models.device, precision)
        several = ours if packed is None else ProcessEngine(ours, packed, trust, num_processes, precision)
        return cls(several, models.tokenizer, models.config)

    @cached_property
    def _fingerprint(self) -> str:
        """The tokenizer's, which hashes its models anew whenever it is read."""
        return self.tokenizer.fingerprint

    @property
    def guided_head(self) -> Heads | None:
        """The head that guided alignment taught to align words, by whose attention its links are the default."""
        engine = self.engine.engine if isinstance(self.engine, ProcessEngine) else self.engine
        if isinstance(engine, TorchEngine) and isinstance(engine.model, EncoderDecoder):
            return guided_head(self.config, engine.model)
        return None

    def translate(
        self,
        texts: Iterable[str],
        *,
        search: WantedSearch = None,
        prefixes: Iterable[str] | None = None,
        maps: bool = False,
        batch_sentences: int = 128,
        batch_tokens: int | None = None,
        max_source_tokens: int = 512,
    ) -> list[Translation]:
        """Return the best translation of each text, which depends on no other text.

        A language model continues each text, and an empty one freely.

        Args:
            search: see `choose_search`; None: the search of the run.
            prefixes: what each translation begins with; an empty one leaves it free.
            maps: add the attention of each best translation, by one more pass.
            batch_sentences: texts searched at once.
            batch_tokens: replaces `batch_sentences`: padded tokens of the texts, times hypotheses.
            max_source_tokens: a longer text or prefix is cut, and a note says so.
        """
        if isinstance(texts, str) or isinstance(prefixes, str):
            raise UserError(
                "translate takes a list of texts, and of prefixes, not one of them; write translate([text])"
            )
        texts = list_of_texts(texts, "the texts")
        prefixes = None if prefixes is None else list_of_texts(prefixes, "the prefixes")
        if prefixes is not None and len(prefixes) != len(texts):
            raise UserError(f"there are {len(texts)} texts and {len(prefixes)} prefixes; give one for each, or None")
        notes: list[list[str]] = [[] for _ in texts]
        reads_source = self.engine.reads_source
        if not reads_source:
            if prefixes is not None:
                raise UserError(CONTINUES)
            texts, prefixes = [""] * len(texts), texts
        if maps:
            self.attention("a", "a")  # refuses, before the search, a model that has none
        sources = self._encode(self.tokenizer.encode_source, texts, max_source_tokens, notes)
        begun = None if prefixes is None else self._encode_prefixes(prefixes, max_source_tokens, notes)
        chosen = choose_search(search, self.config["search"])
        if begun is not None and reads_source:
            for source, prefix, text_notes in zip(sources, begun, notes, strict=True):
                if prefix and not source:
                    text_notes.append("its prefix is left out, since the text is empty")
        results = self._search(chosen, sources, begun, batch_sentences, batch_tokens)
        self.note_full(chosen.length_limits, sources, begun, [best.token_ids for best, *_ in results], notes)
        translations = [self._translation(*both) for both in zip(results, notes, strict=True)]
        if not maps:
            return translations
        maps_by_row = dict(self._attention(sources, [best.token_ids for best, *_ in results]))
        return [one._replace(maps=maps_by_row[row]) for row, one in enumerate(translations)]

    def _search(
        self,
        search: Search,
        sources: Sequence[list[int]],
        begun: Sequence[list[int]] | None,
        batch_sentences: int,
        batch_tokens: int | None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each text, best first, searched in batches of similar lengths.

        Args:
            sources: without tokens for a language model.
            begun: what each translation begins with; None: all are free.
            batch_sentences, batch_tokens: as in `translate`.
        """
        reads_source = self.engine.reads_source
        read = sources if reads_source or begun is None else begun
        lengths = [len(tokens) + 1 if tokens or not reads_source else 0 for tokens in read]
        sizes: dict[str, Any] = {"batch_sentences": batch_sentences, "batch_tokens": batch_tokens}
        rows_of = list(cut_batches(lengths, **sizes, hypotheses=search.hypotheses_at_once))
        batches = [
            SearchBatch([sources[row] for row in rows], None if begun is None else [begun[row] for row in rows])
            for rows in rows_of
        ]
        results = [[EMPTY]] * len(sources)  # empty texts are in no batch and keep this
        for rows, batch_hypotheses in zip(rows_of, self.engine.translate_batches(batches, search), strict=True):
            for row, hypotheses in zip(rows, batch_hypotheses, strict=True):
                results[row] = hypotheses
        return results

    def score(
        self,
        texts: Iterable[str],
        translations: Iterable[str | Translation],
        *,
        batch_sentences: int = 128,
        batch_tokens: int | None = None,
        max_source_tokens: int = 512,
    ) -> list[Scored]:
        """Return the log-probability of each token of given translations.

        A `Translation` of this model's tokenizer is scored by its own tokens, and a text by those that the tokenizer
        gives it. A language model reads the translations alone: the texts are empty, or those that it has continued,
        with which its translations begin.

        Args:
            batch_sentences, batch_tokens, max_source_tokens: as in `translate`.
        """
        if isinstance(texts, str) or isinstance(translations, str):
            raise UserError("score takes lists of texts and of translations; write score([text], [translation])")
        texts = list_of_texts(texts, "the texts")
        translations = list_of_texts(translations, "the translations", (str, Translation))
        if len(texts) != len(translations):
            raise UserError(f"there are {len(texts)} texts and {len(translations)} translations; give one for each")
        if not self.engine.reads_source:
            for number, (text, one) in enumerate(zip(texts, translations, strict=True)):
                if text and isinstance(one, str):
                    raise UserError(
                        f"a language model does not read the texts, and number {number}, from 0, is not empty; give "
                        "an empty text, and as its translation all that is to be scored"
                    )
            texts = [""] * len(texts)
        notes: list[list[str]] = [[] for _ in texts]
        target_notes: list[list[str]] = [[] for _ in texts]
        sources = self._encode(self.tokenizer.encode_source, texts, max_source_tokens, notes)
        targets = self._encode_translations(translations, max_source_tokens, target_notes)
        for row, one in enumerate(translations):
            notes[row] += [f"its translation: {note}" for note in target_notes[row]]
            if not self._has_tokens_of(one) and self.tokenizer.unk_id in targets[row]:
                notes[row].append("its translation has letters that the model cannot write")
        lengths = [max(map(len, both)) + 1 for both in zip(sources, targets, strict=True)]
        sizes: dict[str, Any] = {"batch_sentences": batch_sentences, "batch_tokens": batch_tokens}
        log_probs: list[list[float]] = [[]] * len(texts)
        for rows in cut_batches(lengths, **sizes, hypotheses=1):
            scored = self.engine.token_log_probs([sources[row] for row in rows], [targets[row] for row in rows])
            for row, row_log_probs in zip(rows, scored, strict=True):
                log_probs[row] = row_log_probs
        tokens = [[*self.tokenizer.target_tokens(target), "</s>"] for target in targets]
        return [Scored(*one) for one in zip(tokens, log_probs, notes, strict=True)]

    def _encode_translations(
        self, translations: Sequence[str | Translation], most_tokens: int | None, notes: Sequence[list[str]]
    ) -> list[list[int]]:
        """Return the token ids of translations: their own, or those of their texts; see `_encode`."""
        texts = [one if isinstance(one, str) else "" if self._has_tokens_of(one) else one.text for one in translations]
        rows = self._encode(self.tokenizer.encode_target, texts, most_tokens, notes)
        pairs = zip(translations, rows, strict=True)
        given = [self._ids(one) if self._has_tokens_of(one) else tokens for one, tokens in pairs]
        return self._cut(given, most_tokens, notes)

    def _has_tokens_of(self, translation: str | Translation) -> TypeGuard[Translation]:
        return not isinstance(translation, str) and translation.fingerprint in ("", self._fingerprint)

    def _ids(self, translation: Translation) -> list[int]:
        return [self.tokenizer.target_model.piece_to_id(token) for token in translation.tokens]

    def attention(self, text: str, translation: Translation | str, *, max_source_tokens: int = 512) -> list[SlotMap]:
        """Return the maps of a translation of `text`, as `translate(maps=True)` gives them for the best."""
        ((_, maps),) = self.attentions([text], [translation], max_source_tokens=max_source_tokens)
        return maps

    def attentions(
        self, texts: Sequence[str], translations: Sequence[Translation | str], *, max_source_tokens: int = 512
    ) -> Iterator[tuple[int, list[SlotMap]]]:
        """Yield the number of each text, the shortest first, and the maps of its translation.

        The weights of a batch of at most `ATTENTION_TOKENS` are in memory at once. A translation is cut only where it
        is longer than the model can read.
        """
        unread: list[list[str]] = [[] for _ in texts]
        sources = self._encode(self.tokenizer.encode_source, texts, max_source_tokens, unread)
        return self._attention(sources, self._encode_translations(translations, None, unread))

    def words(self, translation: Translation) -> list[str]:
        """Return the words of a translation that its links count; one with an unknown token may have blanks in it."""
        ids = self._ids(translation)
        ids_by_word: dict[int, list[int]] = defaultdict(list)
        for word, token in zip(word_of_each(marked_words(self.tokenizer, translation.tokens)), ids, strict=True):
            ids_by_word[int(word)].append(token)
        return [" ".join(text.split()) for text in self.tokenizer.decode_target(list(ids_by_word.values()))]

    def source_words(self, text: str) -> list[list[int]]:
        """Return which words of a text, between blanks and from 0, each word that its maps show is of.

        Cleaning may make two of one, as `split_punctuation` does; a word tokenizer makes one of unknown neighbours.
        """
        model = self.tokenizer.source_model
        text_words: list[list[int]] = []
        number = 0
        for chunk in text.split(" "):
            shown = [word for word in model.normalize(self._clean(chunk, [])).split(WORD_MARK) if word]
            count = len(chunk.split())  # of one word, unless another kind of blank stays, as the cleaning may have it
            for position in range(len(shown)):
                nearest = min(position, count - 1)
                text_words.append([number + word for word in range(count) if min(word, len(shown) - 1) == nearest])
            number += count
        return text_words if self.tokenizer.model_type != "word" else self._join_unknown(text, text_words)

    def _join_unknown(self, text: str, text_words: list[list[int]]) -> list[list[int]]:
        """Return the words of a text by the words that a word model shows, which has one for unknown neighbours.

        It knows no mark without a word after it, so such a mark in the text counts among its unknown words.
        """
        model = self.tokenizer.source_model
        pieces = re.findall(f"{WORD_MARK}[^{WORD_MARK}]*", model.normalize(self._clean(text, [])))
        words = iter(text_words)
        joined: list[list[int]] = []
        after_unknown = False
        for piece in pieces:
            numbers = [] if piece == WORD_MARK else next(words)
            is_unknown = model.piece_to_id(piece) == model.unk_id()
            if after_unknown and is_unknown:
                joined[-1] += numbers
            else:
                joined.append(numbers)
            after_unknown = is_unknown
        return joined

    def _attention(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]]
    ) -> Iterator[tuple[int, list[SlotMap]]]:
        """Yield the row and the maps of each pair; a source without tokens has none."""
        lengths = [
            max(len(source), len(target)) + 1 if source or not self.engine.reads_source else 0
            for source, target in zip(sources, targets, strict=True)
        ]
        yield from ((row, []) for row, length in enumerate(lengths) if not length)
        for rows in cut_batches(lengths, batch_sentences=1, batch_tokens=ATTENTION_TOKENS, hypotheses=1):
            maps = self.engine.attention([sources[row] for row in rows], [targets[row] for row in rows])
            yield from zip(rows, maps, strict=True)

    def _encode(
        self,
        encode: Callable[[list[str]], list[list[int]]],
        texts: Sequence[str],
        most_tokens: int | None,
        notes: Sequence[list[str]],
    ) -> list[list[int]]:
        """Return the token ids of cleaned texts, cut to what the model reads; changes are noted.

        Args:
            most_tokens: of a text; None: no other limit.
        """
        if most_tokens is not None and most_tokens < 1:
            raise UserError(f"max_source_tokens={most_tokens} leaves nothing; use 512")
        return self._cut(encode(self.clean(texts, notes)), most_tokens, notes)

    def _cut(self, rows: list[list[int]], most_tokens: int | None, notes: Sequence[list[str]]) -> list[list[int]]:
        """Cut rows of token ids to what the model reads; what is cut is noted."""
        most, why = self._lowest(most_tokens, "max_source_tokens allows")
        for tokens, text_notes in zip(rows, notes, strict=True):
            if most is not None and len(tokens) > most:
                text_notes.append(f"cut from {len(tokens)} to {most} tokens, the most that {why}")
        return [tokens[:most] for tokens in rows]

    def _encode_prefixes(
        self, prefixes: Sequence[str], most_tokens: int, notes: Sequence[list[str]]
    ) -> list[list[int]]:
        """Return the token ids of what each translation begins with, which is the text itself for a language model."""
        whose, what = ("its prefix: ", "prefix") if self.engine.reads_source else ("", "text")
        prefix_notes: list[list[str]] = [[] for _ in prefixes]
        rows = self._encode(self.tokenizer.encode_target, prefixes, most_tokens, prefix_notes)
        for tokens, new_notes, text_notes in zip(rows, prefix_notes, notes, strict=True):
            text_notes += [f"{whose}{note}" for note in new_notes]
            if self.tokenizer.unk_id in tokens:
                text_notes.append(f"the {what} has letters that the model cannot write")
        return rows

    def note_full(
        self,
        limits: Limits | None,
        sources: Sequence[list[int]],
        begun: Sequence[list[int]] | None,
        found: Sequence[list[int]],
        notes: Sequence[list[str]],
    ) -> None:
        """Note which translations have as many tokens as they may have, so that they may be cut.

        Args:
            begun: what each translation begins with; None: all are free.
            found: the token ids of the best translations.
        """
        reads_source = self.engine.reads_source
        what, prefix = ("translation", "prefix of ") if reads_source else ("continuation", "")
        most_of = cache(partial(most_tokens, limits))
        for row, (source, tokens) in enumerate(zip(sources, found, strict=True)):
            if reads_source and not source:
                continue
            most, why = self._lowest(*most_of(len(source) + 1 if reads_source else None))
            given = 0 if begun is None else len(begun[row])
            if most is not None and given >= max(most, 1):
                notes[row].append(f"nothing is added to its {prefix}{given} tokens, since {why} {most}")
            elif most is not None and len(tokens) >= most:
                notes[row].append(f"its {what} may be cut at {most} tokens, the most that {why}")

    def _lowest(self, limit: int | None, what: str) -> tuple[int | None, str]:
        """Return the lower of a limit and of the tokens that the model reads, with what sets it; None: no limit."""
        limits = [] if limit is None else [(limit, what)]
        if self.engine.max_length is not None:
            limits.append((self.engine.max_length - 1, "the model has positions for"))
        return min(limits, default=(None, ""))

    def clean(self, texts: Sequence[str], notes: Sequence[list[str]]) -> list[str]:
        """Normalise texts as for training, and replace what no tokenizer should read; changes are noted."""
        return [self._clean(text, text_notes) for text, text_notes in zip(texts, notes, strict=True)]

    def _clean(self, text: str, notes: list[str]) -> str:
        text, controls = CONTROL.subn(" ", text)
        text, surrogates = SURROGATE.subn("\ufffd", text)
        if controls:
            notes.append("control characters are replaced by blanks")
        if surrogates:
            notes.append("not Unicode; what cannot be read is replaced")
        return self._cleaning.normalize_text(text)

    def _translation(self, hypotheses: Sequence[Hypothesis], notes: list[str]) -> Translation:
        texts = self.tokenizer.decode_target([one.token_ids for one in hypotheses])
        shift, fingerprint = guided_shift(self.config), self._fingerprint
        best, *others = (
            # a line of text stays one, whatever the model writes
            Translation(" ".join(text.splitlines()), one.log_prob, one.score, tokens, [], [], [], shift, fingerprint)
            for text, one in zip(texts, hypotheses, strict=True)
            for tokens in [self.tokenizer.target_tokens(one.token_ids)]
        )
        return best._replace(alternatives=others, notes=notes)


def check_engine(engine: str, precision: str | int | None, compute_type: str | None) -> None:
    """Refuse an engine that does not exist, and the precision of one engine given to the other."""
    if engine not in ("torch", "ctranslate2"):
        raise UserError(f"engine={engine} does not exist; choose from: torch, ctranslate2")
    if engine == "ctranslate2" and precision is not None:
        raise UserError(f"precision={precision} is for engine=torch; give compute_type= instead, or leave it out")
    if engine == "torch" and compute_type is not None:
        raise UserError(
            f"compute_type={compute_type} is for engine=ctranslate2; give precision= instead, or leave it out"
        )


def most_tokens(limits: Limits | None, source_length: int | None) -> tuple[int | None, str]:
    """Return the limit of a translation's length by the search, None if it is not known, and what sets it.

    Args:
        source_length: in tokens, end token included; None: of a language model, which has no source.
    """
    if limits is None or source_length is None:
        return None if limits is None else limits.max_length, "search.limits.max_length allows"
    most = int(limits.most(torch.tensor(source_length, dtype=torch.double)))
    relative = "max_relative_length" if limits.max_relative_length else "max_extra_length"
    return most, f"search.limits.{'max_length' if most == limits.max_length else relative} allows"


def list_of_texts(given: Iterable[Given], what: str, kinds: type | tuple[type, ...] = str) -> list[Given]:
    """Return a list of what was given, a generator or another.

    Raises:
        UserError: if one of them is no text, such as bytes or a missing value of a table.
    """
    texts = list(given)
    for number, text in enumerate(texts):
        if not isinstance(text, kinds):
            raise UserError(f"{what} have a {type(text).__name__} at {number}, from 0, where a text is expected")
    return texts


def cut_batches(
    lengths: Sequence[int], *, batch_sentences: int, batch_tokens: int | None, hypotheses: int
) -> Iterator[list[int]]:
    """Yield the rows of each batch, the shortest sentences first, so that a batch has little padding.

    Args:
        lengths: tokens of each sentence, end token included; those of 0 are in no batch.
        batch_sentences: sentences in a batch.
        batch_tokens: replaces `batch_sentences`: padded tokens in a batch times hypotheses; a longer sentence is a
            batch of its own.
        hypotheses: the number per sentence that the search holds at once.
    """
    for option, limit in (("batch_sentences", batch_sentences), ("batch_tokens", batch_tokens)):
        if limit is not None and limit < 1:
            raise UserError(f"{option}={limit} leaves nothing to translate at once; use 1 or more")
    batch: list[int] = []
    for row in sorted(filter(lengths.__getitem__, range(len(lengths))), key=lengths.__getitem__):
        if batch_tokens is None:
            full = len(batch) == batch_sentences
        else:
            full = (len(batch) + 1) * lengths[row] * hypotheses > batch_tokens
        if batch and full:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
