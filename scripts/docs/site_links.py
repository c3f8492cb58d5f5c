"""Where the pages of the repository are in the documentation site, and their links translated to there."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?:\[(?P<title>[^][]*))?\]\((?![a-z]+:)(?P<path>[^)#\s]*)(?P<anchor>#[^)\s]*)?(?=[)\s])")
CODE = re.compile(r"^(```+).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def pages() -> list[PurePosixPath]:
    """Return the pages of `docs/`, relative to the repository."""
    return sorted(PurePosixPath(path.relative_to(ROOT).as_posix()) for path in (ROOT / "docs").rglob("*.md"))


def unlisted() -> list[str]:
    """Return a sentence for each page of `docs/` that no link of docs/index.md leads to."""
    index = PurePosixPath("docs/index.md")
    listed = {target for target, _ in links((ROOT / index).read_text(encoding="utf-8"), index)}
    return [
        f"{page} is not linked from docs/index.md, the table of contents of the documentation; add a line there"
        for page in pages()
        if page not in {index, *listed}
    ]


def titles() -> dict[str, str]:
    """Return the name that docs/index.md gives to each page of `docs/`, by its path there."""
    text = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    named: dict[str, str] = {}
    for title, page in titled(text):
        named.setdefault(page, title)
    return named


def titled(text: str) -> list[tuple[str, str]]:
    """Return the title and the path of each relative link to a whole page."""
    return [
        (link["title"], link["path"])
        for link in LINK.finditer(text)
        if link["title"] and link["path"].endswith((".md", ".rst")) and not link["anchor"]
    ]


def links(text: str, page: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the target of each relative link of a page, relative to the repository, and its anchor."""
    for link in LINK.finditer(without_code(text)):
        yield target_of(link, page), link["anchor"] or ""


def target_of(link: re.Match[str], page: PurePosixPath) -> PurePosixPath:
    return PurePosixPath(posixpath.normpath(page.parent / link["path"])) if link["path"] else page


def without_code(text: str) -> str:
    return CODE.sub("", text)


def site_path(path: PurePosixPath) -> PurePosixPath:
    """Return where a file of the repository is in the site, below its root."""
    if path.parts[0] == "docs":
        return path.relative_to("docs")
    return PurePosixPath("changelog.md") if path.name == "CHANGELOG.md" else "repository" / path


def relink(text: str, page: PurePosixPath, location: PurePosixPath, copied: set[PurePosixPath]) -> str:
    """Return the text of a page of the repository as it is at a location of the site, with the links from there.

    Args:
        copied: receives the files outside of `docs/` that the page links to.
    """

    def translated(link: re.Match[str]) -> str:
        target = target_of(link, page)
        if target == page and site_path(page) == location:
            return link[0]
        if target.parts[0] != "docs":
            copied.add(target)
        relative = posixpath.relpath(site_path(target), location.parent)
        scheme = "site:" if target.suffix == ".html" else ""  # a file that is served as it is
        before = link[0][: link.start("path") - link.start()]
        return f"{before}{scheme}{relative}{link['anchor'] or ''}"

    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(translated, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(translated, text[end:])])
