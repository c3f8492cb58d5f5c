"""A damaged corpus is accepted and counted, or refused with one sentence: no traceback, no misaligned pair."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from configs import ROOT, composed
from data.broken import DIRECTORY, FORMS, KINDS, MISSING, SPLITS, Draw, Files, text_of, whole, write
from hydra.utils import instantiate
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from seq2seq_attn.data.corpus import LoadedCorpus, Split
from seq2seq_attn.errors import UserError, sentence_of
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

FEW, MANY = 3, 40  # files of each kind


def load(form: str, folder: Path, files: Files) -> LoadedCorpus:
    """Load the corpus from the composed configuration, as a run does."""
    options: Any = OmegaConf.to_container(composed(*FORMS[form]).data, resolve=True)
    paths = {role: str(folder / name) for role, (name, _) in files.items()}
    if form in ("multi30k", "demo"):
        long = next((name for name, _ in files.values() if len(name) > 199), "")
        options["path"] = str(folder / long) if long else str(folder)
    elif form == "tatoeba":
        options["path"] = paths["train"]
    elif form in ("tsv", "jsonl"):
        options["train"] = paths["train"]
    else:
        options |= {split: [paths[f"{split}.{side}"] for side in ("en", "fr")] for split in SPLITS.get(form, ["train"])}
    with tempfile.TemporaryDirectory() as cache:
        options |= {"cache_dir": cache} if "cache_dir" in options else {}
        corpus = instantiate(options, _convert_="all").load()
        return replace(corpus, splits={name: in_memory(split) for name, split in corpus.splits.items()})


def in_memory(split: Split) -> Split:
    return Split(list(split.sources), list(split.targets), list(split.references))


def numbers(text: str, side: str) -> list[str]:
    return re.findall(rf"(?<!\w){side}(\d+)", text)


def check_pairs(corpus: LoadedCorpus) -> None:
    for split in corpus.splits.values():
        for source, target, references in zip(split.sources, split.targets, split.references, strict=True):
            for text in (target, *references):
                assert numbers(source, "s") == numbers(text, "t") or not (source and text.strip())
            assert not re.search(r"[\0\n\r]", source + target)


def check_counts(form: str, corpus: LoadedCorpus, files: Files, folder: Path) -> None:
    counts, held_out = corpus.report.counts, form in ("multi30k", "six", "demo")
    for name, split in corpus.splits.items():
        of = name if held_out else "all"
        dropped = sum(count for step, count in counts.items() if step.startswith(f"{of}: dropped"))
        rows = len(split) if held_out else sum(map(len, corpus.splits.values()))
        assert counts[f"{of}: pairs read"] - dropped == rows
    read = sum(count for step, count in counts.items() if step.endswith(("pairs read", "lines rejected")))
    sides = 2 if form in ("two", "six", "multi30k") else 1
    assert sides * read == sum(num_lines(folder / name, form == "jsonl") for name, _ in files.values())


def num_lines(file: Path, without_blank: bool) -> int:
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    lines = content.removesuffix(b"\n").split(b"\n")
    return sum(bool(line.decode().strip()) for line in lines) if without_blank else len(lines)


def check_usable(corpus: LoadedCorpus) -> None:
    """Train a tokenizer on the corpus and encode it, or raise a UserError."""
    tokenizer, train = SentencePieceTokenizer("char", 200, True, 0.0, None), corpus.splits["train"]
    tokenizer.train(train.sources, train.targets)
    for split in corpus.splits.values():
        assert len(tokenizer.encode_source(split.sources)) == len(split)
    assert len(corpus.fingerprint) == 64


def outcome(kind: str, draw: Draw) -> str:
    """Return `accepted`, or the message of the refusal."""
    form = draw(st.sampled_from(sorted(FORMS)))
    files = KINDS[kind](draw, whole(form, draw))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, files)
        try:
            corpus = load(form, folder, files)
            check_usable(corpus)
        except Exception as error:
            sentence = sentence_of(error)
            if sentence is None:
                raise
            assert "\n" not in sentence
            assert sentence.isprintable()
            assert len(sentence) < 500 or kind == "a long name"
            assert re.search(rf"{folder}|data\.|tokenizer\.|^pair \d+ of ", sentence)
            return sentence
        check_pairs(corpus)
        check_counts(form, corpus, files, folder)
    return "accepted"


quick = settings(
    max_examples=FEW,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # a failing case may have a line of megabytes, which takes minutes to shrink
)


def fuzz(kind: str, examples: int, *, derandomize: bool) -> list[str]:
    outcomes: list[str] = []

    @settings(quick, max_examples=examples, derandomize=derandomize)
    @given(st.data())
    def each(data: st.DataObject) -> None:
        outcomes.append(outcome(kind, data.draw))

    each()
    return outcomes


def test_there_are_more_than_20_kinds_and_1000_files_of_them() -> None:
    assert len(KINDS) > 20
    assert len(KINDS) * FEW >= 60
    assert len(KINDS) * MANY >= 1000


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_broken_corpus_is_accepted_and_counted_or_refused_in_one_sentence(kind: str) -> None:
    assert fuzz(kind, FEW, derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_1000_broken_corpora_are_accepted_and_counted_or_refused_in_one_sentence(kind: str) -> None:
    assert len(fuzz(kind, MANY, derandomize=False)) >= MANY // 2


ALWAYS_ACCEPTED = ["nothing wrong", "no final line end", "CR LF", "double lines"]
ALWAYS_REFUSED = ["UTF-16", "NUL", "empty", "bytes that are not UTF-8", "a gz cut short", "no gz", "missing"]


@pytest.mark.parametrize("kind", [*ALWAYS_ACCEPTED, *ALWAYS_REFUSED])
def test_harmless_changes_are_accepted_and_non_text_is_refused(kind: str) -> None:
    assert {result == "accepted" for result in fuzz(kind, 5, derandomize=True)} == {kind in ALWAYS_ACCEPTED}


def refused(form: str, folder: Path, files: Files) -> str:
    write(folder, files)
    with pytest.raises(UserError) as error:
        load(form, folder, files)
    return re.sub(r"\(listed in \S+\)", "(listed in FILE)", str(error.value))


MOST = "where the first line has"
REJECTED = "1 of {} lines of train are rejected, more than data.max_rejected=0.01 (listed in FILE): fix or remove them"


def test_messages_name_the_line_and_the_fault(tmp_path: Path) -> None:
    file = tmp_path / "pairs.txt"
    cases = {
        "a stray tab": (
            b"a\tb\nc\td\ne f\tg\th\n",
            f", line 3: 3 tab-separated columns, {MOST} 2; {REJECTED.format(3)}",
        ),
        "a lost tab": (
            b"a\tb\tc\nc d\te\nf\tg\th\n",
            f", line 2: 2 tab-separated columns, {MOST} 3; {REJECTED.format(3)}",
        ),
        "UTF-16": ("a\tb\n".encode("utf-16"), " is UTF-16; convert the file to UTF-8"),
        "CR": (b"a\tb\rc\td\r", " ends its lines with carriage returns alone; convert them to line feeds"),
    }
    for content, sentence in cases.values():
        assert refused("tsv", tmp_path, {"train": ("pairs.txt", content)}) == f"{file}{sentence}"
    for line, sentence in (
        (
            rb'{"en": "a \ud800", "fr": "b"}',
            "a NUL or half a surrogate pair in the field 'en', so this is not plain text; set data.source_column to "
            "the name of the field",
        ),
        (b"[" * 100_000, "not JSON lines, but one JSON text; write one object per line, for example by `jq -c '.[]'`"),
        (
            b'{"a":' * 100_000,
            "not JSON (maximum recursion depth exceeded while decoding a JSON object from a unicode string); fix "
            "or remove the line",
        ),
        (
            b'{"\\n": 1, "' + b"f" * 500 + b'": 2}',
            f"no text in the field 'en' (fields: �, {'f' * 97}…); set data.source_column to the name of the field",
        ),
    ):
        file = tmp_path / "pairs.jsonl"
        assert refused("jsonl", tmp_path, {"train": (file.name, line)}) == f"{file}, line 1: {sentence}"


def test_a_home_that_is_not_there_is_one_sentence() -> None:
    files: Files = {"train": ("pairs.txt", MISSING)}
    with pytest.raises(UserError, match=r"^data.train=~nobody-here/pairs.txt names a home folder that is not there; "):
        load("tsv", Path("~nobody-here"), files)


def test_an_overlong_held_out_sentence_is_refused_before_validation_runs_out_of_memory(tmp_path: Path) -> None:
    pairs = [(f"s{i}", f"t{i}") for i in range(5)]
    files = {
        f"{split}.{side}": (f"{split}.{side}", text_of([pair[k] for pair in pairs]))
        for split in SPLITS["six"]
        for k, side in enumerate(("en", "fr"))
    }
    files["val.fr"] = ("val.fr", text_of(["t0", "t1", "mot " * 2_501, "t3", "t4"]))
    assert refused("six", tmp_path, files) == (
        f"pair 3 of val ({tmp_path / 'val.en'}, {tmp_path / 'val.fr'}) has a side of 10,003 characters (the source "
        "begins with 's2'); val is not cleaned, and a model can read 10,000: shorten or remove the pair, in both "
        "languages"
    )


def train(folder: Path, *overrides: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "train.py", f"hydra.run.dir={folder / 'run'}", "debug=fast", *overrides],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"COLUMNS": "120"},
    )
    return done.returncode, done.stderr


@pytest.mark.slow  # what a sentence becomes is tested once, in cli/test_entry.py
def test_the_command_prints_one_line_and_exits_with_2(tmp_path: Path) -> None:
    file = tmp_path / "pairs.txt"
    file.write_bytes("s1\té\n".encode("latin-1") * 9)
    code, said = train(tmp_path, "data=parallel", f"data.train={file}", f"paths.cache_dir={tmp_path}/cache")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith(f"{file}, line 1: not UTF-8; 9 of 9 lines of train are rejected, more than")
    assert said.endswith("rejected_train.tsv): fix or remove them\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "sentence"), [(None, " cannot be read (Is a directory)"), (b"\n" * 9, ", line 1: 1 tab")]
)
def test_other_errors_are_one_line_too(content: bytes | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.txt"
    write(tmp_path, {"train": (file.name, content or DIRECTORY)})
    status, message = train(tmp_path, "data=tatoeba", f"data.path={file}")
    assert (status, message.count("\n")) == (2, 1)
    assert message.startswith(f"{file}{sentence}")
