"""The config tree keeps its rules: a choice stands in the folder of the package that holds its class."""

import importlib
import inspect
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
OWN_FOLDERS = (
    "attention",
    "callback",
    "data",
    "decoder",
    "encoder",
    "metric",
    "model",
    "position",
    "search",
    "tokenizer",
)
PARTS = ("attention/normalizer", "attention/pattern", "attention/score")
KEYED_FOLDERS = ("callback", "metric")  # several files are picked at once, so each is one named key
HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "defaults"}


def yamls(*folders: str) -> list[str]:
    """Names of files below the folders, without suffix."""
    files = [path for folder in folders for path in (CONF / folder).rglob("*.yaml")]
    return sorted(path.relative_to(CONF).with_suffix("").as_posix() for path in files)


ALL, OWN, PRESETS = (yamls("."), yamls(*OWN_FOLDERS), [name for name in yamls("attention") if name.count("/") == 1])


def options(name: str) -> dict:
    """The file's own options, under those of the files of its folder that it starts from."""
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    folder, _, stem = name.rpartition("/")
    if folder in KEYED_FOLDERS:
        assert list(content) == [stem], f"{name}.yaml must hold one key, {stem}"
        return content[stem]
    bases = [base for base in content.get("defaults", []) if isinstance(base, str) and base != "_self_"]
    return {key: value for base in bases for key, value in options(f"{folder}/{base}").items()} | content


def target(name: str) -> type:
    module, _, attribute = options(name)["_target_"].rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_there_are_choices_to_check():
    assert {name.partition("/")[0] for name in OWN} >= set(OWN_FOLDERS) - {"position"}
    assert len(PRESETS) > 3
    assert all(yamls(part) for part in PARTS)


@pytest.mark.parametrize("name", ALL)
def test_first_line_says_what_the_choice_is(name):
    lines = (CONF / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    first = next(line for line in lines if not line.startswith("# @package"))  # Hydra reads it in line 1 only
    assert first.startswith("# ")
    assert len(first.split()) > 2


@pytest.mark.parametrize("name", OWN)
def test_target_is_a_class_of_the_package_that_the_folder_names(name):
    folder = name.rpartition("/")[0].replace("/", ".")
    where = options(name)["_target_"].rpartition(".")[0]
    if not (name.startswith("callback/") and where.startswith("pytorch_lightning.callbacks")):
        assert f"{where}.".startswith(f"seq2seq_attn.{folder}.")
    assert inspect.isclass(target(name))


@pytest.mark.parametrize("name", OWN)
def test_every_option_is_an_argument_of_the_class(name):
    arguments = inspect.signature(target(name)).parameters
    assert set(options(name)) - HYDRA_KEYS <= set(arguments)


def test_a_class_of_its_own_stands_in_the_file_that_is_named_as_its_option():
    names = yamls(*PARTS, "decoder", "encoder", "metric", "search")
    modules = {options(name)["_target_"].rpartition(".")[0] for name in names}
    assert modules
    assert modules <= {f"seq2seq_attn.{name.replace('/', '.')}" for name in names}


def test_parts_of_attention_are_factories_because_a_built_part_would_be_shared_by_all_layers():
    names = yamls("attention")
    assert names
    assert [name for name in names if options(name).get("_partial_") is not True] == []


def test_presets_of_attention_have_the_same_options_and_set_nothing_inside_a_part():
    own = {name: set(options(name)) for name in PRESETS}
    assert len({frozenset(keys) for keys in own.values()}) == 1, own
    parts = {part.rpartition("/")[2] for part in PARTS}
    for name in PRESETS:
        assert not own[name] & parts
        chosen = {key for default in options(name)["defaults"] if isinstance(default, dict) for key in default}
        assert chosen == parts
        assert "_self_" in options(name)["defaults"]


def test_packages_that_are_installed_are_the_folders_that_exist():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    folders = [path.parent for path in (ROOT / "seq2seq_attn").rglob("*.py")]
    found = {".".join(folder.relative_to(ROOT).parts) for folder in folders} | {"seq2seq_attn.conf"}
    assert sorted(listed) == sorted(found)
