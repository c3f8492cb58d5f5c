"""A mistake on the command line is answered by one sentence and exit code 2; a bug keeps its traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from child import Child, Done
from configs import ROOT

CONF = {
    "app.yaml": """
        defaults: [_self_, attention: bahdanau, metric: [bleu], trainer: default]
        seed: 1
        copy: ${attention}
        needed: ???
        hydra: {run: {dir: runs}, sweep: {dir: sweep}, output_subdir: null}
        """,
    "other.yaml": "defaults: [experiment: broken]\n",
    "asks.yaml": "defaults: [_self_, experiment: '???']\n",
    "spoilt.yaml": "seed: [1\n",
    "attention/bahdanau.yaml": "defaults: [score: additive]\n",
    "attention/sparse.yaml": "defaults: [score: dot]\n",
    "attention/score/additive.yaml": "hidden_dim: 3\n",
    "attention/score/dot.yaml": "width: 5\n",
    "metric/bleu.yaml": "bleu: {lowercase: false}\n",
    "metric/chrf.yaml": "chrf: {beta: 2}\n",
    "trainer/default.yaml": "max_steps: 7\nmax_epochs: 11\n",
    "experiment/broken.yaml": "defaults: [/attention: vanished]\n",
    "encoder/rnn.yaml": "size: 3\n",
}
APP = """
import os, signal, sys
from omegaconf import DictConfig
from seq2seq_attn.cli.entry import main
from seq2seq_attn.errors import UserError

def task(config: DictConfig) -> None:
    from hydra.core.hydra_config import HydraConfig
    from hydra.utils import instantiate
    if config.seed == 2:
        raise UserError("seed 2 is taken; use seed=3")
    if config.seed == 3:
        instantiate({"_target_": "builtins.dict", "a": {"_target_": "app.refuse"}})
    if config.seed == 4:
        raise ZeroDivisionError("a bug")
    if config.seed == 5:
        # As at a terminal; a job started in the background of a script inherits SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGINT)
    if config.seed == 12:
        with open(os.devnull) as file:
            print("a file has number over 2:", file.fileno() > 2)
            assert file.fileno() > 2
    if config.seed == 13:
        raise UserError("the line \\x1b[2J is taken; use another")
    if config.seed == 11:
        os.kill(os.getpid(), signal.SIGHUP)
    if config.seed == 6:
        config.needed
    if config.seed == 7:
        for _ in range(100_000):
            print("a line that is too much for head")
    print("ran", HydraConfig.get().job.name, config.seed, config.attention.score)

def refuse():
    raise UserError("a part refuses; take another")

if __name__ == "__main__":
    main(task, "app", CONF)
"""
HELP = "`python app.py --cfg job` lists them.\n"
LISTED = "`python app.py --help` lists the choices, `python app.py --cfg job` the options\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("application")
    for name, text in CONF.items():
        (folder / "conf" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "conf" / name).write_text("# a test's config\n" + "\n".join(map(str.strip, text.split("\n"))))
    (folder / "app.py").write_text(APP.replace("CONF", repr(str(folder / "conf"))))
    return folder


def run(folder: Path, *arguments: str, stdout: int | None = None) -> Done:
    return Child(folder / "app.py", arguments, folder, {"COLUMNS": "200"}, stdout).wait()


def run_by_shell(folder: Path, *arguments: str, wrapper: str = 'exec "$@"') -> subprocess.CompletedProcess[str]:
    """As `python app.py`, with what a shell can do around it."""
    command = ["sh", "-c", wrapper, "sh", sys.executable, "app.py", *arguments]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{folder}"}
    return subprocess.run(command, env=environment, capture_output=True, timeout=60, text=True, cwd=folder)


MISTAKES = [
    ("attenton=sparse", f"There is no option 'attenton'; did you mean 'attention'? {HELP}"),
    ("trainer.max_stpes=1", f"There is no option 'trainer.max_stpes'; did you mean 'trainer.max_steps'? {HELP}"),
    ("attention/scroe=dot", f"There is no option 'attention/scroe'; did you mean 'attention/score'? {HELP}"),
    (
        "attention=sparse attention.score.widht=3",
        f"There is no option 'attention.score.widht'; did you mean 'attention.score.width'? {HELP}",
    ),
    ("attention=sparze", "There is no attention 'sparze'; did you mean 'sparse'?\n"),
    ("metric=[bleu,chrff]", "There is no metric 'chrff'; did you mean 'chrf'?\n"),
    ("encoder=rnn", "'encoder' is no group of python app.py; `python app.py --help` names those that it has\n"),
    ("--config-name=other", "There is no attention 'vanished'; choose from: bahdanau, sparse\n"),
    ("seed", "'seed' lacks '=' and a value; write OPTION=VALUE\n"),
    ("seed=2", "seed 2 is taken; use seed=3\n"),
    ("seed=3", "a part refuses; take another\n"),
    (
        "copy.score.hidden_dim=5",
        f"There is no option 'copy.score.hidden_dim'; did you mean 'attention.score.hidden_dim'? {HELP}",
    ),
    ("seed=6", "The option 'needed' has no value; set it: `python app.py needed=...`\n"),
    ("seed=${sed}", "The option 'seed' cannot be worked out: Interpolation key 'sed' not found\n"),
    ("qqqq=1", f"There is no option 'qqqq'; {HELP}"),
    ("--config-name=ap", "There is no config 'ap'; did you mean 'app'?\n"),
]
LIKE_THEM = [  # of the same kinds
    ("trianer.max_steps=1", f"There is no option 'trianer.max_steps'; did you mean 'trainer.max_steps'? {HELP}"),
    ("metric/bleu=1", f"There is no option 'metric/bleu'; did you mean 'metric.bleu'? {HELP}"),
    ("hydra.job.chdr=1", f"There is no option 'hydra.job.chdr'; did you mean 'hydra.job.chdir'? {HELP}"),
    ("attention/score=dott", "There is no attention/score 'dott'; did you mean 'dot'?\n"),
    ("attention@cross=sparse", "There is no group 'attention@cross'; did you mean attention=sparse?\n"),
    ("metric=[1,2]", f"Hydra cannot read metric=[1,2]: argument of type 'int' is not iterable; {LISTED}"),
    (
        "--config-name=asks",
        f"You must specify 'experiment', e.g, experiment=<OPTION> Available options: broken; {LISTED}",
    ),
    (
        "seed=1,2",
        "seed=1,2 names several values; write seed=[1,2] for a list of them, seed='\"1,2\"' for one text, or add -m "
        "for a job with each value\n",
    ),
    ("seed=range(3)", f"Sweep parameters 'seed=range(3)' requires --multirun; {LISTED}"),
    (
        "+seed=2",
        "Could not append to config. An item is already at 'seed'. Either remove + prefix: 'seed=2' Or add a "
        f"second + to add or override 'seed': '++seed=2'; {LISTED}",
    ),
    (
        "attention=3",
        f"Hydra cannot read attention=3: Config group override must be a string or a list. Got int; {LISTED}",
    ),
    (
        "hydra.job.chdir=often",
        "Error merging override hydra.job.chdir=often: Value 'often' is not a valid bool (type str); " + LISTED,
    ),
    (
        "--run --cfg=job",
        "Hydra cannot read app: Only one of --run, --multirun, --cfg, --info and --shell_completion can be "
        f"specified; {LISTED}",
    ),
    ("-m attention=sparse,sparze", "There is no attention 'sparze'; did you mean 'sparse'?\n"),
]


@pytest.mark.parametrize(
    ("arguments", "sentence"), [*MISTAKES, *(pytest.param(*row, marks=pytest.mark.slow) for row in LIKE_THEM)]
)
def test_a_mistake_is_one_sentence_on_standard_error(folder, arguments, sentence):
    result = run(folder, *arguments.split())
    assert (result.stderr, result.stdout, result.returncode) == (sentence, "", 2)


def test_a_config_that_is_no_yaml_is_named_with_its_line(folder):
    result = run(folder, "--config-name=spoilt")
    assert result.returncode == 2
    assert result.stderr.startswith("Hydra cannot read app: while parsing a flow sequence in ")
    assert "spoilt.yaml" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_config_of_your_own_in_another_encoding_is_named(folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "latin.yaml").write_bytes("# modèle\nseed: 3\n".encode("latin1"))
    result = run(folder, "--config-dir", "mine", "--config-name=latin")
    sentence = f"{Path('mine') / 'latin.yaml'} is not UTF-8; convert it: iconv -f latin1 -t utf-8 FILE\n"
    assert (result.stderr, result.stdout, result.returncode) == (sentence, "", 2)


def test_a_right_command_runs_under_the_name_of_its_file(folder):
    result = run(folder, "seed=8", "attention=sparse")
    assert (result.stdout, result.stderr, result.returncode) == ("ran app 8 {'width': 5}\n", "", 0)


def test_a_run_folder_may_be_given_from_home(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run(folder, "seed=8", "hydra.run.dir=~/mine").returncode == 0
    assert (tmp_path / "home" / "mine").is_dir()
    assert run(folder, "-m", "seed=8", "hydra.sweep.dir=~/all").returncode == 0
    assert (tmp_path / "home" / "all" / "0").is_dir()
    assert not (folder / "~").exists()


def test_a_flag_may_stand_anywhere_and_an_unknown_one_is_refused(folder):
    result = run(folder, "seed=8", "-m", "needed=1")
    assert (result.stderr, result.returncode) == ("", 0)
    result = run(folder, "--multrun")
    assert (result.stderr, result.returncode) == ("There is no flag '--multrun'; did you mean '--multirun'?\n", 2)


def test_a_bug_keeps_its_traceback(folder):
    result = run(folder, "seed=4", "trainer.max_steps=abc")
    assert result.returncode == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("ZeroDivisionError: a bug\n")


def test_a_sweep_goes_on_after_a_mistake_and_says_it_at_the_end(folder):
    result = run(folder, "-m", "seed=8,2,9")
    assert result.returncode == 2
    assert [line for line in result.stdout.splitlines() if line.startswith("ran")] == [
        "ran app 8 {'hidden_dim': 3}",
        "ran app 9 {'hidden_dim': 3}",
    ]
    assert result.stderr.splitlines() == [
        "job 1: seed 2 is taken; use seed=3",
        "Error executing job with overrides: ['seed=2']",
        "seed 2 is taken; use seed=3",
    ]


def test_control_c_and_a_closed_pipe_are_quiet(folder):
    assert run(folder, "seed=5").returncode == 130
    assert run(folder, "seed=5").stderr == ""
    for arguments in (["seed=7"], ["--cfg", "all"]):
        reading, writing = os.pipe()
        os.close(reading)
        result = run(folder, *arguments, stdout=writing)
        os.close(writing)
        assert (result.stderr, result.returncode) == ("", 128 + signal.SIGPIPE)


@pytest.mark.parametrize("arguments", [["seed=8"], ["--cfg", "job"], pytest.param(["--help"], marks=pytest.mark.slow)])
def test_a_full_standard_output_is_one_sentence(folder, arguments):
    result = run_by_shell(folder, *arguments, wrapper='exec "$@" > /dev/full')
    sentence = "Standard output or a file cannot be written (No space left on device); make room, or write elsewhere\n"
    assert (result.stderr, result.returncode) == (sentence, 2)


@pytest.mark.slow
def test_a_closed_standard_stream_is_as_the_null_device_and_gives_no_file_its_number(folder):
    for stream in ("<&-", ">&-", "<&- >&- 2>&-"):
        result = run_by_shell(folder, "seed=12", wrapper=f'exec "$@" {stream}')
        assert (result.stderr, result.returncode) == ("", 0)
        assert result.stdout == (
            "" if ">&-" in stream else "a file has number over 2: True\nran app 12 {'hidden_dim': 3}\n"
        )


def test_a_quoted_override_moves_no_cursor(folder):
    result = run(folder, "see\x1b[31md=1")
    assert (result.returncode, "\x1b" in result.stderr) == (2, False)
    assert "see\ufffd[31md" in result.stderr
    assert run(folder, "seed=13").stderr == "the line \ufffd[2J is taken; use another\n"


@pytest.mark.slow
def test_a_hang_up_is_quiet_and_nohup_is_heard(folder):
    assert (run(folder, "seed=11").returncode, run(folder, "seed=11").stderr) == (129, "")
    assert run_by_shell(folder, "seed=11", wrapper="trap '' HUP; exec \"$@\"").returncode == 0


def test_hydras_own_answers_reach_standard_output_untouched(folder):
    assert run(folder, "--cfg", "job", "--package", "trainer").stdout == (
        "# @package trainer\nmax_steps: 7\nmax_epochs: 11\n"
    )
    shown = run(folder, "--help")
    assert "attention: bahdanau, sparse" in shown.stdout
    assert (shown.stderr, shown.returncode) == ("", 0)
    assert "attention/score: additive" in run(folder, "--info", "defaults-tree").stdout
    assert "hydra_bash_completion" in run(folder, "--shell-completion", "install=bash").stdout


def test_config_directory_is_inside_a_wheel_and_beside_the_package_in_a_checkout():
    root = Path(__file__).parents[2]
    code = (
        "import sys; from seq2seq_attn.cli.entry import conf_directory; "
        "assert not {'torch', 'matplotlib'} & set(sys.modules); print(conf_directory())"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, cwd=root, text=True).strip() == str(root / "conf")


def test_config_directory_inside_the_package_comes_first(tmp_path):
    package = Path(__file__).parents[2] / "seq2seq_attn"
    for name in (
        "__init__.py",
        "cli/__init__.py",
        "cli/choices.py",
        "cli/completion.py",
        "cli/entry.py",
        "cli/config_errors.py",
        "distributed/__init__.py",
        "distributed/rank_overrides.py",
        "distributed/run_lock.py",
        "errors.py",
        "paths.py",
        "process.py",
        "text.py",
    ):
        (tmp_path / "seq2seq_attn" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "seq2seq_attn" / name).write_bytes((package / name).read_bytes())
    (tmp_path / "seq2seq_attn/conf").mkdir()
    code = "from seq2seq_attn.cli.entry import conf_directory; print(conf_directory())"
    output = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True)
    assert Path(output.strip()).resolve() == (tmp_path / "seq2seq_attn/conf").resolve()
