"""Makes `import deep_gemm` find finegemm.deep_gemm, or no longer; says what becomes of each name.

python -m finegemm.deep_gemm --install [--force] [--target DIR]
python -m finegemm.deep_gemm --uninstall [--target DIR]
python -m finegemm.deep_gemm --names
"""

import argparse
import pathlib
import sys

from . import install, names


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m finegemm.deep_gemm", description="Makes `import deep_gemm` find finegemm.deep_gemm."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--install", action="store_true", help="write a package deep_gemm that forwards")
    what.add_argument("--uninstall", action="store_true", help="take it away")
    what.add_argument("--names", action="store_true", help="print what becomes of each name, as a table of Markdown")
    parser.add_argument("--force", action="store_true", help="install though `import deep_gemm` finds another one")
    parser.add_argument("--target", type=pathlib.Path, help="the folder to write to, instead of site-packages")
    options = parser.parse_args(arguments)
    if options.names:
        print(*names.table(), sep="\n")
        return 0
    target = options.target or install.site_packages()
    try:
        print(_installed(target, options.force) if options.install else _uninstalled(target))
    except install.Refused as e:
        print(e, file=sys.stderr)
        return 1
    return 0


def _installed(target: pathlib.Path, force: bool) -> str:
    folder = install.install(target, force)
    found = install.resolved()
    said = f"wrote {folder}, which forwards to finegemm.deep_gemm"
    if found is None:
        return f"{said}; {target} is not on this interpreter's path: add it to PYTHONPATH"
    return said if install.is_ours(found) else f"{said}; but `import deep_gemm` still finds {found}, which comes first"


def _uninstalled(target: pathlib.Path) -> str:
    folder = install.uninstall(target)
    return f"there is no {target / install.NAME}; nothing to do" if folder is None else f"removed {folder}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
