"""The command explore.py: what it refuses, the file that it writes, and how it ends."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest
from child import Child
from configs import CONF, ROOT
from explorer.test_one_file import data_of
from hydra import compose, initialize_config_dir
from tiny import SENTENCES, write_checkpoint

from seq2seq_attn.errors import UserError
from seq2seq_attn.explorer.explore import explore

PAGE = (ROOT / "docs" / "explorer.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^(?:seq2seq-attn explore|python explore\.py) (.+)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("explore") / "model.ckpt")


def run(*overrides: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("explore", list(overrides))
    explore(config)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([], r"needs ckpt_path=RUN, a run folder or a \.ckpt file$"),
        (["ckpt_path=none", "port=70000"], r"^port=70000 must be int \| null in \[0, 65535\]"),
        (["ckpt_path=none", "page=maps.html"], r"^page= needs input=; give page=FILE\.html input=FILE, or neither"),
        (["ckpt_path=none", "input=english.txt"], r"^input= needs page=; "),
        (["ckpt_path=none", "page=maps.htm", "input=english.txt"], r"^page=maps\.htm does not end in \.html"),
        (
            ["ckpt_path=none", "page=m.html", "input=e.txt", "port=80", "open=true"],
            r"^page= writes a file and serves nothing; leave out port=80, open=true$",
        ),
        (["ckpt_path=none"], r"none"),
        (["ckpt_path=[{checkpoint},{checkpoint}]"], r"looks at one model's attention, not at an ensemble's"),
        (["ckpt_path={checkpoint}", "device=tpu"], r"^device=tpu cannot be used here"),
    ],
)
def test_a_mistake_is_one_sentence(overrides: list[str], sentence: str, checkpoint: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        run(*(override.format(checkpoint=checkpoint) for override in overrides))


def test_a_model_of_the_other_direction_is_not_compared(checkpoint: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "other.ckpt", "data.source_language=fr", "data.target_language=en")
    (tmp_path / "english.txt").write_text(SENTENCES[0])
    given = [f"page={tmp_path / 'maps.html'}", f"input={tmp_path / 'english.txt'}", "device=cpu"]
    with pytest.raises(
        UserError, match=r"other.ckpt translates from fr to en, but the page shows both models one sentence"
    ):
        run(f"ckpt_path={checkpoint}", f"compare={other}", *given)
    assert not (tmp_path / "maps.html").exists()


def test_without_the_extra_a_server_is_refused_and_one_file_is_written(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "seq2seq_attn.explorer.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(
        UserError, match=r"needs uvicorn, which is not installed; pip install 'seq2seq_attn\[explore\]', or "
    ):
        run(f"ckpt_path={checkpoint}")
    english, page = tmp_path / "english.txt", tmp_path / "maps.html"
    english.write_text(f"{SENTENCES[0]}\n\n{SENTENCES[1]}\n")
    run(f"ckpt_path={checkpoint}", f"compare={checkpoint}", f"page={page}", f"input={english}", "device=cpu")
    data = data_of(page.read_text(encoding="utf-8"))
    assert [model["run"] for model in data["models"]["models"]] == [str(checkpoint)] * 2
    assert [(look["model"], look["source"]["text"]) for look in data["looks"]] == [
        (model, text) for text in SENTENCES[:2] for model in (0, 1)
    ]
    assert {slot["dtype"] for look in data["looks"] for slot in look["slots"]} == {"float16"}


@pytest.mark.slow
@pytest.mark.parametrize("signum", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_ends_it_without_a_traceback(signum: signal.Signals, checkpoint: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = Child(ROOT / "explore.py", [f"ckpt_path={checkpoint}", "device=cpu"], tmp_path, stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as lines:
        assert re.fullmatch(r"Explorer: http://127\.0\.0\.1:\d+/ \(Ctrl-C ends it\)\n", lines.readline())
        time.sleep(0.3)
        os.kill(child.pid, signum)
        done = child.wait()
        assert (done.returncode, lines.read(), done.stderr) == (128 + signum, "", "")


def test_commands_of_the_page_compose() -> None:
    assert len(COMMANDS) >= 4
    for command in COMMANDS:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            assert compose("explore", shlex.split(command, comments=True)).ckpt_path


def test_pictures_of_the_page_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE)
    assert len(pictures) == 5
    assert all((ROOT / "docs" / picture).stat().st_size < 200_000 for picture in pictures)
