"""Check the layers of the package: a module imports only from lower layers, not from siblings on the same line."""

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from seq2seq_attn.errors import UserError, reports_user_errors

LAYERS = (
    ("__main__",),
    ("cli",),
    ("sweep",),
    ("explorer",),
    ("evaluation", "comparison"),
    ("inference", "training"),
    ("callback",),
    ("checkpoint",),
    ("logger", "scheduler", "optimizer"),
    ("search", "metric"),
    ("alignment",),
    ("model",),
    ("decoder",),
    ("encoder",),
    ("attention",),
    ("position", "data"),
    ("objective", "feed_forward"),
    ("nn", "tokenizer", "distributed"),
    ("options",),
    ("batch", "factory", "files", "paths"),
    ("process", "markdown", "slots"),
    ("errors",),
    ("text",),
)
DEPTH = {folder: depth for depth, line in enumerate(LAYERS) for folder in line}
ORDER = " > ".join(" | ".join(line) for line in LAYERS)


def violations(package: Path) -> Iterator[str]:
    """Yield `file:line: message` for each import that violates the order."""
    for path in sorted(package.rglob("*.py")):
        top = path.relative_to(package).parts[0]
        importer = top.removesuffix(".py") if top != "__init__.py" else package.name
        if importer != package.name and importer not in DEPTH:
            yield f"{path}:1: folder {importer} is in no layer; add it to LAYERS in {Path(__file__).name}"
            continue
        module = [package.name, *path.relative_to(package).with_suffix("").parts]
        for line, imported in imported_folders(path, module):
            if fault := judge(importer, imported, package.name):
                yield f"{path}:{line}: {fault}"


def imported_folders(path: Path, module: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and the top-level folder or module of every import of the package, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            base = module[: len(module) - node.level] + base if node.level else base
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name[1]) for name in names if name[0] == module[0] and len(name) > 1)


def judge(importer: str, imported: str, package: str) -> str | None:
    """Return what is wrong with this import, or None."""
    if importer == imported or imported.startswith("__"):
        return None
    if imported not in DEPTH:
        return f"{importer} imports {imported}, which is in no layer"
    if importer == package:
        return f"{package} itself imports {imported}, and with it every layer would; remove it from __init__"
    if DEPTH[importer] == DEPTH[imported]:
        return f"{importer} may not import {imported}: siblings in a layer may not import each other"
    if DEPTH[importer] > DEPTH[imported]:
        return f"{importer} may not import {imported}: only lower layers may be imported"
    return None


@reports_user_errors
def main(arguments: Sequence[str]) -> None:
    root = Path(arguments[0]) if arguments else Path(__file__).parents[2] / "seq2seq_attn"
    modules = len(list(root.rglob("*.py")))
    if not modules:
        raise UserError(f"{root} has no Python files; give the folder of a package")
    faults = list(violations(root))
    print(*faults, sep="\n") if faults else print(f"import layers: {modules} modules follow the order")
    if faults:
        sys.exit(f"{len(faults)} imports violate the order {ORDER}")


if __name__ == "__main__":
    main(sys.argv[1:])
