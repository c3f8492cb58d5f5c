"""Translation from Python; `translate.py` is a thin cover of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, final

from hydra.utils import instantiate

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.checkpoint.ensemble import load_ensemble
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.choose_search import WantedSearch, choose_search
from seq2seq_attn.inference.engine import Engine
from seq2seq_attn.inference.models import choose_device
from seq2seq_attn.inference.serving_engine import ServingEngine
from seq2seq_attn.inference.torch_engine import TorchEngine
from seq2seq_attn.search.search import Hypothesis, Search
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a tab and a line feed are blanks
SURROGATE = re.compile(r"[\ud800-\udfff]")


class Translation(NamedTuple):
    """Of one text; that of an empty text is empty.

    Attributes:
        text: on one line.
        log_prob: in nats, end token included.
        score: what the search ranks by.
        tokens: of the text, "▁" for a blank before.
        alternatives: what else the search found, best first.
        maps: of every slot, where asked for.
        notes: how the source was changed before it was translated, for a reader.
    """

    text: str
    log_prob: float
    score: float
    tokens: list[str]
    alternatives: list[Translation]
    maps: list[SlotMap]
    notes: list[str]


EMPTY = Hypothesis([], 0.0, 0.0)


@final
class Translator:
    """A trained model, or several together, with all that a text needs on its way in and out.

    `Translator.load("runs/train/...").translate(["Where is the library?"])[0].text`
    """

    def __init__(self, engine: Engine, tokenizer: SentencePieceTokenizer, config: dict[str, Any]) -> None:
        self.engine, self.tokenizer, self.config = engine, tokenizer, config
        self._cleaning: Cleaning = instantiate(config["data"]["cleaning"], _convert_="all")
        self._chosen: tuple[WantedSearch, Search] | None = None

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        *,
        device: str = "auto",
        engine: str = "torch",
        num_threads: int | None = None,
    ) -> Translator:
        """From checkpoints, without running code from them.

        Args:
            path: a run folder or a .ckpt file; several are an ensemble. With engine ctranslate2, what
                `seq2seq-attn export ctranslate2` wrote.
            engine: torch, or ctranslate2.
            num_threads: of ctranslate2; those of torch are `torch.set_num_threads`.
        """
        paths = [str(path)] if isinstance(path, str | Path) else [str(one) for one in path]
        position = choose_device(device)
        if engine == "ctranslate2":
            served = ServingEngine(paths, device=position, num_threads=num_threads)
            return cls(served, served.tokenizer, served.config)
        if engine != "torch":
            raise UserError(f"engine={engine} is not there; choose from: torch, ctranslate2")
        model, tokenizer, config = load_ensemble(paths)
        return cls(TorchEngine(model.to(position), tokenizer, position), tokenizer, config)

    def translate(
        self,
        texts: Sequence[str],
        *,
        search: WantedSearch = None,
        prefixes: Sequence[str] | None = None,
        maps: bool = False,
        batch_sentences: int = 128,
        batch_tokens: int | None = None,
        max_source_tokens: int = 512,
    ) -> list[Translation]:
        """The best translation of each text, which depends on no other text.

        Args:
            search: see `choose_search`; None: the one of the run.
            prefixes: what each translation begins with; an empty one leaves it free.
            maps: give the attention of each best translation, by one more pass.
            batch_sentences: texts searched at once.
            batch_tokens: instead, padded tokens of the texts, times hypotheses.
            max_source_tokens: a longer text, or prefix, is cut, and a note says so.
        """
        if isinstance(texts, str) or isinstance(prefixes, str):
            raise UserError(
                "translate takes a list of texts, and of prefixes, not one of them; write translate([text])"
            )
        if prefixes is not None and len(prefixes) != len(texts):
            raise UserError(f"there are {len(texts)} texts and {len(prefixes)} prefixes; give one for each, or None")
        notes: list[list[str]] = [[] for _ in texts]
        sources = self._encode(texts, max_source_tokens, notes)
        filled = [row for row, tokens in enumerate(sources) if tokens]
        begun = None if prefixes is None else self._encode_prefixes(prefixes, max_source_tokens, notes)
        hypotheses = self.engine(
            [sources[row] for row in filled],
            self._search(search),
            prefixes=None if begun is None else [begun[row] for row in filled],
            batch_sentences=batch_sentences,
            batch_tokens=batch_tokens,
        )
        found = [[EMPTY]] * len(texts)
        for row, of_row in zip(filled, hypotheses, strict=True):
            found[row] = of_row
        translations = [self._translation(*both) for both in zip(found, notes, strict=True)]
        if not maps:
            return translations
        return [
            one._replace(maps=self._attention(tokens, best.token_ids))
            for one, tokens, (best, *_) in zip(translations, sources, found, strict=True)
        ]

    def attention(self, text: str, translation: Translation, *, max_source_tokens: int = 512) -> list[SlotMap]:
        """The maps of a translation of `text`, as `translate(maps=True)` gives them for the best."""
        (source,) = self._encode([text], max_source_tokens, [[]])
        return self._attention(source, [self.tokenizer.target_model.piece_to_id(p) for p in translation.tokens])

    def _search(self, wanted: WantedSearch) -> Search:
        """The one of the call before, where the same is wanted."""
        if self._chosen is None or self._chosen[0] != wanted:
            self._chosen = deepcopy(wanted), choose_search(wanted, self.config["search"])
        return self._chosen[1]

    def _attention(self, source: list[int], target: list[int]) -> list[SlotMap]:
        return self.engine.attention(source, target) if source else []

    def _encode(self, texts: Sequence[str], max_source_tokens: int, notes: Sequence[list[str]]) -> list[list[int]]:
        return self._cut(self.tokenizer.encode_source(self._cleaned(texts, notes)), max_source_tokens, notes)

    def _encode_prefixes(
        self, prefixes: Sequence[str], max_source_tokens: int, notes: Sequence[list[str]]
    ) -> list[list[int]]:
        own: list[list[str]] = [[] for _ in prefixes]
        tokens = self._cut(self.tokenizer.encode_target(self._cleaned(prefixes, own)), max_source_tokens, own)
        for prefix, of_prefix, said in zip(tokens, own, notes, strict=True):
            said += [f"its prefix: {note}" for note in of_prefix]
            if self.tokenizer.unk_id in prefix:
                said.append("the prefix has letters that the model cannot write")
        return tokens

    def _cut(self, rows: Sequence[list[int]], max_source_tokens: int, notes: Sequence[list[str]]) -> list[list[int]]:
        if max_source_tokens < 1:
            raise UserError(f"max_source_tokens={max_source_tokens} leaves nothing; use 512")
        positions = self.engine.positions
        most = max_source_tokens if positions is None else min(max_source_tokens, positions - 1)
        for tokens, said in zip(rows, notes, strict=True):
            if len(tokens) > most:
                why = "max_source_tokens allows" if most == max_source_tokens else "the model has positions for"
                said.append(f"cut from {len(tokens)} to {most} tokens, the most that {why}")
        return [tokens[:most] for tokens in rows]

    def _cleaned(self, texts: Sequence[str], notes: Sequence[list[str]]) -> list[str]:
        """As for training; what no tokenizer should see is replaced."""
        cleaned = []
        for text, said in zip(texts, notes, strict=True):
            legible, controls = CONTROL.subn(" ", text)
            legible, surrogates = SURROGATE.subn("\ufffd", legible)
            if controls:
                said.append("control characters are replaced by blanks")
            if surrogates:
                said.append("not Unicode; what cannot be read is replaced")
            cleaned.append(self._cleaning.normalize_text(legible))
        return cleaned

    def _translation(self, hypotheses: Sequence[Hypothesis], notes: list[str]) -> Translation:
        texts = self.tokenizer.decode_target([one.token_ids for one in hypotheses])
        made = [
            # a line of text stays one, whatever the model says
            Translation(
                " ".join(text.splitlines()),
                one.log_prob,
                one.score,
                self.tokenizer.target_tokens(one.token_ids),
                [],
                [],
                [],
            )
            for text, one in zip(texts, hypotheses, strict=True)
        ]
        return made[0]._replace(alternatives=made[1:], notes=notes)
