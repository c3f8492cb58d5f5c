"""Write the table of docs/architectures.md from `conf/`: `python -m scripts.checks.architecture_table`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from scripts.conf_files import CONF
from seq2seq_attn.cli.choices import purpose
from seq2seq_attn.errors import reports_user_errors

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architectures.md"
BEGIN = "<!-- made by scripts/checks/architecture_table.py -->\n"
END = "<!-- end of the table -->"
CORPORA = ("demo", "multi30k", "tatoeba")
Row = tuple[str, ...]


@reports_user_errors
def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_table(text: str) -> str:
    """Return the text with the table made anew between its two marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{PAGE} needs the marks {BEGIN.strip()} and {END}, each once")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{markdown(architectures())}\n{END}{rest.partition(END)[2]}"


def markdown(rows: Sequence[Sequence[str]], alignment: str = "---") -> str:
    """Return rows of Markdown as a table; the first row is the head."""
    lines = [rows[0], [alignment] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def architectures() -> list[Row]:
    """Return a row for each file of `conf/model/` that translates and its sizes for each corpus; a dash is no slot."""
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


if __name__ == "__main__":
    main()
