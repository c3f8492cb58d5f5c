"""translate.py: one line out for each line in, in order, in bounded memory, whatever stands in a line."""

from __future__ import annotations

import gzip
import io
import os
import pty
import re
import select
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from configs import CONF
from hydra import compose, initialize_config_dir
from sentencepiece import sentencepiece_model_pb2
from tiny import SENTENCES, of_text, write_checkpoint

from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.forced_attention import SlotMap, marked_words
from seq2seq_attn.alignment.word_alignment import Extraction, Link, from_pharaoh, word_of_each
from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.checkpoint.published import write_published
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference import line_answers
from seq2seq_attn.inference import translator as translator_module
from seq2seq_attn.inference.engine import TorchEngine
from seq2seq_attn.inference.line_answers import best_links
from seq2seq_attn.inference.lines import Line
from seq2seq_attn.inference.output import TranslationFiles, save_maps
from seq2seq_attn.inference.translator import Translation, Translator
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

with warnings.catch_warnings():
    # OmegaConf's DictConfig, in our annotations, derives from names of `typing` that are deprecated.
    warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
    from seq2seq_attn.inference.translate import WRITTEN, interact, translate

BEAM = ["search=beam", "search.beam_size=3", "search.num_best=3", "search.limits.max_length=6"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    layers = [f"model.{side}.num_layers=1" for side in ("encoder", "decoder")]
    file = tmp_path_factory.mktemp("tiny") / "transformer.ckpt"
    return write_checkpoint(file, "model=transformer", *layers, scale=1.5)


def run(folder: Path, checkpoint: Path, content: bytes, *overrides: str) -> list[str]:
    """The lines of the output; the input is `in.txt`, so warnings have a name to say."""
    (folder / "in.txt").write_bytes(content)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        files = [f"input={folder / 'in.txt'}", f"output={folder / 'out.txt'}"]
        translate(compose("translate", [f"ckpt_path={checkpoint}", "device=cpu", *files, *overrides]))
    said = (folder / "out.txt").read_bytes().decode()
    assert said.endswith("\n")
    return said.removesuffix("\n").split("\n")


def text_of(sentences: Sequence[str]) -> bytes:
    return "".join(f"{sentence}\n" for sentence in sentences).encode()


def test_windows_and_batches_change_nothing(file: Path, tmp_path: Path) -> None:
    content = text_of(SENTENCES[:15])
    expected = run(tmp_path, file, content, *BEAM)
    assert len(set(expected)) > 5
    for limits in (["batch_sentences=3", "read_ahead=2"], ["batch_tokens=40", "read_ahead=1"]):
        assert run(tmp_path, file, content, *BEAM, *limits) == expected


def test_the_number_of_processes_is_that_of_the_option(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class NoWorkers:
        def __init__(self, processes: int, **options: Any) -> None:
            made.append(processes)
            raise UserError("no process is started here")

    monkeypatch.setattr("seq2seq_attn.inference.process_engine.Workers", NoWorkers)
    with pytest.raises(UserError, match="no process"):
        run(tmp_path, file, text_of(SENTENCES[:3]), "batch_sentences=2", "num_processes=5")
    assert made == [5]


def test_words_are_not_linked_by_tokens_that_span_blanks(file: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(file)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(checkpoint["tokenizer"]["source_model"].numpy().tobytes())
    proto.trainer_spec.split_by_whitespace = False
    changed = torch.frombuffer(bytearray(proto.SerializeToString()), dtype=torch.uint8)
    checkpoint["tokenizer"] |= {"source_model": changed, "target_model": changed}
    torch.save(checkpoint, tmp_path / "a.ckpt")
    for option in (f"alignments={tmp_path / 'links'}", "placeholders=true"):
        with pytest.raises(UserError, match="words cannot be linked with a tokenizer whose model has tokens that span"):
            run(tmp_path, tmp_path / "a.ckpt", text_of(SENTENCES[:1]), option)
    assert len(run(tmp_path, tmp_path / "a.ckpt", text_of(SENTENCES[:1]))) == 1


def test_one_line_comes_out_for_each_line_and_what_was_changed_names_the_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = [SENTENCES[0].encode(), b"", b"the\x00cat", b"caf\xe9", b"the cat " * 40, b"\r", b"\xff\xfe\x00", b" "]
    found = run(tmp_path, file, b"\n".join(odd), "max_source_tokens=11", "batch_sentences=2", "read_ahead=1")
    assert len(found) == len(odd)
    assert [bool(line) for line in found] == [True, False, True, True, True, False, True, False]
    name, said = tmp_path / "in.txt", of_text(capsys.readouterr().err.splitlines())
    assert said == [
        f"{name}, line 3: control characters are replaced by blanks",
        f"{name}, line 4: not UTF-8; what cannot be read is replaced",
        f"{name}, line 5: cut from 80 to 11 tokens, the most that max_source_tokens allows",
        f"{name}, line 7: not UTF-8; what cannot be read is replaced",
        f"{name}, line 7: control characters are replaced by blanks",
    ]


def test_the_n_best_list_is_in_the_form_of_moses_and_its_first_are_the_translations(file: Path, tmp_path: Path) -> None:
    texts = [SENTENCES[3], "", SENTENCES[5]]
    best = run(tmp_path, file, text_of(texts), *BEAM, f"nbest={tmp_path / 'nbest'}")
    rows = [line.split(" ||| ") for line in (tmp_path / "nbest").read_text("utf-8").splitlines()]
    expected = Translator.load(file).translate(
        texts, search={"name": "beam", "beam_size": 3, "num_best": 3, "limits": {"max_length": 6}}
    )
    assert [int(number) for number, *_ in rows] == [0, 0, 0, 1, 2, 2, 2]
    for number, one in enumerate(expected):
        said = [row[1:] for row in rows if row[0] == str(number)]
        assert said[0][0] == best[number]
        for row, other in zip(said, (one, *one.alternatives), strict=True):
            assert row[0] == other.text
            assert [float(figure) for figure in row[1:]] == pytest.approx([other.log_prob, other.score], abs=1e-5)


def test_alignments_have_a_line_for_each_line_and_point_at_words(tmp_path: Path) -> None:
    texts, links = [SENTENCES[8], "", SENTENCES[2]], tmp_path / "links.gz"
    model = write_checkpoint(tmp_path / "rnn.ckpt", scale=1.5)
    best = run(tmp_path, model, text_of(texts), *BEAM, f"alignments={links}", "alignment_layer=0")
    found = [from_pharaoh(line) for line in gzip.decompress(links.read_bytes()).decode().split("\n")[:-1]]
    assert len(found) == 3
    assert found[0]
    assert found[1] == []
    for text, translation, of_line in zip(texts, best, found, strict=True):
        assert all(source < len(text.split()) for source, _ in of_line)
        assert all(target < len(translation.split()) for _, target in of_line)


@pytest.mark.slow
def test_words_are_linked_by_the_guided_head_which_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["model.encoder.num_layers=1", "model.decoder.num_layers=1", "cross_attention.num_heads=2"]
    model = write_checkpoint(tmp_path / "t.ckpt", "model=transformer", *sizes, scale=1.5)
    given = [f"alignments={tmp_path / 'links'}", "search=greedy", "search.limits.max_length=9", "alignment_sink=false"]

    def links(*overrides: str) -> str:
        run(tmp_path, model, text_of(SENTENCES[:5]), *given, *overrides)
        return (tmp_path / "links").read_text("utf-8")

    of_head, of_both = links("alignment_layer=0", "alignment_head=1"), links()
    assert of_head != of_both
    checkpoint = torch.load(model)
    checkpoint["config"]["guided_alignment"] = {"links": "links.txt", "weight": 0.1, "layer": 0, "head": 1}
    torch.save(checkpoint, model)
    assert of_text(capsys.readouterr().err.splitlines()) == []
    assert links() == of_head
    said = "words are linked by layer 0, head 1, which guided alignment taught; "
    assert said in capsys.readouterr().err
    run(tmp_path, model, text_of(SENTENCES[:1]), *given[1:3], "placeholders=true")
    assert said in capsys.readouterr().err
    several = Translator.load(model, device="cpu", num_processes=2)
    with closing(several.engine):
        assert several.guided_head == Heads(0, 1)


@pytest.mark.slow  # the test above has the main case
def test_a_guided_run_aligns_by_its_guided_head_unless_another_is_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = [f"model.{side}.num_layers=2" for side in ("encoder", "decoder")]
    model = write_checkpoint(
        tmp_path / "t.ckpt", "model=transformer", *layers, "cross_attention.num_heads=2", scale=1.5
    )
    given = [f"alignments={tmp_path / 'links'}", "search=greedy", "search.limits.max_length=9", "alignment_sink=false"]

    def links(*overrides: str) -> str:
        run(tmp_path, model, text_of(SENTENCES[:8]), *given, *overrides)
        return (tmp_path / "links").read_text("utf-8")

    heads = {
        (layer, head): f"alignment_layer={layer} alignment_head={head}".split() for layer in (0, 1) for head in (0, 1)
    }
    by_head = {chosen: links(*overrides) for chosen, overrides in heads.items()}
    assert len({*by_head.values(), links()}) == 5
    assert of_text(capsys.readouterr().err.splitlines()) == []
    checkpoint = torch.load(model)
    checkpoint["config"]["guided_alignment"] = {"links": "links.txt", "weight": 0.1, "layer": 1, "head": 1}
    torch.save(checkpoint, model)
    assert links() == by_head[1, 1]
    assert "words are linked by layer 1, head 1, which guided alignment taught; " in capsys.readouterr().err
    assert links("alignment_layer=0", "alignment_head=1") == by_head[0, 1]
    run(tmp_path, model, text_of(SENTENCES[:1]), "search=greedy", "search.limits.max_length=9")
    assert of_text(capsys.readouterr().err.splitlines()) == []
    checkpoint["config"]["guided_alignment"]["shift"] = True
    torch.save(checkpoint, model)
    shifted = links("alignment_shift=true")
    assert links() == shifted != by_head[1, 1] == links("alignment_shift=false")
    write_published(read_checkpoint(model), tmp_path / "published")
    assert Translator.load(tmp_path / "published", device="cpu").guided_head == Heads(1, 1)
    model = tmp_path / "published"
    assert links() == shifted
    assert "links.txt" not in (tmp_path / "published" / "config.json").read_text("utf-8")


def test_what_has_no_weights_to_show_is_refused_before_anything_is_translated(file: Path, tmp_path: Path) -> None:
    wanted = {
        (f"alignments={tmp_path / 'links'}", "alignment_layer=7"): r"^alignment_layer=7 does not exist; choose from: ",
        (f"alignments={tmp_path / 'links'}", "alignment_head=9"): r"^alignment_head=9 does not exist; choose from 0 to",
        ("placeholders=true", "alignment_head=9"): r"^alignment_head=9 does not exist; choose from 0 to",
    }
    for overrides, sentence in wanted.items():
        with pytest.raises(UserError, match=sentence):
            run(tmp_path, file, text_of(SENTENCES), *overrides)
    with pytest.raises(UserError, match=r"^maps, alignments and placeholders are of one model, not of an ensemble"):
        run(tmp_path, f"[{file},{file}]", text_of(SENTENCES), f"maps={tmp_path / 'maps'}")  # type: ignore[arg-type]
    assert not (tmp_path / "out.txt").exists()


def test_an_alignment_is_the_mean_over_layers_and_heads_or_the_one_asked_for() -> None:
    first = np.array([[[0.9, 0.1, 0.0], [0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    second = np.array([[[0.6, 0.4, 0.0], [0.0, 0.0, 1.0]], [[0.8, 0.2, 0.0], [0.0, 0.0, 1.0]]])
    axes = (["▁a", "▁b", "</s>"], ["▁c", "</s>"])
    maps = [SlotMap(f"cross/{n}", weights, *axes) for n, weights in enumerate((first, second))]
    maps.append(SlotMap("self/0", np.ones((2, 2, 2)), ["<s>", "▁c"], ["▁c", "</s>"]))
    # means: all 0.575, layer 0 0.45, head 1 of both 0.4, head 1 of layer 1 0.8 on the first word
    for heads, link in ((Heads(), (0, 0)), (Heads(0), (1, 0)), (Heads(None, 1), (1, 0)), (Heads(1, 1), (0, 0))):
        assert best_links(maps, heads, Extraction()) == [link]
    assert best_links([], Heads(5, 5), Extraction()) == []
    with pytest.raises(UserError, match=r"^alignment_layer=2 does not exist; choose from: 0, 1$"):
        best_links(maps, Heads(2), Extraction())
    with pytest.raises(UserError, match=r"^alignment_head=2 does not exist; choose from 0 to 1$"):
        best_links(maps, Heads(None, 2), Extraction())


@pytest.mark.slow
def test_placeholders_come_back_at_the_words_that_the_links_name(learned_run: Path, tmp_path: Path) -> None:
    links, given = tmp_path / "links", ["search=greedy", f"alignments={tmp_path / 'links'}"]
    sources = ["The cat sees <x id=1> the red car.", "A <b>boy</b> likes water.", "She finds a bird."]
    (plain,) = run(tmp_path, learned_run, b"The cat sees the red car.\n", *given)
    (of_line,) = links.read_text("utf-8").splitlines()
    found = run(tmp_path, learned_run, text_of(sources), *given, "placeholders=true")
    assert links.read_text("utf-8").splitlines()[0] == of_line
    assert found[0].replace("<x id=1> ", "").replace(" <x id=1>", "") == plain
    target = dict(reversed(from_pharaoh(of_line)))
    first = next((target[word] for word in range(3, 6) if word in target), len(plain.split()))
    assert found[0].split().index("<x") == first
    assert "<b>" in found[1]
    assert "</b>" in found[1]
    assert "<" not in found[2]


@pytest.mark.slow
def test_placeholders_of_a_prefix_are_those_of_the_source(learned_run: Path, tmp_path: Path) -> None:
    given = ["search=greedy", "placeholders=true", f"prefixes={tmp_path / 'begun'}"]
    (tmp_path / "begun").write_text("le <b>chat\n", encoding="utf-8")
    (found,) = run(tmp_path, learned_run, text_of(["The <b>cat</b> sees the red car."]), *given)
    assert "⁇" not in found
    assert found.count("<b>") == found.count("</b>") == 1


@pytest.mark.parametrize(
    ("model_type", "text", "words"),
    [("char", "le ch☃at lac", ["le", "ch ⁇ at", "lac"]), ("word", "le ☃ chat", ["le", "⁇", "chat"])],
)
def test_the_words_of_a_translation_are_those_that_its_links_count(
    model_type: str, text: str, words: list[str], file: Path
) -> None:
    translator = Translator.load(file)
    translator.tokenizer = SentencePieceTokenizer(model_type, "auto", True, 0.0, None)
    translator.tokenizer.train(["le chat"] * 2, ["chat le"] * 2)
    (ids,) = translator.tokenizer.encode_target([text])
    translation = Translation("", 0.0, 0.0, translator.tokenizer.target_tokens(ids), [], [], [])
    assert translator.words(translation) == words


@pytest.mark.parametrize(
    ("model_type", "cleaning", "text", "words"),
    [
        ("char", {}, "le ch☃at  lac", [[0], [1], [2]]),
        ("char", {"split_punctuation": True}, "\tLe chat, lac. ", [[0], [1], [1], [2], [2]]),
        ("char", {}, "le\xa0chat \x07 a\x07b", [[0], [1], [3], [3]]),
        ("char", {"normalize_spaces": False}, "le lac\xa0! chat", [[0], [1, 2], [3]]),
        ("word", {}, "☃ ☺ le ☃ chat ☃ ☺", [[0, 1], [2], [3], [4], [5, 6]]),
        ("word", {"lowercase": True, "split_punctuation": True}, "Le ☃. ☺ CHAT", [[0], [1, 1, 2], [3]]),
        ("word", {}, "▁ le ▁▁ chat le▁chat", [[], [1], [], [3], [4], [4]]),
        ("word", {}, "☃ ▁ ☺ le ▁", [[0, 2], [3]]),
        ("char", {}, "▁ le ▁▁ chat", [[1], [3]]),
    ],
)
def test_words_of_a_source_are_those_of_its_text(
    model_type: str, cleaning: dict[str, bool], text: str, words: list[list[int]], file: Path
) -> None:
    translator = Translator.load(file)
    translator = Translator(
        translator.engine,
        SentencePieceTokenizer(model_type, "auto", True, 0.0, None),
        translator.config | {"data": {"cleaning": {"_target_": "seq2seq_attn.data.cleaning.Cleaning"} | cleaning}},
    )
    translator.tokenizer.train(["le chat"] * 2, ["chat le"] * 2)
    assert translator.source_words(text) == words
    (ids,) = translator.tokenizer.encode_source(translator.clean([text], [[]]))
    tokens = marked_words(translator.tokenizer, translator.tokenizer.source_tokens(ids))
    assert word_of_each(tokens).max() + 1 == len(words)


def test_links_and_placeholders_count_the_words_of_the_text_whatever_cleaning_makes_of_them(
    learned_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def links(maps: Sequence[SlotMap], *_: Any) -> list[Link]:
        words = word_of_each(maps[0].columns[:-1])
        return [(0, 0), (int(words.max()), 1)]  # of the first and the last word that the model reads

    monkeypatch.setattr(line_answers, "best_links", links)
    checkpoint = torch.load(Path(learned_run) / "checkpoints" / "best.ckpt")
    checkpoint["config"]["data"]["cleaning"]["split_punctuation"] = True
    torch.save(checkpoint, tmp_path / "split.ckpt")
    given = ["search=greedy", f"alignments={tmp_path / 'links'}", "placeholders=true"]
    (found,) = run(tmp_path, tmp_path / "split.ckpt", b"The cat, the dog, the bird <b>sleeps</b>\n", *given)
    assert (tmp_path / "links").read_text("utf-8") == "0-0 6-1\n"
    assert found.split()[1].startswith("<b>")
    assert found.split()[1].endswith("</b>")


def test_maps_are_a_picture_and_an_array_of_every_slot_named_by_the_line(file: Path, tmp_path: Path) -> None:
    run(
        tmp_path,
        file,
        text_of(["", SENTENCES[1]]),
        "search.limits.max_length=3",
        "search=greedy",
        f"maps={tmp_path / 'a/maps'}",
    )
    (one,) = Translator.load(file).translate(
        [SENTENCES[1]], search={"name": "greedy", "limits": {"max_length": 3}}, maps=True
    )
    assert {slot.partition("/")[0] for slot, *_ in one.maps} == {"cross", "self", "encoder"}
    expected = {f"000002_{slot.replace('/', '_')}": weights for slot, weights, *_ in one.maps}
    found = {path.stem: path for path in (tmp_path / "a/maps").glob("*.npz")}
    assert set(found) == set(expected) == {path.stem for path in (tmp_path / "a/maps").glob("*.png")}
    for name, path in found.items():
        np.testing.assert_array_equal(np.load(path)["weights"], expected[name])


@pytest.mark.parametrize(
    "name",
    [
        "000002_cross_0.png",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("000001_encoder_0.npz", "000002_self_0.png/")),
    ],
)
def test_a_file_that_is_no_map_is_not_replaced_by_one_and_nothing_is_translated(
    name: str, file: Path, tmp_path: Path
) -> None:
    maps, given = tmp_path / "maps", ["search.limits.max_length=2", "search=greedy", f"maps={tmp_path / 'maps'}"]
    maps.mkdir()
    for other in ("000002_photograph.png", "cross_0.png", "2_cross_0.png", "000002_cross_0.svg"):
        (maps / other).write_text("mine")
    (maps / name).mkdir() if name.endswith("/") else (maps / name).write_text("mine")
    before = sorted(maps.iterdir())
    with pytest.raises(
        UserError, match=rf"/{name.rstrip('/')} already exists and is not an attention map; give another path"
    ):
        run(tmp_path, file, text_of(SENTENCES[:2]), *given)
    assert sorted(maps.iterdir()) == before
    assert not (tmp_path / "out.txt").exists()
    (maps / name).rename(tmp_path / "kept")
    for _ in range(2):
        run(tmp_path, file, text_of(SENTENCES[:2]), *given)
    assert (maps / "000002_photograph.png").read_text() == "mine"
    assert (maps / "000002_cross_0.png").is_file()


def test_a_map_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "000007_cross_0.png").mkdir()
    with pytest.raises(UserError, match=r"/000007_cross_0.png cannot be written \(Is a directory\); give another"):
        save_maps(tmp_path, 7, [SlotMap("cross/0", np.ones((1, 1)), ["a"], ["b"])])


def test_prefixes_go_with_their_lines_across_windows(file: Path, tmp_path: Path) -> None:
    begun = ["my house", "", "where is", "", "water"]
    (tmp_path / "begun").write_bytes(text_of(begun))
    windowed = ["batch_sentences=2", "read_ahead=1", f"prefixes={tmp_path / 'begun'}", "search=greedy"]
    windowed.append("search.limits.max_length=6")
    found = run(tmp_path, file, text_of(SENTENCES[:5]), *windowed)
    assert [line.startswith(prefix) for line, prefix in zip(found, begun, strict=True)] == [True] * 5
    for texts, sentence in (
        (SENTENCES[:6], r"in.txt has more lines than prefixes, which end at line 5; give a line for each, empty"),
        (SENTENCES[:3], r"^prefixes have more lines than .+/in.txt; give a line for each$"),
    ):
        with pytest.raises(UserError, match=sentence):
            run(tmp_path, file, text_of(texts), *windowed)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["interactive=true"], r"^interactive=true answers at the prompt; leave out input, output$"),
        (["nbest={folder}/in.txt"], r"^input and nbest are one file, .+/in.txt; give each its own$"),
        (["output={folder}/nowhere/out"], r"^output=.+/nowhere/out cannot be written \(No such file or directory\)$"),
        (["maps={folder}/in.txt"], r"^input and maps are one file"),
        (["ckpt_path=[]"], r"^ckpt_path=\[\] names no checkpoint; give a run folder or a .ckpt file, or several$"),
        (["precision=17-mixed"], r"^precision=17-mixed does not exist; choose from: 32-true, bf16-mixed, "),
        (["precision=16-mixed"], r"^precision=16-mixed needs a GPU; on a CPU use precision=bf16-mixed, "),
        (["compute_type=int8"], r"^compute_type=int8 is for engine=ctranslate2; give precision= instead, or leave it"),
        (
            ["engine=ctranslate2", "precision=bf16-true"],
            r"^precision=bf16-true is for engine=torch; give compute_type=",
        ),
        (["search=sampling", "search.num_samples=0"], r"^search.num_samples=0 must be int in "),
        (["engine=ctranslate2", "prefixes={folder}/late"], r"^engine=ctranslate2 takes no prefixes; leave out engine"),
    ],
)
def test_a_mistake_is_said_before_anything_is_written(
    file: Path, tmp_path: Path, overrides: list[str], sentence: str
) -> None:
    (tmp_path / "out.txt").write_text("before")
    with pytest.raises(UserError, match=sentence):
        run(tmp_path, file, b"the cat\n", *(override.format(folder=tmp_path) for override in overrides))
    assert (tmp_path / "out.txt").read_text() == "before"
    assert (tmp_path / "in.txt").read_bytes() == b"the cat\n"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["output={folder}/hard"], r"^input and output are one file, .+/hard; give each its own$"),
        (["alignments={folder}/soft"], r"^input and alignments are one file, .+/soft; "),
        (["nbest={folder}/out.txt"], r"^output and nbest are one file, .+/out.txt; "),
        (["nbest={folder}/new", "alignments={folder}/to_new"], r"^nbest and alignments are one file, .+/to_new; "),
        (["maps={folder}/soft"], r"^input and maps are one file, .+/soft; "),
        (["input=null", "output={folder}/hard"], r"^output and standard input are one file, .+/hard; "),
        (["input=null", "nbest={folder}/in.txt"], r"^nbest and standard input are one file, .+/in.txt; "),
        (["output={checkpoint}"], r"^ckpt_path and output are one file, .+/transformer.ckpt; "),
    ],
)
def test_one_file_under_two_names_is_refused_before_it_is_written(
    file: Path, tmp_path: Path, overrides: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, checkpoint = tmp_path / "in.txt", file.read_bytes()
    source.write_bytes(b"the cat\n")
    (tmp_path / "hard").hardlink_to(source)
    (tmp_path / "soft").symlink_to(source)
    (tmp_path / "to_new").symlink_to("new")
    given = [override.format(folder=tmp_path, checkpoint=file) for override in overrides]
    with source.open() as stream, pytest.raises(UserError, match=sentence):  # noqa: PT012
        monkeypatch.setattr("sys.stdin", stream)
        run(tmp_path, file, b"the cat\n", *given)
    assert source.read_bytes() == b"the cat\n"
    assert file.read_bytes() == checkpoint
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "hard", "soft", "to_new"}


def test_a_checkpoint_inside_the_run_that_is_read_is_no_output(file: Path, tmp_path: Path) -> None:
    best = tmp_path / "run" / "checkpoints" / "best.ckpt"
    best.parent.mkdir(parents=True)
    best.write_bytes(file.read_bytes())
    with pytest.raises(UserError, match=r"^ckpt_path and output are one file, .+/best.ckpt; give each its own$"):
        run(tmp_path, best.parents[1], b"the cat\n", f"output={best}")
    assert best.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("name", ["model.safetensors", "source.model"])
def test_a_file_of_a_published_model_that_is_read_is_no_output(file: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "published"
    write_published(read_checkpoint(file), folder)
    content = (folder / name).read_bytes()
    with pytest.raises(UserError, match=rf"^ckpt_path and output are one file, .+/{name}; give each its own$"):
        run(tmp_path, folder, b"the cat\n", f"output={folder / name}")
    assert (folder / name).read_bytes() == content


def test_an_output_that_may_not_be_written_is_not_replaced(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, who may write all files."""
    old, whole = tmp_path / "old.txt", Path.open

    def opened(path: Path, mode: str = "r", *given: Any, **options: Any) -> Any:
        if path == old and mode == "r+b":
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path, mode, *given, **options)

    old.write_bytes(b"before")
    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(UserError, match=rf"{old}.*Permission denied"):
        run(tmp_path, file, b"the cat\n", f"output={old}")
    assert old.read_bytes() == b"before"


def test_an_interrupted_translation_leaves_the_files_of_before_and_its_lines_beside(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("out.txt", "nbest", "links.gz")
    for name in names:
        (tmp_path / name).write_bytes(b"before")
    whole, calls = Translator.translate, []

    def interrupted(translator: Translator, *given: Any, **options: Any) -> list[Translation]:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(translator, *given, **options)

    monkeypatch.setattr(Translator, "translate", interrupted)
    wanted = [f"nbest={tmp_path / 'nbest'}", f"alignments={tmp_path / 'links.gz'}", "search.limits.max_length=5"]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, file, text_of(SENTENCES[:5]), "batch_sentences=1", "read_ahead=1", "search=greedy", *wanted)
    assert {name: (tmp_path / name).read_bytes() for name in names} == dict.fromkeys(names, b"before")
    assert {path.name for path in tmp_path.iterdir()} == {*names, "in.txt", *(f"{name}.part" for name in names)}
    said = capsys.readouterr().err
    monkeypatch.undo()
    run(tmp_path, file, text_of(SENTENCES[:2]), "batch_sentences=1", "read_ahead=1", "search=greedy", *wanted)
    for name in names:
        assert f"{tmp_path / name} is not finished; what was written is in {tmp_path / name}.part (lines: 2)" in said
        kept, whole_file = ((tmp_path / one).read_bytes() for one in (f"{name}.part", name))
        assert (gzip.decompress(kept) if name.endswith("gz") else kept) == (
            gzip.decompress(whole_file) if name.endswith("gz") else whole_file
        )


@pytest.mark.parametrize(
    ("overrides", "closed", "sentence"),
    [
        (["input=null"], "stdin", r"^standard input is closed; open it, or give input=FILE$"),
        (["output=null"], "stdout", r"^standard output is closed; open it, or give output=FILE$"),
        (["input=null", "output=null", "interactive=true"], "stdin", r"^standard input is closed; "),
    ],
)
def test_a_closed_standard_stream_is_one_sentence_where_it_is_needed(
    file: Path, tmp_path: Path, overrides: list[str], closed: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"sys.{closed}", None)
    with pytest.raises(UserError, match=sentence):
        run(tmp_path, file, b"the cat\n", *overrides)


def test_a_checkpoint_and_itself_translate_as_it_does_alone(file: Path, tmp_path: Path) -> None:
    content = text_of(SENTENCES[:5])
    assert run(tmp_path, file, content, f"ckpt_path=[{file},{file}]") == run(tmp_path, file, content)


def test_the_prompt_answers_each_line_with_its_score_until_the_input_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = iter(["un", " ", "deux", ""])

    def typed(prompt: str) -> str:
        assert prompt == "> "
        try:
            return next(given)
        except StopIteration:
            raise EOFError from None

    def answer(text: str) -> Translation:
        other = Translation("two", -2.0, -1.25, [], [], [], [])
        if not text:  # a language model writes freely
            return Translation("free", -3.0, -1.5, ["▁free"], [], [], [])
        return Translation(text.upper(), -1.0, -0.5, [], [other], [], ["cut"] if text == "deux" else [])

    monkeypatch.setattr("builtins.input", typed)
    interact(answer)
    shown = capsys.readouterr()
    lines = ["  -0.500  UN", "  -1.250  two", "  -0.500  DEUX", "  -1.250  two", "  -1.500  free", ""]
    assert shown.out.splitlines() == lines
    assert shown.err == "cut\n"


HOSTILE = "a\x1b[31m\tb\u202e ||| c\x9b"
SHOWN = "a\ufffd[31m b\ufffd ||| c\ufffd"


def write_hostile(output: Any, folder: Path) -> None:
    wanted: dict[str, Any] = dict.fromkeys(WRITTEN) | {"nbest": str(folder / "nbest")}
    with ExitStack() as stack:
        files = TranslationFiles(stack, output, lambda texts, translations: iter(()), lambda text, maps: [], **wanted)
        files.write([Line(1, "", [])], [Translation(HOSTILE, -1.0, -0.5, [], [], [], [])])


def test_a_translation_reaches_a_file_as_it_is_and_a_terminal_without_control_characters(tmp_path: Path) -> None:
    output = io.BytesIO()
    write_hostile(output, tmp_path)
    assert output.getvalue().decode() == HOSTILE + "\n"
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "wb") as terminal:
        write_hostile(terminal, tmp_path)
        assert os.read(ours, 1000).decode() == SHOWN + "\r\n"
    os.close(ours)


def test_an_n_best_list_keeps_its_columns_whatever_the_model_writes(tmp_path: Path) -> None:
    write_hostile(io.BytesIO(), tmp_path)
    escaped = SHOWN.replace("|||", "&#124;" * 3)
    assert (tmp_path / "nbest").read_text("utf-8") == f"0 ||| {escaped} ||| -1.000000 ||| -0.500000\n"


def test_the_prompt_shows_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = iter(["un"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(given, None) or (_ for _ in ()).throw(EOFError))
    interact(lambda text: Translation(HOSTILE, -1.0, -0.5, [], [], [], []))
    assert capsys.readouterr().out == f"  -0.500  {SHOWN}\n\n"


def plain(shown: str) -> str:
    """Leave out what moves the cursor and colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def test_at_a_terminal_progress_stands_on_standard_error_and_only_there(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        found = run(tmp_path, file, text_of(SENTENCES[:5]), "search=greedy", "search.limits.max_length=5")
        shown = ""
        while " 5/5 lines " not in plain(shown) and select.select([ours], [], [], 5.0)[0]:  # it arrives in parts
            shown += os.read(ours, 100_000).decode()
    os.close(ours)
    assert " 5/5 lines " in plain(shown)
    assert len(found) == 5
    assert not any("lines" in line for line in found)
    assert capsys.readouterr().out == ""


def test_a_line_without_tags_is_not_aligned(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aligned = noted_attention(monkeypatch)
    lines = text_of(["the <b>cat</b>", "the dog"])
    run(tmp_path, file, lines, "search=greedy", "search.limits.max_length=3", "placeholders=true")
    assert aligned == [["a"], ["the cat"]]  # the first is a trial, whether the model has weights


def test_the_attention_of_a_line_is_computed_once_and_of_all_lines_of_a_window_together(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    attention = TorchEngine.attention

    def counted(self: TorchEngine, sources: list[list[int]], targets: list[list[int]]) -> Any:
        batches.append(len(sources))
        return attention(self, sources, targets)

    monkeypatch.setattr(TorchEngine, "attention", counted)
    aligned, links = noted_attention(monkeypatch), tmp_path / "links"
    texts = ["the <b>cat</b> sees", SENTENCES[8], "", "my <x/>house", SENTENCES[2]]
    given = ["search=greedy", "search.limits.max_length=6", f"alignments={links}"]
    run(tmp_path, file, text_of(texts), *given, "placeholders=true")
    assert aligned == [["a"], ["the cat sees", "my house"], [SENTENCES[8], "", SENTENCES[2]]]
    assert batches == [1, 2, 2]
    together = links.read_text("utf-8")
    monkeypatch.setattr(translator_module, "ATTENTION_TOKENS", 1)
    batches.clear()
    run(tmp_path, file, text_of(texts), *given, "placeholders=true", "batch_sentences=1", "read_ahead=1")
    assert (links.read_text("utf-8"), batches) == (together, [1] * 5)
    assert together.split("\n")[2] == ""
    assert all(together.split("\n")[row] for row in (0, 1, 3, 4))


def noted_attention(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Note the texts whose attention is asked for."""
    aligned: list[list[str]] = []
    attentions = Translator.attentions

    def noted(self: Translator, texts: list[str], *given: Any, **options: Any) -> Any:
        aligned.append(list(texts))
        return attentions(self, texts, *given, **options)

    monkeypatch.setattr(Translator, "attentions", noted)
    return aligned


def test_tags_are_taken_out_once(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aligned = noted_attention(monkeypatch)
    lines = text_of(["List <<i>T</i>> is typed"])
    run(tmp_path, file, lines, "search=greedy", "search.limits.max_length=3", "placeholders=true")
    assert aligned == [["a"], ["List <T> is typed"]]


@pytest.mark.parametrize(
    ("overrides", "options"),
    [
        (["alignment_layer=0"], "alignment_layer"),
        (["alignment_head=0", "alignment_threshold=0.2"], "alignment_head, alignment_threshold"),
        (["alignment_shift=false", "maps=maps"], "alignment_shift"),
        (["alignment_sink=false", "placeholders=false"], "alignment_sink"),
    ],
)
def test_options_of_links_without_links_are_refused(overrides: list[str], options: str, tmp_path: Path) -> None:
    sentence = f"^word links are read as {options} says, but none are asked for; add alignments=FILE or placeholders="
    with pytest.raises(UserError, match=sentence):
        run(tmp_path, tmp_path / "none.ckpt", b"a\n", *overrides)
