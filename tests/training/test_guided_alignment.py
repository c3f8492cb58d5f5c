"""Guided alignment: a planted alignment is learned, runs resume exactly, and what cannot be guided is refused."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from configs import built, compose_train, composed
from sentencepiece import SentencePieceTrainer
from small_run import assert_same_run, rows, run_here, stopped_and_resumed
from tiny import SENTENCES, tokenizer, write_checkpoint
from training.test_toy_tasks import make_batch, model_for, sentences

from seq2seq_attn.alignment.forced_attention import attention_along
from seq2seq_attn.alignment.word_alignment import Extraction, Link, word_links
from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.checkpoint.load import load
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import CleaningReport, LoadedCorpus, Split
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.data.word_links import WordLinks
from seq2seq_attn.errors import UserError
from seq2seq_attn.options import TRAIN, check_options
from seq2seq_attn.training import aligned_links, guided_alignment
from seq2seq_attn.training.aligned_links import Aligner, View, agreeing_views, attention_links, batches, load_aligner
from seq2seq_attn.training.build import build
from seq2seq_attn.training.guided_alignment import GuidedAlignment
from seq2seq_attn.training.translation_module import TranslationModule

pytestmark = pytest.mark.usefixtures("quiet")


def reversed_links(batch: Any) -> torch.Tensor:
    """The alignment of a reversed sentence."""
    links = torch.zeros(len(batch), batch.target_output.shape[1], batch.source.shape[1], dtype=torch.bool)
    for row, length in enumerate((batch.source_lengths - 1).tolist()):
        for word in range(length):
            links[row, length - 1 - word, word] = True
    return links


@pytest.mark.parametrize(
    ("name", "overrides", "layer", "head"),
    [
        ("transformer", ["cross_attention.num_heads=2"], 0, 1),
        pytest.param("rnn", ["attention=bahdanau"], 0, 0, marks=pytest.mark.slow),
        pytest.param("conv", ["attention=sparsemax"], 1, 0, marks=pytest.mark.slow),
    ],
)
def test_a_guided_head_learns_a_planted_alignment(name: str, overrides: list[str], layer: int, head: int) -> None:
    small = [f"model.{part}=24" for part in ("embedding_dim", "encoder.dim", "decoder.dim")]
    model, generator = model_for(name, *small, *overrides), torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(160):
        batch = make_batch("reverse", *sentences(32, generator, 5))
        guide = Guide(layer, head, reversed_links(batch))
        decoded = model(batch.source, batch.source_mask, batch.target_input, guide=guide)
        loss = decoded.alignment_loss.sum() / guide.links.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    batch = make_batch("reverse", *sentences(200, generator, 5))
    links = reversed_links(batch)
    weights = model.eval()(batch.source, batch.source_mask, batch.target_input, need_weights=True).weights
    found = weights[f"cross/{layer}"][:, head].argmax(-1)
    linked = links.any(-1)
    assert (found == links.float().argmax(-1))[linked].float().mean() > 0.95


def test_links_are_shifted_to_the_step_that_reads_a_token_and_unlinked_ones_go_to_the_end() -> None:
    model, tokens = model_for("transformer"), torch.tensor([[5, 6, 7], [5, 6, 7], [5, 6, 7]])
    batch = make_batch("copy", tokens, torch.tensor([3, 2, 3]))  # the last pair has no links
    links = torch.zeros(3, 4, 4, dtype=torch.bool)
    links[0, 0, 1] = links[0, 2, 0] = links[1, 1, 1] = True
    batch = dataclasses.replace(batch, links=links)
    assert torch.equal(guided().guide(model, batch).links, links)
    to_end = links.clone()
    to_end[0, 1, 3] = to_end[1, 0, 2] = True
    assert torch.equal(guided(unlinked="end").guide(model, batch).links, to_end)
    for options, expected in (({}, links), ({"unlinked": "end"}, to_end)):
        found = guided(shift=True, **options).guide(model, batch).links
        assert torch.equal(found[:, 1:], expected[:, :-1])
        assert not found[:, 0].any()


def test_links_of_the_step_that_reads_a_token_need_a_query_that_knows_it() -> None:
    with pytest.raises(UserError, match=r"^guided_alignment.shift=true guides .*; use decoder@model.decoder=rnn_con"):
        guided(shift=True).check(model_for("rnn"))
    guided().check(model_for("rnn"))
    for decoder in ("rnn_conditional", "rnn_luong"):
        guided(shift=True).check(model_for("rnn", f"decoder@model.decoder={decoder}"))
    for model in ("transformer", "conv"):
        guided(shift=True).check(model_for(model))


@pytest.fixture(scope="session")
def links_file(pairs: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Links of the training pairs of `pairs`, whose targets name the first and the last word of their sources."""
    train = Path(pairs[0].partition("=")[2])
    lengths = [len(line.split("\t")[0].split()) for line in train.read_text(encoding="utf-8").splitlines()]
    file = tmp_path_factory.mktemp("links") / "train.links"
    file.write_text("".join(f"0-4 {length - 1}-6\n" for length in lengths), encoding="utf-8")
    return f"guided_alignment.links={file}"


@pytest.mark.slow  # without a guide: checkpoint/test_resume.py
def test_a_guided_run_that_died_and_was_resumed_is_the_run_that_never_died(
    tmp_path: Path, pairs: list[str], links_file: str
) -> None:
    # segmentations are sampled, attention draws, and an update has two batches that were read twice
    options = [*pairs, links_file, "guided_alignment.weight=1", "callback.autosave.every_steps=2", "r_drop_alpha=1.0"]
    options += ["attention.normalizer.soft_probability=0.5"]  # as in its paper, which learns in fewer updates
    options += ["trainer.accumulate_grad_batches=2", "trainer.max_steps=8"]
    run_here(tmp_path / "whole", *options)
    assert stopped_and_resumed(tmp_path / "stopped", options, ("backward", 3)) == [0, 2]
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    losses = [float(row["train/alignment_loss"]) for row in rows(tmp_path / "whole") if row.get("train/alignment_loss")]
    assert len(losses) > 4
    assert sum(losses[-3:]) < sum(losses[:3])
    assert all(row.get("val/alignment_loss", "") == "" for row in rows(tmp_path / "whole"))  # its pairs have no links


def corpus_of(sources: list[str], targets: list[str]) -> LoadedCorpus:
    cut = len(sources) - 4
    splits = {
        "train": Split(sources[:cut], targets[:cut], [[target] for target in targets[:cut]]),
        "val": Split(sources[cut:], targets[cut:], [[target] for target in targets[cut:]]),
        "test": Split(sources[:2], targets[:2], [[target] for target in targets[:2]]),
    }
    return LoadedCorpus(splits, CleaningReport({}), "en", "fr")


def guided(**options: Any) -> GuidedAlignment:
    return GuidedAlignment(**{"links": None, "weight": 0.05, "layer": None, "head": 0} | options)


def of_rows(links: WordLinks) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = [[] for _ in range(len(links))]
    for row, source, target in zip(*links.of(np.arange(len(links))), strict=True):
        found[row].append((int(source), int(target)))
    return found


def test_eflomal_links_training_and_validation_pairs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def align(sources: list[list[str]], targets: list[list[str]]) -> Any:
        calls.append(len(sources))
        forward = [[(len(words) - 1 - at, at) for at in range(len(words))] for words in sources]
        return forward, forward

    monkeypatch.setattr(aligned_links, "align_words", align)
    corpus = corpus_of(SENTENCES[:20], SENTENCES[:20])
    reader: Any = built(composed().data)
    for _ in range(2):
        links = guided(links="eflomal").prepare(reader, corpus, str(tmp_path))
        assert set(links) == {"train", "val"}
        for name, of_split in links.items():
            words = [len(text.split()) for text in corpus.splits[name].sources]
            assert of_rows(of_split) == [[(n - 1 - at, at) for at in range(n)] for n in words]
            assert of_split.words.tolist() == [[n, n] for n in words]
    assert calls == [20]
    guided(links="eflomal", symmetrization="union").prepare(reader, corpus, str(tmp_path))
    guided(links="eflomal").prepare(reader, corpus_of(SENTENCES[1:21], SENTENCES[1:21]), str(tmp_path))
    assert calls == [20] * 3
    expected = of_rows(links["train"])
    for number, (name, size) in enumerate((("links", 200), ("words", 0), ("offsets", None)), start=4):
        file = links["train"].folder / f"{name}.npy"
        whole = file.read_bytes()
        file.unlink() if size is None else file.write_bytes(whole[:size])
        again = guided(links="eflomal").prepare(reader, corpus, str(tmp_path))
        assert calls == [20] * number
        assert of_rows(again["train"]) == expected
        assert file.read_bytes() == whole
    monkeypatch.setattr("seq2seq_attn.training.guided_alignment.locked", None)  # as where nothing can be written
    assert set(guided(links="eflomal").prepare(reader, corpus, str(tmp_path))) == {"train", "val"}


def test_links_of_a_file_or_a_run_that_has_changed_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, file = corpus_of(SENTENCES[:20], SENTENCES[:20]), tmp_path / "train.links"
    reader: Any = built(composed().data)
    some = guided(links="eflomal", symmetrization="union").prepare  # any links that are there
    monkeypatch.setattr(aligned_links, "align_words", lambda sources, _: ([[(0, 0)]] * len(sources),) * 2)
    links, made = some(reader, corpus, str(tmp_path)), []
    monkeypatch.setattr(GuidedAlignment, "_make", lambda *_: made.append(1))
    monkeypatch.setattr(guided_alignment, "prepared_links", lambda *_: links)
    for number, content in enumerate(("0-0", "1-0"), start=1):
        file.write_text(f"{content}\n" * 16)
        for _ in range(2):
            guided(links=str(file)).prepare(reader, corpus, str(tmp_path))
            assert len(made) == number
    runs = [run_of(tmp_path, name) for name in ("forward", "reverse")]
    for number, scale in enumerate((1.5, 0.5), start=3):
        write_checkpoint(Path(runs[1]), scale=scale)
        for _ in range(2):
            guided(links="self", runs=runs).prepare(reader, corpus, str(tmp_path))
            assert len(made) == number


def test_links_of_a_file_belong_to_the_lines_of_the_training_file_as_it_is(tmp_path: Path) -> None:
    train, links = tmp_path / "train.tsv", tmp_path / "train.links"
    lines = [f"a {n}\tb {n}\n" for n in range(9)]
    links.write_text("0-0\n" * len(lines), encoding="utf-8")
    fingerprints = set()

    def prepare() -> None:
        config = compose_train(
            "data=parallel", f"data.train={train}", "data.val_sentences=0", "data.test_sentences=0",
            f"paths.cache_dir={tmp_path}",
        )  # fmt: skip
        reader: Any = built(config.data)
        corpus = reader.load()
        fingerprints.add(corpus.fingerprint)
        assert guided(links=str(links)).prepare(reader, corpus, str(tmp_path))["train"].num_linked == len(lines)

    train.write_text("".join(lines), encoding="utf-8")
    prepare()
    train.write_text("".join([*lines[:4], "\tno source\n", *lines[4:]]), encoding="utf-8")
    with pytest.raises(UserError, match=r"train.links has 9 lines, and the training files have 10 pairs"):
        prepare()
    assert len(fingerprints) == 1  # cleaning drops the line


@pytest.mark.parametrize(
    "options",
    [
        ("data=demo", "data.path={folder}"),
        ("data=tatoeba", "data.path={folder}/train.tsv"),
        ("data=multi30k", "data.path={folder}"),
        ("data=parallel", "data.train={folder}/train.tsv"),
        ("data=mixture", "data.corpora={{one: {{train: {folder}/train.tsv}}}}"),
    ],
)
def test_each_reader_with_training_files_notices_other_ones(options: tuple[str, str], tmp_path: Path) -> None:
    def identity(content: str) -> list[Any]:
        for name in ("train.tsv", "train.en", "train.fr"):
            (tmp_path / name).write_text(content, encoding="utf-8")
            os.utime(tmp_path / name, (0, 0))
        reader: Any = built(compose_train(*(option.format(folder=tmp_path) for option in options)).data)
        return reader.training_identity()

    before = identity("a\tb\n")
    assert identity("a\tb\n") == before
    assert identity("a\tb\nc\td\n") != before


def run_of(folder: Path, name: str, *overrides: str) -> str:
    (folder / name).mkdir()
    return str(write_checkpoint(folder / name / "best.ckpt", *overrides, scale=1.5))


@pytest.mark.slow
@pytest.mark.parametrize(
    "views",
    [(View(0, False), View(1, True)), pytest.param((View(None, True), View(None, False)), marks=pytest.mark.slow)],
)
def test_two_runs_link_words_by_the_mean_of_their_heads(
    tmp_path: Path, views: tuple[View, View], monkeypatch: pytest.MonkeyPatch
) -> None:
    transformer = ["model=transformer", "model.encoder.num_layers=1", "model.decoder.num_layers=2"]
    transformer.append("cross_attention.num_heads=2")
    runs = [run_of(tmp_path, name, *transformer) for name in ("forward", "reverse")]
    sources, targets = ([text.split() for text in side] for side in (SENTENCES[:30], SENTENCES[10:40]))
    aligners = [Aligner(load(run).model, tokenizer(), Cleaning()) for run in runs]
    monkeypatch.setattr(aligned_links, "agreeing_views", lambda *_: views)
    found = attention_links(aligners[0], aligners[1], sources, targets, "intersection")
    for source, target, links in zip(sources, targets, found, strict=True):
        directions = []
        for aligner, view, sides in zip(aligners, views, ((source, target), (target, source)), strict=True):
            ids = [tokenizer().source_model.encode(" ".join(words)) for words in sides]
            maps = attention_along(aligner.model, aligner.tokenizer, *ids)
            cross = {one.slot: one for one in maps if one.slot.startswith("cross/")}
            layers = cross if view.layer is None else [f"cross/{view.layer}"]
            weights = np.concatenate([cross[layer].weights for layer in layers])
            one = cross["cross/0"]
            directions.append(word_links(weights, one.columns, one.rows, Extraction(shift=view.shift)))
        reverse_links = {link[::-1] for link in directions[1]}
        assert set(links) == set(directions[0]) & reverse_links


def test_the_weights_are_chosen_by_which_two_runs_agree_most(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    both = [(0, 1), (1, 0), (2, 2)]
    turned = [link[::-1] for link in both]
    of_forward = {View(0, False): [(0, 0), (1, 1), (2, 2)], View(1, False): both, View(None, True): []}
    of_reverse = {
        View(0, False): [(0, 0)],
        View(0, True): turned[:2],
        View(1, False): [*turned, (3, 3), (3, 4), (4, 3)],
    }
    forward, reverse = (Aligner(model_for("transformer"), tokenizer(), Cleaning()) for _ in range(2))

    def given(aligner: Aligner) -> dict[View, list[Link]]:
        return of_forward if aligner is forward else of_reverse

    monkeypatch.setattr(Aligner, "views", lambda aligner: list(given(aligner)))
    monkeypatch.setattr(
        Aligner, "links", lambda aligner, sources, _, views: [[given(aligner)[view]] * len(sources) for view in views]
    )
    words = [["a", "b", "c", "d", "e"]] * 3
    with caplog.at_level("INFO"):
        assert agreeing_views(forward, reverse, words, words) == (View(1, False), View(0, True))  # 4 / 5; others 6 / 9
    assert "agree most, on 80% of their links, by layer 1 in the step that writes a word, and by layer 0" in caplog.text


def test_each_layer_and_all_together_can_align_in_both_steps(tmp_path: Path) -> None:
    two = ["model=transformer", "model.encoder.num_layers=1", "model.decoder.num_layers=2"]
    views = load_aligner(Path(run_of(tmp_path, "two", *two)), ("en", "fr")).views()
    assert views == [View(layer, shift) for layer in (0, 1, None) for shift in (False, True)]
    rnn = load_aligner(Path(run_of(tmp_path, "rnn", "model=rnn")), ("en", "fr")).views()
    assert rnn == [View(0, False), View(0, True)]


def test_the_longest_pairs_are_read_first_and_no_batch_is_larger_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned_links, "BATCH_WORDS", 12)
    words = [["a"] * length for length in (3, 0, 13, 5, 6, 1)]
    assert list(batches(words, [["a"]] * 6)) == [[2], [4, 3], [0, 5, 1]]
    assert list(batches([], [])) == []


def test_a_run_reads_words_as_it_normalises_its_own(tmp_path: Path) -> None:
    run = run_of(tmp_path, "run", "model=transformer", "data.cleaning.lowercase=true")
    aligner = load_aligner(Path(run), ("en", "fr"))
    lower = [text.split() for text in SENTENCES[:10]]
    upper = [[word.upper() for word in words] for words in lower]
    assert upper != lower
    (links,) = aligner.links(lower, lower, [View(0, False)])
    assert len({source for of_pair in links for source, _ in of_pair}) > 1
    assert aligner.links(upper, upper, [View(0, False)]) == [links]


def test_runs_of_the_wrong_direction_are_refused(tmp_path: Path) -> None:
    run, corpus = run_of(tmp_path, "run"), corpus_of(SENTENCES[:20], SENTENCES[:20])
    reader: Any = built(composed().data)
    state = torch.get_rng_state()
    with pytest.raises(UserError, match=r"best.ckpt translates from en to fr, and must translate from fr to en"):
        guided(links="self", runs=[run, run]).prepare(reader, corpus, str(tmp_path))
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(UserError, match=r"links=self needs guided_alignment.runs=\[FORWARD,REVERSE\], a trained run"):
        guided(links="self").prepare(reader, corpus, str(tmp_path))


def test_a_run_without_weights_to_a_source_cannot_align(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"best.ckpt has no attention to a source whose weights could align words; "):
        load_aligner(Path(run_of(tmp_path, "lm", "model=lm")), ("en", "fr"))


def test_the_last_layer_but_one_is_guided_unless_another_is_chosen() -> None:
    model = model_for("transformer", "model.decoder.num_layers=3")
    assert guided().chosen_layer(model) == 1
    assert guided(layer=2).chosen_layer(model) == 2


def test_links_of_two_runs_are_made_once_whatever_they_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_for("transformer", "model.decoder.num_layers=3")
    loaded, calls = [], []

    def load_run(file: str, trust: Any) -> Any:
        loaded.append(trust)
        data = dict(
            zip(("source_language", "target_language"), ("en", "fr")[:: 1 if len(loaded) % 2 else -1], strict=True)
        )
        cleaning = {"_target_": "seq2seq_attn.data.cleaning.Cleaning"}
        return SimpleNamespace(config={"data": data | {"cleaning": cleaning}}, model=model, tokenizer=tokenizer())

    def align(forward: Aligner, reverse: Aligner, sources: list[Any], *_: Any) -> Any:
        calls.append(len(sources))
        return [[(0, 0)] for _ in sources]

    monkeypatch.setattr(aligned_links, "load", load_run)
    monkeypatch.setattr(aligned_links, "attention_links", align)
    run, corpus, reader = run_of(tmp_path, "run"), corpus_of(SENTENCES[:20], SENTENCES[:20]), built(composed().data)
    links = guided(links="self", runs=[run, run], layer=0).prepare(reader, corpus, str(tmp_path), ["mine"])
    assert loaded == [["mine"], ["mine"]]
    assert links["train"].num_linked == 16
    guided(links="self", runs=[run, run], shift=True).prepare(reader, corpus, str(tmp_path))
    assert calls == [20]


def test_links_of_no_training_pair_are_refused(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Path(pairs[0].partition("=")[2])
    (tmp_path / "none").write_text("\n" * len(train.read_text("utf-8").splitlines()), encoding="utf-8")
    with pytest.raises(UserError, match=r"^guided_alignment.links=.*/none links no word of a training pair; give "):
        built_with(pairs, f"guided_alignment.links={tmp_path / 'none'}", f"paths.cache_dir={tmp_path}")
    monkeypatch.setattr(aligned_links, "align_words", lambda sources, _: ([[]] * len(sources), [[]] * len(sources)))
    corpus, reader = corpus_of(SENTENCES[:20], SENTENCES[:20]), built(composed().data)
    with pytest.raises(UserError, match=r"^guided_alignment.links=eflomal links no word of a training pair"):
        guided(links="eflomal").prepare(reader, corpus, str(tmp_path))


def test_an_unknown_symmetrization_is_refused_before_the_data_are_read() -> None:
    config = compose_train("guided_alignment.symmetrization=gdfa", "paths.run_dir=none")
    with pytest.raises(UserError, match=r"^guided_alignment.symmetrization=gdfa .* or grow-diag-final-and; "):
        check_options(config, TRAIN)


def test_a_head_of_the_error_rate_that_is_not_there_is_refused_before_training(
    pairs: list[str], tmp_path: Path
) -> None:
    (tmp_path / "gold").write_text("a ||| b  0-0\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"^metric.aer.head=7 does not exist; choose from 0 to 0$"):
        built_with(pairs, "metric=[bleu,aer]", f"metric.aer.gold={tmp_path / 'gold'}", "metric.aer.head=7")


def test_a_gold_pair_of_too_many_tokens_is_refused_before_training(pairs: list[str], tmp_path: Path) -> None:
    (tmp_path / "gold").write_text(f"{'a ' * 50} ||| b  0-0\n", encoding="utf-8")
    options = "model=transformer", "attention.num_heads=1", "cross_attention.num_heads=1", "position=learned"
    with pytest.raises(
        UserError, match=r"gold, line 1: a pair of \d+ tokens, and the model has positions for 40; leave"
    ):
        built_with(
            pairs, "metric=[bleu,aer]", f"metric.aer.gold={tmp_path / 'gold'}", "position.max_length=40", *options
        )


NO_DROPOUT = [f"model.{part}dropout=0.0" for part in ("", "encoder.", "decoder.")]
REFUSED = [
    (["guided_alignment.links=no_file"], r"^guided_alignment.links=no_file does not exist; give a file of links"),
    (["guided_alignment.links=x", "guided_alignment.layer=1"], r"^guided_alignment.layer=1 is no layer of a decoder"),
    (["guided_alignment.links=x", "guided_alignment.head=2"], r"^guided_alignment.head=2 is no head of a layer with 1"),
    (["guided_alignment.links=x", "attention=top_k"], r"those of TopKNormalizer are not; use attention=multihead"),
    (["guided_alignment.links=x", "attention=linear"], r"^KernelAttention computes its context without weights"),
    (["guided_alignment.links=x", "attention=delta"], r"^DeltaAttention computes its context without weights"),
]


def built_with(pairs: list[str], *overrides: str) -> tuple[Any, TranslationDataModule]:
    small = ["data=parallel", "tokenizer.vocab_size=40", *(f"model.{p}=16" for p in ("encoder.dim", "decoder.dim"))]
    small += ["paths.run_dir=none", *(f"choices.{name}=null" for name in ("attention", "model", "data"))]
    return build(compose_train(*small, *pairs, "model.embedding_dim=16", *overrides))


@pytest.mark.parametrize(("overrides", "sentence"), REFUSED)
def test_what_cannot_be_guided_is_refused_before_training(
    overrides: list[str], sentence: str, pairs: list[str]
) -> None:
    with pytest.raises(UserError, match=sentence):
        built_with(pairs, *overrides)


def test_a_tokenizer_whose_tokens_span_blanks_is_not_guided(pairs: list[str], links_file: str, tmp_path: Path) -> None:
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_prefix=str(tmp_path / "m"),
        split_by_whitespace=False,
        vocab_size=30,
        minloglevel=9,
    )
    with pytest.raises(UserError, match=r"^words cannot be linked with a tokenizer whose model has tokens that span b"):
        built_with(pairs, links_file, f"tokenizer.model={tmp_path / 'm.model'}")


def test_with_weight_0_nothing_is_read_and_no_batch_has_links(pairs: list[str], links_file: str) -> None:
    off = built_with(pairs, "guided_alignment.links=no_file", "guided_alignment.weight=0")[1]
    assert next(iter(off.train_dataloader())).links is None
    module, data = built_with(pairs, links_file)
    batch = next(iter(data.train_dataloader()))
    module.eval()
    (loss, decoded), (plain, without) = module.loss(batch), module.loss(next(iter(off.train_dataloader())))
    assert torch.equal(decoded.hidden, without.hidden)
    assert loss.tokens == plain.tokens
    assert decoded.alignment_loss.shape == batch.target_output.shape
    assert without.alignment_loss is None
    assert batch.links.any(-1).sum(1).tolist() == linked_tokens(data, batch)


def test_an_update_adds_the_weighted_loss_of_links_per_target_token(
    pairs: list[str], links_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, data = built_with(pairs, links_file, "guided_alignment.weight=0.3", *NO_DROPOUT)
    batch, logged = next(iter(data.train_dataloader())), {}
    monkeypatch.setattr(TranslationModule, "trainer", SimpleNamespace(accumulate_grad_batches=1))
    monkeypatch.setattr(module, "log", lambda name, value, **_: logged.update({name: float(value)}))
    mean = module.training_step(batch, 0)
    tokens = int(batch.target_mask.sum())
    torch.testing.assert_close(
        float(mean), logged["train/loss"] + 0.3 * logged["train/alignment_loss"], rtol=1e-6, atol=0
    )
    loss, decoded = module.loss(batch)
    torch.testing.assert_close(logged["train/loss"], float(loss.smoothed) / tokens, rtol=1e-6, atol=0)
    linked = decoded.alignment_loss[batch.links.any(-1)]
    assert not decoded.alignment_loss[~batch.links.any(-1)].any()
    torch.testing.assert_close(logged["train/alignment_loss"], float(linked.sum()) / tokens, rtol=1e-6, atol=0)


def test_the_loss_of_links_in_a_validation_is_of_that_validation(
    pairs: list[str], links_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, data = built_with(pairs, links_file, *NO_DROPOUT)
    batch, logged = next(iter(data.train_dataloader())), {}
    trainer: Any = SimpleNamespace(datamodule=SimpleNamespace(links={"val": None}), global_step=1)
    monkeypatch.setattr(TranslationModule, "trainer", trainer)
    monkeypatch.setattr(module, "log", lambda name, value, **_: logged.update({name: float(value)}))
    monkeypatch.setattr(module, "_log_scores", lambda stage: None)
    monkeypatch.setattr(module, "lower_rate", lambda: None)
    for value in (3.0, 5.0):
        module.alignment_loss.update(torch.full((4,), value))
        module.on_validation_epoch_end()
        assert logged["val/alignment_loss"] == value
    assert batch.links is not None


def linked_tokens(data: TranslationDataModule, batch: Any) -> list[int]:
    """How many tokens the fifth and the seventh target word of each pair have."""
    words = [data.corpus.splits["train"].targets[row].split() for row in batch.index.tolist()]
    return [sum(map(len, data.tokenizer.encode_target([text[4], text[6]]))) for text in words]


def test_other_links_than_before_are_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from data.test_word_links import stored

    corpus = corpus_of(SENTENCES[:20], SENTENCES[:20])
    states = []
    for number in range(2):
        links = stored(tmp_path / str(number), [[(0, number)]] * 16, [(3, 3)] * 16)
        module = TranslationDataModule(
            corpus, tokenizer(), batch_tokens=400, seed=1, cache_dir=str(tmp_path), links={"train": links}
        )
        states.append({"epoch": 1, "batch": 0, "links": links.digest})
        with caplog.at_level(logging.WARNING):
            module.load_state_dict(states[-1])
            assert not caplog.messages
            module.load_state_dict(states[0])
        assert bool(caplog.messages) == (number == 1)
