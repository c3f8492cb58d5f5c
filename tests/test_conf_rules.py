"""The config tree keeps its rules: a choice stands in the folder of the package that holds its class."""

import importlib
import inspect
import re
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
PARTS = tuple(f"attention/{part}" for part in ("decay", "feature_map", "gate", "mix", "normalizer", "pattern", "score"))
KEYED_FOLDERS = ("callback", "metric")  # several files are picked at once, so each is one named key
SELECTIONS = {  # several parts chosen by one name
    "callback/default": [],
    "metric/tokenized_text": ["bleu", "tokenized_bleu"],
    "metric/rouge": ["rouge1", "rouge2", "rougeL"],
    "metric/distinct": ["distinct1", "distinct2"],
}
HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "defaults"}


def yamls(*folders: str) -> list[str]:
    """Names of files below the folders, without suffix."""
    files = [path for folder in folders for path in (CONF / folder).rglob("*.yaml")]
    return sorted(path.relative_to(CONF).with_suffix("").as_posix() for path in files)


ALL, OWN, PRESETS = (
    yamls("."),
    [name for name in yamls(*OWN_FOLDERS) if name not in SELECTIONS],
    [name for name in yamls("attention") if name.count("/") == 1],
)
RECIPES = [name for name in yamls("recipe") if name not in ("recipe/none", "recipe/fine_tuning")]  # of any model


def content(name: str) -> dict:
    return yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))


def options(name: str) -> dict:
    """The file's own options, under those of the files of its folder that it starts from."""
    own = content(name)
    folder, _, stem = name.rpartition("/")
    if folder in KEYED_FOLDERS:
        assert list(own) == [stem], f"{name}.yaml must hold one key, {stem}"
        return own[stem]
    bases = [base for base in own.get("defaults", []) if isinstance(base, str) and base != "_self_"]
    return {key: value for base in bases for key, value in options(f"{folder}/{base}").items()} | own


def target(options: dict) -> type:
    module, _, attribute = options["_target_"].rpartition(".")
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
    assert inspect.isclass(target(options(name)))


@pytest.mark.parametrize("name", OWN)
def test_every_option_is_an_argument_of_the_class(name):
    check_arguments(options(name))


def check_arguments(options: dict) -> None:
    assert set(options) - HYDRA_KEYS <= set(inspect.signature(target(options)).parameters)


def test_a_selection_names_parts_that_are_complete():
    for name, keys in SELECTIONS.items():
        found = content(name)
        assert list(found) == (keys or ["defaults"])
        for key in keys:
            check_arguments(found[key])
    lines = (CONF / "callback/default.yaml").read_text(encoding="utf-8").splitlines()[2:]
    assert [line for line in lines if not re.fullmatch(r"  - \w+ # .+", line)] == []  # with its purpose


def leaves(node: dict, path: str = "") -> set[str]:
    """Whole keys of the values."""
    return {
        leaf
        for key, value in node.items()
        if key != "defaults"
        for leaf in (leaves(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}"})
    }


def with_bases(name: str) -> list[str]:
    """The file, and those of its folder that it starts from."""
    folder = name.rpartition("/")[0]
    bases = [base for base in content(name).get("defaults", []) if isinstance(base, str) and base != "_self_"]
    return [name, *(file for base in bases for file in with_bases(f"{folder}/{base}"))]


def test_a_recipe_is_of_a_corpus_and_a_model_and_sets_its_learning_rate_and_schedule():
    data, models = (["/".join(name.split("/")[1:]) for name in yamls(group)] for group in ("data", "model"))
    pairs = {f"recipe/{corpus}_{model}" for corpus in data for model in models}
    assert len(RECIPES) >= 9
    assert set(RECIPES) <= pairs
    for name in RECIPES:
        keys = set().union(*(leaves(content(file)) for file in with_bases(name)))
        assert keys >= {"batch_tokens", "tokenizer.vocab_size", "optimizer.lr", "trainer.max_epochs"}, name


def test_an_experiment_says_why_it_sets_what_the_recipe_of_its_pair_sets():
    """The recipe is the one home of sizes and learning rate, but for an experiment that is the recipe."""
    compared = 0
    for name in yamls("experiment"):
        files = with_bases(name)
        chosen: dict[str, str] = {}
        for file in files:
            lines = [default for default in content(file)["defaults"] if isinstance(default, dict)]
            chosen = {key.removeprefix("override /"): value for line in lines for key, value in line.items()} | chosen
        if chosen.get("recipe") == "none":
            continue
        recipe = f"recipe/{chosen['data']}_{chosen['model']}"
        assert "recipe" not in chosen
        assert recipe in RECIPES, f"{name} has no recipe; make one, or choose recipe=none and set all"
        kept = set().union(*(leaves(content(file)) for file in with_bases(recipe)))
        for file in files:
            compared += 1
            for key in leaves(content(file)) & kept:
                assert "#" in line_of(file, key), f"{file} sets {key}, as {recipe} does, and does not say why"
    assert compared >= 8


def line_of(name: str, key: str) -> str:
    """The line of the file that sets a key."""
    text = (CONF / f"{name}.yaml").read_text(encoding="utf-8")
    node = yaml.compose(text)
    for part in key.split("."):
        mark, node = next((found.start_mark, value) for found, value in node.value if found.value == part)
    return text.splitlines()[mark.line]


def test_a_class_of_its_own_stands_in_the_file_that_is_named_as_its_option():
    names = yamls(*PARTS, "decoder", "encoder", "metric", "search")
    modules = {options(name)["_target_"].rpartition(".")[0] for name in names if name not in SELECTIONS}
    assert modules
    assert modules <= {f"seq2seq_attn.{name.replace('/', '.')}" for name in names}


def test_parts_of_attention_are_factories_because_a_built_part_would_be_shared_by_all_layers():
    names = yamls("attention")
    assert names
    assert [name for name in names if options(name).get("_partial_") is not True] == []


def test_presets_of_attention_have_the_options_of_their_class_and_set_nothing_inside_a_part():
    parts = {part.rpartition("/")[2] for part in PARTS}
    classes = {name: target(options(name)) for name in PRESETS}
    assert len(set(classes.values())) == 3
    for name, attention in classes.items():
        arguments = set(inspect.signature(attention).parameters)
        chosen = {key for default in options(name)["defaults"] if isinstance(default, dict) for key in default}
        assert chosen == arguments & parts
        own = set(options(name)) - HYDRA_KEYS
        assert own == arguments - parts - {"query_dim", "key_dim", "value_dim", "layer", "relative"}, name
        assert "_self_" in options(name)["defaults"]


def test_packages_that_are_installed_are_the_folders_that_exist():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    folders = [path.parent for path in (ROOT / "seq2seq_attn").rglob("*.py")]
    found = {".".join(folder.relative_to(ROOT).parts) for folder in folders} | {
        "seq2seq_attn.conf",
        "seq2seq_attn.demo_corpus",
    }
    assert sorted(listed) == sorted(found)
