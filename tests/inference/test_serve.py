"""The command serve: its options, what it refuses, and how it ends."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from child import Child
from configs import CONF, ROOT
from explorer.served import Served
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tiny import SENTENCES, write_checkpoint

from seq2seq_attn.errors import UserError
from seq2seq_attn.inference import serve as serve_module
from seq2seq_attn.inference.serve import serve
from seq2seq_attn.inference.translation_server import listen
from seq2seq_attn.inference.translator import CONTINUES

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^seq2seq-attn serve (.+)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("serve") / "model.ckpt")


def run(*overrides: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("serve", list(overrides))
    serve(config)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([], r"needs ckpt_path=RUN, a run folder or a \.ckpt file$"),
        (["ckpt_path=none", "port=70000"], r"^port=70000 must be int in \[0, 65535\]"),
        (["ckpt_path=none", "batch_sentences=0"], r"^batch_sentences=0 must be int in \[1, 1000000\]"),
        (["ckpt_path=none", "host=null"], r"^host=null must be str; "),
        (["ckpt_path=none", "host=''"], r"^host= names no address; give host=127\.0\.0\.1, or host=0\.0\.0\.0 for "),
        (["ckpt_path=none", "host=192.0.2.1"], r"^port=8000 of 192\.0\.2\.1 cannot be used \(.+\); give another port,"),
        (["ckpt_path=none", "port=0"], r"none"),
        (["ckpt_path={checkpoint}", "port=0", "device=tpu"], r"^device=tpu cannot be used here"),
        (["ckpt_path={checkpoint}", "port=0", "compute_type=int8"], r"^compute_type=int8 is for engine=ctranslate2; "),
    ],
)
def test_a_mistake_is_one_sentence(overrides: list[str], sentence: str, checkpoint: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        run(*(override.format(checkpoint=checkpoint) for override in overrides))


def test_the_limits_of_a_batch_and_of_a_source_are_those_of_the_options(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    monkeypatch.setattr(serve_module, "serve_translations", lambda translate, *_, **options: found.append(translate))
    run(f"ckpt_path={checkpoint}", "port=0", "device=cpu", "max_source_tokens=3")
    (translation,) = found[0]([" ".join(SENTENCES[:3])])
    assert any("to 3 tokens" in note for note in translation.notes)


def test_a_server_of_a_language_model_refuses_prefixes(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    monkeypatch.setattr(serve_module, "serve_translations", lambda *_, no_prefixes, **__: found.append(no_prefixes))
    language_model = write_checkpoint(tmp_path / "lm.ckpt", "model=lm", "model.decoder.num_layers=1")
    for file in (checkpoint, language_model):
        run(f"ckpt_path={file}", "port=0", "device=cpu")
    assert found == [None, CONTINUES]


def test_a_port_in_use_is_one_sentence_before_a_model_is_loaded() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        sentence = rf"^port={port} of 127\.0\.0\.1 cannot be used \(Address already in use\); "
        with pytest.raises(UserError, match=sentence):
            run("ckpt_path=none", f"port={port}")


def test_without_the_extra_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "seq2seq_attn.inference.translation_server"
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UserError, match=r"needs uvicorn, which is not installed; pip install 'seq2seq_attn\[serve\]'$"):
        importlib.import_module(module)


@pytest.mark.parametrize("signum", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_an_ensemble_is_served_until_a_signal_ends_it_without_a_traceback(
    signum: signal.Signals, checkpoint: Path, tmp_path: Path
) -> None:
    options = [f"ckpt_path=[{checkpoint},{checkpoint}]", "device=cpu", "port=0", "search=beam", "search.num_best=2"]
    reading, writing = os.pipe()
    child = Child(ROOT / "seq2seq_attn" / "__main__.py", ["serve", *options], tmp_path, stdout=writing)
    os.close(writing)
    with os.fdopen(reading) as lines:
        first = lines.readline()
        found = re.fullmatch(r"Translation server: http://127\.0\.0\.1:(\d+)/translate \(Ctrl-C ends it\)\n", first)
        assert found, child.wait()
        request = json.dumps({"text": SENTENCES[:2], "n_best": 2}).encode()
        answer = Served(int(found[1])).ask("POST", "/translate", request, content_type="application/json")
        os.kill(child.pid, signum)
        done = child.wait()
        assert (done.returncode, lines.read(), done.stderr) == (128 + signum, "", "")
    assert answer.status == 200, answer.json
    assert [len(one["n_best"]) for one in answer.json["translations"]] == [2, 2]


def test_help_explains_every_option() -> None:
    text = OmegaConf.load(CONF / "serve.yaml").hydra.help.template
    explained = [line.split()[0] for line in text.partition("Options\n")[2].partition("\n\n")[0].splitlines()]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("serve", ["ckpt_path=a", "search=beam"])
    assert set(explained) == set(config)
    assert len(explained) == len(config)


def test_commands_of_the_page_compose() -> None:
    assert len(COMMANDS) >= 3
    for command in COMMANDS:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            assert compose("serve", shlex.split(command, comments=True)).ckpt_path
