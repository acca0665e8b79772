"""The record of gpu_check.py: what passed, of which sources and on which GPU. A check runs again when these change."""

import ast
import hashlib
import json
import pathlib
from functools import cache
from types import FunctionType

BENCH = pathlib.Path(__file__).resolve().parent
KERNELS = BENCH.parent / "kernels"


def files_of(check: type, name: str) -> set[pathlib.Path]:
    """The files of bench/ that decide what the method `name` of `check` looks at: its own, those that this one imports,
    and those of the methods that are called in one of them."""
    found: set[pathlib.Path] = set()
    left = {_file_of(check, name)}
    while left:
        file = left.pop()
        found.add(file)
        modules, attributes = _names(file)
        left |= {BENCH / f"{module}.py" for module in modules if (BENCH / f"{module}.py").exists()} - found
        methods = {x for x in attributes if isinstance(getattr(check, x, None), FunctionType)}
        left |= {_file_of(check, method) for method in methods} - found
    return found


@cache
def _code(file: pathlib.Path) -> ast.Module:
    return ast.parse(file.read_text())


@cache
def _names(file: pathlib.Path) -> tuple[set[str], set[str]]:
    """Of the modules that it imports, and of the attributes that it asks for."""
    modules: set[str] = set()
    attributes: set[str] = set()
    for node in ast.walk(_code(file)):
        if isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            attributes.add(node.attr)
    return modules, attributes


@cache
def _without_comments(file: pathlib.Path) -> str:
    return ast.dump(_code(file))


@cache
def _file_of_code(name: str) -> pathlib.Path:
    return pathlib.Path(name).resolve()


def _file_of(check: type, name: str) -> pathlib.Path:
    return _file_of_code(getattr(check, name).__code__.co_filename)


def digest_of_check(check: type, name: str) -> str:
    """Without comments and layout: what a weaker check has passed does not count."""
    code = [_without_comments(file) for file in sorted(files_of(check, name))]
    return hashlib.sha256("".join(code).encode()).hexdigest()[:16]


def check_build(library: pathlib.Path, kernels: pathlib.Path = KERNELS) -> None:
    """A build has the text of its kernels. What one with other text than this tree's passes would not count."""
    build = library.read_bytes()
    files = [file for file in sorted(kernels.rglob("*")) if file.is_file() and file.read_bytes() not in build]
    if files:
        raise ValueError(f"{library} has not the kernels of this tree: {files[0].relative_to(kernels)}; build it anew")


class Progress:
    """Results of checks in a file. `of`: for each check, what must be the same for its result to count."""

    def __init__(self, file: pathlib.Path, of: dict[str, dict]):
        kept = json.loads(file.read_text()) if file.exists() else {}
        self.file, self.of = file, of
        self.checks: dict[str, dict] = kept.get("checks", {})
        self.origins: dict[str, dict] = kept.get("of", {})

    def missing(self) -> list[str]:
        return [name for name, of in self.of.items() if not of.items() <= self.origins.get(name, {}).items()]

    def short(self) -> dict[str, str]:
        """Checks of speed that missed their bars, and what they said."""
        return {name: x["short"] for name, x in self.checks.items() if isinstance(x, dict) and "short" in x}

    def seconds(self, name: str) -> float:
        """That it took when it last ran, as far as that is known."""
        return self.origins.get(name, {}).get("seconds", 0.0)

    def add(self, name: str, result: dict, origin: dict) -> None:
        """`origin`: what else to say of this run, the machine say."""
        self.checks[name], self.origins[name] = result, origin | self.of[name]
        kept = {name: self.checks[name] for name in self.of if name in self.checks}
        record = {"checks": kept, "of": {name: self.origins.get(name, {}) for name in kept}}
        self.file.write_text(json.dumps(record, indent=1) + "\n")
