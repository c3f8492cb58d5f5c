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

from seq2seq_attn.checkpoint.checkpoint_file import BEST
from seq2seq_attn.checkpoint.load import LANGUAGES, check_saved_options, find_checkpoint, read_checkpoint
from seq2seq_attn.checkpoint.published import write_published
from seq2seq_attn.comparison.curves import draw
from seq2seq_attn.comparison.model_card import CONFIGURATION, OPTIONS, Known, card
from seq2seq_attn.comparison.read import curve_of, natural, read_log
from seq2seq_attn.comparison.translations import read_system
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.markdown import one_line

CARD = "README.md"
MAPS, EXAMPLES = 4, 3  # at most
# Of an absolute path, also within an override such as data.train=[/home/me/a.en,/home/me/a.fr]
FOLDERS = re.compile(r"""(?<![^=\[,:'"\s])(?:~\w*)?/(?!/)(?:[^/,\]'"]*/)*""")
OF_MACHINE = ("paths", "logger", "resume", "ckpt_path")  # options that say where a run was, not what it was


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
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE", help="what the card says beside what the run knows")
    given = parser.parse_args(arguments)
    export(given.run, given.folder, card_options(given.options))
    print(f"Wrote {given.folder}; read {given.folder / CARD} before you publish it")


def card_options(words: Sequence[str]) -> dict[str, str]:
    """Return the values of words such as `licence=cc-by-4.0`.

    Raises:
        UserError: for a word of another form, or a key that the card does not have.
    """
    found: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in OPTIONS or not value.strip():
            close = get_close_matches(key, OPTIONS, n=1)
            guess = f"did you mean {close[0]}=...?" if close else f"choose from: {', '.join(f'{k}=' for k in OPTIONS)}"
            raise UserError(f"'{word}' is no option of a model card; {guess}")
        found[key] = one_line(value)
    return found


def export(run: str, folder: Path, options: dict[str, str]) -> None:
    """Write the model, its card, its options and its pictures.

    Raises:
        UserError: if the folder is not empty, or a file of the run is damaged.
    """
    file = find_checkpoint(run)
    checkpoint = read_checkpoint(file)
    config, step = checkpoint["config"], checkpoint.get("global_step")
    check_saved_options(config, {"model": dict, "search": dict, "data": dict} | LANGUAGES, file)
    run_dir = file.parent.parent if file.parent.name == "checkpoints" else None
    shows_text = config.get("log_text", True) is True  # else sentences stay in the run folder
    known = collect(config, run_dir, is_tested=file.name == BEST, shows_text=shows_text)
    write_published(checkpoint, folder)
    captions = draw_curves(known, folder)
    if run_dir is not None and shows_text and isinstance(step, int):
        captions |= copy_maps(run_dir / "attention_maps" / f"step_{step:06d}", folder)
    written = yaml.safe_dump(known.config, sort_keys=False, allow_unicode=True)
    (folder / CONFIGURATION).write_text(f"# The options of the training\n{written}", encoding="utf-8")
    (folder / CARD).write_text(card(known, options, folder.resolve().name, captions), encoding="utf-8")


def collect(config: dict[str, Any], run_dir: Path | None, *, is_tested: bool, shows_text: bool) -> Known:
    """Return what is known of a model: from its configuration, and from its run folder if it is in one.

    Args:
        is_tested: whether it is the checkpoint of which results.json has the scores.
        shows_text: whether sentences of the data may be shown.
    """
    plain = without_folders({key: value for key, value in config.items() if key not in OF_MACHINE})
    if run_dir is None:
        return Known(plain, "", {}, {}, [], [])
    results = read_json(run_dir / "results.json") if is_tested else {}
    provenance = read_json(run_dir / "provenance.json")
    return Known(
        plain,
        command_of(provenance.get("command") or []),
        results,
        provenance,
        read_log(run_dir / "metrics.csv"),
        examples(run_dir) if results and shows_text else [],
    )


def read_json(file: Path) -> dict[str, Any]:
    """Return what a file of a run holds; nothing if it is not there.

    Raises:
        UserError: if it is damaged.
    """
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{file} is damaged; move it away, and the card is written without it")
    return found


def without_folders(node: Any) -> Any:
    """Return options in which the name of its file alone is left of an absolute path."""
    if isinstance(node, dict):
        return {key: without_folders(value) for key, value in node.items()}
    if isinstance(node, list):
        return [without_folders(value) for value in node]
    return FOLDERS.sub("", node) if isinstance(node, str) else node


def command_of(words: list[str]) -> str:
    """Return the command of a training as it was typed, without the folders of the run."""
    if not words:
        return ""
    program = Path(words[0])
    name = f"python {program.name}" if program.parent.name != "cli" else f"seq2seq-attn {program.stem}"
    kept = [word for word in words[1:] if not word.startswith(("hydra.", "paths.", *(f"{key}=" for key in OF_MACHINE)))]
    return one_line(f"{name} {shlex.join(without_folders(kept))}")


def examples(run_dir: Path) -> list[tuple[str, str, str]]:
    """Return the source, a reference and the translation of the first sentences of the test set."""
    if not (run_dir / "translations.tsv").is_file():
        return []
    system = read_system(run_dir, "test")
    references = [versions[0] for versions in system.references]
    return list(zip(system.sources, references, system.hypotheses, strict=True))[:EXAMPLES]


def draw_curves(known: Known, folder: Path) -> dict[str, str]:
    """Draw the losses, and the figure that chose the checkpoint; return the caption of each picture."""
    captions = {}
    monitored = str(known.config.get("monitor"))
    for name, figures, label in (
        ("loss", ("train/loss", "val/loss"), "nats for each target token"),
        ("score", () if monitored == "val/loss" else (monitored,), monitored),
    ):
        curves = {figure: curve for figure in figures if len(curve := curve_of(known.log, figure)) > 1}
        if curves:
            draw(curves, label, None, folder / f"{name}.png")
            captions[f"{name}.png"] = f"{' and '.join(curves)} against the number of updates"
    return captions


def copy_maps(maps: Path, folder: Path) -> dict[str, str]:
    """Copy maps of the last layer's attention to the source; return the caption of each picture."""
    layers: dict[int, list[Path]] = {}
    for picture in sorted(maps.glob("cross_*_*.png"), key=lambda path: natural(path.stem.rpartition("_")[2])):
        layer = picture.stem.split("_")[1]
        if layer.isdecimal() and not picture.is_symlink():
            layers.setdefault(int(layer), []).append(picture)
    captions = {}
    for number, picture in enumerate(layers[max(layers)][:MAPS] if layers else []):
        name = f"attention_{number}.png"
        shutil.copyfile(picture, folder / name)
        captions[name] = f"attention to the source in a validation sentence ({number + 1})"
    return captions
