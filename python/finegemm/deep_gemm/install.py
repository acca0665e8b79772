"""`import deep_gemm` for this package: a folder in site-packages that forwards to it."""

import importlib.util
import pathlib
import shutil
import sys
import sysconfig

NAME = "deep_gemm"
_FORWARDS = '''"""Forwards to finegemm.deep_gemm. `python -m finegemm.deep_gemm --uninstall` takes it away."""

from finegemm.deep_gemm import install

install.answer_to(__name__)
'''


class Refused(Exception):
    """Nothing was changed; the message says why and what to do."""


def answer_to(name: str) -> None:
    """Makes `name` and what is in it names of this package's modules, which exist once."""
    package = __name__.rpartition(".")[0]
    for found in [m for m in sys.modules if m == package or m.startswith(package + ".")]:
        sys.modules[name + found.removeprefix(package)] = sys.modules[found]


def site_packages() -> pathlib.Path:
    return pathlib.Path(sysconfig.get_paths()["purelib"])


def resolved() -> pathlib.Path | None:
    """The folder that `import deep_gemm` would find in a new interpreter."""
    importlib.invalidate_caches()
    loaded = sys.modules.pop(NAME, None)
    try:
        spec = importlib.util.find_spec(NAME)
    finally:
        if loaded is not None:
            sys.modules[NAME] = loaded
    if spec is None:
        return None
    where = spec.origin or next(iter(spec.submodule_search_locations or []), "")
    path = pathlib.Path(where)
    return path.parent if path.is_file() else path


def is_ours(folder: pathlib.Path) -> bool:
    file = folder / "__init__.py"
    return file.is_file() and file.read_text() == _FORWARDS


def install(target: pathlib.Path, force: bool = False) -> pathlib.Path:
    """Writes the folder into `target` and returns it."""
    folder, other = target / NAME, resolved()
    if folder.exists() and not is_ours(folder):
        raise Refused(f"{folder} is there and not of this package; remove it first (pip uninstall {NAME})")
    if other is not None and not is_ours(other) and not force:
        raise Refused(
            f"`import {NAME}` finds {other}; remove it first (pip uninstall {NAME}), or pass --force to write beside it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(_FORWARDS)
    return folder


def uninstall(target: pathlib.Path) -> pathlib.Path | None:
    """Takes the folder away, and returns it; None: there is none."""
    folder = target / NAME
    if not folder.exists():
        return None
    if not is_ours(folder):
        raise Refused(f"{folder} is not of this package, and stays; pip uninstall {NAME} removes another one")
    shutil.rmtree(folder)
    return folder
