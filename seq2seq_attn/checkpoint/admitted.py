"""The classes that a checkpoint's configuration may name: in each slot those of that slot, and nothing else.

They are classes of this package and of the packages that the user trusts. Only the caller names these, by `trust`;
nothing in a checkpoint adds to them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra.utils import get_class, instantiate

from seq2seq_attn.errors import UserError
from seq2seq_attn.options import check
from seq2seq_attn.slots import NO_SLOT, SLOTS

Trust = str | Sequence[str]  # names of packages
PLAIN = (str, int, float, bool, type(None))
PACKAGE = "seq2seq_attn"
# Metrics that a saved configuration does not build: COMET's options name a command and a pickled model, AER's a file.
NOT_TAKEN = frozenset({"seq2seq_attn.metric.comet.COMET", "seq2seq_attn.metric.aer.AER"})
TYPED = ("metric", "data", "cleaning")  # a model is as large as its weights, and a search is checked where it is chosen
DOWNLOADED = ("spm", "flores101", "flores200", "spBLEU-1K")  # tokenizers of sacreBLEU, as of 2.6


def check_targets(node: Any, slot: str, file: Path, trust: Trust = ()) -> None:
    """Refuse a `_target_` that is not a class of the slot it is in, at any depth.

    The slot of a part is its key; parts that have names of their own, as metrics, are in the slot of them all.
    Under a key that is no slot, only a module of a trusted package is admitted.
    A reference is refused too: `${oc.create:...}` would become a `_target_` after this check. So is a defaults list,
    which Hydra would compose. A run saves neither, and no other containers than these: Hydra looks into a tuple as it
    does into a list.
    """
    if isinstance(node, str) and "${" in node:
        raise UserError(f"{file} holds the reference {node}, which no run saves; it was not resolved")
    if type(node) not in (dict, list, *PLAIN):
        raise UserError(f"{file} holds a {type(node).__name__} among its options, which no run saves")
    if isinstance(node, list):
        for child in node:
            check_targets(child, slot, file, trust)
    if not isinstance(node, dict):
        return
    if isinstance(node.get("defaults"), list):
        raise UserError(f"{file} holds a defaults list among its options, which no run saves; it was not composed")
    if "_target_" in node and not is_class_of(slot, node["_target_"], trust):
        raise UserError(f"{file} asks for {node['_target_']}, {refusal(slot, str(node['_target_']), trust)}")
    for key, value in node.items():
        check_targets(value, str(key) if "_target_" in node else slot, file, trust)


def is_class_of(slot: str, target: Any, trust: Trust = ()) -> bool:
    """Return whether the name is of a class for the slot.

    It is a final class that a module in the slot's folder defines, or any class of that kind in a trusted package.

    Raises:
        UserError: if a module of a trusted package cannot be imported.
    """
    folder, kind = SLOTS.get(slot, NO_SLOT)
    module, _, name = str(target).rpartition(".")
    trusted = is_trusted(module, trust)
    if not trusted and not (folder and module.startswith(f"{PACKAGE}.{folder}.")):  # nothing is imported
        return False
    try:
        candidate = vars(import_module(module)).get(name)
    except Exception as error:
        if not trusted:
            return False
        raise UserError(
            f"{target} cannot be imported ({type(error).__name__}: {error}); install its package, run the command in "
            "the folder that contains it, or name that folder in PYTHONPATH"
        ) from error
    if not isinstance(candidate, type) or not issubclass(candidate, get_class(kind)):
        return False
    if trusted:
        return is_trusted(candidate.__module__, trust)
    return candidate.__module__ == module and "__final__" in vars(candidate)


def is_trusted(module: str, trust: Trust) -> bool:
    """Return whether a module belongs to one of these packages: `mine.score` to `mine`, `mineral` not."""
    packages = [trust] if isinstance(trust, str) else trust
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def targets(node: Any) -> Iterator[Any]:
    """Yield the values of all keys `_target_`, at any depth."""
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from targets(child)
    if isinstance(node, dict) and "_target_" in node:
        yield node["_target_"]


def other_packages(config: dict[str, Any]) -> list[str]:
    """Return the packages besides this one whose classes a run's checkpoints name."""
    checked = [config[name] for name in ("model", "search", "data", "metric")]
    return sorted({target.partition(".")[0] for target in targets(checked)} - {PACKAGE})


def refusal(slot: str, target: str, trust: Trust) -> str:
    """Return why a class is not admitted, to be put after its name, and the way out for one of another package."""
    package = target.partition(".")[0]
    if is_trusted(target, trust):
        kind = SLOTS.get(slot, NO_SLOT)[1].rpartition(".")[2]
        return f"which is not a {kind} of a trusted package, as {slot} takes"
    why = f"which is not a class of seq2seq_attn for {slot}; it was not run"
    if package in {PACKAGE, *sys.stdlib_module_names} or not package.isidentifier():
        return why
    flag = f"--trust {package} for draw, compare, heads, rerank and export ctranslate2"
    return f"{why}; if you trust {package}, add trust=[{package}] ({flag})"


def add_trust_option(parser: argparse.ArgumentParser) -> None:
    """Add `--trust` to a command that loads a checkpoint."""
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="admit classes of this package, besides those of seq2seq_attn; may be given several times",
    )


def build(node: Any, slot: str, file: Path, trust: Trust = ()) -> Any:
    """Build the part that a checkpoint's options describe.

    Raises:
        UserError: if they describe no part of this slot, or one that would run a program, or read or download another
            file.
    """
    if refused := sorted(NOT_TAKEN.intersection(map(str, targets(node)))):
        raise UserError(f"{file} asks for {refused[0]}, whose options name a command or a file; it was not built")
    try:
        check_targets(node, slot, file, trust)
        if slot in TYPED:
            check(slot, node, object)
        if slot == "metric":
            check_tokenizer(node.get("tokenize"), file)
        part = instantiate(node, _convert_="all")
    except UserError:
        raise
    except Exception as error:  # options of wrong names, types and values fail in many ways
        cause = error.__cause__ or error
        reason = str(cause).partition("\n")[0]
        raise UserError(f"{file} holds options from which no {slot} can be built ({reason})") from error
    if not isinstance(part, get_class(SLOTS[slot][1])):
        raise UserError(f"{file} holds options that describe no {slot}; give a checkpoint that train.py wrote")
    return part


def check_tokenizer(name: Any, file: Path | str, way_out: str = "metric.NAME.tokenize={} to evaluate") -> None:
    """Refuse a tokenizer that sacreBLEU would download; one that it has downloaded before is only read.

    Raises:
        UserError: naming the tokenizer.
    """
    if name not in DOWNLOADED:
        return
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS  # a translation imports no metric
    from sacrebleu.utils import SACREBLEU_DIR

    if not Path(SACREBLEU_DIR, "models", Path(SPM_MODELS[name]["url"]).name).is_file():
        raise UserError(
            f"{file} asks for sacreBLEU's tokenizer {name}, which is not on this machine and was not downloaded; to "
            f"download it, give {way_out.format(name)}"
        )
