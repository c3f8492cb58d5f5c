"""docs/training.md: its file of options composes, its commands run with it, and its models have their sizes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from child import done
from configs import CONF, ROOT, built, composed
from hydra import compose, initialize_config_dir
from small_run import write_pairs

from seq2seq_attn.options import TRAIN, check_options
from seq2seq_attn.paths import search_path

PAGE = (ROOT / "docs" / "training.md").read_text("utf-8")
FILES = dict(re.findall(r"`(conf/\S+)`:\n\n```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^python train\.py --config-dir conf (.+)$", PAGE, re.MULTILINE)


def write_options(folder: Path) -> None:
    recipe = re.sub(r"^defaults:\n(  - .+\n)+", "", FILES["conf/experiment/mine.yaml"], flags=re.MULTILINE)
    (name,) = re.findall(r"`(conf/recipe/\w+_\w+\.yaml)`", PAGE)
    for file, text in {**FILES, name: recipe}.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("command", [*COMMANDS, "data=parallel model=rnn"])
def test_the_file_sets_what_the_command_line_does_not(command: str, tmp_path: Path) -> None:
    assert len(COMMANDS) == 2
    write_options(tmp_path)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [search_path(tmp_path / "conf"), *shlex.split(command), "paths.run_dir=run"])
    check_options(config, {name: TRAIN[name] for name in ("batch_tokens", "optimizer", "data")})
    assert config.data.train == ["train.en", "train.fr"]
    assert config.optimizer.lr == (0.002 if "optimizer.lr=" in command else 0.001)
    assert (config.batch_tokens, config.trainer.max_epochs) == (8192, 30)
    assert config.model.encoder._target_.endswith("RNNEncoder" if "model=rnn" in command else "TransformerEncoder")


@pytest.mark.parametrize(("typed", "millions"), re.findall(r"`((?:experiment|model)[^`]+)` \| (\d+) M", PAGE))
def test_a_model_of_the_table_has_its_size(typed: str, millions: str) -> None:
    overrides = ["data=parallel", *shlex.split(typed)]
    size = composed(*overrides).tokenizer.vocab_size
    tokens = size if isinstance(size, int) else 8000  # what auto takes at most
    sizes = [f"model.{side}_vocab_size={tokens}" for side in ("source", "target")]
    with torch.device("meta"):
        model = built(composed(*overrides, *sizes).model)
    assert f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f}" == millions


@pytest.mark.slow
def test_a_run_reads_the_file(tmp_path: Path) -> None:
    write_options(tmp_path)
    write_pairs(tmp_path)
    for split in ("train", "val", "test"):
        rows = [line.split("\t") for line in (tmp_path / f"{split}.tsv").read_text("utf-8").splitlines()]
        for side, language in enumerate(("en", "fr")):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{row[side]}\n" for row in rows), encoding="utf-8")
    small = ["debug=fast", "tokenizer.vocab_size=40", "hydra.run.dir=run", "paths.cache_dir=cache"]
    ran = done(ROOT / "train.py", "--config-dir", "conf", *shlex.split(COMMANDS[0]), *small, folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\nlabel" not in ran.stdout
    assert "transformer" in ran.stdout
