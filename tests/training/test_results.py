"""What a run leaves of its translations has a row a sentence, whatever the sentences hold."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seq2seq_attn.data.corpus import CleaningReport, LoadedCorpus, Split
from seq2seq_attn.logger.tensorboard_logger import TensorBoardRun
from seq2seq_attn.training.results import log_translations, print_results, write_translations
from seq2seq_attn.training.translation_module import TranslationModule

HOSTILE = "".join(map(chr, [*range(0x21), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0x2066])) + "é | x"


def hostile() -> tuple[TranslationModule, LoadedCorpus]:
    """Two tested sentences, each of all control characters."""
    module: Any = TranslationModule.__new__(TranslationModule)
    object.__setattr__(module, "test_names", ["test"])
    object.__setattr__(module, "scores", SimpleNamespace(translations={"test": {0: HOSTILE, 1: HOSTILE}}))
    split = Split([HOSTILE] * 2, [HOSTILE] * 2, [[HOSTILE], [HOSTILE, HOSTILE]])
    return module, LoadedCorpus({"test": split}, CleaningReport({}), "en", "fr")


def test_every_file_has_a_row_for_each_sentence_and_its_columns(tmp_path: Path) -> None:
    write_translations(tmp_path, *hostile())
    for kind, columns in (("tsv", 3), ("references", 2), ("hypotheses", 1)):
        text = (tmp_path / f"translations.{kind}").read_bytes().decode()
        assert [len(line.split("\t")) for line in text.splitlines()] == [columns] * 2, kind
        if kind == "tsv":
            assert all(part.isprintable() for part in text.replace("\u00a0", " ").splitlines()[0].split("\t"))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("demo", 'echo "Where is the library?" | '),
        *((data, "") for data in ("demo_summary", "demo_dialogue", "mixture")),
    ],
)
def test_the_next_command_translates_a_line_or_reads_a_file_of_the_task(
    data: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_results(Path("/runs/one"), {"model": "transformer", "attention": "multihead", "data": data})
    given = "" if line else " input=FILE"
    assert f"Next: {line}python translate.py ckpt_path=/runs/one{given}\n" in capsys.readouterr().out


def test_the_next_command_after_a_pre_training_trusts_the_packages_of_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = {"model": "transformer", "attention": "mine", "data": "text"}
    print_results(Path("/runs/one"), results, trust=["mine", "yours"], example="")
    assert capsys.readouterr().out.endswith(" data.train=FILE init_from.run=/runs/one trust=[mine,yours]\n")


def test_a_logged_table_has_a_row_for_each_sentence(tmp_path: Path) -> None:
    logged: list[str] = []

    class Writer:
        def add_text(self, name: str, text: str, step: int | None) -> None:
            logged.append(text)

    class Logger(TensorBoardRun):  # type: ignore[misc]
        experiment = Writer()  # type: ignore[assignment]

        def __init__(self) -> None: ...

    log_translations([Logger()], *hostile())
    assert [line.count(" | ") for line in logged[0].splitlines()] == [2] * 4
