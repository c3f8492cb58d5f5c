"""What each command answers about itself: help, its configuration, and what the shell completes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from child import done
from configs import CONF, ROOT, options
from omegaconf import OmegaConf

from seq2seq_attn import __version__
from seq2seq_attn.cli.choices import groups
from seq2seq_attn.cli.command import SUBCOMMANDS, main
from seq2seq_attn.cli.entry import check_flags
from seq2seq_attn.errors import UserError

OWN = ROOT / "examples" / "own_attention" / "conf"
COMMANDS = ("train", "translate", "evaluate", "explore")
each_command = pytest.mark.parametrize("name", COMMANDS)
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUTF8": "1"}
BASH = """
eval "$(python translate.py -sc install=bash)"
COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_CWORD=$(($# - 1))
hydra_bash_completion
printf '%s\\n' "${COMPREPLY[@]}"
"""


@cache
def answer(name: str, *arguments: str) -> str:
    answered = done(ROOT / f"{name}.py", *arguments, folder=ROOT)
    assert (answered.returncode, answered.stderr) == (0, "")
    return answered.stdout


# the options of the other pages: the next test
@pytest.mark.parametrize("name", ["train", *(pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS[1:])])
def test_help_is_a_page_with_choices_options_and_examples(name: str) -> None:
    shown = answer(name, "--help").splitlines()
    assert len(shown) < 100
    if name == "train":
        assert f"search: {', '.join(options('search'))}" in shown
        assert f"data: {', '.join(options('data'))}" in shown
    elif name != "explore":  # which has no group
        (named,) = (line.removeprefix("Groups: ").split(", ") for line in shown if line.startswith("Groups: "))
        assert {"search", "search/length_penalty"} <= set(named) <= set(groups())
    assert f"python {name}.py --cfg job --resolve" in "\n".join(shown)
    assert any(line.startswith(f"python {name}.py") or f"| python {name}.py" in line for line in shown)
    assert not [line for line in shown if "_target_" in line or "$" in line.replace('"$(...)"', "")]


@each_command
def test_the_options_that_help_explains_are_there(name: str) -> None:
    text = OmegaConf.load(CONF / f"{name}.yaml").hydra.help.template
    explained = [line.split()[0] for line in text.partition("ptions\n")[2].partition("\n\n")[0].splitlines()]
    assert len(explained) > 5
    config = yaml.safe_load(answer(name, "--cfg", "job", "--resolve"))
    groups = {path.name for path in CONF.iterdir() if path.is_dir()}
    for option in explained:
        node, _, key = option.rpartition(".")
        assert key in (config[node] if node else config.keys() | groups), option


@each_command
def test_the_resolved_configuration_is_yaml_without_a_reference_left(name: str) -> None:
    shown = answer(name, "--cfg", "job", "--resolve")
    assert "${" not in shown
    assert "ckpt_path" in yaml.safe_load(shown)


def completed(*words: str) -> list[str]:
    """Candidates of bash itself for the last word, through the function that `-sc install=bash` defines."""
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", *words], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["translate.py", "inp"], ["input="]),
        pytest.param(["translate.py", "input=./conf/train."], ["input=./conf/train.yaml"], marks=pytest.mark.slow),
        (["evaluate.py", "ckpt_path=./con"], ["ckpt_path=./conf", "ckpt_path=./constraints.txt"]),
        (["evaluate.py", "data=mul"], ["data=multi30k", "data=multi30k_tok"]),
    ],
)
def test_options_choices_and_files_complete_in_bash(words: list[str], candidates: list[str]) -> None:
    assert completed("python", *words) == candidates


def completions(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what `seq2seq-attn` answers to Hydra's scripts for a line of the shell."""
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setattr(sys, "argv", ["seq2seq-attn", "-sc", "query=bash"])
    main()
    return capsys.readouterr().out.split()


def test_subcommands_complete_by_their_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    firsts = dict.fromkeys(name.split()[0] for name in SUBCOMMANDS)
    assert completions("seq2seq-attn ", monkeypatch, capsys) == list(firsts)
    assert completions("seq2seq-attn dr", monkeypatch, capsys) == list(firsts)  # the shell compares
    assert completions("seq2seq-attn draw ", monkeypatch, capsys) == ["attention", "curves", "weights"]
    monkeypatch.chdir(CONF)
    assert completions("seq2seq-attn draw curves ./eva", monkeypatch, capsys) == ["./evaluate.yaml"]
    assert completions("seq2seq-attn draw curves ", monkeypatch, capsys) == []


@pytest.mark.parametrize(
    ("line", "candidates"),
    [
        ("evaluate data=mul", ["data=multi30k", "data=multi30k_tok"]),
        (f"train --config-dir {OWN} attention/score=lap", ["attention/score=laplace"]),
        (f"train --config-dir={OWN} attention/score=lap", ["attention/score=laplace"]),
        ("train attention/score=lap", []),
        ("train --config-dir nowhere attention/score=scaled", ["attention/score=scaled_dot"]),
        ("train --config-dir ", []),
    ],
)
def test_options_and_choices_complete_after_a_subcommand(line: str, candidates: list[str]) -> None:
    package = ROOT / "seq2seq_attn" / "__main__.py"
    environment = {"COMP_LINE": f"seq2seq-attn {line}"}
    answered = done(package, "-sc", "query=bash", folder=ROOT, environment=environment)
    assert (answered.returncode, answered.stderr, answered.stdout.split()) == (0, "", candidates)


@pytest.mark.slow
def test_bash_completes_the_command(tmp_path: Path) -> None:
    """Bash itself, with a console script as an installation makes it."""
    script = tmp_path / "seq2seq-attn"
    script.write_text(f"#!{sys.executable}\nfrom seq2seq_attn.cli.command import main\nmain()\n")
    script.chmod(0o755)
    environment = ENVIRONMENT | {"PATH": f"{tmp_path}:{ENVIRONMENT['PATH']}", "PYTHONPATH": str(ROOT)}
    bash = BASH.replace("python translate.py", "seq2seq-attn")
    for words, candidates in ((["seq2seq-attn", "dra"], ["draw"]), (["seq2seq-attn", "translate", "inp"], ["input="])):
        answered = subprocess.run(
            ["bash", "-c", bash, "bash", *words], env=environment, capture_output=True, text=True, timeout=60
        )
        assert (answered.stdout.split(), answered.stderr) == (candidates, "")


def test_the_list_of_subcommands_is_one_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["seq2seq-attn", "--help"])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert [line[2:24].strip() for line in lines if line.startswith("  ")] == list(SUBCOMMANDS)


def test_help_of_a_group_says_what_each_choice_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["seq2seq-attn", "--help", "experiment"])
    main()
    *lines, blank, last = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line[2] != " "] == options("experiment")
    assert lines[-1].strip()
    assert (blank, str(CONF / "experiment") in last) == ("", True)
    for file in (CONF / "experiment").glob("*.yaml"):
        purpose = file.read_text("utf-8").splitlines()[1].removeprefix("# ")
        assert f"{file.stem} {purpose}" in " ".join(" ".join(lines).split())


def test_help_of_a_group_has_the_choices_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "attention" / "score"
    folder.mkdir(parents=True)
    (folder / "laplace.yaml").write_text("# As said. Me 2026\n_target_: a\n")
    (folder / "bare.yaml").write_text("_target_: b\n")
    monkeypatch.setattr(sys, "argv", ["seq2seq-attn", "--help", "attention/score", "--config-dir", str(tmp_path)])
    main()
    *lines, _, last = capsys.readouterr().out.splitlines()
    assert "  laplace" in " ".join(lines)
    assert any(line.endswith(" As said. Me 2026") for line in lines)
    assert any(line.strip() == "bare" for line in lines)
    assert {"dot", "laplace"} <= {line.split()[0] for line in lines}
    assert str(folder) in last
    assert str(CONF / "attention" / "score") in last
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "one.yaml").write_text("# A group of mine\na: 1\n")
    monkeypatch.setattr(sys, "argv", ["seq2seq-attn", "--help", "mine", f"--config-dir={tmp_path}"])
    main()
    assert capsys.readouterr().out.startswith("  one  A group of mine\n")
    monkeypatch.setattr(sys, "argv", ["seq2seq-attn", "--help", "attention/score", "--config-dir=nowhere"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "--config-dir=nowhere is no folder; give one with YAML files" in capsys.readouterr().err


def test_a_group_that_is_not_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, guess in (("experiments", "did you mean 'experiment'?"), ("xyz", "choose from: attention, attention/")):
        monkeypatch.setattr(sys, "argv", ["seq2seq-attn", "--help", name])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert f"There is no group of options '{name}'; {guess}" in capsys.readouterr().err


@each_command
def test_the_command_of_the_package_is_the_script_of_the_checkout(name: str) -> None:
    package = ROOT / "seq2seq_attn" / "__main__.py"
    composed = done(package, name, "--cfg", "job", folder=ROOT)
    assert (composed.returncode, composed.stdout) == (0, answer(name, "--cfg", "job"))
    refused = done(package, name, "colour=blue", folder=ROOT)
    assert refused.returncode == 2
    assert refused.stderr.endswith(f"`seq2seq-attn {name} --cfg job` lists them.\n")


def test_the_command_names_its_version() -> None:
    assert (
        done(ROOT / "seq2seq_attn" / "__main__.py", "--version", folder=ROOT).stdout == f"seq2seq-attn {__version__}\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export"], "'export'; choose from: export ctranslate2, export hub, export safetensors"),
        (["draw", "curve"], "'draw curve'; choose from: draw attention, draw curves, draw weights"),
        (["trian"], "'trian'; did you mean 'train'?"),
    ],
)
def test_a_subcommand_that_is_not_there_is_answered_with_those_of_its_name(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["seq2seq-attn", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"There is no subcommand {said}" in capsys.readouterr().err


def test_help_may_be_cut_by_head() -> None:
    read, write = os.pipe()
    os.close(read)  # as a reader that has ended
    code = "from seq2seq_attn.cli.command import main; main()"
    with os.fdopen(write, "wb") as closed:
        ended = subprocess.run(
            [sys.executable, "-c", code, "--help"], cwd=ROOT, stdout=closed, stderr=subprocess.PIPE, check=False
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("flag", "way_out"), [("--hlep", "did you mean '--help'?"), ("--ckpt_path", "an option is written ckpt_path=VALUE")]
)
def test_a_flag_that_is_not_there_is_one_sentence(flag: str, way_out: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"There is no flag '{flag}'; {way_out}")):
        check_flags(["--config-d", "conf", flag, "RUN"])


def test_the_help_of_a_family_of_subcommands_lists_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["seq2seq-attn", "compare", "--help"])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        f"seq2seq-attn compare {name}" for name in ("lengths", "runs", "translations")
    ]
