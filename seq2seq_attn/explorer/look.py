"""One look at a sentence: its translation, the search, and the attention of every slot, as plain data for a page."""

from __future__ import annotations

import base64
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn import __version__
from seq2seq_attn.alignment.attention_links import Heads, as_lists, links_by_layer
from seq2seq_attn.alignment.forced_attention import SlotMap, marked_source_words, marked_words
from seq2seq_attn.alignment.guided import guided_head, guided_shift
from seq2seq_attn.alignment.head_summary import summaries
from seq2seq_attn.alignment.page import slot_layout
from seq2seq_attn.alignment.word_alignment import Extraction, word_of_each
from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.attention.linear_attention import LinearAttention
from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.errors import UserError
from seq2seq_attn.explorer.describe import describe, slot_configs
from seq2seq_attn.explorer.intervention import (
    attention_layers,
    hidden,
    hides_in_encoder,
    intervened,
    recorded_visibility,
)
from seq2seq_attn.explorer.request import MAX_CHARACTERS, LookRequest, ModelBounds, check_length, parse_look
from seq2seq_attn.explorer.search_options import build_search, flat, known_searches, name_of
from seq2seq_attn.explorer.search_tree import TreeRecorder, observable
from seq2seq_attn.inference.engine import TorchEngine
from seq2seq_attn.inference.line_answers import best_links
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.search.search import Hypothesis, TargetVocabulary
from seq2seq_attn.tokenizer.sentencepiece import WORD_MARK

VERSION: Final = "1"
END, BEGIN = "</s>", "<s>"
NUM_BEST_TOKENS: Final = 10
MAX_FLOAT32: Final = 2**22  # weights of an answer, above which they have 16 bits
MAX_WEIGHTS: Final = 2**26
ARCHITECTURES: Final = {"RNN": "RNN", "Conv": "ConvS2S", "Transformer": "Transformer"}


@final
class Explorer:
    """Models to look at. One look is computed at a time; nothing is kept between two.

    Args:
        translators: each of one model, with torch.
        runs: where each is from, for a reader.
        max_source_tokens: of a sentence and of a forced translation; a longer one is refused.
        max_seconds: of a search, after which it is stopped.

    Raises:
        UserError: for an ensemble or another engine, whose attention cannot be looked at.
    """

    def __init__(
        self,
        translators: Sequence[Translator],
        runs: Sequence[str] = (),
        *,
        max_source_tokens: int = 512,
        max_seconds: float = 120.0,
    ) -> None:
        if not translators:
            raise UserError("the explorer needs a model; give ckpt_path=RUN")
        self.max_source_tokens, self.max_seconds = max_source_tokens, max_seconds
        names = [*runs, *[""] * len(translators)]
        self._models = [
            ExploredModel(translator, names[number], max_source_tokens) for number, translator in enumerate(translators)
        ]

    def models(self) -> dict[str, Any]:
        """Return what a page needs to know of the models, the searches and the limits."""
        return {
            "version": VERSION,
            "package_version": __version__,
            "limits": {"max_source_tokens": self.max_source_tokens, "max_characters": MAX_CHARACTERS},
            "searches": {name: flat(config) for name, config in known_searches().items()},
            "models": told_apart([model.describe() for model in self._models]),
        }

    def look(self, request: Any, stopped: threading.Event | None = None) -> dict[str, Any]:
        """Answer a request (see `LookRequest`).

        Args:
            stopped: nobody waits for the answer any more; its search stops at the next token.

        Raises:
            UserError: for a request that is wrong, is stopped, or cannot be answered, in one sentence.
        """
        begun = time.perf_counter()
        parsed = parse_look(request, [model.bounds for model in self._models])
        model = self._models[parsed.model]
        with torch.inference_mode(), time_limit(model.model, self.max_seconds, stopped):
            answer = model.look(parsed)
        return answer | {"seconds": time.perf_counter() - begun}


def told_apart(models: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return descriptions of which no two have one name: the name or path of the run, or a number, is added to both."""
    names = Counter(model["name"] for model in models)
    labels = [(Path(model["run"]).name, model["run"], number) for number, model in enumerate(models, start=1)]
    for one in zip(*labels, strict=True):
        told = [
            model if names[model["name"]] == 1 else model | {"name": f"{model['name']} ({label})"}
            for model, label in zip(models, one, strict=True)
        ]
        if len({model["name"] for model in told}) == len(models):
            return told
    return models


@contextmanager
def time_limit(model: EncoderDecoder, seconds: float, stopped: threading.Event | None) -> Iterator[None]:
    """Stop a search at the next token after some seconds, or once an event is set.

    Raises:
        UserError: if it is stopped.
    """
    end = time.monotonic() + seconds

    def check(*_: Any) -> None:
        if stopped is not None and stopped.is_set():
            raise UserError("the search was stopped")
        if time.monotonic() > end:
            raise UserError(
                f"the search took longer than {seconds:g} seconds; use a smaller one, or a shorter sentence"
            )

    handle = model.embed_target.register_forward_pre_hook(check)
    try:
        yield
    finally:
        handle.remove()


class Side(NamedTuple):
    """The tokens of a sentence, and the words that they belong to."""

    text: str
    ids: list[int]
    tokens: list[str]
    words: list[int]
    word_texts: list[str]

    @classmethod
    def of(cls, text: str, ids: list[int], tokens: list[str], marked: list[str]) -> Side:
        words = word_of_each(marked).tolist()
        texts = text.split()
        if len(texts) != max(words, default=-1) + 1:  # an unknown token hides the mark of a word
            texts = ["" for _ in range(max(words, default=-1) + 1)]
            for token, word in zip(tokens, words, strict=True):
                texts[word] += token.replace(WORD_MARK, "")
        return cls(text, ids, tokens, words, texts)

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "tokens": [*self.tokens, END],
            "words": [*self.words, -1],
            "word_texts": self.word_texts,
        }


class Forced(NamedTuple):
    """One teacher-forced pass along a translation, its end token included."""

    token_log_probs: list[float]
    top: list[list[dict[str, Any]]]
    weights: dict[str, Float[Tensor, "heads rows columns"]]
    hidden: dict[str, Bool[Tensor, "heads rows columns"]]


@final
class ExploredModel:
    """One model, with its tokenizer and its run's search."""

    def __init__(self, translator: Translator, run: str, max_source_tokens: int) -> None:
        engine = translator.engine
        if not isinstance(engine, TorchEngine):
            raise UserError("the explorer looks at models in PyTorch; leave out engine=ctranslate2")
        if not isinstance(engine.model, EncoderDecoder):
            raise UserError(
                "the explorer looks at one model's attention, not at an ensemble's; give one ckpt_path, and a second "
                "model as compare="
            )
        if not engine.model.reads_source:
            raise UserError("the explorer looks at the attention of translations, and this is a language model")
        if not translator.attention("a", "a"):
            raise UserError("this model's attention has no weights, and the explorer shows weights; give another run")
        self.translator, self.run = translator, run
        self.model, self.tokenizer, self.device = engine.model, translator.tokenizer, engine.device
        self.layers = attention_layers(self.model)
        longest = self.model.max_length
        tokenizer = self.tokenizer
        self.bounds = ModelBounds(
            {slot: layer.num_heads for slot, layer in self.layers.items()},
            tokenizer.target_vocab_size,
            (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id),
            max_source_tokens if longest is None else min(max_source_tokens, longest - 1),
        )

    def describe(self) -> dict[str, Any]:
        config = self.translator.config
        default, choices, data = config["search"], config.get("choices") or {}, config.get("data") or {}
        architecture, slots = self._architecture, slot_configs(config["model"])
        preset = choices.get("attention")
        return {
            "name": f"{architecture}, {preset}" if preset else architecture,
            "run": self.run,
            "architecture": architecture,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "source_language": data.get("source_language") or "",
            "target_language": data.get("target_language") or "",
            "tokenizer": self.tokenizer.fingerprint,
            "default_search": {"name": name_of(default, known_searches()), **flat(default)},
            "slots": [
                {"name": slot, "kind": kind, "layer": int(number), "heads": layer.num_heads}
                | describe(layer, slots.get(kind), preset)
                for slot, layer in self.layers.items()
                for kind, _, number in [slot.partition("/")]
            ],
        }

    @property
    def _architecture(self) -> str:
        sides = []
        for side in (self.model.encoder, self.model.decoder):
            name = type(side).__name__
            sides.append(next((known for start, known in ARCHITECTURES.items() if name.startswith(start)), name))
        return sides[0] if sides[0] == sides[1] else f"{sides[0]} encoder, {sides[1]} decoder"

    def look(self, request: LookRequest) -> dict[str, Any]:
        notes: list[str] = []
        source = self._source(request.source, notes)
        visible = self._visible(source, request.hide, notes)
        with ExitStack() as changes:
            changes.enter_context(intervened(self.model, request.interventions))
            if not visible.all():
                changes.enter_context(hidden(self.model, visible.to(self.device)))
            forced_ids = self._forced_ids(request, notes)
            tree = None
            if forced_ids is None:
                hypotheses, tree = self._search(source, request, notes)
                if request.prefix and hypotheses[0].token_ids[: len(request.prefix)] != request.prefix:
                    raise UserError("the search cannot begin with these tokens; choose others")
            else:
                hypotheses = [Hypothesis(forced_ids, 0.0, 0.0)]
            best = hypotheses[0]
            forced = self._force(source.ids, best.token_ids, visible, in_search=forced_ids is None)
        target = self._target(best.token_ids)
        log_prob = best.log_prob if forced_ids is None else math.fsum(forced.token_log_probs)
        return {
            "model": request.model,
            "notes": notes,
            "source": source.to_dict(),
            "target": target.to_dict()
            | {
                "token_ids": best.token_ids,
                "log_prob": finite(log_prob),
                "score": finite(best.score) if forced_ids is None else None,
                "token_log_probs": list(map(finite, forced.token_log_probs)),
                "forced": len(request.prefix or ()) if forced_ids is None else len(forced_ids) + 1,
            },
            "alternatives": [
                {
                    "text": one.text,
                    "tokens": [*one.tokens, END],
                    "token_ids": other.token_ids,
                    "log_prob": finite(other.log_prob),
                    "score": finite(other.score),
                }
                for other in hypotheses[1:]
                for one in [self._target(other.token_ids)]
            ],
            "top": forced.top,
            "slots": self._slots(forced, source, target, request.slots),
            "links": self._links(forced, source, target),
            "tree": tree,
        }

    def _source(self, text: str, notes: list[str]) -> Side:
        (clean,) = self.translator.clean([text], [notes])
        (ids,) = self.tokenizer.encode_source([clean])
        if not ids:
            raise UserError("the sentence is empty; write one")
        check_length(len(ids), "sentence", self.bounds.max_tokens)
        tokens = self.tokenizer.source_tokens(ids)
        return Side.of(clean, ids, tokens, marked_source_words(self.tokenizer, tokens))

    def _target(self, ids: list[int]) -> Side:
        (text,) = self.tokenizer.decode_target([ids])
        tokens = self.tokenizer.target_tokens(ids)
        return Side.of(" ".join(text.splitlines()), ids, tokens, marked_words(self.tokenizer, tokens))

    def _forced_ids(self, request: LookRequest, notes: list[str]) -> list[int] | None:
        """Return the ids of a translation that the request gives as a whole; None: it is to be searched."""
        if request.target is None:
            return request.target_tokens
        target_notes: list[str] = []
        (clean,) = self.translator.clean([request.target], [target_notes])
        (ids,) = self.tokenizer.encode_target([clean])
        check_length(len(ids), "translation", self.bounds.max_tokens)
        if self.tokenizer.unk_id in ids:
            target_notes.append("it has letters that the model cannot write")
        notes += [f"the translation: {note}" for note in target_notes]
        return ids

    def _visible(self, source: Side, hide: Sequence[int], notes: list[str]) -> Bool[Tensor, " source"]:
        """Return which source tokens attention may see; the end token always is."""
        for word in hide:
            if word >= len(source.word_texts):
                raise UserError(f"the sentence has {len(source.word_texts)} words, and none is number {word}, from 0")
        if hide:
            where = "encoder and cross-attention" if hides_in_encoder(self.model) else "cross-attention only"
            notes.append(
                f"hidden in {where}: {', '.join(source.word_texts[word] for word in sorted(set(hide)))}"
                + ("" if hides_in_encoder(self.model) else "; the encoder reads them")
            )
        return torch.tensor([word not in hide for word in source.words] + [True])

    def _search(
        self, source: Side, request: LookRequest, notes: list[str]
    ) -> tuple[list[Hypothesis], dict[str, Any] | None]:
        tokenizer = self.tokenizer
        search = build_search(request.search, self.translator.config["search"], known_searches())
        ids, _, mask = collate_sources([source.ids], pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
        batch = (self.model, ids.to(self.device), mask.to(self.device), TargetVocabulary.of(tokenizer))
        prefixes = [request.prefix] if request.prefix else None
        observed = observable(search) if request.tree else None
        if observed is None:
            (hypotheses,) = search(*batch, prefixes=prefixes)
            if request.tree:
                notes.append("only beam search and greedy search have a tree")
            tree = None
        else:
            recorder = TreeRecorder(tokenizer)
            (hypotheses,) = observed(*batch, prefixes=prefixes, observer=recorder)
            if recorder.full:
                notes.append(f"the tree has more nodes than are shown, the first {recorder.count:,}")
            tree = recorder.tree(hypotheses[0].token_ids, tokenizer.eos_id)
        self.translator.note_full(search.length_limits, [source.ids], prefixes, [hypotheses[0].token_ids], [notes])
        return hypotheses, tree

    def _force(self, source: list[int], target: list[int], visible: Tensor, *, in_search: bool) -> Forced:
        """Run the model along a translation, with its weights, and with what they may attend to.

        Args:
            in_search: the translation is that of a search; an attention that attends otherwise in a search, such as a
                monotonic one, then has the log-probabilities of the search, and the weights of a given translation.
        """
        tokenizer, device = self.tokenizer, self.device
        ids, _, mask = collate_sources([source], pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
        ids, mask = ids.to(device), mask.to(device)
        target_input = torch.tensor([[tokenizer.bos_id, *target]], device=device)
        with recorded_visibility(self.model) as calls:
            decoded = self.model(ids, mask, target_input, need_weights=True)
        weights = {slot: batch_weights[0] for slot, batch_weights in decoded.weights.items()}
        hidden_pairs = {}
        for slot, slot_weights in weights.items():
            allowed = self._allowed(slot, calls.get(slot, []), slot_weights, visible)
            if allowed is not None and not allowed.all():
                hidden_pairs[slot] = ~allowed
        if in_search and any(layer.reads_history for layer in self.layers.values()):
            decoded = self.model.decode(target_input, self.model.encode(ids, mask))
        following = torch.tensor([*target, tokenizer.eos_id], device=device)
        log_probs = at_least_float32(self.model.logits(decoded.hidden[0])).log_softmax(-1)
        token_log_probs = log_probs.gather(1, following[:, None])[:, 0].double().tolist()
        best = log_probs.topk(min(NUM_BEST_TOKENS, log_probs.shape[1]))
        return Forced(token_log_probs, self._top(best.values, best.indices), weights, hidden_pairs)

    def _top(self, values: Tensor, indices: Tensor) -> list[list[dict[str, Any]]]:
        return [
            [
                {"id": token_id, "token": token, "log_prob": finite(log_prob)}
                for token_id, token, log_prob in zip(ids, self.tokenizer.target_tokens(ids), row, strict=True)
            ]
            for ids, row in zip(indices.tolist(), values.double().tolist(), strict=True)
        ]

    def _allowed(
        self, slot: str, calls: Sequence[Tensor | None], weights: Tensor, visible: Tensor
    ) -> Bool[Tensor, "heads rows columns"] | None:
        """Return where a slot may attend to; None: anywhere, or not known.

        Args:
            calls: what was recorded, of each step or of the whole target.
        """
        layer, (_, rows, columns) = self.layers[slot], weights.shape
        if isinstance(layer, LinearAttention):
            if slot.startswith("self/"):
                return torch.ones(1, rows, columns, dtype=torch.bool).tril()
            allowed = visible.expand(1, rows, columns)
            is_causal = slot.startswith("encoder/") and getattr(self.model.encoder, "causal", False)
            return allowed.tril() if is_causal else allowed
        present = [call for call in calls if call is not None]
        if not isinstance(layer, Attention) or not present:
            return None
        heads = max(len(call) for call in present)
        steps = rows // len(calls)
        return torch.cat(
            [
                torch.ones(heads, steps, columns, dtype=torch.bool)
                if call is None
                else call.cpu().expand(heads, -1, -1)
                for call in calls
            ],
            1,
        )

    def _slots(self, forced: Forced, source: Side, target: Side, wanted: Sequence[str] | None) -> list[dict[str, Any]]:
        chosen = {slot: weights for slot, weights in forced.weights.items() if wanted is None or slot in wanted}
        total = sum(weights.numel() for weights in chosen.values())
        if total > MAX_WEIGHTS:
            raise UserError(
                f"the maps of this sentence have {total:,} weights, and {MAX_WEIGHTS:,} are the most; shorten it"
            )
        words = {
            "source": ([*source.words, len(source.word_texts)], [*source.word_texts, END]),
            "target_read": ([len(target.word_texts), *target.words], [*target.word_texts, BEGIN]),
        }
        slots = []
        for slot, slot_weights in chosen.items():
            heads, rows, columns = slot_weights.shape
            layout = slot_layout(slot, (heads, rows, columns))
            slot_weights = slot_weights.float().cpu()
            weights = slot_weights.numpy()
            dtype = "float32" if total <= MAX_FLOAT32 else "float16"
            pairs = forced.hidden.get(slot)
            slots.append(
                layout
                | {
                    "weights": encoded(weights.astype(f"<f{4 if dtype == 'float32' else 2}")),
                    "dtype": dtype,
                    "hidden": None if pairs is None else encoded(np.packbits(pairs.numpy())),
                    "hidden_heads": None if pairs is None else len(pairs),
                    "minimum": float(weights.min()),
                    "maximum": float(weights.max()),
                    "heads_summary": summaries(slot_weights, layout["kind"], *words[layout["column_tokens"]]),
                }
            )
        return slots

    def _links(self, forced: Forced, source: Side, target: Side) -> dict[str, Any] | None:
        """Return links of words by each head, and those of `translate.py alignments=`; None: no cross-attention."""
        columns = [*marked_source_words(self.tokenizer, source.tokens), END]
        rows = [*marked_words(self.tokenizer, target.tokens), END]
        maps = [
            SlotMap(slot, weights.float().cpu().numpy(), columns, rows)
            for slot, weights in forced.weights.items()
            if slot.startswith("cross/")
        ]
        if not maps:
            return None
        guided = guided_head(self.translator.config, self.model)
        chosen, extraction = guided or Heads(), Extraction(shift=guided_shift(self.translator.config))
        pairs = as_lists(best_links(maps, chosen, extraction))
        opened = None if guided is None else {"slot": f"cross/{guided.layer}", "head": guided.head}
        default = {"name": str(chosen), "guided": opened, "pairs": pairs}
        return {"slots": links_by_layer(maps, extraction), "shift": extraction.shift, "default": default}


def encoded(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def finite(number: float) -> float:
    """Return the number.

    Raises:
        UserError: for one that JSON does not have.
    """
    if not math.isfinite(number):
        raise UserError("the model gives a log-probability that is no finite number; change the search or the sentence")
    return number
