"""A mixture of corpora, each with a weight: how often its pairs occur in an epoch."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, final

import yaml

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.columns import SIDES, Column
from seq2seq_attn.data.corpus import Corpus, LoadedCorpus
from seq2seq_attn.data.huggingface import data_set_files
from seq2seq_attn.data.parallel import Files, ParallelCorpus, normalized_chunks, pair_sources
from seq2seq_attn.data.store.corpus_weights import IN_EPOCH, Mixture
from seq2seq_attn.data.store.pair_source import PairSource
from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import given_path

KINDS = {
    "train": "file or list of files",
    "path": "folder or name of a data set",
    "name": "name of a part of the data set",
    "split": "name of a split",
    "source_column": "name or number of a column",
    "target_column": "name or number of a column",
}
KEYS = tuple(KINDS)

log = logging.getLogger(__name__)


@final
class MixtureCorpus(Corpus):
    """Several corpora that are prepared as one: duplicates are those of all of them, and the first is kept.

    Args:
        corpora: for each name, the files as `train`, as in `ParallelCorpus`, or a data set as `path` and `name`, as in
            `HuggingfaceCorpus`, with its split "train" or another `split`; and `source_column` and `target_column`, if
            they are others than those of all. A text is a YAML file with this.
        weights: how often the pairs of a corpus occur in an epoch, by its name: 1 if it is not named; 0.5 takes about
            half of them, chosen by `seed`.
        temperature: corpora without a weight get that of `Mixture.weights_of`; None: 1.
        val, test, source_language, target_language, source_column, target_column, cleaning: as for `ParallelCorpus`.
        val_sentences, test_sentences, seed, cache_dir, max_rejected, num_processes, verify, copy_to: the same.

    Raises:
        UserError: if the corpora or weights are none, or the files and columns do not make a corpus.
    """

    def __init__(
        self,
        *,
        corpora: dict[Any, Any] | str | None,
        weights: dict[Any, Annotated[int | float, "[0, 1000]"]],
        val: Files,
        test: Files,
        source_language: str,
        target_language: str,
        source_column: Column,
        target_column: Column,
        cleaning: Cleaning,
        val_sentences: Annotated[int | None, "[0, 1000000]"],
        test_sentences: Annotated[int | None, "[0, 1000000]"],
        seed: Annotated[int, "[0, 4294967295]"],
        cache_dir: str,
        max_rejected: Annotated[float, "[0, 1]"] = 0.01,
        num_processes: Annotated[int | None, "[1, 1000]"] = None,
        verify: bool = False,
        copy_to: str | None = None,
        temperature: Annotated[int | float | None, "[1, inf)"] = None,
    ) -> None:
        self.corpora, self.weights = corpora, {str(name): weight for name, weight in weights.items()}
        self.temperature = float(temperature) if temperature is not None and temperature != 1 else None
        self.columns: tuple[Column, Column] = (source_column, target_column)
        self.languages = (source_language, target_language)
        self.seed = seed
        self.files = ParallelCorpus(
            train=None,
            val=val,
            test=test,
            source_language=source_language,
            target_language=target_language,
            source_column=source_column,
            target_column=target_column,
            cleaning=cleaning,
            val_sentences=val_sentences,
            test_sentences=test_sentences,
            seed=seed,
            cache_dir=cache_dir,
            max_rejected=max_rejected,
            num_processes=num_processes,
            verify=verify,
            copy_to=copy_to,
        )

    def load(self) -> LoadedCorpus:
        """Open or prepare the mixture; without `corpora`, the other splits alone, for an evaluation."""
        corpora = read_corpora(self.corpora) if self.corpora is not None else {}
        self._check(corpora)
        train: list[PairSource] = []
        usual: list[PairSource] = []  # of corpora without columns of their own
        for name, corpus in corpora.items():
            if self.weights.get(name, 1):
                sources = self._sources(name, corpus)
                train += sources
                usual += sources if self._columns(corpus) == self.columns else []
        idle = (0,) if self.temperature else (0, 1)  # weights that change nothing of the corpora that are read
        weights = {name: weight for name, weight in self.weights.items() if weight not in idle}
        loaded = self.files.load_with(train, Mixture(weights, self.seed, self.temperature), before=usual)
        self._log_epoch(corpora, loaded)
        return loaded

    def _check(self, corpora: Mapping[str, Any]) -> None:
        """Refuse weights of no corpus, weights that leave no pair, and a mixture of nothing."""
        if unknown := [name for name in self.weights if corpora and name not in corpora]:
            raise UserError(f"data.weights.{unknown[0]} is the weight of no corpus; there are {', '.join(corpora)}")
        if not corpora and self.files.files["val"] is None and self.files.files["test"] is None:
            raise UserError(
                "data=mixture needs data.corpora=FILE.yaml or data.corpora={NAME: {train: FILE}, NAME: {train: FILE}}"
            )
        if corpora and not any(self.weights.get(name, 1) for name in corpora):
            raise UserError(f"data.weights leaves no pair of {', '.join(corpora)} to train on; give larger weights")

    def _log_epoch(self, corpora: Iterable[str], loaded: LoadedCorpus) -> None:
        """Log how many pairs each corpus has in an epoch, and warn of those that have none."""
        in_epoch = {step: count for step, count in loaded.report.counts.items() if IN_EPOCH in step}
        shares = [f"{count:,} {step.partition(': ')[2].replace(IN_EPOCH, '')}" for step, count in in_epoch.items()]
        empty = [step for step, count in in_epoch.items() if not count]
        for name in corpora:
            if any(f"pairs of {name}{IN_EPOCH} " in step for step in empty):
                log.warning(
                    f"The corpus {name} gives no pair to train on: cleaning drops all of its pairs, an earlier corpus "
                    "has them, too, or its weight leaves none"
                )
        if shares:
            log.info(f"An epoch has {len(loaded.splits['train']):,} pairs: {', '.join(shares)}")

    def training_pairs(self) -> Iterator[list[tuple[str, str] | None]]:
        yield from normalized_chunks(self._train, self.files.cleaning)

    def training_identity(self) -> list[Any]:
        return [source.identity(self.files.verify) for source in self._train]

    @cached_property
    def _train(self) -> list[PairSource]:
        """The files of all corpora, also of those with weight 0."""
        corpora = read_corpora(self.corpora)
        return [source for name, corpus in corpora.items() for source in self._sources(name, corpus)]

    def _sources(self, name: str, corpus: dict[str, Any]) -> list[PairSource]:
        """Return the readers of the files of a corpus."""
        files, option = corpus.get("train"), f"data.corpora.{name}.train"
        if "path" in corpus:
            split = corpus.get("split", "train")
            there = data_set_files(corpus["path"], corpus.get("name"), (split,))
            if split not in there:
                raise UserError(
                    f"data.corpora.{name}: {corpus['path']} has no split '{split}' (splits: {', '.join(there)})"
                )
            files = there[split]
        sources = pair_sources(files, option, self._columns(corpus), self.languages)
        for source in sources:
            source.corpus = name
        return sources

    def _columns(self, corpus: dict[str, Any]) -> tuple[Column, Column]:
        """Return the columns of a corpus: its own, or those of all."""
        source, target = (corpus.get(f"{side}_column", usual) for side, usual in zip(SIDES, self.columns, strict=True))
        return source, target


class EachKeyOnce(yaml.SafeLoader):
    """A loader for which a key that is given twice is an error, and not the last value alone."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            key.tag = "tag:yaml.org,2002:str"  # also a name such as no, which YAML reads as False
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value} is given twice, again in line {key.start_mark.line + 1}"
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def is_pair_of_files(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(isinstance(side, str) for side in entry)


def is_given_as(key: str, value: Any) -> bool:
    """Return whether the value of a corpus's key has its type."""
    if key == "train" and isinstance(value, list):
        return bool(value) and all(isinstance(entry, str) or is_pair_of_files(entry) for entry in value)
    if value is None and (key == "name" or key.endswith("_column")):
        return True
    types = (str, int) if key.endswith("_column") else (str,)
    return isinstance(value, types) and not isinstance(value, bool)


def read_corpora(given: Any) -> dict[str, dict[str, Any]]:
    """Return the corpora by name, from a dict or a YAML file.

    Raises:
        UserError: if the file cannot be read, or they are none.
    """
    place = "data.corpora"
    if isinstance(given, str):
        file = given_path(given, place)
        place = f"data.corpora={file}"
        try:
            given = yaml.load(file.read_text("utf-8"), Loader=EachKeyOnce)
        except (OSError, ValueError, yaml.YAMLError) as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise UserError(f"{place} cannot be read ({reason}); give a YAML file of corpora") from error
    if not isinstance(given, dict) or not given:
        raise UserError(f"{place} holds no corpora; write NAME: {{train: FILE}}, one for each")
    for name, corpus in given.items():
        wrong = sorted(map(str, set(corpus) - set(KEYS))) if isinstance(corpus, dict) else []
        if wrong:
            raise UserError(f"{place}: {name} has the key {wrong[0]}; a corpus takes {', '.join(KEYS)}")
        if not isinstance(corpus, dict) or ("train" in corpus) == ("path" in corpus):
            raise UserError(f"{place}: {name} needs train: FILE, or path: FOLDER of a data set; give one of them")
        if "train" in corpus and (lost := [key for key in ("name", "split") if key in corpus]):
            raise UserError(
                f"{place}: {name} has {lost[0]}:, which chooses a part of a data set of path:; leave it out, or give "
                "path: instead of train:"
            )
        for key, value in corpus.items():
            if not is_given_as(key, value):
                raise UserError(
                    f"{place}: {name} has {key}: {json.dumps(value, default=str)}, which is not a {KINDS[key]}"
                )
    return {str(name): corpus for name, corpus in given.items()}
