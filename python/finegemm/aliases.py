"""A package of this one under a name of its own: a folder in site-packages that forwards to it."""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import shutil
import sys
import sysconfig
from collections.abc import Callable


class Refused(Exception):
    """Nothing was changed; the message says why and what to do."""


class Alias:
    """`import NAME` for finegemm.NAME."""

    def __init__(self, name: str) -> None:
        self.name, self.package = name, f"finegemm.{name}"
        self.forwards = (
            f'"""Forwards to {self.package}. `python -m {self.package} --uninstall` takes it away."""\n\n'
            f"from {self.package} import install\n\n"
            f"install.answer_to(__name__)\n"
        )

    def answer_to(self, name: str) -> None:
        """Makes `name` and what is in it names of the package's modules, which exist once."""
        for found in [m for m in sys.modules if m == self.package or m.startswith(self.package + ".")]:
            sys.modules[name + found.removeprefix(self.package)] = sys.modules[found]

    def resolved(self) -> pathlib.Path | None:
        """The folder that an import of the name would find in a new interpreter."""
        importlib.invalidate_caches()
        loaded = sys.modules.pop(self.name, None)
        try:
            spec = importlib.util.find_spec(self.name)
        finally:
            if loaded is not None:
                sys.modules[self.name] = loaded
        if spec is None:
            return None
        where = spec.origin or next(iter(spec.submodule_search_locations or []), "")
        path = pathlib.Path(where)
        return path.parent if path.is_file() else path

    def is_ours(self, folder: pathlib.Path) -> bool:
        file = folder / "__init__.py"
        return file.is_file() and file.read_text() == self.forwards

    def install(self, target: pathlib.Path, force: bool = False) -> pathlib.Path:
        """Writes the folder into `target` and returns it."""
        name, folder, other = self.name, target / self.name, self.resolved()
        if folder.exists() and not self.is_ours(folder):
            raise Refused(f"{folder} is there and not of this package; remove it first (pip uninstall {name})")
        if other is not None and not self.is_ours(other) and not force:
            raise Refused(
                f"`import {name}` finds {other}; remove it first (pip uninstall {name}), or pass --force to write "
                f"beside it"
            )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(self.forwards)
        return folder

    def uninstall(self, target: pathlib.Path) -> pathlib.Path | None:
        """Takes the folder away, and returns it; None: there is none."""
        folder = target / self.name
        if not folder.exists():
            return None
        if not self.is_ours(folder):
            raise Refused(f"{folder} is not of this package, and stays; pip uninstall {self.name} removes another one")
        shutil.rmtree(folder)
        return folder

    def main(self, arguments: list[str], table: Callable[[], list[str]]) -> int:
        """The command line of `python -m finegemm.NAME`. table: what becomes of each name."""
        about = f"Makes `import {self.name}` find {self.package}."
        parser = argparse.ArgumentParser(prog=f"python -m {self.package}", description=about)
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--install", action="store_true", help=f"write a package {self.name} that forwards")
        what.add_argument("--uninstall", action="store_true", help="take it away")
        what.add_argument(
            "--names", action="store_true", help="print what becomes of each name, as a table of Markdown"
        )
        parser.add_argument(
            "--force", action="store_true", help=f"install though `import {self.name}` finds another one"
        )
        parser.add_argument("--target", type=pathlib.Path, help="the folder to write to, instead of site-packages")
        options = parser.parse_args(arguments)
        if options.names:
            print(*table(), sep="\n")
            return 0
        target = options.target or pathlib.Path(sysconfig.get_paths()["purelib"])
        try:
            print(self._installed(target, options.force) if options.install else self._uninstalled(target))
        except Refused as e:
            print(e, file=sys.stderr)
            return 1
        return 0

    def _installed(self, target: pathlib.Path, force: bool) -> str:
        folder = self.install(target, force)
        found = self.resolved()
        said = f"wrote {folder}, which forwards to {self.package}"
        if found is None:
            return f"{said}; {target} is not on this interpreter's path: add it to PYTHONPATH"
        if self.is_ours(found):
            return said
        return f"{said}; but `import {self.name}` still finds {found}, which comes first"

    def _uninstalled(self, target: pathlib.Path) -> str:
        folder = self.uninstall(target)
        return f"there is no {target / self.name}; nothing to do" if folder is None else f"removed {folder}"
