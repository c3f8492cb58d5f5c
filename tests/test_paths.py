"""A path that a user gives is a home folder's where it says so, and one sentence where there is none."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from configs import CONF
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from seq2seq_attn.attention.build import build_attention
from seq2seq_attn.checkpoint.load import find_checkpoint
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import CleaningReport, LoadedCorpus
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.data.demo import DemoCorpus
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.translate import translate
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.paths import check_file_names, given_path, quoted, typed
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

NOWHERE = "~nobody-here/a"


def translated(option: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        translate(compose("translate", ["ckpt_path=not/read", f"{option}='{NOWHERE}'"]))


READERS: dict[str, Callable[[], Any]] = {
    "data.path": lambda: DemoCorpus(path=NOWHERE, source_language="en", target_language="fr", cleaning=Cleaning()),
    "tokenizer.cache_dir": lambda: SentencePieceTokenizer("unigram", 45, True, 0.0, NOWHERE),
    "paths.cache_dir": lambda: TranslationDataModule(
        LoadedCorpus({}, CleaningReport({}), "en", "fr"),
        SentencePieceTokenizer("unigram", 45, True, 0.0, None),
        batch_tokens=7,
        seed=1,
        cache_dir=NOWHERE,
    ),
    "ckpt_path": lambda: find_checkpoint(NOWHERE),
    **{
        option: lambda option=option: translated(option)
        for option in ("input", "output", "nbest", "prefixes", "alignments", "maps")
    },
}


@pytest.mark.parametrize("option", list(READERS))
def test_a_home_that_is_not_there_is_one_sentence_for_every_option(option: str) -> None:
    with pytest.raises(
        UserError, match=rf"^{option}={NOWHERE} names a home folder that is not there; write the path out$"
    ):
        READERS[option]()


def test_a_package_of_options_may_lack_its_init_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_options" / "attention").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    check_file_names([files("their_options")])


def test_a_file_of_the_user_with_the_name_of_ours_is_refused_unless_it_is_the_same(tmp_path: Path) -> None:
    own = tmp_path / "attention" / "score" / "dot.yaml"
    own.parent.mkdir(parents=True)
    check_file_names([tmp_path])
    own.write_bytes((CONF / "attention" / "score" / "dot.yaml").read_bytes())
    check_file_names([tmp_path])
    own.write_text("_target_: mine.LaplaceScore\n_partial_: true\n")
    with pytest.raises(
        UserError, match=f"^{own} is not read, since {CONF}/.* has the same name and comes first; rename"
    ):
        check_file_names([tmp_path / "empty", tmp_path])
    with pytest.raises(UserError, match=f"^{own} is not read"):
        build_attention("multihead", dim=8, config_dir=tmp_path)


def test_an_exported_model_is_found_by_its_home_too() -> None:
    with pytest.raises(UserError, match=rf"^ckpt_path={NOWHERE} names a home folder that is not there"):
        Translator.load(NOWHERE, engine="ctranslate2", device="cpu")


def test_a_home_is_that_of_the_user_and_other_paths_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert given_path("~/a/b", "any") == tmp_path / "a" / "b"
    assert given_path("a/~b", "any") == Path("a/~b")
    assert given_path(Path("/c"), "any") == Path("/c")


def test_a_name_too_long_is_a_path_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"^ckpt_path=x+ does not exist; give a run folder"):
        find_checkpoint("x" * 300)
    with pytest.raises(UserError, match=r"^data=demo: the folder x+ does not exist; set data.path"):
        DemoCorpus(path="x" * 300, source_language="en", target_language="fr", cleaning=Cleaning()).load()


@pytest.mark.parametrize("name", ["a b", "a,b", "it's", "(c) [1] {2}", "50% #1 & more", 'the "best"', "André", "a=b"])
def test_a_path_is_a_value_of_an_override_whatever_it_is_called(name: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [f"data.path={quoted(Path('/runs', name))}"])
    assert config.data.path == f"/runs/{name}"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("runs/train/2026-01-31_12-00-00", "runs/train/2026-01-31_12-00-00"),
        ("a b", "'\"a b\"'"),
        ("it's", "'\"it'\"'\"'s\"'"),
        ("übung", "'\"übung\"'"),
        ("a=b,c", "'\"a=b,c\"'"),
    ],
)
def test_a_path_is_typed_so_that_shell_and_hydra_read_it(path: str, shown: str) -> None:
    assert typed(path) == shown
    (word,) = shlex.split(f"ckpt_path={shown}")
    (override,) = OverridesParser.create().parse_overrides([word])
    assert override.value() == path
