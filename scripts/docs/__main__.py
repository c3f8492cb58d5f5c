"""Build the documentation site into build/docs/html: `make docs`, or `python -m scripts.docs` with the extra `docs`.

Its pages are those of `docs/`, which read well without it, a page for each attention preset, the commands, the options
and the interface of the package. A warning, such as a broken link or a page that docs/index.md does not link to, fails
the build.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath

from scripts.docs.attention_pages import write_attention_pages, write_changed
from scripts.docs.reference_pages import write_reference_pages
from scripts.docs.site_links import ROOT, pages, relink, site_path, titled, unlisted
from seq2seq_attn.errors import UserError, reports_user_errors

BUILD = ROOT / "build/docs"
REFERENCE = """
## Reference

- [A page for each attention](attentions/index.md): formula, picture, worked number, cost, code
- [Every command](commands.md): what `--help` of each subcommand prints
- [Every option](options/index.md): the choices of each group, with their files
- [The Python package](api/modules.rst): every public class and function
"""
LOADED = re.compile(r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=\"(?:https?:)?//[^\"]*\"|"
                    r"<link\b(?![^>]*rel=\"canonical\")[^>]*\bhref=\"(?:https?:)?//[^\"]*\"")  # fmt: skip
LOADED_BY_CSS = re.compile(r"(?:@import\s+|url\()\s*[\"']?(?:https?:)?//[^)\s;]*")


@reports_user_errors
def main() -> None:
    try:
        from sphinx.application import Sphinx
    except ImportError:
        raise UserError("the documentation is built by Sphinx; run `make docs`, or pip install -e '.[docs]'") from None
    if missing := unlisted():
        raise UserError("; ".join(missing))
    source = BUILD / "source"
    write_sources(source)
    app = Sphinx(
        source, ROOT / "scripts/docs", BUILD / "html", BUILD / "doctrees", "html", warningiserror=True, parallel=2
    )
    app.build()
    if app.statuscode:
        raise UserError("the documentation has the mistakes that are named above; correct them and run `make docs`")
    if loaded := loaded_from_network(BUILD / "html"):
        raise UserError(f"{loaded[0]} is loaded from the network; the documentation must be readable without one")
    print(f"Open {BUILD / 'html' / 'index.html'} in a browser.")


def write_sources(source: Path) -> None:
    """Write what Sphinx reads: pages with links of the site, images and files, and the pages made from the code."""
    copied: set[PurePosixPath] = {PurePosixPath("CHANGELOG.md")}
    shutil.copytree(
        ROOT / "docs", source, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.md", "*.html", "*.yaml")
    )
    for page in (ROOT / "docs").rglob("*.html"):
        location = BUILD / "extra" / page.relative_to(ROOT / "docs")
        location.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(page, location)
    write_attention_pages(source, copied)
    write_reference_pages(source, copied)
    for page in pages():
        write_page(page, source, copied)
    written: set[PurePosixPath] = set()
    while copied - written:  # a page that is copied may link to others
        for file in copied - written:
            written.add(file)
            if file.suffix == ".md":
                write_page(file, source, copied)
            elif (ROOT / file).is_file():
                location = source / site_path(file)
                location.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, location)


def write_page(page: PurePosixPath, source: Path, copied: set[PurePosixPath]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    if page == PurePosixPath("docs/index.md"):
        text = with_toctrees(relink(text, page, site_path(page), copied) + REFERENCE)
    else:
        text = relink(text, page, site_path(page), copied)
        if site_path(page).parts[0] == "repository":
            text = f"---\norphan: true\n---\n\n{text}"
    location = source / site_path(page)
    location.parent.mkdir(parents=True, exist_ok=True)
    write_changed(location, text)


def with_toctrees(text: str) -> str:
    """Return the table of contents with the links of each of its sections as a tree for the side bar."""
    seen: set[str] = set()
    sections = re.split(r"(?m)^(?=## )", text)
    for number, section in enumerate(sections[1:], start=1):
        listed = titled(section)
        entries = [f"{title} <{page}>" for title, page in listed if page not in seen]
        seen.update(page for _, page in listed)
        if entries:
            caption = section.partition("\n")[0].removeprefix("## ")
            lines = "\n".join(entries)
            sections[number] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n\n"
    return "".join(sections)


def loaded_from_network(folder: Path) -> list[str]:
    """Return what pages and style sheets would load from another machine: scripts, styles, fonts and pictures."""
    searched = {".html": LOADED, ".css": LOADED_BY_CSS}
    return [
        f"{match[0]} in {file.relative_to(folder)}"
        for file in sorted(folder.rglob("*"))
        if file.suffix in searched
        for match in searched[file.suffix].finditer(file.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    main()
