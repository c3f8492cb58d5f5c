"""CTranslate2 is asked for what our search means, or not at all."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from small_transformer import decoded, search_of, sentences, small_transformer

from seq2seq_attn.checkpoint.load import Loaded
from seq2seq_attn.checkpoint.published import MODEL_FILES
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference import export_ctranslate2
from seq2seq_attn.inference.ctranslate2_engine import (
    COMPUTE_TYPES,
    FORMAT,
    SETTINGS,
    CTranslate2Engine,
    check_compute_type,
    map_search,
    read_exported,
)
from seq2seq_attn.inference.engine import TorchEngine

CPU = torch.device("cpu")
CPUINFO = Path("/proc/cpuinfo")
# without these instructions (VNNI) a product's sums of pairs have 16 bits, which saturate
SUMS_OF_INT8_ARE_EXACT = CPUINFO.is_file() and "vnni" in CPUINFO.read_text(encoding="utf-8")
BEAM = ("search=beam", "search.beam_size=5", "search.patience=1.0", "search.limits.max_length=20")


@pytest.fixture(scope="module")
def ctranslate2() -> ModuleType:
    return pytest.importorskip("ctranslate2", reason="pip install 'seq2seq_attn[serve]'")


@pytest.fixture(scope="module")
def loaded(taught_transformer: Loaded) -> Loaded:
    return taught_transformer


@pytest.fixture(scope="module")
def folder(ctranslate2: ModuleType, loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("exports") / "export"
    export_ctranslate2.export(loaded, folder, positions=64)
    return str(folder)


def engine_of(folder: str, compute_type: str | None = None) -> CTranslate2Engine:
    return CTranslate2Engine([folder], device=CPU, num_threads=1, compute_type=compute_type)


@pytest.fixture(scope="module")
def engine(folder: str) -> CTranslate2Engine:
    return engine_of(folder)


@pytest.mark.parametrize(
    "overrides",
    [
        ("search.num_best=3",),
        ("search.length_penalty.alpha=0.0",),
        ("search.length_penalty.alpha=1.5",),
        ("search/length_penalty=mean", "search.num_best=2"),
        ("search/length_penalty=mean", "search.length_penalty.power=0.6"),
        ("search/length_penalty=mean", "search.length_penalty.power=2.0", "search.num_best=2"),
        ("search/length_penalty=mean", "search.length_penalty.power=0", "search.patience=null"),
        ("search.length_penalty.alpha=0.0", "search.patience=null"),
        ("search.patience=2.0", "search.num_best=5"),
        ("search.patience=null",),
        ("search.beam_size=1", "search.patience=1.0"),
    ],
    ids=" ".join,
)
def test_a_beam_finds_what_ours_finds(engine: CTranslate2Engine, loaded: Loaded, overrides: tuple[str, ...]) -> None:
    search, lines = search_of(*BEAM, *overrides), sentences()
    expected = decoded(loaded, search, lines)
    found = engine(loaded.tokenizer.encode_source(lines), search)
    others = 0
    for hypotheses, ours in zip(found, expected, strict=True):
        assert hypotheses[0].token_ids == ours[0].token_ids
        scores = {tuple(one.token_ids): one.score for one in ours}
        for one, own in zip(hypotheses, ours, strict=True):
            # its search may stop a little earlier, and miss one of the last of a list; it never finds a better one
            assert one.score <= own.score + 1e-3
            assert one.score == pytest.approx(scores.get(tuple(one.token_ids), one.score), abs=1e-3)
        others += [one.token_ids for one in hypotheses] != [own.token_ids for own in ours]
    assert others <= 1


def test_the_power_of_the_length_is_asked_of_ctranslate2() -> None:
    mapped = map_search(search_of(*BEAM, "search/length_penalty=mean", "search.length_penalty.power=0.6"))
    assert mapped.options["length_penalty"] == mapped.power == 0.6


def test_the_type_it_computes_in_is_that_of_the_option(
    ctranslate2: ModuleType, folder: str, engine: CTranslate2Engine, loaded: Loaded
) -> None:
    supported = ctranslate2.get_supported_compute_types("cpu") & set(COMPUTE_TYPES)
    assert {"float32", "int8"} <= supported
    search = search_of("search=greedy", "search.limits.max_length=20")
    sources = loaded.tokenizer.encode_source(sentences())
    assert engine._translator.compute_type == "float32"
    wide = [one for one, *_ in engine(sources, search)]
    for compute_type in supported:
        narrow = engine_of(folder, compute_type)
        assert narrow._translator.compute_type.startswith(compute_type)
        found = [one for one, *_ in narrow(sources, search)]
        assert (found == wide) == (compute_type == "float32")
        if "int8" in compute_type and not SUMS_OF_INT8_ARE_EXACT:
            continue
        for one, other in zip(found, wide, strict=True):
            assert one.token_ids == other.token_ids
            assert one.log_prob == pytest.approx(other.log_prob, rel=0.3)
    assert engine_of(folder, "auto")._translator.compute_type in supported


def test_a_type_that_the_device_lacks_is_refused(ctranslate2: ModuleType, folder: str) -> None:
    said = r"^compute_type=int4 is not supported by CTranslate2 on this device; choose from: auto, float32, .*\bint8\b"
    with pytest.raises(UserError, match=said):
        engine_of(folder, "int4")
    with pytest.raises(UserError, match=r"^compute_type=float16 is not .* choose from: auto, float32, int8$"):
        check_compute_type("float16", {"int8", "int16", "float32"})
    check_compute_type("auto", set())


def test_each_sentence_has_its_own_limit(engine: CTranslate2Engine, loaded: Loaded) -> None:
    lines = sentences((11, 2, 1, 7))
    search = search_of("search=greedy", "search.limits.max_relative_length=0.5", "search.limits.max_extra_length=0")
    found = engine(loaded.tokenizer.encode_source(lines), search)
    assert [one.token_ids for one, *_ in found] == [one.token_ids for one, *_ in decoded(loaded, search, lines)]
    assert [len(one.token_ids) for one, *_ in found][1:3] == [1, 1]


@pytest.mark.parametrize(
    "limits",
    [
        ("search=greedy", "search.limits.max_length=3"),
        ("search=greedy", "search.limits.min_length=6"),
        (*BEAM, "search.limits.max_length=3", "search.num_best=3"),
        (*BEAM, "search.limits.max_relative_length=0.7", "search.limits.max_extra_length=0", "search.num_best=3"),
    ],
    ids=" ".join,
)
def test_translations_that_are_cut_or_forced_are_scored_as_ours(
    limits: tuple[str, ...], engine: CTranslate2Engine, loaded: Loaded
) -> None:
    lines, search = sentences((2, 3, 5)), search_of(*limits)
    sources = loaded.tokenizer.encode_source(lines)
    for source, hypotheses in zip(sources, engine(sources, search), strict=True):
        targets = [one.token_ids for one in hypotheses]
        scored = TorchEngine(loaded.model, loaded.tokenizer, torch.device("cpu")).token_log_probs(
            [source] * len(targets), targets
        )
        assert [one.log_prob for one in hypotheses] == pytest.approx([sum(one) for one in scored], rel=1e-3)
        assert [one.score for one in hypotheses] == sorted((one.score for one in hypotheses), reverse=True)


def test_a_sentence_that_may_have_no_token_has_none(engine: CTranslate2Engine, loaded: Loaded) -> None:
    search = search_of("search=greedy", "search.limits.max_relative_length=0.3", "search.limits.max_extra_length=0")
    first, second = engine(loaded.tokenizer.encode_source(sentences((1, 7))), search)
    assert [one.token_ids for one in first] == [[]]
    assert len(second[0].token_ids) <= 2
    expected = decoded(loaded, search, sentences((1, 7)))
    assert first[0].log_prob == pytest.approx(expected[0][0].log_prob, abs=1e-3)


def test_a_limit_below_the_fewest_tokens_prevails(engine: CTranslate2Engine, loaded: Loaded) -> None:
    limits = ("search.limits.max_relative_length=0.5", "search.limits.max_extra_length=0", "search.limits.min_length=3")
    found = engine(loaded.tokenizer.encode_source(sentences((1, 7))), search_of("search=greedy", *limits))
    assert [len(one.token_ids) for one, *_ in found] == [1, 4]


def test_the_fewest_tokens_of_greedy_search_are_ours(engine: CTranslate2Engine, loaded: Loaded) -> None:
    lines = sentences((1, 2, 3))
    search = search_of("search=greedy", "search.limits.min_length=23", "search.limits.max_length=29")
    found = engine(loaded.tokenizer.encode_source(lines), search)
    assert [one.token_ids for one, *_ in found] == [one.token_ids for one, *_ in decoded(loaded, search, lines)]
    assert min(len(one.token_ids) for one, *_ in found) >= 23


def test_no_banned_token_is_said(ctranslate2: ModuleType, tmp_path: Path) -> None:
    loaded, search = small_transformer(), search_of("search=greedy", "search.limits.max_length=7")
    tokenizer = loaded.tokenizer
    with torch.no_grad():
        loaded.model.output.bias[[tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id]] += 100.0
    export_ctranslate2.export(loaded, tmp_path / "export")
    found = engine_of(str(tmp_path / "export"))(tokenizer.encode_source(sentences()), search)
    expected = decoded(loaded, search, sentences())
    assert [one.token_ids for one, *_ in found] == [one.token_ids for one, *_ in expected]
    assert min(min(one.token_ids) for one, *_ in found if one.token_ids) > tokenizer.eos_id
    for (ours, *_), (theirs, *_) in zip(expected, found, strict=True):  # the unknown token takes the probability
        assert (ours.log_prob < -90, theirs.log_prob) == (True, pytest.approx(ours.log_prob, rel=1e-4))


def test_nothing_is_translated_to_nothing(engine: CTranslate2Engine) -> None:
    assert engine([], search_of("search=greedy")) == []


def test_a_sentence_longer_than_the_table_of_positions_is_refused(engine: CTranslate2Engine, loaded: Loaded) -> None:
    search = search_of("search=greedy")
    with pytest.raises(UserError, match="a sentence of 65 tokens is longer than the 64 positions"):
        engine(loaded.tokenizer.encode_source(sentences((3, 64))), search)
    (found,) = engine(loaded.tokenizer.encode_source(sentences((63,))), search)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("search=sampling",), "has no SamplingSearch; use search=greedy or search=beam"),
        ((*BEAM, "search.coverage_penalty=0.2"), "search.coverage_penalty=0.2 does not mean the same"),
        ((*BEAM, "search.no_repeat_ngram=3"), "search.no_repeat_ngram=3 does not mean the same"),
        (("search=greedy", "search.no_repeat_ngram=3"), "search.no_repeat_ngram=3 does not mean the same"),
        ((*BEAM, "search.limits.min_length=3"), "search.limits.min_length=3 does not mean the same"),
        (("search=greedy", "search.limits.min_relative_length=0.5"), "search.limits.min_relative_length=0.5"),
        ((*BEAM, "search.patience=1.5"), "search.patience=1.5 does not mean the same"),
        (
            (*BEAM, "search.patience=null", "search/length_penalty=mean", "search.length_penalty.power=1.5"),
            "search.patience=null does not mean the same",
        ),
        ((*BEAM, "search.beam_size=1", "search.patience=null"), "search.patience=null does not mean the same"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_a_search_that_means_something_else_there_is_refused(overrides: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        map_search(search_of(*overrides))


def test_without_ctranslate2_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UserError, match=r"pip install 'seq2seq_attn\[serve\]'"):
        engine_of("anywhere")


def test_a_folder_of_another_kind_or_version_is_refused(folder: str, ctranslate2: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a folder of seq2seq-attn export ctranslate2"):
        engine_of(str(tmp_path))
    for file in Path(folder).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "seq2seq_attn.json").read_text())
    (tmp_path / "seq2seq_attn.json").write_text(json.dumps({**settings, "format": 2}))
    with pytest.raises(UserError, match="has format 2, this version reads 1; export the run again"):
        engine_of(str(tmp_path))
    for damaged in ({"positions": "x"}, {"config": {}}, {"config": {**settings["config"], "data": 3}}):
        (tmp_path / "seq2seq_attn.json").write_text(json.dumps({**settings, **damaged}))
        with pytest.raises(UserError, match=r"is not a folder of seq2seq-attn export ctranslate2"):
            engine_of(str(tmp_path))
    (tmp_path / "seq2seq_attn.json").write_text(json.dumps(settings))
    (tmp_path / "model.bin").rename(tmp_path / "away")
    with pytest.raises(UserError, match=r"cannot be loaded by CTranslate2 \(.*model.bin.*\); export the run again$"):
        engine_of(str(tmp_path))
    (tmp_path / "away").rename(tmp_path / "model.bin")
    settings["config"]["search"]["_target_"] = "os.system"
    (tmp_path / "seq2seq_attn.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"asks for os.system, which is not a class of seq2seq_attn"):
        engine_of(str(tmp_path))


def test_an_exported_folder_names_no_foreign_code(tmp_path: Path) -> None:
    for name in MODEL_FILES.values():
        (tmp_path / name).write_bytes(b"not read before the settings are")
    call = {"_target_": "os.mkdir", "path": str(tmp_path / "ran")}
    config = {"search": {"limits": call}, "data": {"cleaning": {}}}
    settings = {"format": FORMAT, "tokenizer": {}, "config": config, "positions": 7}
    (tmp_path / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(UserError, match=r"asks for os.mkdir, which is not a class of seq2seq_attn for search; it was"):
        read_exported(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_given_translation_has_the_log_probs_that_ours_has(engine: CTranslate2Engine, loaded: Loaded) -> None:
    ours = TorchEngine(loaded.model, loaded.tokenizer, CPU)
    sources = loaded.tokenizer.encode_source(sentences((3, 1, 7, 5, 2), seed=1))
    targets = [[], *loaded.tokenizer.encode_target(sentences((4, 9, 1, 6), seed=2))]
    found, expected = (one.token_log_probs(sources, targets) for one in (engine, ours))
    assert found == [pytest.approx(row, abs=1e-3) for row in expected]
    assert [len(row) for row in found] == [len(target) + 1 for target in targets]
