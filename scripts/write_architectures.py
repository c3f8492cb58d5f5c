"""Write README's table of architectures from `conf/model/`: `python scripts/write_architectures.py`."""

from __future__ import annotations

import re
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[1]
BEGIN, END = (
    "<!-- architectures: made by scripts/write_architectures.py -->\n",
    "<!-- end of architectures -->",
)
PIECES = 8000
COLUMNS = ("`model=`", "what it is", "attention", "position", "layers", "width", "parameters")


def main() -> None:
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8")), encoding="utf-8")


def with_table(text: str) -> str:
    """The text with the table between its two marks made anew."""
    pattern = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
    made, count = pattern.subn(lambda _: f"{BEGIN}{table()}\n{END}", text)
    if count != 1:
        raise ValueError(
            f"README.md needs the two marks once, {BEGIN.strip()} and {END}; found them {count} times"
        )
    return made


def table() -> str:
    """A row for each file of `conf/model/`, as Markdown."""
    rows = [row(path) for path in sorted((ROOT / "conf/model").glob("*.yaml"))]
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def row(path: Path) -> tuple[str, ...]:
    """What the model's own files say, with no sizes of a corpus; a missing slot is a dash."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", [f"model={path.stem}", "data=parallel"], return_hydra_config=True)
    choices = config.hydra.runtime.choices
    config.model.source_vocab_size = config.model.target_vocab_size = PIECES
    reads_position = "${position}" in OmegaConf.to_yaml(config.model, resolve=False)
    sides = [config.model.encoder, config.model.decoder]
    model = instantiate(OmegaConf.to_container(config.model, resolve=True), _convert_="all")
    return (
        f"`{path.stem}`",
        path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# "),
        f"`{choices['attention']}`",
        f"`{choices['position']}`" if reads_position else "–",
        " + ".join(str(side.num_layers) for side in sides),
        str(config.model.decoder.dim),
        f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M",
    )


if __name__ == "__main__":
    main()
