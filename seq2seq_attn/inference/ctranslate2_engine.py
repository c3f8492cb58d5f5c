"""A Transformer decoded by CTranslate2, an inference engine in C++. Klein et al. 2020, section 4, AMTA."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, final

import torch

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.checkpoint.admitted import Trust, build
from seq2seq_attn.checkpoint.load import OF_CTRANSLATE2, read_tokenizer
from seq2seq_attn.checkpoint.published import regular, tokenizer_state
from seq2seq_attn.errors import UserError, one_line
from seq2seq_attn.inference.engine import Engine
from seq2seq_attn.paths import given_path
from seq2seq_attn.search.beam import BeamSearch
from seq2seq_attn.search.greedy import GreedySearch
from seq2seq_attn.search.length_penalty.length_penalty import LengthPenalty
from seq2seq_attn.search.length_penalty.mean import MeanPenalty
from seq2seq_attn.search.length_penalty.wu import WuPenalty
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

FORMAT = 1
SETTINGS = OF_CTRANSLATE2  # beside CTranslate2's own files: cleaning, tokenizer and search
COMPUTE_TYPES = (  # auto: the fastest that the device supports
    "auto", "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16",
)  # fmt: skip
NO_PREFIXES = "engine=ctranslate2 takes no prefixes; leave out engine, or the prefixes"
LEAST_POWER = 1e-9  # length^power is 1 in float32; with a power of 0 CTranslate2 would stop early
LONG_PATIENCE = 2.0  # for patience=null; of 1,000 sentences of Multi30k all translations were those of our search


class Exported(NamedTuple):
    """What `seq2seq-attn export ctranslate2` wrote beside the model: the fields of `Loaded` but the model.

    Attributes:
        max_length: the most tokens of a sentence, specials included.
    """

    tokenizer: SentencePieceTokenizer
    config: dict[str, Any]
    max_length: int


class MappedSearch(NamedTuple):
    """A search in the options of CTranslate2.

    Attributes:
        options: of its `translate_batch`.
        power: it ranks by log-probability over length^power, end token counted.
        length_penalty: ranks its hypotheses again; None: there is only one.
        num_best: translations of each sentence.
        limits: of their length.
    """

    options: dict[str, Any]
    power: int | float
    length_penalty: LengthPenalty | None
    num_best: int
    limits: Limits


@final
class CTranslate2Engine(Engine):
    """An exported model; in float32, translations are those of our own search but for near-ties.

    A model of words is another exception: its beams are ranked as if no token were unknown. Log-probabilities are those
    of the model but for the probability of tokens that are never said, which CTranslate2 removes before its softmax.

    Args:
        paths: one folder that `seq2seq-attn export ctranslate2` wrote.
        num_threads: of the CPU; None: CTranslate2's own choice.
        compute_type: what the weights are converted to as they are loaded, one of `COMPUTE_TYPES`; None: float32.
        trust: packages of the user's own whose classes are admitted.

    Raises:
        UserError: without CTranslate2, for another folder or several, for a type that the device lacks; at a call for
            a search that CTranslate2 lacks, prefixes or attention.
    """

    max_length: int

    def __init__(
        self,
        paths: Sequence[str],
        *,
        device: torch.device,
        num_threads: int | None,
        compute_type: str | None = None,
        trust: Trust = (),
    ) -> None:
        if len(paths) != 1:
            raise UserError("engine=ctranslate2 knows no ensembles; give one ckpt_path, or leave out engine")
        folder, ctranslate2 = given_path(paths[0], "ckpt_path"), import_ctranslate2()
        if compute_type is not None:
            check_compute_type(compute_type, ctranslate2.get_supported_compute_types(device.type, device.index or 0))
        self.tokenizer, self.config, self.max_length = read_exported(folder, trust)
        banned = self.tokenizer.target_tokens(list(TargetVocabulary.of(self.tokenizer).banned_ids))
        self._suppressed = [[token] for token in banned]
        self._is_of_words = self.tokenizer.target_model_type == "word"
        tokens = self.tokenizer.target_tokens(list(range(self.tokenizer.target_vocab_size)))
        self._ids = {token: i for i, token in enumerate(tokens)}
        try:
            self._translator = ctranslate2.Translator(
                str(folder),
                device=device.type,
                device_index=device.index or 0,
                compute_type=compute_type or "float32",
                intra_threads=num_threads or 0,
            )
        except RuntimeError as error:
            raise UserError(
                f"ckpt_path={folder} cannot be loaded by CTranslate2 ({one_line(error)}); export the run again"
            ) from error

    def __call__(
        self, sources: list[list[int]], search: Search, prefixes: list[list[int]] | None = None
    ) -> list[list[Hypothesis]]:
        if prefixes is not None and any(prefixes):
            raise UserError(NO_PREFIXES)
        mapped = map_search(search)
        lengths = torch.tensor([len(tokens) + 1 for tokens in sources], dtype=torch.long)
        longest = max(lengths.tolist(), default=0)
        if longest > self.max_length:
            raise UserError(
                f"a sentence of {longest} tokens is longer than the {self.max_length} positions of this export; "
                "export the run again with --positions, or cut the sentence"
            )
        mask = torch.arange(longest) < lengths[:, None]
        most: list[int] = mapped.limits(mask, self.max_length, None).most.tolist()
        # A sentence that may have no token keeps the empty hypothesis.
        results = [[Hypothesis([], 0.0, 0.0)] for _ in most]
        # One limit serves all others at first; those whose hypotheses exceed their own are searched again within it.
        left, limit = [i for i, length in enumerate(most) if length > 0], max(most, default=0)
        while left:
            decoded = self._decode([sources[i] for i in left], mapped, limit)
            for i, hypotheses in zip(left, decoded, strict=True):
                results[i] = hypotheses
            left = [i for i in left if most[i] < limit and any(len(one.token_ids) > most[i] for one in results[i])]
            limit = max((most[i] for i in left), default=0)
        return [
            self._scored_as_ours(source, hypotheses, mapped, length)[: mapped.num_best]
            for source, hypotheses, length in zip(sources, results, most, strict=True)
        ]

    def token_log_probs(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        results = self._translator.score_batch(
            [self.tokenizer.source_tokens(tokens) for tokens in sources],
            [self.tokenizer.target_tokens(tokens) for tokens in targets],
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def _scored_as_ours(
        self, source: list[int], hypotheses: list[Hypothesis], mapped: MappedSearch, most: int
    ) -> list[Hypothesis]:
        """Score again what CTranslate2 scores differently.

        These are translations that are cut at their longest length, whose end token it leaves out, and those with a
        least length or by a model of words, whose targets have unknown tokens, since it removes the end token and the
        unknown one before its softmax.
        """
        removed = self._is_of_words or mapped.options["min_decoding_length"] > 0
        wrong = [one for one in hypotheses if removed or len(one.token_ids) == most]
        if not wrong:
            return hypotheses
        scored = [one for one in hypotheses if one not in wrong]
        log_probs = self.token_log_probs([source] * len(wrong), [one.token_ids for one in wrong])
        for one, numbers in zip(wrong, log_probs, strict=True):
            length = torch.tensor([len(numbers)])
            divisor = 1.0 if mapped.length_penalty is None else mapped.length_penalty(length).item()
            scored.append(Hypothesis(one.token_ids, sum(numbers), sum(numbers) / divisor))
        return sorted(scored, key=lambda one: -one.score)

    def attention(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[SlotMap]]:
        raise UserError("engine=ctranslate2 gives no attention; leave out engine, or maps, alignments and placeholders")

    def _decode(self, sources: list[list[int]], mapped: MappedSearch, limit: int) -> list[list[Hypothesis]]:
        results = self._translator.translate_batch(
            [self.tokenizer.source_tokens(tokens) for tokens in sources],
            max_input_length=0,
            max_decoding_length=limit,
            suppress_sequences=self._suppressed,
            return_scores=True,
            **mapped.options | {"min_decoding_length": min(mapped.options["min_decoding_length"], limit)},
        )
        divisors = [1.0] * (limit + 1)
        if mapped.length_penalty is not None:
            divisors = mapped.length_penalty(torch.arange(1, limit + 2)).tolist()

        def hypothesis(tokens: list[str], score: float) -> Hypothesis:
            ended = len(tokens) < limit
            log_prob = score * (len(tokens) + ended) ** mapped.power
            return Hypothesis([self._ids[token] for token in tokens], log_prob, log_prob / divisors[len(tokens)])

        return [
            sorted(map(hypothesis, result.hypotheses, result.scores), key=lambda one: -one.score) for result in results
        ]


def import_ctranslate2() -> ModuleType:
    try:
        import ctranslate2
    except ImportError as error:
        raise UserError(f"CTranslate2 cannot be used here ({error}); pip install 'seq2seq_attn[serve]'") from error
    return ctranslate2


def check_compute_type(compute_type: str, supported: Collection[str]) -> None:
    """Refuse a type that a device does not support, or that does not exist."""
    known = [name for name in COMPUTE_TYPES if name == "auto" or name in supported]
    if compute_type not in known:
        raise UserError(
            f"compute_type={compute_type} is not supported by CTranslate2 on this device; choose from: "
            f"{', '.join(known)}"
        )


def read_exported(folder: Path, trust: Trust = ()) -> Exported:
    """Return the tokenizer and the settings of a folder.

    Raises:
        UserError: if it is not an exported model, or another version wrote it.
    """
    file = folder / SETTINGS
    try:
        settings = json.loads(regular(file).read_text(encoding="utf-8"))
        state = tokenizer_state(settings["tokenizer"], folder)
        config, positions = settings["config"], settings["positions"]
        search, cleaning = config["search"], config["data"]["cleaning"]
        if not isinstance(positions, int):
            raise ValueError(f"positions are {positions!r}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"ckpt_path={folder} is not a folder of seq2seq-attn export ctranslate2 ({error}); write one with it, or "
            "translate without engine=ctranslate2"
        ) from error
    if settings.get("format") != FORMAT:
        raise UserError(
            f"{file} has format {settings.get('format')}, this version reads {FORMAT}; export the run again"
        )
    build(search, "search", file, trust)
    build(cleaning, "cleaning", file, trust)
    return Exported(read_tokenizer(state, file), config, positions)


def map_search(search: Search) -> MappedSearch:
    """Map greedy search, or a beam whose hypotheses CTranslate2 finds alike and our length penalty ranks.

    CTranslate2 removes forbidden tokens before its softmax, our beam after: the scores differ by the probability of
    forbidden tokens, which is next to none. (The end token, which a least length forbids, and the unknown token of a
    model of words are another matter: see `CTranslate2Engine._scored_as_ours`.)

    Raises:
        UserError: for a search or an option that CTranslate2 lacks or understands otherwise.
    """
    if isinstance(search, GreedySearch | BeamSearch) and search.limits.min_relative_length:
        raise refusal("limits.min_relative_length", search.limits.min_relative_length, 0.0)
    if isinstance(search, GreedySearch | BeamSearch) and search.no_repeat_ngram:
        raise refusal("no_repeat_ngram", search.no_repeat_ngram, 0)
    if isinstance(search, GreedySearch):
        greedy = {"beam_size": 1, "length_penalty": 0.0, "min_decoding_length": search.limits.min_length}
        return MappedSearch(greedy, 0.0, None, 1, search.limits)
    if not isinstance(search, BeamSearch):
        raise UserError(f"engine=ctranslate2 has no {type(search).__name__}; use search=greedy or search=beam")
    for name, value in (("coverage_penalty", search.coverage_penalty), ("limits.min_length", search.limits.min_length)):
        if value:
            raise refusal(name, value, 0)
    penalty, power = search.length_penalty, length_power(search.length_penalty)
    beam: dict[str, Any] = {"beam_size": search.beam_size, "min_decoding_length": 0}
    if search.patience is None and not power and search.num_best == 1:  # CTranslate2's early exit is then exact
        return MappedSearch({**beam, "length_penalty": 0.0}, 0.0, penalty, 1, search.limits)
    if search.patience is None and power > 1:  # the best are often longer than all that CTranslate2 waits for
        raise refusal("patience", "null", 1.0)
    patience = LONG_PATIENCE if search.patience is None else search.patience
    enough = patience * search.beam_size
    if enough != int(enough) or enough < search.num_best or (search.beam_size == 1 and enough > 1):
        raise refusal("patience", "null" if search.patience is None else search.patience, 1.0)
    power = power or LEAST_POWER
    beam |= {"length_penalty": power, "patience": patience, "num_hypotheses": int(enough)}
    return MappedSearch(beam, power, penalty, search.num_best, search.limits)


def length_power(penalty: LengthPenalty) -> int | float:
    """Return the power of the length that ranks most like `penalty`: CTranslate2 returns only its own best."""
    if isinstance(penalty, WuPenalty):
        return penalty.alpha
    if isinstance(penalty, MeanPenalty):
        return penalty.power
    raise UserError(f"engine=ctranslate2 has no {type(penalty).__name__}; use search/length_penalty=wu, mean or none")


def refusal(option: str, value: Any, instead: Any) -> UserError:
    return UserError(
        f"search.{option}={value} does not mean the same to CTranslate2; use search.{option}={instead}, or translate "
        "without engine=ctranslate2"
    )
