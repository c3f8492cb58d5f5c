"""Mixtures: how often the pairs of each corpus occur in an epoch, and where."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from configs import built, compose_train, composed

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.mixture import MixtureCorpus
from seq2seq_attn.data.store import corpus_weights, pair_source, shard
from seq2seq_attn.errors import UserError
from seq2seq_attn.options import TRAIN, check_options
from seq2seq_attn.training.monitor import choose_monitor

COMMON: dict[str, Any] = {
    "val": None, "test": None, "source_language": "en", "target_language": "fr", "source_column": None,
    "target_column": None, "val_sentences": 5, "test_sentences": 5, "seed": 1,
}  # fmt: skip
SIZES = {"europarl": 100, "news": 60}


@pytest.fixture
def corpora(tmp_path: Path) -> dict[str, Any]:
    """Two corpora; ten pairs of the second are also in the first."""
    files = {}
    for name, size in SIZES.items():
        pairs = [(f"{name} {n}", f"{name} {n} fr") for n in range(size)]
        if name == "news":
            pairs[:10] = [(f"europarl {n}", f"europarl {n} fr") for n in range(10)]
        (tmp_path / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        files[name] = {"train": str(tmp_path / f"{name}.tsv")}
    return files


def mixture(corpora: Any, folder: Path, weights: dict[str, Any] | None = None, **changed: Any) -> LoadedCorpus:
    options = COMMON | {"cache_dir": str(folder / "cache")} | changed
    return MixtureCorpus(corpora=corpora, weights=weights or {}, cleaning=Cleaning(), **options).load()


def times(corpus: LoadedCorpus, name: str) -> Counter[int]:
    """How many sources of a corpus occur how often."""
    found = Counter(source for source in corpus.splits["train"].sources if source.startswith(name))
    return Counter(found.values())


def test_without_weights_it_is_the_files_one_after_another(corpora: Any, tmp_path: Path) -> None:
    weighed = mixture(corpora, tmp_path)
    files = [corpus["train"] for corpus in corpora.values()]
    cache = f"data.cache_dir={tmp_path / 'cache'}"
    plain = built(
        composed("data=parallel", f"data.train={files}", "data.val_sentences=5", "data.test_sentences=5", cache).data
    ).load()
    assert weighed.fingerprint == plain.fingerprint
    assert len(weighed.splits["train"]) == 140
    assert {split: list(weighed.splits[split].sources) for split in ("val", "test")} == {
        split: list(plain.splits[split].sources) for split in ("val", "test")
    }


def test_a_weight_is_how_often_its_pairs_occur_and_the_shares_are_told(
    corpora: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = mixture(corpora, tmp_path)
    once = {name: times(plain, name)[1] for name in SIZES}
    with caplog.at_level("INFO"):
        found = mixture(corpora, tmp_path, {"europarl": 3, "news": 0.5})
    assert times(found, "europarl") == {3: once["europarl"]}
    assert set(times(found, "news")) == {1}
    news = times(found, "news")[1]
    assert once["news"] / 4 < news < once["news"] * 3 / 4
    total = 3 * once["europarl"] + news
    share = f"(weight 3, {3 * once['europarl'] / total:.1%})"
    assert found.report.counts[f"all: pairs of europarl in an epoch {share}"] == 3 * once["europarl"]
    assert found.report.counts[f"all: pairs of news in an epoch (weight 0.5, {news / total:.1%})"] == news
    assert found.report.counts["all: dropped, duplicate"] == 10
    assert (
        f"An epoch has {total:,} pairs: {3 * once['europarl']:,} pairs of europarl {share}, {news:,} pairs of news"
    ) in caplog.text
    assert not {source for split in ("val", "test") for source in found.splits[split].sources} & set(
        found.splits["train"].sources
    )


def test_the_pairs_of_a_fraction_are_chosen_by_the_seed_and_occur_once_more(corpora: Any, tmp_path: Path) -> None:
    found = mixture(corpora, tmp_path, {"europarl": 2.5, "news": 0})
    assert set(times(found, "europarl")) == {2, 3}
    assert not times(found, "news")
    other = mixture(corpora, tmp_path, {"europarl": 0.5, "news": 0})
    seeds = [set(mixture(corpora, tmp_path, {"europarl": 0.5}, seed=seed).splits["train"].sources) for seed in (1, 2)]
    assert set(other.splits["train"].sources) <= seeds[0]
    assert len(seeds[0] ^ seeds[1]) > 20


def test_a_pair_that_a_weight_leaves_out_is_not_also_in_train(corpora: Any, tmp_path: Path) -> None:
    found = mixture(corpora, tmp_path, {"europarl": 0.5}, val=corpora["europarl"]["train"])
    shared = set(found.splits["val"].sources) & set(found.splits["train"].sources)
    assert 0 < len(shared) < 80
    assert found.report.counts["val: sources also in train"] == len(shared)


def test_the_copies_of_a_pair_are_in_different_shards(
    corpora: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_source, "CHUNK_LINES", 16)
    monkeypatch.setattr(shard, "BLOCK_ROWS", 4)
    monkeypatch.setattr(shard, "SHARD_ROWS", 70)
    split = mixture(corpora, tmp_path, {"europarl": 3}).splits["train"]
    shards = split.shards
    assert shards is not None
    assert len(shards) > 3
    sources = list(split.sources)
    starts = [sum(shards[:number]) for number in range(len(shards) + 1)]
    for first, last in pairwise(starts):
        assert max(Counter(sources[first:last]).values()) == 1


def test_a_yaml_file_names_the_corpora_and_one_may_be_a_data_set_with_columns_of_its_own(
    corpora: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    some = pa.table({"a": [f"set {n}" for n in range(20)], "b": [f"set {n} fr" for n in range(20)]})
    pq.write_table(some, folder / "train.parquet")
    pq.write_table(some, folder / "other.parquet")
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"news:\n  train: {corpora['news']['train']}\nset: {{path: {folder}, source_column: a, target_column: b}}\n"
    )
    found = mixture(str(file), tmp_path, {"set": 2})
    assert set(times(found, "set")) == {2}
    assert 10 <= times(found, "set")[2] <= 20


def test_what_is_not_a_mixture_is_one_sentence(corpora: Any, tmp_path: Path) -> None:
    def refused(given: Any, weights: dict[str, Any] | None = None) -> str:
        with pytest.raises(UserError) as error:
            mixture(given, tmp_path, weights)
        return str(error.value)

    assert refused(corpora, {"europral": 3}) == (
        "data.weights.europral is the weight of no corpus; there are europarl, news"
    )
    assert refused(None).startswith("data=mixture needs data.corpora=FILE.yaml or data.corpora={NAME: {train: FILE},")
    assert refused({"a": {"val": "x.tsv"}}) == (
        "data.corpora: a has the key val; a corpus takes train, path, name, split, source_column, target_column"
    )
    assert refused({"a": {}}).startswith("data.corpora: a needs train: FILE, or path: FOLDER of a data set")
    (tmp_path / "twice.yaml").write_text("a: {train: x.tsv}\nb: {train: y.tsv}\na: {train: z.tsv}\n")
    assert "twice.yaml cannot be read (the key a is given twice, again in line 3); " in refused(
        str(tmp_path / "twice.yaml")
    )
    assert refused({"a": {"train": 3}}) == "data.corpora: a has train: 3, which is not a file or list of files"
    assert refused({"a": {"train": "x.tsv", "split": "test"}}) == (
        "data.corpora: a has split:, which chooses a part of a data set of path:; leave it out, or give path: instead "
        "of train:"
    )
    assert "a has train: [], which" in refused({"a": {"train": []}})
    assert "a has path: null, which is not a folder" in refused({"a": {"path": None}})
    assert "a has source_column: [1], which is not a name" in refused({"a": {"train": "x.tsv", "source_column": [1]}})
    assert refused(corpora, {"europarl": 0, "news": 0}) == (
        "data.weights leaves no pair of europarl, news to train on; give larger weights"
    )
    assert "none.yaml cannot be read (No such file or directory)" in refused(str(tmp_path / "none.yaml"))
    (tmp_path / "bad.yaml").write_text("a: [")
    assert "bad.yaml cannot be read (while parsing a flow" in refused(str(tmp_path / "bad.yaml"))


def test_validation_pairs_have_the_usual_columns_whatever_those_of_a_corpus(corpora: Any, tmp_path: Path) -> None:
    corpora["europarl"] |= {"source_column": 2, "target_column": 1}
    (tmp_path / "val.tsv").write_text("a\ta fr\n")
    found = mixture(corpora, tmp_path, val=str(tmp_path / "val.tsv"), val_sentences=None)
    assert list(found.splits["val"].sources) == ["a"]
    assert any(source.endswith(" fr") for source in found.splits["train"].sources)


def test_columns_of_validation_tables_are_told_where_all_corpora_have_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "own.tsv").write_text("french\tenglish\nown fr\town\n")
    (tmp_path / "val.tsv").write_text("a\ta fr\n")
    own = {"train": str(tmp_path / "own.tsv"), "source_column": 2, "target_column": 1}
    mixture({"own": own}, tmp_path, val=str(tmp_path / "val.tsv"), val_sentences=None, test_sentences=0)
    assert [line.partition(" (")[0] for line in caplog.messages if "no header" in line] == [
        f"{tmp_path / 'val.tsv'} has no header; column 1 is read as the source and 2 as the target"
    ]


def test_validation_pairs_do_not_take_the_order_of_a_corpus_with_columns_of_its_own(
    corpora: Any, tmp_path: Path
) -> None:
    (tmp_path / "own.tsv").write_text("french\tenglish\nown fr\town\n")
    (tmp_path / "headed.tsv").write_text("fr\ten\nheaded fr\theaded\n")
    (tmp_path / "val.tsv").write_text("a\ta fr\n")
    own = {"train": str(tmp_path / "own.tsv"), "source_column": "english", "target_column": "french"}
    given = {"val": str(tmp_path / "val.tsv"), "val_sentences": None}
    assert list(mixture({"own": own} | corpora, tmp_path, **given).splits["val"].sources) == ["a"]
    headed = {"headed": {"train": str(tmp_path / "headed.tsv")}}  # without columns of its own, as before
    assert list(mixture({"own": own} | headed | corpora, tmp_path, **given).splits["val"].sources) == ["a fr"]


def test_a_corpus_may_be_a_split_of_a_data_set(corpora: Any, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for split in ("train", "extra"):
        table = pa.table({side: [f"{split} {n}{side}" for n in range(20)] for side in ("en", "fr")})
        pq.write_table(table, folder / f"{split}.parquet")
    for split, options in (("train", {}), ("extra", {"split": "extra"})):
        found = mixture({"set": {"path": str(folder)} | options}, tmp_path)
        assert {source.split()[0] for source in found.splits["train"].sources} == {split}


def test_a_corpus_may_be_a_part_of_a_data_set(tmp_path: Path) -> None:
    for part in ("old", "new"):
        (tmp_path / "set" / part).mkdir(parents=True)
        table = pa.table({side: [f"{part} {n}{side}" for n in range(20)] for side in ("en", "fr")})
        pq.write_table(table, tmp_path / "set" / part / "train.parquet")
    found = mixture({"set": {"path": str(tmp_path / "set"), "name": "new"}}, tmp_path)
    assert {source.split()[0] for source in found.splits["train"].sources} == {"new"}


def test_pairs_whose_links_are_given_are_those_of_all_corpora_whatever_their_weights(
    corpora: Any, tmp_path: Path
) -> None:
    options = COMMON | {"cache_dir": str(tmp_path / "cache")}
    corpus = MixtureCorpus(corpora=corpora, weights={"europarl": 0}, cleaning=Cleaning(), **options)
    pairs = [pair for chunk in corpus.training_pairs() for pair in chunk]
    assert len(pairs) == sum(SIZES.values())
    assert [pairs[0], pairs[-1]] == [("europarl 0", "europarl 0 fr"), ("news 59", "news 59 fr")]


def test_a_corpus_of_weight_0_is_not_read(corpora: Any, tmp_path: Path) -> None:
    file = Path(corpora["news"]["train"])
    file.write_text(file.read_text() + "alone\n")
    assert "rejected" in str(mixture(corpora, tmp_path).report.counts)
    file.unlink()
    assert "rejected" not in str(mixture(corpora, tmp_path, {"news": 0}).report.counts)


def test_a_temperature_gives_shares_by_the_root_of_the_pairs_that_are_trained_on(corpora: Any, tmp_path: Path) -> None:
    plain = mixture(corpora, tmp_path)
    once = {name: times(plain, name)[1] for name in SIZES}  # after cleaning, without duplicates and held-out pairs
    found = mixture(corpora, tmp_path, temperature=2.0)
    assert times(found, "europarl") == {1: once["europarl"]}
    news = sum(copies * sources for copies, sources in times(found, "news").items())
    assert news == pytest.approx((once["news"] * once["europarl"]) ** 0.5, rel=0.2)
    weight = (once["news"] / once["europarl"]) ** -0.5
    assert any(f"pairs of news in an epoch (weight {weight:g}, " in count for count in found.report.counts)


def test_a_temperature_leaves_given_weights_and_is_another_mixture(corpora: Any, tmp_path: Path) -> None:
    assert mixture(corpora, tmp_path, {"news": 1}, temperature=5).fingerprint == mixture(corpora, tmp_path).fingerprint
    assert set(times(mixture(corpora, tmp_path, {"news": 3}, temperature=5), "news")) == {3}
    assert mixture(corpora, tmp_path, temperature=5).fingerprint != mixture(corpora, tmp_path).fingerprint
    assert len(list((tmp_path / "cache" / "corpora").glob("*/corpus.json"))) == 4
    assert mixture(corpora, tmp_path, temperature=1).fingerprint == mixture(corpora, tmp_path).fingerprint
    assert len(list((tmp_path / "cache" / "corpora").glob("*/corpus.json"))) == 4


def test_the_weight_of_a_tiny_corpus_is_bounded() -> None:
    weights = corpus_weights.Mixture({"own": 0.5}, seed=1, temperature=1e9).weights_of(
        {"own": 5, "large": 10_000_000, "tiny": 3, "none": 0}
    )
    assert weights == {"own": 0.5, "large": 1.0, "tiny": 1000, "none": 1000}


def test_a_weight_of_1_is_no_weight(corpora: Any, tmp_path: Path) -> None:
    plain = mixture(corpora, tmp_path)
    given = mixture(corpora, tmp_path, {"europarl": 1, "news": 1.0})
    assert given.fingerprint == plain.fingerprint
    assert len(list((tmp_path / "cache" / "corpora").glob("*/corpus.json"))) == 1


def test_weights_of_any_name_compose_and_are_numbers() -> None:
    compose = partial(
        composed, "data=mixture", "data.corpora={a:{train:[x.en,x.fr]},b:{train:y.tsv}}", "paths.run_dir=x"
    )
    given = [f"choices.{name}=null" for name in ("attention", "model", "data")]
    config = compose("data.weights.a=3", "data.weights.b=0.5", *given)
    choose_monitor(config)
    check_options(config, TRAIN)
    assert config.data.weights == {"a": 3, "b": 0.5}
    with pytest.raises(UserError, match=r"^data.weights.a=much must be float \| int in \[0, 1000\]"):
        check_options(compose("data.weights.a=much"), {"data": TRAIN["data"]})
    with pytest.raises(UserError, match=r"^data.temperature=0.5 must be .* in \[1, inf\)"):
        check_options(compose("data.temperature=0.5"), {"data": TRAIN["data"]})


def test_a_corpus_may_be_pairs_of_files_and_may_undo_a_column_that_all_have(corpora: Any, tmp_path: Path) -> None:
    for name, text in (("x.en", "a\nb\n"), ("x.fr", "c\nd\n")):
        (tmp_path / name).write_text(text)
    pairs = {"files": {"train": [[str(tmp_path / "x.en"), str(tmp_path / "x.fr")]]}}
    undone = {"news": {**corpora["news"], "source_column": None, "target_column": None}}
    assert len(mixture(pairs | undone, tmp_path).splits["train"]) >= 2
    (tmp_path / "odd.yaml").write_text("{{name}}: {train: x.tsv}\n")
    with pytest.raises(UserError, match=r"odd\.yaml cannot be read \("):
        mixture(str(tmp_path / "odd.yaml"), tmp_path)


def test_a_corpus_that_gives_no_pair_is_warned_of(
    corpora: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    again = corpora | {"again": corpora["news"], "never": corpora["news"]}
    mixture(again, tmp_path, {"again": 2, "never": 0, "news": 1e-9})
    warned = [message for message in caplog.messages if "gives no pair" in message]
    assert warned == [
        f"The corpus {name} gives no pair to train on: cleaning drops all of its pairs, an earlier corpus has them, "
        "too, or its weight leaves none"
        for name in ("news", "again")
    ]


def test_names_of_corpora_may_be_years(corpora: Any, tmp_path: Path) -> None:
    config = compose_train(
        "data=mixture",
        f"data.corpora={{2019:{{train:{corpora['europarl']['train']}}},2020:{{train:{corpora['news']['train']}}}}}",
        "data.weights={2019:2}",
        f"data.cache_dir={tmp_path / 'cache'}",
    )
    check_options(config, {"data": TRAIN["data"]})
    found = built(config.data).load()
    assert set(times(found, "europarl")) == {2}
    assert set(times(found, "news")) == {1}


def test_a_corpus_of_weight_0_is_as_if_it_were_not_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = {"old": "a\tA\nb\tB\n", "new": "a\tA\nd\tD\n", "val": "b\tX\nc\tY\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    named = {name: {"train": str(tmp_path / f"{name}.tsv")} for name in ("old", "new")}
    given = {"val": str(tmp_path / "val.tsv"), "test": str(tmp_path / "val.tsv")}
    loaded = mixture(named, tmp_path / "cache", {"old": 0}, **given)
    assert sorted(loaded.splits["train"].sources) == ["a", "d"]
    assert "are also in train" not in caplog.text


def test_names_in_a_yaml_file_are_text_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tA\nb\tB\n", encoding="utf-8")
    (tmp_path / "corpora.yaml").write_text(f"no:\n  train: {tmp_path / 'a.tsv'}\n", encoding="utf-8")
    whole = {"val_sentences": 0, "test_sentences": 0}
    loaded = mixture(str(tmp_path / "corpora.yaml"), tmp_path / "cache", {"no": 2}, **whole)
    assert len(loaded.splits["train"]) == 4
