"""The classes of docs/extending.md and examples/own_attention, outside of the package: trained, resumed, loaded."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from child import Done, done
from configs import CONF, ROOT, built
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, InstantiationException
from hydra.utils import get_class
from shared_folder import shared_folder
from small_run import SMALL, SPLITS, write_pairs

from seq2seq_attn.attention import build_attention
from seq2seq_attn.checkpoint.average import main as average
from seq2seq_attn.checkpoint.export_safetensors import main as export
from seq2seq_attn.cli.command import SUBCOMMANDS
from seq2seq_attn.cli.config_errors import sentence_of_composition
from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.options import TRAIN, check_options
from seq2seq_attn.paths import search_path
from seq2seq_attn.training.parent_config import choose_parent

EXAMPLE = ROOT / "examples" / "own_attention"
PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")
FILES = dict(re.findall(r"`((?:mine|conf)/\S+)`:\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for language, block in BLOCKS if not language for line in block.splitlines()]
PACKAGES = ["mine", "own_attention"]
CHOSEN = [
    "--config-dir", "conf", "attention/score=laplace", "attention/pattern=others", "attention/normalizer=taylor",
    "attention/mix=drop_head", "attention/gate=tanh",
    "attention@cross_attention=linear", "attention/feature_map@cross_attention.feature_map=relu",
    "metric=[bleu,character_bleu]", "metric.character_bleu.order=3", "data=bars", "data.folder=corpus",
    "model=transformer", "model.encoder.num_layers=1", "model.decoder.num_layers=1", "attention.num_heads=2",
    "cross_attention.num_heads=2", "paths.cache_dir=cache", "hydra.run.dir=run", "resume=auto",
]  # fmt: skip


def small() -> list[str]:
    return [word for word in SMALL if not word.startswith(("data=", "attention=", "trainer.max_epochs="))]


def run(name: str, *arguments: str, folder: Path, text: str = "") -> Done:
    """Run `seq2seq-attn NAME` in a folder."""
    return done(ROOT / "seq2seq_attn" / "__main__.py", name, *arguments, folder=folder, stdin=text.encode())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example and the files of the page, and a run of one epoch that was resumed for another."""

    def make(folder: Path) -> None:
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "corpus").mkdir()
        write_pairs(folder / "corpus")
        for name in SPLITS:
            text = (folder / "corpus" / f"{name}.tsv").read_text().replace("\t", " ||| ")
            (folder / "corpus" / f"{name}.txt").write_text(text)
        trained = run("train", *small(), *CHOSEN, "trainer.max_epochs=1", folder=folder)
        assert (trained.returncode, trained.stderr) == (0, "")
        assert trained.stdout.endswith("| seq2seq-attn translate ckpt_path=run trust=[mine,own_attention]\n")
        resumed = run("train", *small(), *CHOSEN, "trainer.max_epochs=2", folder=folder)
        assert (resumed.returncode, resumed.stderr) == (0, "")
        assert "\nThe run resumes in " in resumed.stdout

    return shared_folder(tmp_path_factory, "extending", make)


@pytest.fixture
def importable(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(project)
    return project


def test_the_template_is_of_five_files() -> None:
    files = [path for path in EXAMPLE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sorted(path.name for path in files) == [
        "README.md", "laplace.yaml", "own_attention.py", "pyproject.toml", "test_own_attention.py",
    ]  # fmt: skip
    assert (EXAMPLE / "conf/attention/score/laplace.yaml").read_text() in PAGE


@pytest.mark.slow
def test_the_tests_of_the_template_pass(importable: Path) -> None:
    tests = {
        name: test for name, test in runpy.run_path(str(EXAMPLE / "test_own_attention.py")).items() if "test_" in name
    }
    assert len(tests) == 2
    for test in tests.values():
        test()


def test_every_command_of_the_page_composes(project: Path) -> None:
    assert len(COMMANDS) >= 7
    for command in COMMANDS:
        name, *words = shlex.split(command.rpartition("| ")[2])[1:]
        if name not in ("train", "translate", "evaluate"):
            assert f"{name} {words[0]}" in SUBCOMMANDS
            continue
        overrides = [word for word in words if "=" in word and not word.startswith("hydra.")]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose(name, [search_path(project / "conf"), *overrides])
        assert name == "train" or config.trust in (["mine"], ["own_attention"])


def test_without_trust_nothing_of_the_run_is_built(importable: Path) -> None:
    sentence = (
        r"asks for \w+\.\S+, which is not a class of seq2seq_attn for \w+; it was not run; if you trust (\w+), add"
    )
    for trust in ([], ["mine"], ["own_attention"], ["own"]):
        with pytest.raises(UserError, match=sentence):
            Translator.load(importable / "run", trust=trust, device="cpu")


@pytest.mark.slow  # the fixture trains and resumes; what is not trusted is refused above
def test_a_run_with_classes_from_outside_is_fine_tuned_with_trust_alone(project: Path, importable: Path) -> None:
    parent = f"init_from.run={project / 'run'}"
    with pytest.raises(UserError, match=r"if you trust (mine|own_attention), add trust="):
        choose_parent([parent])
    words = [word for word in CHOSEN if word.startswith(("data", "metric", "--", "conf", "paths"))]
    words += ["trainer.max_epochs=1", "hydra.run.dir=tuned", parent, "trust=[mine,own_attention]"]
    options = [word for word in small() if not word.startswith(("model", "tokenizer", "attention"))]
    tuned = run("train", *options, *words, folder=project)
    assert (tuned.returncode, tuned.stderr) == (0, "")
    assert f"tensors start from {project / 'run'}" in tuned.stdout.replace("\n", " ")


def test_the_message_of_the_page_is_what_a_command_says(importable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(importable)
    (quoted,) = (block for language, block in BLOCKS if language == "text")
    with pytest.raises(UserError) as caught:
        Translator.load("run", trust=["mine"], device="cpu")
    assert str(caught.value) == " ".join(quoted.split())


@pytest.mark.slow
def test_a_run_is_translated_and_evaluated_with_the_options_of_the_run(project: Path) -> None:
    translated = run("translate", "ckpt_path=run", f"trust=[{','.join(PACKAGES)}]", folder=project, text="the cat\n")
    assert (translated.returncode, translated.stderr) == (0, "")
    assert translated.stdout.count("\n") == 1
    evaluated = run(
        "evaluate", "--config-dir", "conf", "ckpt_path=run", f"trust=[{','.join(PACKAGES)}]", "bootstrap=0",
        "metric=[bleu,character_bleu]", "hydra.run.dir=evaluated", "device=cpu", folder=project,
    )  # fmt: skip
    assert (evaluated.returncode, evaluated.stderr) == (0, "")
    results = json.loads((project / "run" / "results.json").read_text())
    figures = json.loads((project / "evaluated" / "evaluation.json").read_text())["splits"]["test"]
    assert figures["character_bleu"] == results["test/character_bleu"] > 0


def test_a_run_is_averaged_and_exported_without_trust_and_loaded_with_it(importable: Path, tmp_path: Path) -> None:
    files = [str(importable / "run" / "checkpoints" / name) for name in ("last.ckpt", "previous.ckpt")]
    average([*files, "--output", str(tmp_path / "average.ckpt")])
    export([str(importable / "run"), str(tmp_path / "published")])
    for path in (tmp_path / "average.ckpt", tmp_path / "published"):
        with pytest.raises(UserError, match="add trust="):
            Translator.load(path, device="cpu")
        (best,) = Translator.load(path, device="cpu", trust=PACKAGES).translate(["the cat sees"])
        assert best.tokens


def test_the_encoder_of_the_page_gives_means_of_neighbours_that_padding_does_not_change(importable: Path) -> None:
    left_out = ["~model.encoder.dim", "~model.encoder.dropout"]
    assert " ".join(left_out) in PAGE
    sizes = ["model.source_vocab_size=11", "model.target_vocab_size=11", "model.embedding_dim=6", "model.decoder.dim=8"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(
            "train", [search_path(importable / "conf"), "encoder@model.encoder=pooling", *left_out, *sizes]
        )
    check_options(config, {"model": TRAIN["model"]})
    model = built(config.model).eval()
    x, mask = torch.randn(2, 7, 6), torch.arange(7) < torch.tensor([[7], [4]])
    together, alone = model.encoder(x, mask), model.encoder(x[1:, :4], mask[1:, :4])
    torch.testing.assert_close(together.keys[0, 2], x[0, :5].mean(0))
    torch.testing.assert_close(alone.keys[0, 0], x[1, :3].mean(0))
    torch.testing.assert_close(together.keys[1:, :4], alone.keys)
    torch.testing.assert_close(together.summary[1:], alone.summary)
    tokens = torch.randint(3, 11, (2, 7))
    assert model(tokens, mask, tokens).hidden.isfinite().all()
    config.model.encoder.k = 4
    with pytest.raises(InstantiationException, match=r"model.encoder.k=4 has no middle; use an odd number"):
        built(config.model)


def test_the_table_of_other_parts_names_classes_and_files_that_are_there() -> None:
    table = PAGE.partition("## Other parts\n")[2].partition("\n## ")[0]
    for name in re.findall(r"^\| [^|]+ \| `([\w.]+\.[A-Z]\w+)`", table, re.MULTILINE):
        assert isinstance(get_class(name if name.startswith(("torch", "pytorch")) else f"seq2seq_attn.{name}"), type)
    files = re.findall(r"`([\w/]+(?:\.py|\.yaml|/))`", table)
    assert len(files) >= 10
    for file in files:
        assert (ROOT / file).exists() or (ROOT / "seq2seq_attn" / file).exists(), file


def test_build_attention_finds_parts_of_another_folder(importable: Path) -> None:
    parts = ("pattern=others", "normalizer=taylor")
    attention = build_attention("multihead", *parts, dim=6, num_heads=2, config_dir=importable / "conf").double()
    sentence = torch.randn(2, 5, 6).double()
    score = attention.attention.score
    scores = score.prepare_query(sentence)[0] @ score.prepare_keys(sentence)[0].mT
    taylor = (1 + scores + scores**2 / 2) * (1 - torch.eye(5))
    expected = taylor / taylor.sum(-1, keepdim=True)
    torch.testing.assert_close(attention(sentence, need_weights=True).weights, expected)
    causal = attention(sentence, causal=True, need_weights=True)
    assert (causal.weights[:, :, 0] == 0).all()
    changed = ("mix=drop_head", "mix.probability=0.5", "gate=tanh")
    attention = build_attention("multihead", *changed, dim=6, num_heads=2, config_dir=importable / "conf").attention
    assert (attention.mix.probability, attention.gate.alpha.item(), attention.sums_to_one) == (0.5, 0.0, False)
    attention.gate.alpha.data += 1
    dropped = attention.train().attend_self(torch.randn(50, 5, 6), need_weights=True)
    heads = dropped.weights.sum(-1)
    assert set(heads.round(decimals=4).unique().tolist()) == {0.0, 2.0}
    assert (dropped.context[(heads[:, :, 0] == 0).all(1)] == 0).all()
    linear = build_attention("linear", "feature_map=relu", dim=6, config_dir=importable / "conf").double().attention
    query, keys = (project(sentence).relu() + 0.001 for project in (linear.project_query, linear.project_key))
    products = (query @ keys.mT)[:, None]
    found = linear.attend_self(sentence, need_weights=True).weights
    torch.testing.assert_close(found, products / products.sum(-1, keepdim=True))
    (importable / "conf" / "attention" / "broken.yaml").write_text("a: [1,\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"^attention 'broken' cannot be composed: while parsing"):
        build_attention("broken", dim=6, config_dir=importable / "conf")
    (importable / "conf" / "attention" / "broken.yaml").unlink()
    with pytest.raises(UserError, match=r"does not take score=laplac"):
        build_attention("multihead", "score=laplac", dim=6, config_dir=importable / "conf")
    with pytest.raises(UserError, match=r"^config_dir=nowhere is no folder; give one with YAML files"):
        build_attention("multihead", dim=6, config_dir="nowhere")


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("attention/score=laplac", "There is no attention/score 'laplac'; did you mean 'laplace'?"),
        (
            "attention.score.lenght_scale=1",
            "There is no option 'attention.score.lenght_scale'; did you mean 'attention.score.length_scale'?",
        ),
    ],
)
def test_a_mistake_is_answered_with_a_choice_of_the_other_folder(override: str, sentence: str) -> None:
    overrides = ["attention/score=laplace", override] if "." in override else [override]
    with initialize_config_dir(str(CONF), version_base="1.3"), pytest.raises(HydraException) as caught:
        compose("train", [search_path(EXAMPLE / "conf"), *overrides])
    found = sentence_of_composition(caught.value, CONF, "train", overrides, str(EXAMPLE / "conf"))
    assert found is not None
    assert found.startswith(sentence)


@pytest.mark.slow
def test_help_completion_and_ranges_serve_choices_of_the_other_folder(project: Path) -> None:
    shown = run("train", "--config-dir", "conf", "--help", folder=project).stdout
    assert re.search(r"^attention/score: .*\blaplace\b", shown, re.MULTILINE)
    assert shown.startswith("Train a model from text to text, such as a translator: seq2seq-attn train [GROUP=CHOICE")
    refused = run(
        "train", "--config-dir", "conf", "attention/score=laplace", "attention.score.length_scale=0", folder=project
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("attention.score.length_scale=0 must be float in (0, inf)")
