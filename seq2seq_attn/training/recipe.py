"""The recipe of a corpus and a model, `conf/recipe/{data}_{model}.yaml`: sizes, vocabulary, learning rate, schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from seq2seq_attn.errors import UserError
from seq2seq_attn.text import plain_console


def check_recipe() -> None:
    """Refuse a recipe that does not exist: Hydra leaves it out, as the recipe of a pair is optional.

    Raises:
        UserError: with the recipes that exist.
    """
    name, pair = chosen_recipe()
    names = sorted({path.stem for folder in recipe_folders() for path in folder.glob("*.yaml")})
    if name not in (None, pair, *names):
        raise UserError(f"There is no recipe '{name}'; choose from: {', '.join(names)}")


def print_missing_recipe(config: dict[str, Any]) -> None:
    """Print one line where the corpus and the model have no recipe, and so train with the defaults."""
    name, pair = chosen_recipe()
    if name is None or name != pair or any((folder / f"{name}.yaml").is_file() for folder in recipe_folders()):
        return
    choices = HydraConfig.get().runtime.choices
    plain_console().print(
        f"No recipe for data={choices['data']} with model={choices['model']}, so sizes and schedule are defaults or "
        f"what was set (optimizer.lr={config['optimizer']['lr']}, trainer.max_epochs="
        f"{config['trainer']['max_epochs']}); a file conf/recipe/{name}.yaml would set them",
        highlight=False,
        soft_wrap=True,
    )


def chosen_recipe() -> tuple[str | None, str]:
    """Return the recipe's name, None where none is chosen, and the name that the corpus and the model make."""
    if not HydraConfig.initialized():
        return None, ""
    choices = HydraConfig.get().runtime.choices
    return choices.get("recipe"), f"{choices.get('data')}_{choices.get('model')}"


def recipe_folders() -> list[Path]:
    """Return the folders of recipes: that of the project, and those of `--config-dir` and `hydra.searchpath`."""
    if not HydraConfig.initialized():
        return []
    sources = HydraConfig.get().runtime.config_sources
    return [Path(source.path) / "recipe" for source in sources if source.schema == "file"]
