"""Write README's tables of architectures and attentions from `conf/`: `python -m scripts.checks.readme_tables`."""

from __future__ import annotations

from pathlib import Path

import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.errors import reports_user_errors

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
CORPORA = ("demo", "multi30k", "tatoeba")
Row = tuple[str, ...]


@reports_user_errors
def main() -> None:
    readme = ROOT / "README.md"
    readme.write_text(with_tables(readme.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(text: str) -> str:
    """The text with each table made anew between its two marks."""
    for name, rows in {"architectures": architectures(), "attentions": attentions()}.items():
        begin, end = f"<!-- {name}, made by scripts/checks/readme_tables.py -->\n", f"<!-- end of {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"README.md needs the marks {begin.strip()} and {end}, each once")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{markdown(rows)}\n{end}{rest.partition(end)[2]}"
    return text


def markdown(rows: list[Row]) -> str:
    """The first row is the head."""
    lines = [rows[0], tuple("---" for _ in rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def architectures() -> list[Row]:
    """A row for each file of `conf/model/` that translates, with its sizes for each corpus; no slot is a dash."""
    head = ("`model=`", "what it is", "attention", "position", "layers", *(f"`data={corpus}`" for corpus in CORPORA))
    models = sorted(path for path in (CONF / "model").glob("*.yaml") if path.stem != "lm")
    return [head, *map(architecture, models)]


def architecture(path: Path) -> Row:
    configs = [composed(path.stem, corpus) for corpus in CORPORA]
    model, choices = configs[0].model, configs[0].hydra.runtime.choices
    reads_position = "${position}" in OmegaConf.to_yaml(model, resolve=False)
    return (
        f"`{path.stem}`",
        purpose(path),
        f"`{choices['attention']}`",
        f"`{choices['position']}`" if reads_position else "–",
        f"{model.encoder.num_layers} + {model.decoder.num_layers}",
        *map(sizes, configs),
    )


def composed(model: str, corpus: str) -> DictConfig:
    """Return the configuration of a run, its vocabulary as large as asked for."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [f"model={model}", f"data={corpus}", "callback=[]"], return_hydra_config=True)
    config.model.source_vocab_size = config.model.target_vocab_size = config.tokenizer.vocab_size
    return config


def sizes(config: DictConfig) -> str:
    """Return the width of the embedding, that of encoder and decoder, and the number of parameters."""
    with torch.device("meta"):  # counted, not run
        model = instantiate(OmegaConf.to_container(config.model, resolve=True), _convert_="all")
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    widths = dict.fromkeys((config.model.embedding_dim, config.model.encoder.dim, config.model.decoder.dim))
    return f"{' / '.join(map(str, widths))}, {parameters:.1f} M"


def attentions() -> list[Row]:
    """A row for each preset, in alphabetical order."""
    head = ("`attention=`", "what it is", "score", "pattern", "normalizer", "mix, gate")
    return [head, *(attention(path) for path in sorted((CONF / "attention").glob("*.yaml")))]


def attention(path: Path) -> Row:
    defaults = yaml.safe_load(path.read_text(encoding="utf-8"))["defaults"]
    parts = {part: name for entry in defaults if isinstance(entry, dict) for part, name in entry.items()}
    if "feature_map" in parts:
        return (f"`{path.stem}`", purpose(path), f"feature map `{parts['feature_map']}`", "–", "–")
    chosen = (f"`{parts[part]}`" for part in ("score", "pattern", "normalizer"))
    others = ", ".join(f"`{parts[part]}`" for part in ("mix", "gate") if parts[part] is not None)
    return (f"`{path.stem}`", purpose(path), *chosen, others)


def purpose(path: Path) -> str:
    """The first line of a config file."""
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


if __name__ == "__main__":
    main()
