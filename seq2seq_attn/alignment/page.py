"""The explorer's page and what it shows in one HTML file, which needs no server and no network."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "explorer" / "page"
MARK = '<meta name="generator" content="seq2seq-attn explore">'
STYLE = re.compile(r'<link rel="stylesheet" href="([\w.]+)" ?/?>')
SCRIPT = re.compile(r'<script type="module" src="([\w.]+)"></script>')
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function|const|class)", re.MULTILINE)
POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
# A page that a browser has saved holds the text, unpacked.
UNPACK = """\
{
  const packed = document.getElementById("data");
  if (!packed.textContent.startsWith("{")) {
    const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    packed.textContent = await new Response(unpacked).text();
  }
}
"""


def self_contained(models: dict[str, Any], looks: list[dict[str, Any]]) -> str:
    """Return the page as one HTML file that holds the answers of `/api/models` and `/api/look`, packed.

    Its policy admits the one script and the one style by their digests, and no request.
    """
    html = (FOLDER / "index.html").read_text(encoding="utf-8")
    found_style, found_script = STYLE.search(html), SCRIPT.search(html)
    assert found_style is not None, "index.html has one style sheet"
    assert found_script is not None, "index.html has one module"
    style = f"\n{(FOLDER / found_style[1]).read_text(encoding='utf-8')}"
    script = f"\n{UNPACK}{bundled(found_script[1])}"
    assert "</" not in style, "a style sheet cannot end its element"
    assert not re.search(r"</script|<!--", script, re.IGNORECASE), "a module cannot end its element"
    policy = POLICY.format(script=digest(script), style=digest(style))
    data = f'<script type="application/json" id="data">{packed({"models": models, "looks": looks})}</script>'
    html = html.replace(found_style[0], f"<style>{style}</style>")
    html = html.replace(found_script[0], f'{data}\n<script type="module">{script}</script>')
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n{MARK}'
    return re.sub(r'<meta charset="utf-8" ?/?>', lambda found: f"{found[0]}\n{head}", html, count=1, flags=re.I)


def packed(data: dict[str, Any]) -> str:
    """Return data as JSON without `<`, compressed, in base64."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def bundled(first: str) -> str:
    """Return a module and all that it imports as one script: their names are unique, and only the first runs code."""
    texts: dict[str, str] = {}

    def visit(name: str) -> None:
        text = (FOLDER / name).read_text(encoding="utf-8")
        for found in IMPORT.finditer(text):
            if found[1] not in texts:
                visit(found[1])
        texts[name] = EXPORT.sub("", IMPORT.sub("", text))

    visit(first)
    return "\n".join(texts.values())


def halved(look: dict[str, Any]) -> dict[str, Any]:
    """Return a look whose weights have 16 bits, where none of them is too large for that."""
    return look | {"slots": [halved_slot(slot) for slot in look["slots"]]}


def halved_slot(slot: dict[str, Any]) -> dict[str, Any]:
    if slot["dtype"] == "float16":
        return slot
    weights = np.frombuffer(b64decode(slot["weights"]), "<f4")
    if np.abs(weights).max(initial=0.0) > np.finfo(np.float16).max:
        return slot
    return slot | {"weights": b64encode(weights.astype("<f2").tobytes()).decode(), "dtype": "float16"}
