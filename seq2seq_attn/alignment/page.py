"""The explorer's page and what it shows in one HTML file, which needs no server and no network."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seq2seq_attn import __version__
from seq2seq_attn.alignment.attention_links import links_by_layer
from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.alignment.head_summary import summaries
from seq2seq_attn.alignment.word_alignment import Extraction, word_of_each
from seq2seq_attn.tokenizer.sentencepiece import WORD_MARK

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


def self_contained(
    models: dict[str, Any], looks: Sequence[dict[str, Any]], forced: Sequence[dict[str, Any]] = ()
) -> str:
    """Return the page as one HTML file that holds the answers of `/api/models` and `/api/look`, packed.

    Its policy admits the one script and the one style by their digests, and no request.

    Args:
        looks: for each sentence one of each model.
        forced: `{"of": index, "look": look}`: a look of another model at the translation of `looks[index]`.
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
    answers = {"models": models, "looks": looks, "forced": forced}
    data = f'<script type="application/json" id="data">{packed(answers)}</script>'
    html = html.replace(found_style[0], f"<style>{style}</style>")
    html = html.replace(found_script[0], f'{data}\n<script type="module">{script}</script>')
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n{MARK}'
    return re.sub(r'<meta charset="utf-8" ?/?>', lambda match: f"{match[0]}\n{head}", html, count=1, flags=re.I)


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
        for match in IMPORT.finditer(text):
            if match[1] not in texts:
                visit(match[1])
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


def widget(text: str, log_prob: float, score: float, maps: Sequence[SlotMap], *, shift: bool) -> str:
    """Return an element that shows the page of one translation in a notebook, apart from the notebook's own scripts.

    Args:
        shift: see `Extraction`.
    """
    page = escape(self_contained(models_of(maps), [look_of(text, log_prob, score, maps, shift=shift)]))
    return (
        f'<iframe title="Attention of a translation" sandbox="allow-scripts allow-downloads" width="100%" height="820" '
        f'style="border: 0" srcdoc="{page}"></iframe>'
    )


def models_of(maps: Sequence[SlotMap]) -> dict[str, Any]:
    """Return what `/api/models` would say of the model of some maps, as far as they tell it."""
    slots = [
        {"name": one.slot, "kind": kind, "layer": int(layer), "heads": len(one.weights), "preset": None}
        | {"title": one.slot, "formula": "", "parts": {}, "sums_to_one": True}
        for one in maps
        for kind, _, layer in [one.slot.partition("/")]
    ]
    unknown = dict.fromkeys(("name", "run", "architecture", "source_language", "target_language", "tokenizer"), "")
    model = {**unknown, "parameters": 0, "default_search": {"name": None}, "slots": slots}
    limits = {"max_source_tokens": 0, "max_characters": 0}
    return {"version": "1", "package_version": __version__, "limits": limits, "searches": {}, "models": [model]}


def look_of(text: str, log_prob: float, score: float, maps: Sequence[SlotMap], *, shift: bool) -> dict[str, Any]:
    """Return what `/api/look` would answer for a translation with maps, without what only a model knows.

    Args:
        shift: see `Extraction`.
    """
    by_kind = {one.slot.partition("/")[0]: one for one in maps}
    source_map = by_kind.get("cross") or by_kind.get("encoder")
    target_map = by_kind.get("cross") or by_kind.get("self")
    source = side([] if source_map is None else source_map.columns)
    target = side([] if target_map is None else target_map.rows)
    links = links_by_layer(maps, Extraction(shift=shift))
    figures = {"token_ids": [], "log_prob": log_prob, "score": score, "token_log_probs": [], "forced": 0}
    return {
        "model": 0,
        "notes": [],
        "source": source,
        "target": target | {"text": text} | figures,
        "alternatives": [],
        "top": [],
        "slots": [halved_slot(slot_of(one, source, target)) for one in maps],
        "links": {"slots": links, "shift": shift, "default": None} if links else None,  # the guided head is not known
        "tree": None,
        "seconds": 0.0,
    }


def side(tokens: Sequence[str]) -> dict[str, Any]:
    """Return the tokens of a sentence, the end token last, with their words."""
    words = word_of_each(tokens[:-1]).tolist()
    texts = ["" for _ in range(max(words, default=-1) + 1)]
    for token, word in zip(tokens, words, strict=False):
        texts[word] += token.replace(WORD_MARK, "")
    return {"text": " ".join(texts), "tokens": list(tokens), "words": [*words, -1], "word_texts": texts}


def slot_layout(slot: str, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return the name of a slot, its sizes (heads, rows, columns), and whose tokens its rows and columns are."""
    kind, _, layer = slot.partition("/")
    heads, rows, columns = shape
    return {
        "name": slot,
        "kind": kind,
        "layer": int(layer),
        "heads": heads,
        "rows": rows,
        "columns": columns,
        "row_tokens": "source" if kind == "encoder" else "target",
        "column_tokens": "target_read" if kind == "self" else "source",
    }


def slot_of(one: SlotMap, source: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    layout = slot_layout(one.slot, one.weights.shape)
    kind = layout["kind"]
    read = target if kind == "self" else source
    last = len(read["word_texts"])  # the word of the token that ends or begins
    words = [last, *read["words"][:-1]] if kind == "self" else [*read["words"][:-1], last]
    texts = [*read["word_texts"], one.columns[0 if kind == "self" else -1]]
    return layout | {
        "weights": b64encode(one.weights.astype("<f4").tobytes()).decode(),
        "dtype": "float32",
        "hidden": None,
        "hidden_heads": None,
        "minimum": float(one.weights.min(initial=0.0)),
        "maximum": float(one.weights.max(initial=0.0)),
        "heads_summary": summaries(torch.from_numpy(one.weights), kind, words, texts),
    }
