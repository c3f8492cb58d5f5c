"""docs/attention.md: every part of every preset is on it, its commands build, its numbers are those of the code."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from typing import Any

import pytest
import torch
import yaml
from configs import CONF, ROOT, built, composed, options
from hydra.utils import get_class
from test_readme import jobs
from torch import nn

from seq2seq_attn.attention.build import build_attention, option_reads_history
from seq2seq_attn.attention.pattern.atrous import AtrousPattern
from seq2seq_attn.attention.pattern.local import LocalPattern
from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.attention.pattern.sparse import SparsePattern
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.cli.command import SUBCOMMANDS

PAGE = (ROOT / "docs/attention.md").read_text(encoding="utf-8")
PARTS = {
    "score": "Scores", "pattern": "Patterns", "normalizer": "Normalizers", "mix": "Mixes", "gate": "Gates",
    "feature_map": "Feature maps", "decay": "Decays",
}  # fmt: skip
COMMANDS = re.findall(r"^python train\.py (.+)$", PAGE, re.MULTILINE)
SIZES = ["model.source_vocab_size=17", "model.target_vocab_size=19", "model.embedding_dim=64"]
SIZES += ["model.encoder.dim=64", "model.decoder.dim=64"]


def rows(start: str) -> list[list[str]]:
    """Cells of the table whose head starts so, the head left out."""
    lines = PAGE[PAGE.index(f"\n| {start} |") + 1 :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def told(part: str) -> list[str]:
    """Options in the table of a part."""
    names = [row[0].strip("`") for row in rows(f"`attention/{part}=`")]
    assert set(names) <= set(options(f"attention/{part}"))
    return names


def section_of(part: str) -> str:
    return PAGE.partition(f"\n## {PARTS[part]}\n")[2].partition("\n## ")[0]


def class_of(part: str, option: str) -> Any:
    return get_class(parsed(f"{part}/{option}")["_target_"])


def parts_of(preset: str) -> dict[str, str | None]:
    chosen = [entry for entry in parsed(preset)["defaults"] if isinstance(entry, dict)]
    return {part: option for entry in chosen for part, option in entry.items()}


def parsed(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONF / "attention" / f"{name}.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("part", PARTS)
def test_every_option_that_a_preset_names_has_its_row_and_its_paragraph(part: str) -> None:
    names = told(part)
    assert len(names) == len(set(names))
    assert {parts_of(preset).get(part) for preset in options("attention")} - {None} <= set(names)
    section = section_of(part)
    for name in names:
        assert f"**`{name}`**" in section or name.startswith("mixture_"), name
    assert f"| `{part}` | " in PAGE
    assert f"[{len(names)}](#{PARTS[part].lower().replace(' ', '-')}) |" in PAGE


@pytest.mark.parametrize("part", PARTS)
def test_every_argument_of_a_part_is_told(part: str) -> None:
    for name in told(part):
        node = parsed(f"{part}/{name}")
        section = section_of(part)
        for argument in set(node) - {"_target_", "_partial_", "defaults"}:
            lines = [line for line in re.split(r"\n(?=[-|])", section) if f"`{name}`" in line]
            assert any(f"`{argument}" in line for line in lines) or name.startswith("mixture_"), (name, argument)


def test_every_preset_has_its_line_and_its_parts() -> None:
    section = PAGE.partition("\n## Presets\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^`(\w+)`: ", section, re.MULTILINE)) == options("attention")
    for name, said in re.findall(r"^`(\w+)`: ((?:`\w+` × )+`\w+`)", section, re.MULTILINE):
        parts = [option for part in PARTS if (option := parts_of(name).get(part)) is not None]
        assert [option.strip("`") for option in said.split(" × ")] == parts, name


def test_every_preset_has_its_picture_behind_its_line() -> None:
    section = PAGE.partition("\n## Presets\n")[2].partition("\n## ")[0]
    drawn = re.findall(
        r"^`(\w+)`: [^\n]*(?:\n[^\n]+)*\n\n!\[(\w+)\]\((images/attention/\w+\.png)\)$", section, re.MULTILINE
    )
    assert sorted(name for name, *_ in drawn) == options("attention")
    for name, shown, file in drawn:
        assert (shown, file) == (name, f"images/attention/{name}.png")
        assert (ROOT / "docs" / file).read_bytes().startswith(b"\x89PNG")


def test_links_within_the_page_and_to_other_pages_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
    links = re.findall(r"\]\(([^)\s]+)\)", PAGE)
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    files = {link.partition("#")[0] for link in links if link.endswith(".md")}
    assert files
    assert all((ROOT / "docs" / file).is_file() for file in files)
    used, given = (set(re.findall(p, PAGE, re.MULTILINE)) for p in (r"\[(\w[^]\n]+ \d{4})\]", r"^\[(.+)\]: "))
    assert used == given


@pytest.mark.parametrize("command", [c for c in COMMANDS if "glob(" not in c])
def test_a_command_builds_a_model(command: str) -> None:
    for overrides in jobs(f"python train.py {command}"):
        assert isinstance(built(composed(*SIZES, *overrides).model), nn.Module)


def test_the_sweep_and_the_script_of_the_pictures_are_there() -> None:
    left_out = ",".join(preset for preset in options("attention") if option_reads_history(preset))
    assert [shlex.split(c)[1] for c in COMMANDS if "glob(" in c] == [f"attention=glob(*,exclude=[{left_out}])"]
    commands = re.findall(r"\bseq2seq-attn ([a-z]+ [a-z0-9]+)", PAGE)
    assert "draw weights" in commands
    assert set(commands) <= set(SUBCOMMANDS)


def pairs(pattern: Pattern, n: int) -> int:
    """Of n positions that see each other: n - distance of each distance that is allowed."""
    distance = torch.arange(-n + 1, n)
    allowed = pattern.allowed(torch.zeros(1, 1, dtype=torch.long), distance)[0, 0]
    return int(((n - distance.abs()) * allowed).sum())


def test_what_n_squared_costs_is_arithmetic() -> None:
    table = rows("n")
    assert [row[0] for row in table] == ["512", "4,096", "16,384"]
    for row in table:
        n = int(row[0].replace(",", ""))
        k = round(math.sqrt(n))
        seen = [
            pairs(p, n)
            for p in (
                LocalPattern(k=10, length_ratio=1.0),
                AtrousPattern(k=k, length_ratio=1.0),
                SparsePattern(k=k, length_ratio=1.0),
            )
        ]
        assert [row[1], *row[4:]] == [f"{count:,}" for count in (n * n, *seen)]
        assert [mebibytes(cell) for cell in row[2:4]] == [4 * n * n / 2**20, 8 * 4 * n * n / 2**20]
        assert seen[0] == (2 * 10 + 1) * n - 10 * 11  # the formula in the table of patterns
    dense = torch.arange(64)
    small = SparsePattern(k=4, length_ratio=1.0)
    assert int(small.allowed(dense[None], dense).sum()) == pairs(small, 64)


def mebibytes(cell: str) -> float:
    number, unit = cell.split()
    return float(number) * {"MiB": 1, "GiB": 1024}[unit]


def test_weights_of_the_normalizers_are_those_of_the_code() -> None:
    scores = torch.tensor([[[2.0, 1.5, 0.0]]])
    table = rows("normalizer")
    assert len(table) == 11
    for name, weights in table:
        overrides = [f"normalizer.{option}={value}" for option, value in re.findall(r"(\w+) = (\d+)", name)]
        for option in re.findall(r"`(\w+)`", name):
            layer = build_attention("bahdanau", f"normalizer={option}", *overrides, dim=2)
            found = layer.attention.normalizer.eval()(scores, None).weights[0, 0].tolist()
            assert [round(weight, 3) for weight in found] == [float(weight) for weight in weights.split(", ")]


def test_learned_numbers_of_the_scores_are_those_of_the_code() -> None:
    d, h, L, r = 48, 8, 36, 8  # noqa: N806, the page's names
    a, b = 6, 6
    for row in rows("`attention/score=`"):
        name, formula = row[0].strip("`"), row[3].partition(";")[0]
        if name.startswith("mixture"):
            continue
        length = [f"score.max_length={L}"] if "max_length" in parsed(f"score/{name}") else []
        score = build_attention(
            "multihead", f"score={name}", *length, query_dim=d, key_dim=d, num_heads=h
        ).attention.score
        f, w, k = getattr(score, "num_filters", 0), 5, getattr(score, "max_distance", 0)
        sizes = {"d": d, "h": h, "L": L, "r": r, "a": a, "b": b, "f": f, "w": w, "k": k}
        sizes["m"] = getattr(score, "kv_rank", 0)
        assert sum(p.numel() for p in score.parameters()) == evaluated(formula, sizes), name


def evaluated(formula: str, sizes: dict[str, int]) -> float:
    """A formula of the page: `2 d² + d`, `d²/h + d + (d + h) L`."""
    text = formula.replace("²", "**2").replace("−", "-")
    text = re.sub(r"(?<=[\w)]) ?(?=\()|(?<=[\w)]) (?=\w)", "*", text)
    return float(eval(text, {"__builtins__": {}}, dict(sizes)))


def test_scores_grow_with_the_root_of_the_width() -> None:
    for d_k, difference, better, gradient, *scaled in rows("d_k"):
        spread = math.sqrt(2 * int(d_k))
        weight = 1 / (1 + math.exp(-spread))
        assert float(difference) == pytest.approx(spread, abs=0.05)
        assert scaled == ["1.4", "0.804", "0.157"]
        if int(d_k) < 512:
            assert [float(better), float(gradient)] == pytest.approx([weight, weight * (1 - weight)], rel=0.03)
    assert math.exp(-32) == pytest.approx(1.3e-14, rel=0.03)


def test_a_mask_behind_the_softmax_gives_the_wrong_numbers_of_the_page() -> None:
    values, real = torch.arange(40.0).view(10, 4), torch.arange(10) < 2
    late = (torch.zeros(10).softmax(0) * real) @ values
    assert [round(x, 6) for x in late.tolist()] == [0.4, 0.6, 0.8, 1.0]
    assert "[0.4, 0.6, 0.8, 1]" in PAGE.replace("\n", " ")


def test_the_page_names_all_whose_weights_are_made_a_distribution() -> None:
    named = " ".join(PAGE.split()).partition("the positive part of a row of ")[2].partition(" is divided by its sum")[0]
    parts = {part: [(name, class_of(part, name)) for name in options(f"attention/{part}")] for part in PARTS}
    expected = {name for name, kind in parts["normalizer"] if not kind.sums_to_one}
    expected |= {name for name, kind in parts["pattern"] if kind.reweighs}
    assert not any(kind.sums_to_one for _, kind in parts["mix"])
    assert set(re.findall("`([a-z_0-9]+)`", named)) == expected
    assert named.endswith(", of a mix and of the delta rule")


def test_without_tanh_the_query_of_an_additive_score_changes_nothing() -> None:
    score = build_attention("bahdanau", query_dim=5, key_dim=7).attention.score
    queries, keys = score.project_query(torch.randn(2, 5)), score.project_key(torch.randn(3, 7))
    hidden = queries[:, None] + keys
    linear, bent = (softmaxed @ score.vector[0] for softmaxed in (hidden, hidden.tanh()))
    assert torch.allclose(*linear.softmax(-1), atol=1e-6)
    assert not torch.allclose(*bent.softmax(-1), atol=1e-3)


def test_the_example_of_a_new_score_is_one() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (config,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert "seq2seq_attn.attention.score.biased_general.BiasedGeneralScore" in config
    names: dict[str, type] = {}
    exec(code, names)
    score = names["BiasedGeneralScore"](query_dim=5, key_dim=6, num_heads=2)
    query, keys = torch.randn(1, 3, 5), torch.randn(1, 4, 6)
    row, column = torch.arange(3), torch.arange(4)
    nowhere = QueryKeyPositions(lambda: row, lambda: column, lambda: row, target_length=3, source_length=4)
    found = score(score.prepare_query(query), score.prepare_keys(keys), nowhere)
    for head, part in enumerate((slice(0, 3), slice(3, 6))):
        for t, s in itertools.product(range(3), range(4)):
            projected = score.project_query.weight[part] @ query[0, t] + score.project_query.bias[part]
            torch.testing.assert_close(found[0, head, t, s], projected @ keys[0, s, part])
