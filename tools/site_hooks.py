"""What the site has beside docs/: pages of the public headers, of the tool's help, of Python's public names, of the
documents at the repository's root, and of each file that a page leads to. mkdocs.yml names this file as its hooks.

Links in documents are those of the repository; here they become links of the site.
"""

import ast
import fnmatch
import pathlib
import posixpath
import re
import sys
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
import header_pages  # noqa: E402

LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
PROJECT = ("CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
LANGUAGES = {".h": "cpp", ".cuh": "cpp", ".cu": "cpp", ".cpp": "cpp", ".c": "c", ".rs": "rust", ".py": "python"}
CARRIED = {".svg", ".png", ".json"}  # a browser shows them as they are
WIDE = "---\nhide: [toc]\n---\n\n"
SOURCE = "---\nhide: [toc, navigation]\nsearch:\n  exclude: true\n---\n\n"


def has_page(header: str) -> bool:
    return (ROOT / header).is_file() and bool(header_pages.declarations((ROOT / header).read_text()))


def uri_of(path: str) -> str:
    """Where a file or a folder of the repository, `path` from its root, is on the site."""
    if path == "README.md":
        return "README.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("include/finegemm/") and has_page(path):
        return f"reference/cpp/{pathlib.PurePath(path).stem}.md"
    if path in PROJECT:
        return f"project/{path.lower()}"
    return f"source/{path}" + ("" if pathlib.PurePath(path).suffix in CARRIED else ".md")


def targets(path: str, text: str) -> Iterator[tuple[str, str]]:
    """(link as written, what it leads to from the root) of a document's links to files of the repository."""
    for target in LINK.findall(text):
        file = target.partition("#")[0]
        if file and not re.match(r"\w+:", file):
            there = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
            if not there.startswith("..") and (ROOT / there).exists():
                yield target, there


def relinked(path: str, text: str) -> str:
    """A document of the repository with the site's links."""
    here = posixpath.dirname(uri_of(path))
    for target, there in targets(path, text):
        anchor = target[target.find("#") :] if "#" in target else ""
        link = posixpath.relpath(uri_of(there), here or ".") + anchor
        text = text.replace(f"]({target})", f"]({link})")
    return text


def source_page(path: str) -> str:
    """A file as text, or a folder as links to what is in it."""
    file = ROOT / path
    if file.is_dir():
        inside = sorted(p.name for p in file.iterdir() if not p.name.startswith(("__", ".")))
        listed = "\n".join(f"- [{name}]({posixpath.basename(path)}/{name})" for name in inside)
        return relinked(path, f"{SOURCE}# {path}/\n\n{listed}\n")
    return f"{SOURCE}# {path}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text().rstrip()}\n````\n"


def public_names(package: str) -> list[str]:
    """What a package or a module says that it exports; none where there is no such one."""
    module = ROOT / "python" / package.replace(".", "/")
    file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    if not file.is_file():
        return []
    tree = ast.parse(file.read_text())
    (names,) = (ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and "__all__" in ast.dump(n))
    return [name for name in names if not name.startswith("_")]


def reference_pages() -> Iterator[tuple[str, str]]:
    """Name and text of each page that is made of the sources."""
    for header in sorted((ROOT / "include/finegemm").glob("*.h")):
        path = f"include/finegemm/{header.name}"
        if has_page(path):
            yield uri_of(path), header_pages.page(f"finegemm/{header.name}", header.read_text())
    for text in sorted((ROOT / "tests/golden/cli").glob("help*.txt")):
        command = text.stem.removeprefix("help").replace("_", " ")
        page = f"{WIDE}# finegemm{command}\n\n```text\n{text.read_text()}```\n"
        yield f"reference/cli/finegemm{command.replace(' ', '-')}.md", page
    written = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    for name in public_names("finegemm"):
        if f"::: finegemm.{name}\n" not in written:
            yield f"reference/{name.lower()}.md", f"# {name}\n\n::: finegemm.{name}\n"
    for library in ("torch", "jax"):
        package = f"finegemm.{library}"
        each = "\n\n".join(f"::: {package}.{name}" for name in public_names(package))
        yield f"reference/{package}.md", f"# {package}\n\n[{library}](../{library}.md) has its use.\n\n{each}\n"


def expanded(nav: Any, pages: list[str], seen: set[str]) -> Any:
    """`nav` with the pages that its patterns name, each where it is named first. Nothing becomes of an empty part."""
    if isinstance(nav, str):
        beside = [page for page in pages if page.count("/") == nav.count("/")]
        found = [page for page in beside if fnmatch.fnmatchcase(page, nav) and page not in seen]
        seen.update(found)
        return found
    if isinstance(nav, dict):
        return [{title: inside} for title, part in nav.items() if (inside := expanded(part, pages, seen))]
    return [entry for part in nav for entry in expanded(part, pages, seen)]


def on_files(files: Files, config: Any) -> Files:
    for uri, text in reference_pages():
        files.append(File.generated(config, uri, content=text))
    waiting = [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    for path in PROJECT:
        waiting.append((path, (ROOT / path).read_text()))
        files.append(File.generated(config, uri_of(path), content=relinked(path, waiting[-1][1])))
    while waiting:
        path, text = waiting.pop()
        for _, there in targets(path, text):
            if files.get_file_from_path(uri_of(there)):
                continue
            if pathlib.PurePath(there).suffix in CARRIED:
                file = File.generated(config, uri_of(there), abs_src_path=str(ROOT / there))
            else:
                file = File.generated(config, uri_of(there), content=source_page(there))
                if (ROOT / there).is_dir():
                    children = [f"{there}/{p.name}" for p in (ROOT / there).iterdir()]
                    waiting.append((f"{there}/.", "".join(f"]({posixpath.basename(c)})" for c in children)))
            file.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(file)
    pages = sorted(file.src_uri for file in files.documentation_pages() if file.inclusion.is_in_nav())
    config.nav = expanded(config.nav, pages, set())
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    if page.file.generated_by:
        return markdown
    return relinked(f"docs/{page.file.src_uri}", markdown)
