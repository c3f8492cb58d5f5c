"""The package keeps its layers, and the checker sees each way to break them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def check(*arguments: str) -> subprocess.CompletedProcess:
    words = [sys.executable, "-m", "scripts.checks.import_layers", *arguments]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True)


def package(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / "seq2seq_attn" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "seq2seq_attn"


def test_the_package_imports_downwards_only():
    run = check()
    assert run.returncode == 0, run.stdout
    assert run.stdout.endswith(" modules follow the order\n")


def test_every_forbidden_import_is_printed_with_its_line(tmp_path):
    root = package(
        tmp_path,
        {
            "__init__.py": "from seq2seq_attn import model\n",
            "attention/score/dot.py": "import math\n\nfrom seq2seq_attn.model.encoder_decoder import Model\n",
            "data/reader.py": "def read():\n    import seq2seq_attn.position.rotary\n",
            "extra/thing.py": "",
            "nn/mask.py": "from ..cli import entry\nfrom seq2seq_attn import search, metric\n",
            "model/model.py": "from seq2seq_attn.helpers import f\n",
        },
    )
    run = check(str(root))
    assert run.returncode == 1
    assert run.stdout.replace(f"{root}/", "").splitlines() == [
        "__init__.py:1: seq2seq_attn itself imports model, and with it every layer would; remove it from __init__",
        "attention/score/dot.py:3: attention may not import model: only lower layers may be imported",
        "data/reader.py:2: data may not import position: siblings in a layer may not import each other",
        "extra/thing.py:1: folder extra is in no layer; add it to LAYERS in import_layers.py",
        "model/model.py:1: model imports helpers, which is in no layer",
        "nn/mask.py:1: nn may not import cli: only lower layers may be imported",
        "nn/mask.py:2: nn may not import search: only lower layers may be imported",
        "nn/mask.py:2: nn may not import metric: only lower layers may be imported",
    ]
    assert run.stderr.startswith(
        "8 imports violate the order __main__ > cli > sweep > explorer > evaluation | comparison > inference | training"
    )


def test_downward_imports_and_those_within_a_folder_are_allowed(tmp_path):
    root = package(
        tmp_path,
        {
            "cli/__init__.py": "from .entry import main\nfrom . import entry\n",
            "cli/entry.py": "from seq2seq_attn import __version__\nfrom seq2seq_attn.nn import mask\n",
            "decoder/rnn.py": "from ..attention import attention\nfrom .cell import C\nimport seq2seq_x\n",
        },
    )
    assert check(str(root)).stdout == "import layers: 3 modules follow the order\n"


def test_an_empty_folder_is_not_taken_for_a_clean_one(tmp_path):
    run = check(str(tmp_path))
    assert (run.returncode, run.stderr) == (2, f"{tmp_path} has no Python files; give the folder of a package\n")
