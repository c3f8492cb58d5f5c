"""Write a trained model with a model card: `seq2seq-attn export hub RUN FOLDER licence=cc-by-4.0`.

The folder holds what `seq2seq-attn export safetensors` writes, which is accepted wherever a run is; README.md, a model
card with the metadata that hubs read; training.yaml, the options of the training; and pictures of the run. What is not
known is left out of the card. No folder of this machine is named.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from seq2seq_attn.checkpoint.load import PUBLISHED_OPTIONS, check_saved_options, find_checkpoint, read_checkpoint
from seq2seq_attn.checkpoint.published import check_empty, without_folders, write_published
from seq2seq_attn.comparison.curves import draw
from seq2seq_attn.comparison.model_card import CONFIGURATION, OPTIONS, Known, card
from seq2seq_attn.comparison.read import chosen_by, curve_of, natural, read_log
from seq2seq_attn.comparison.system import read_system
from seq2seq_attn.distributed.run_lock import BEST
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.files import filling
from seq2seq_attn.markdown import one_line
from seq2seq_attn.options import hydra_literal

CARD = "README.md"
MAPS, EXAMPLES = 4, 3  # at most
LOSSES = ("train/loss", "val/loss")
OF_MACHINE = ("paths", "logger", "resume", "ckpt_path")  # options that say where a run was, not what it was
NOT_OF_COMMAND = ("hydra", "sweep", "optimized_metric", "parent", *OF_MACHINE)  # init_from.run implies the parent


@reports_user_errors
def main(arguments: list[str] | None = None) -> None:
    described = "\n".join(f"  {name + '=':10} {text}" for name, text in OPTIONS.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"options of the card:\n{described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", help="a run folder or a .ckpt file")
    parser.add_argument("folder", type=Path, help="must be empty, or not exist yet")
    parser.add_argument(
        "options", nargs="*", default=[], metavar="KEY=VALUE", help="what the card says beside what the run knows"
    )
    given = parser.parse_args(arguments)
    check_folder(given.folder)
    export(given.run, given.folder, card_options(given.options))
    print(f"Wrote {given.folder}; read {given.folder / CARD} before you publish it")


def check_folder(folder: Path) -> None:
    """Refuse an option of the card in the place of the folder."""
    key, sign, _ = str(folder).partition("=")
    if sign and get_close_matches(key, OPTIONS, n=1):
        raise UserError(f"FOLDER is missing before {folder}; give a new or an empty folder after RUN")


def card_options(words: Sequence[str]) -> dict[str, str]:
    """Return the values of words such as `licence=cc-by-4.0`.

    Raises:
        UserError: for a word of another form, a key that the card does not have, or one that is given twice.
    """
    options: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key in options:
            raise UserError(f"{key}= is given twice; give it once")
        if key in OPTIONS and not value.strip():
            raise UserError(f"{key}= has no value; give {key}=TEXT")
        if key not in OPTIONS:
            close = get_close_matches(key, OPTIONS, n=1)
            guess = f"did you mean {close[0]}=...?" if close else f"choose from: {', '.join(f'{k}=' for k in OPTIONS)}"
            raise UserError(f"'{word}' is no option of a model card; {guess}")
        options[key] = one_line(value)
    return options


def export(run: str, folder: Path, options: dict[str, str]) -> None:
    """Write the model, its card, its options and its pictures.

    Raises:
        UserError: if the folder is not empty, or a file of the run is damaged.
    """
    check_empty(folder)
    file = find_checkpoint(run, "RUN")
    checkpoint = read_checkpoint(file)
    config, step = checkpoint["config"], checkpoint.get("global_step")
    check_saved_options(config, PUBLISHED_OPTIONS, file)
    run_dir = file.parent.parent if file.parent.name == "checkpoints" else None
    shows_text = config.get("log_text", True) is True  # else sentences stay in the run folder
    target = folder.resolve()
    maps: dict[str, Path] = {}
    if run_dir is not None and shows_text and isinstance(step, int):
        maps = chosen_maps(run_dir / "attention_maps" / f"step_{step:06d}")
    try:
        known = collect(config, run_dir, is_tested=file.name == BEST, shows_text=shows_text)
        known = known._replace(averaged=len(checkpoint.get("averaged", ())))
        curves = chosen_curves(known)
        captions = {name: f"{' and '.join(curve)} against the number of updates" for name, curve in curves.items()}
        captions |= {name: f"attention to the source in a validation sentence ({n})" for n, name in enumerate(maps, 1)}
        text = card(known, options, target.name, captions)
    except UserError:
        raise
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        damaged = file if run_dir is None else f"results.json or provenance.json of {run_dir}"
        raise UserError(f"{damaged} is damaged ({error}); move it away, and the card is written without it") from error
    with filling(folder) as made:
        write_published(checkpoint, made)
        for name, curve in curves.items():
            label = "nats for each target token" if name == "loss.png" else next(iter(curve))
            draw(curve, label, None, made / name)
        for name, picture in maps.items():
            shutil.copyfile(picture, made / name)
        written = yaml.safe_dump(known.config, sort_keys=False, allow_unicode=True)
        (made / CONFIGURATION).write_text(f"# The options of the training\n{written}", encoding="utf-8")
        (made / CARD).write_text(text, encoding="utf-8")


def collect(config: dict[str, Any], run_dir: Path | None, *, is_tested: bool, shows_text: bool) -> Known:
    """Return what is known of a model: from its configuration, and from its run folder if it is in one.

    Args:
        is_tested: whether it is the checkpoint of which results.json has the scores.
        shows_text: whether sentences of the data may be shown.
    """
    plain = without_folders({key: value for key, value in config.items() if key not in OF_MACHINE})
    if run_dir is None:
        return Known(plain, "", {}, {}, [], [])
    results = read_json_or_refuse(run_dir / "results.json") if is_tested else {}
    provenance = read_json_or_refuse(run_dir / "provenance.json")
    return Known(
        plain,
        command_of(provenance.get("command") or []),
        results,
        provenance,
        read_log(run_dir / "metrics.csv"),
        examples(run_dir) if results and shows_text else [],
    )


def read_json_or_refuse(file: Path) -> dict[str, Any]:
    """Return what a file of a run holds; nothing if it is not there.

    Raises:
        UserError: if it is damaged.
    """
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise UserError(f"{file} is damaged; move it away, and the card is written without it")
    return content


def command_of(words: list[str]) -> str:
    """Return the command of a training as it was typed, without the folders of the run."""
    if not words:
        return ""
    program = Path(words[0])
    name = f"python {program.name}" if program.parent.name != "cli" else f"seq2seq-attn {program.stem}"
    kept = [word for word in words[1:] if re.split(r"[.=@/]", word.lstrip("+~"))[0] not in NOT_OF_COMMAND]
    return one_line(f"{name} {shlex.join(map(override_without_folders, kept))}")


def override_without_folders(word: str) -> str:
    """Return an override in which only the file's name is left of an absolute path."""
    key, last = word.partition("=")[0], word.partition("=")[0].rpartition(".")[2]
    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:
        return str(without_folders(word))
    if override.is_sweep_override():
        return str(without_folders(word))
    value = override.value()
    kept = without_folders({last: value})[last]
    return word if kept == value else f"{key}={hydra_literal(kept)}"


def examples(run_dir: Path) -> list[tuple[str, str, str]]:
    """Return the source, a reference and the translation of the first sentences of the test set."""
    if not (run_dir / "translations.tsv").is_file():
        return []
    system = read_system(run_dir, "test")
    references = [versions[0] for versions in system.references]
    return list(zip(system.sources, references, system.hypotheses, strict=True))[:EXAMPLES]


def chosen_curves(known: Known) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return the curves of each picture: the losses, and the figure that chose the checkpoint."""
    pictures = {"loss.png": LOSSES, "score.png": {chosen_by(known.config)[0]} - {"val/loss"}}
    by_picture = {
        name: {figure: curve for figure in figures if len(curve := curve_of(known.log, figure)) > 1}
        for name, figures in pictures.items()
    }
    return {name: curves for name, curves in by_picture.items() if curves}


def chosen_maps(maps: Path) -> dict[str, Path]:
    """Return maps of the last layer's attention to the source, by the names of their copies."""
    layers: dict[int, list[Path]] = {}
    for picture in sorted(maps.glob("cross_*_*.png"), key=lambda path: natural(path.stem.rpartition("_")[2])):
        layer = picture.stem.split("_")[1]
        links = (picture, picture.parent, picture.parent.parent)  # of a file outside, which would be published
        if layer.isdecimal() and picture.is_file() and not any(link.is_symlink() for link in links):
            layers.setdefault(int(layer), []).append(picture)
    chosen = layers[max(layers)][:MAPS] if layers else []
    return {f"attention_{number}.png": picture for number, picture in enumerate(chosen)}
