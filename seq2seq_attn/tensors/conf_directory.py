"""Where the YAML files are, whoever asks: the commands, and an attention that is built alone."""

from pathlib import Path


def conf_directory() -> Path:
    """`conf` inside the package (an installed wheel), else beside it (a checkout)."""
    package = Path(__file__).parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"
