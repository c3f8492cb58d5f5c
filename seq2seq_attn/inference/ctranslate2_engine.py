"""A Transformer decoded by CTranslate2, an inference engine in C++. Klein et al. 2020, section 4, AMTA."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, final

import torch
from hydra.utils import instantiate

from seq2seq_attn.checkpoint.admitted import build
from seq2seq_attn.checkpoint.load import read_tokenizer
from seq2seq_attn.errors import UserError
from seq2seq_attn.search.beam import BeamSearch
from seq2seq_attn.search.greedy import GreedySearch
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty
from seq2seq_attn.search.length_penalty.mean import MeanPenalty
from seq2seq_attn.search.length_penalty.wu import WuPenalty
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

FORMAT = 1
SETTINGS = "seq2seq_attn.json"  # beside CTranslate2's own files: what a line needs on its way in and out
LEAST_POWER = 1e-9  # 1 for any length in float32, but not 0, with which an early exit would come
LONG_PATIENCE = 2.0  # for "until no better can come": of 1,000 translations of Multi30k, 1,000 were those of our search
MODEL_FILES = {"source": "source.model", "target": "target.model"}  # SentencePiece's


class Exported(NamedTuple):
    """What `seq2seq-attn export ctranslate2` wrote beside the model: the fields of `Loaded`, but for the model.

    Attributes:
        positions: most tokens of a sentence, specials included.
    """

    tokenizer: SentencePieceTokenizer
    config: dict[str, Any]
    positions: int


class Mapped(NamedTuple):
    """A search in CTranslate2's words.

    Attributes:
        options: of its `translate_batch`.
        power: it ranks by log-probability over length^power, end token counted.
        length_penalty: by which its hypotheses are ranked again; None: there is but one.
        num_best: translations of each sentence. limits: of their length.
    """

    options: dict[str, Any]
    power: float
    length_penalty: LengthPenalty | None
    num_best: int
    limits: Limits


@final
class CTranslate2Engine:
    """A model with a search; translations are those of our own search but for near-ties.

    A translation that is cut at its longest length has no end token in its score.

    Args:
        folder: written by `seq2seq-attn export ctranslate2`.
        search: None: the one of the run.
        num_threads: of the CPU; None: CTranslate2's own choice.

    Raises:
        UserError: without CTranslate2, for another folder, or for a search that it does not know.
    """

    def __init__(self, folder: str, *, search: Search | None, device: torch.device, num_threads: int | None) -> None:
        ctranslate2 = import_ctranslate2()
        self.tokenizer, self.config, self.positions = read_exported(Path(folder))
        search = search or instantiate(self.config["search"], _convert_="all")
        self._mapped = mapped(search)
        banned = self.tokenizer.target_tokens(list(TargetVocabulary.of(self.tokenizer).banned_ids))
        self._suppressed = [[token] for token in banned]
        tokens = self.tokenizer.target_tokens(list(range(self.tokenizer.target_vocab_size)))
        self._ids = {token: i for i, token in enumerate(tokens)}
        self._translator = ctranslate2.Translator(
            folder,
            device=device.type,
            device_index=device.index or 0,
            compute_type="float32",
            intra_threads=num_threads or 0,
        )

    def __call__(self, sources: list[list[int]], batch_sentences: int) -> list[list[Hypothesis]]:
        """The translations of each sentence, as a search gives them; sentences are ids without begin or end.

        They may be many: CTranslate2 cuts its batches of `batch_sentences` from them, sorted by length.

        Raises:
            UserError: for a sentence longer than the model has positions for.
        """
        lengths = torch.tensor([len(tokens) + 1 for tokens in sources], dtype=torch.long)
        longest = max(lengths.tolist(), default=0)
        if longest > self.positions:
            raise UserError(
                f"a sentence of {longest} tokens is longer than the {self.positions} positions of this export; "
                "export the run again with --positions, or cut the sentence"
            )
        mask = torch.arange(longest) < lengths[:, None]
        most: list[int] = self._mapped.limits(mask, self.positions, None).most.tolist()
        found: list[list[Hypothesis]] = [[]] * len(sources)
        # One limit serves all at first; those that go beyond their own are searched again within it.
        left, limit = list(range(len(sources))), max(most, default=0)
        while left:
            decoded = self._decode([sources[i] for i in left], limit, batch_sentences)
            for i, hypotheses in zip(left, decoded, strict=True):
                found[i] = hypotheses
            left = [i for i in left if most[i] < limit and any(len(one.token_ids) > most[i] for one in found[i])]
            limit = max((most[i] for i in left), default=0)
        return [hypotheses[: self._mapped.num_best] for hypotheses in found]

    def _decode(self, sources: list[list[int]], limit: int, batch_sentences: int) -> list[list[Hypothesis]]:
        results = self._translator.translate_batch(
            [self.tokenizer.source_tokens(tokens) for tokens in sources],
            max_batch_size=batch_sentences,
            max_input_length=0,
            max_decoding_length=limit,
            suppress_sequences=self._suppressed,
            return_scores=True,
            **self._mapped.options,
        )
        penalty, divisors = self._mapped.length_penalty, [1.0] * (limit + 1)
        if penalty is not None:
            divisors = penalty(torch.arange(1, limit + 2)).tolist()
        found = []
        for result in results:
            scored = zip(result.hypotheses, result.scores, strict=True)
            hypotheses = [self._hypothesis(tokens, score, limit, divisors) for tokens, score in scored]
            found.append(sorted(hypotheses, key=lambda one: -one.score))
        return found

    def _hypothesis(self, tokens: list[str], score: float, limit: int, divisors: list[float]) -> Hypothesis:
        ends = len(tokens) < limit
        log_prob = score * (len(tokens) + ends) ** self._mapped.power
        return Hypothesis([self._ids[token] for token in tokens], log_prob, log_prob / divisors[len(tokens)])


def import_ctranslate2() -> ModuleType:
    try:
        import ctranslate2
    except ImportError as error:
        raise UserError(f"CTranslate2 cannot be used here ({error}); pip install 'seq2seq-attn[serve]'") from error
    return ctranslate2


def read_exported(folder: Path) -> Exported:
    """The tokenizer and the settings of a folder.

    Raises:
        UserError: if it is no such folder, or another version wrote it.
    """
    file = folder / SETTINGS
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
        models = {
            f"{side}_model": torch.frombuffer(bytearray((folder / name).read_bytes()), dtype=torch.uint8)
            for side, name in MODEL_FILES.items()
        }
    except (OSError, ValueError) as error:
        raise UserError(
            f"ckpt_path={folder} is not a folder of seq2seq-attn export ctranslate2 ({error}); write one with it, or "
            "translate without engine=ctranslate2"
        ) from error
    if settings.get("format") != FORMAT:
        raise UserError(
            f"{file} has format {settings.get('format')}, this version reads {FORMAT}; export the run again"
        )
    config = settings["config"]
    build(config["search"], "search", file)
    build(config["data"]["cleaning"], "cleaning", file)
    return Exported(read_tokenizer({**settings["tokenizer"], **models}, file), config, settings["positions"])


def mapped(search: Search) -> Mapped:
    """Greedy search, or a beam whose hypotheses are found alike there and ranked by our penalty.

    CTranslate2 takes forbidden tokens out before it makes probabilities of what is left, we do so behind: in a
    beam the scores then differ, but for tokens that hardly ever come.

    Raises:
        UserError: for a search, or an option of it, that means something else there.
    """
    if isinstance(search, GreedySearch | BeamSearch) and search.limits.min_relative_length:
        raise refusal("limits.min_relative_length", search.limits.min_relative_length, 0.0)
    if isinstance(search, GreedySearch):
        greedy = {"beam_size": 1, "length_penalty": 0.0, "min_decoding_length": search.limits.min_length}
        return Mapped(greedy, 0.0, None, 1, search.limits)
    if not isinstance(search, BeamSearch):
        raise UserError(f"engine=ctranslate2 has no {type(search).__name__}; use search=greedy or search=beam")
    for name, value in (
        ("coverage_penalty", search.coverage_penalty),
        ("no_repeat_ngram", search.no_repeat_ngram),
        ("limits.min_length", search.limits.min_length),
    ):
        if value:
            raise refusal(name, value, 0)
    power = length_power(search.length_penalty)
    beam: dict[str, Any] = {"beam_size": search.beam_size, "min_decoding_length": 0}
    if search.patience is None and not power and search.num_best == 1:  # its own early exit is exact
        return Mapped({**beam, "length_penalty": 0.0}, 0.0, search.length_penalty, 1, search.limits)
    patience = LONG_PATIENCE if search.patience is None else search.patience
    enough = patience * search.beam_size
    if enough != int(enough) or enough < search.num_best or (search.beam_size == 1 and enough > 1):
        raise refusal("patience", "null" if search.patience is None else search.patience, 1.0)
    power = power or LEAST_POWER
    beam |= {"length_penalty": power, "patience": patience, "num_hypotheses": int(enough)}
    return Mapped(beam, power, search.length_penalty, search.num_best, search.limits)


def length_power(penalty: LengthPenalty) -> float:
    """That of the length which ranks most like `penalty`, in case CTranslate2 has more hypotheses than it gives."""
    if isinstance(penalty, WuPenalty):
        return penalty.alpha
    if isinstance(penalty, MeanPenalty):
        return 1.0
    raise UserError(f"engine=ctranslate2 has no {type(penalty).__name__}; use search/length_penalty=wu, mean or none")


def refusal(option: str, value: Any, instead: Any) -> UserError:
    return UserError(
        f"search.{option}={value} does not mean the same to CTranslate2; use search.{option}={instead}, or translate "
        "without engine=ctranslate2"
    )
