"""A corpus and its vocabulary in the formats of all peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.data.corpus import Split
from seq2seq_attn.data.encoded import encode_split


def write_data(config: DictConfig, folder: Path) -> tuple[dict[str, Any], dict[str, Split]]:
    """Write the cleaned splits of a configuration of train.py, with one vocabulary for both languages.

    Returns:
        The sizes, ids and languages that the programs need, and the splits.
    """
    used: Any = OmegaConf.masked_copy(config, ["data", "tokenizer", "paths"])
    used.paths.run_dir = str(folder)
    used = OmegaConf.to_container(used, resolve=True)
    corpus = instantiate(used["data"], _convert_="all").load()
    split = corpus.splits["train"]
    tokenizer = instantiate(used["tokenizer"], _convert_="all")
    tokenizer.train(split.sources, split.targets)
    encode_split(split, tokenizer, folder / "encoded")
    for language, side in ((corpus.source_language, "sources"), (corpus.target_language, "targets")):
        lines = {name: getattr(corpus.splits[name], side) for name in ("train", "val", "test")}
        encoded = tokenizer.encode_source(lines["train"])
        lines["tokens"] = [" ".join(tokenizer.source_tokens(ids)) for ids in encoded]
        for name, of in lines.items():
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in of), "utf-8")
    (folder / "joint.model").write_bytes(tokenizer.get_state()["source_model"].numpy().tobytes())
    vocabulary = tokenizer.source_tokens(list(range(tokenizer.source_vocab_size)))
    (folder / "vocabulary.txt").write_text("".join(f"{token}\n" for token in vocabulary), "utf-8")
    known = {
        "tokens": tokenizer.source_vocab_size,
        "sentences": len(split),
        "pad_id": tokenizer.pad_id,
        "bos_id": tokenizer.bos_id,
        "eos_id": tokenizer.eos_id,
        "source": corpus.source_language,
        "target": corpus.target_language,
    }
    return known, corpus.splits


def lines_of(file: Path) -> list[str]:
    """Return the lines of what a program wrote, which may be empty."""
    return file.read_bytes().decode().removesuffix("\n").split("\n")
