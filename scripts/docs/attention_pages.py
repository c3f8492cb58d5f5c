"""A page for each attention preset, made of docs/attention.md, docs/formulas.yaml, `conf/` and the measurements."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path, PurePosixPath

import yaml
from torch import Tensor

from scripts.checks.architecture_table import markdown
from scripts.conf_files import ATTENTION, parsed, parts_of, presets
from scripts.docs.site_links import ROOT, relink, titles
from scripts.docs.worked_example import HEADS, TOKENS, WIDTH, small_options, weights
from seq2seq_attn.attention.build import option_reads_history
from seq2seq_attn.cli.choices import purpose

FOLDER = PurePosixPath("attentions")
SECTIONS = {
    "score": "Scores", "pattern": "Patterns", "normalizer": "Normalizers", "mix": "Mixes", "gate": "Gates",
    "feature_map": "Feature maps", "decay": "Decays",
}  # fmt: skip
CONTEXT = r"c_t = \sum_{s \in S(t)} a_{ts} v_s"
KERNEL_CONTEXT = r"c_t = \frac{\sum_s (\varphi(q_t) \cdot \varphi(k_s)) \, v_s}{\sum_s \varphi(q_t) \cdot \varphi(k_s)}"
DECAYED_CONTEXT = (
    r"c_t = \frac{\sum_s D_{ts} (\varphi(q_t) \cdot \varphi(k_s)) \, v_s}"
    r"{\sum_s D_{ts} (\varphi(q_t) \cdot \varphi(k_s))}, \quad D_{ts} = g_s \prod_{l = s + 1}^{t} f_l"
)
DELTA_CONTEXT = (
    r"c_t = \mathrm{RMSNorm}(S_t^\top q_t), \quad S_t = f_t (I - b_t k_t k_t^\top) S_{t-1} + b_t k_t v_t^\top, "
    r"\quad q_t = \frac{\mathrm{silu}(W x_t)}{|\mathrm{silu}(W x_t)|}, "
    r"\quad k_t = \frac{\mathrm{silu}(U x_t)}{|\mathrm{silu}(U x_t)|}, "
    r"\quad b_t = \sigma(u \cdot x_t)"
)
NO_PARTS = "None. `attention/decay=` adds a decay."
COST_LENGTHS = (128, 512, 2048, 8192)
ADDRESS = re.compile(r"arXiv:([\d.]+\d)|(kexue\.fm/archives/\d+)")
PAGE = re.compile(r"\bdocs/([\w/]+\.md)")


def write_attention_pages(folder: Path, copied: set[PurePosixPath]) -> None:
    """Write the pages and their index into the folder of the site's sources."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for preset in presets():
        write_changed(folder / FOLDER / f"{preset}.md", attention_page(preset, copied))
    write_changed(folder / FOLDER / "index.md", index_page(copied))


def write_changed(file: Path, text: str) -> None:
    """Write a file unless it holds this text; Sphinx reads again what is newer."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def linked_purpose(preset: str) -> str:
    """Return what a preset is, with a link to the paper."""
    return linked(purpose(ATTENTION / f"{preset}.yaml"))


def linked(text: str) -> str:
    """Return the purpose of a choice with links to the papers and pages that it names."""
    text = PAGE.sub(r"[\g<0>](\1)", text)
    return ADDRESS.sub(
        lambda match: f"[{match[0]}](https://{f'arxiv.org/abs/{match[1]}' if match[1] else match[2]})", text
    )


def attention_page(preset: str, copied: set[PurePosixPath]) -> str:
    """Return the page of a preset, in the Markdown of MyST."""
    parts = parts_of(preset)
    sections = [
        f"# {preset}\n\n{linked_purpose(preset)}.\n\n{described()[preset][1]}\n\n```\n{command(preset)}\n```",
        f"## Formula\n\n{formulas(parts)}",
        f"![Attention maps of {preset}](images/attention/{preset}.png)\n\n[What the picture shows](#presets).",
        "## Parts\n\n" + ("\n\n".join(part_text(part, option) for part, option in parts.items()) or NO_PARTS),
        f"## A worked number\n\n{worked(preset)}",
        f"## Where it runs\n\n{architectures(preset)}",
        f"## Cost\n\n{cost(preset)}",
        *([f"## Measured\n\n{tables}"] if (tables := measured(preset)) else []),
        f"## Code and configuration\n\n{code(preset, parts)}",
    ]
    text = "\n\n".join(sections)
    used = [line for line in references() if f"[{line[1:].partition(']')[0]}]" in text]
    text += "\n\n" + "\n".join(used) + "\n"
    return relink(text, PurePosixPath("docs/attention.md"), FOLDER / f"{preset}.md", copied)


def command(preset: str) -> str:
    """Return a command that trains it where it was proposed: values without a projection are those of an RNN."""
    projects = parsed(ATTENTION / f"{preset}.yaml").get("project_values", True)
    return f"python train.py attention={preset}" + (" model=transformer" if projects else "")


def formulas(parts: dict[str, str]) -> str:
    """Return the formula of each part in turn, the last of which gives the context."""
    given = {part: latex_of()[part][option] for part, option in parts.items()}
    if "score" not in given and "feature_map" not in given:
        kept = given["decay"].partition(r", \quad g_t")[0] if "decay" in given else "f_t = 1"
        return block(rf"{DELTA_CONTEXT}, \quad {kept}")
    if "feature_map" in given:
        context = [given["decay"], DECAYED_CONTEXT] if "decay" in given else [KERNEL_CONTEXT]
        return "\n\n".join(map(block, [given["feature_map"], *context]))
    mixed = given.get("mix", given["normalizer"])
    shown = [given["score"], given["pattern"], mixed, CONTEXT, *([given["gate"]] if "gate" in given else [])]
    return "\n\n".join(map(block, shown))


def block(latex: str) -> str:
    """Return a formula; what explains its symbols is on lines of its own, so that a narrow screen shows all of it."""
    return "\n\n".join(f"```{{math}}\n{line}\n```" for line in latex.split(r", \quad "))


@cache
def latex_of() -> dict[str, dict[str, str]]:
    return yaml.safe_load((ROOT / "docs/formulas.yaml").read_text(encoding="utf-8"))


@cache
def explained() -> str:
    return (ROOT / "docs/attention.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return explained().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@cache
def references() -> list[str]:
    return re.findall(r"^\[.+\]: .+$", explained(), re.MULTILINE)


@cache
def described() -> dict[str, tuple[str, str]]:
    """Return the group and the description of each preset, from docs/attention.md."""
    descriptions = {}
    for group in section("Presets").split("\n### ")[1:]:
        for preset, text in re.findall(r"^`(\w+)`: (.+?)\n\n!\[", group, re.MULTILINE | re.DOTALL):
            descriptions[preset] = (group.partition("\n")[0], text)
    return descriptions


def part_text(part: str, option: str) -> str:
    """Return the row and the paragraph of an option of a part, from docs/attention.md."""
    text = section(SECTIONS[part])
    head, _, *rows = text[text.index(f"| `attention/{part}=`") :].split("\n\n")[0].splitlines()
    names, row = cells(head), next(cells(row) for row in rows if row.startswith(f"| `{option}` |"))
    listed = "; ".join(f"{name}: {cell}" for name, cell in zip(names[2:], row[2:], strict=True) if cell)
    items = re.findall(r"^- (.+?)(?=\n- |\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    name = "mixture" if option.startswith("mixture") else option
    item = next(item for item in items if f"**`{name}`**" in item)
    title = part.replace("_", " ").capitalize()
    return f"**{title}** `{option}`: {row[1]}" + (f" ({listed})." if listed else ".") + f"\n\n{item}"


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))]


def worked(preset: str) -> str:
    """Return the weights that the code computes for six tokens."""
    history = option_reads_history(preset)
    kind = (
        "Six queries attend to six keys, which are the same vectors" if history else "Six tokens attend to each other"
    )
    options = ", ".join(f"`{option}`" for option in small_options(preset))
    given = ", ".join(f"({a:g}, {b:g})" for a, b in TOKENS)
    return (
        f"{kind}: {given}, repeated for {HEADS} heads of width {WIDTH}. Every matrix of a projection is the identity, "
        "the vector of a score is 1, every bias is 0, and all else is as before training with seed 0. "
        + (f"The sizes are small: {options}. " if options else "")
        + f"The first head has these weights, a row for each query:\n\n{matrix(weights(preset))}\n\n"
        "These weights are computed when the page is built."
    )


def matrix(rows: Tensor) -> str:
    head = ["query", *(f"key {s}" for s in range(rows.shape[1]))]
    body = [[str(t), *(f"{weight:.3f}" if weight else "0" for weight in row)] for t, row in enumerate(rows.tolist())]
    return markdown([head, *body], "--:")


def architectures(preset: str) -> str:
    """Return the row of docs/presets.md that has an answer for each architecture."""
    lines = (ROOT / "docs/presets.md").read_text(encoding="utf-8").partition("| `attention=` | `model=")[2].splitlines()
    head = cells(f"| `attention=` | `model={lines[0]}")
    row = next(cells(line) for line in lines if line.startswith(f"| `{preset}` |"))
    answers = [f"- {model}: {answer}" for model, answer in zip(head[1:], row[1:], strict=True)]
    return "\n".join(answers) + "\n\n[Every attention in every architecture](presets.md) says what was tried."


def cost(preset: str) -> str:
    """Return time and memory of a training step, of docs/benchmarks/cost_curves.json."""
    figures = json.loads((ROOT / "docs/benchmarks/cost_curves.json").read_text(encoding="utf-8"))
    rows = [["positions", "ms", "× of multihead", "memory, MiB"]]
    for name, causal, threads, length, outcome, *numbers in sorted(figures["rows"], key=lambda row: row[3]):
        if (name, causal, threads) == (preset, False, 1) and length in COST_LENGTHS:
            rows.append([f"{length:,}", *([outcome, "", ""] if outcome else costs(*numbers))])
    about = figures["about"]
    if len(rows) == 1:
        if option_reads_history(preset):
            return "It needs the weights of the steps before, so a whole sequence at once was not measured."
        measuring = f"python -m scripts.benchmarks.cost_curves --presets {preset} --output FILE.json"
        return f"It has not been measured yet; `{measuring}` measures it."
    return (
        f"A step of self-attention, forward and backward, on one thread ({about['processor']}, width {about['width']}, "
        f"{about['heads']} heads). ×: the time of `multihead` divided by this one; above 1 is faster.\n\n"
        f"{markdown(rows, '--:')}\n\n[The cost of attentions](benchmarks/cost_curves.md) has all lengths."
    )


def costs(seconds: float, reference: float, memory: int) -> list[str]:
    return [f"{1000 * seconds:,.3g}" if seconds < 1 else f"{1000 * seconds:,.0f}", f"{reference / seconds:.2f}",
            f"{memory / 2**20:,.0f}"]  # fmt: skip


def measured(preset: str) -> str:
    """Return the tables of the documentation that have a row of the preset."""
    tables = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT / "docs").as_posix()
        if name in {"attention.md", "presets.md", "benchmarks/cost_curves.md"}:
            continue
        if re.search(rf"^\|(?: [^|]+ \|)? `?{preset}`? \|", text, re.MULTILINE):
            tables.append(f"- [{titles()[name]}]({name})")
    return "\n".join(tables)


def code(preset: str, parts: dict[str, str]) -> str:
    """Return references to the classes, and the configuration files."""
    files = [preset, *(f"{part}/{option}" for part, option in parts.items())]
    targets = [parsed(ATTENTION / f"{file}.yaml")["_target_"] for file in files]
    listed = "\n".join(f"- {{py:class}}`~{target}`" for target in dict.fromkeys(targets))
    shown = "\n\n".join(
        f"`conf/attention/{file}.yaml`:\n\n```yaml\n{(ATTENTION / f'{file}.yaml').read_text(encoding='utf-8')}```"
        for file in files
    )
    return f"{listed}\n\n{shown}"


def index_page(copied: set[PurePosixPath]) -> str:
    """Return the table of contents of the pages, in the groups of docs/attention.md."""
    text = (
        "# Every attention\n\nA page for each preset: formula, picture, worked number, cost, code and configuration. "
        "[Attention](attention.md) explains them together.\n"
    )
    for group in dict.fromkeys(group for group, _ in described().values()):
        names = [preset for preset, (preset_group, _) in described().items() if preset_group == group]
        lines = "\n".join(f"- [`{name}`](attentions/{name}.md): {linked_purpose(name)}" for name in names)
        entries = "\n".join(names)
        text += f"\n## {group}\n\n{lines}\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    return relink(text, PurePosixPath("docs/attention.md"), FOLDER / "index.md", copied)
