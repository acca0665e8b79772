#!/usr/bin/env python3
"""Makes a release in dist/: the source archive and, from it, the wheel, both tried in an environment of their own.

Nothing is published: what to do with dist/ and the tag is said at the end.
"""

import argparse
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PLATFORM = "manylinux_2_28_x86_64"  # cmake/manylinux.cmake compiles for it


def faults(version: str, cmake: str, changelog: str, changes: str, tags: str) -> list[str]:
    """What speaks against a release of these texts: CMakeLists.txt, CHANGELOG.md, `git status -s`, `git tag`."""
    found = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        found.append(f"version: is '{version}', must be three numbers, like 1.2.3")
    declared = re.search(r"project\(FineGEMM VERSION ([0-9.]+)", cmake)
    if not declared or declared[1] != version:
        found.append(f"CMakeLists.txt: has version {declared[1] if declared else 'none'}, must be {version}; change it")
    section = re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n+(?!## )\S", changelog, re.MULTILINE)
    if not section:
        found.append(f"CHANGELOG.md: has no section '## {version} (YYYY-MM-DD)' with text; write what changed")
    if changes.strip():
        found.append(f"the working tree has changes, must be a commit; commit or stash them:\n{changes.rstrip()}")
    if f"v{version}" in tags.split():
        found.append(f"v{version}: there is such a tag already; take a new version")
    return found


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def build() -> pathlib.Path:
    """The wheel, of the source archive: what that lacks is noticed. The platform tag is what its symbols need."""
    shutil.rmtree(DIST, ignore_errors=True)
    defines = {"CMAKE_TOOLCHAIN_FILE": ROOT / "cmake/manylinux.cmake", "FINEGEMM_ZIG_PYTHON": sys.executable}
    settings = [f"-Ccmake.define.{name}={value}" for name, value in defines.items()]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "build", *settings, "--outdir", folder, ROOT], check=True)
        (archive,) = pathlib.Path(folder).glob("*.tar.gz")
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        repair = ["repair", "--strip", "--plat", PLATFORM, "-w", str(DIST), str(wheel)]
        subprocess.run([sys.executable, "-m", "auditwheel", *repair], check=True)
        shutil.copy(archive, DIST)
    (repaired,) = DIST.glob("*.whl")
    return repaired


FIRST_CALL = """
import time
begin = time.perf_counter()
import finegemm
imported = time.perf_counter()
finegemm.bench([(64, 512, 1024)], device="auto", repeats=1)
called = time.perf_counter()
print(f"import {1000 * (imported - begin):.0f} ms, first products {1000 * (called - imported):.0f} ms")
"""


def try_out(wheel: pathlib.Path, version: str) -> None:
    """Installs the wheel and nothing else, and runs it: on the CPU where there is no GPU."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        begin = time.monotonic()
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", wheel], check=True)
        print(f"pip install {time.monotonic() - begin:.1f} s", flush=True)
        said = subprocess.run(
            [f"{folder}/bin/finegemm", "--version"], check=True, capture_output=True, text=True
        ).stdout
        if said.strip() != version:
            raise SystemExit(f"{wheel.name}: says that it is version {said.strip()}, must be {version}")
        report = json.loads(
            subprocess.run([f"{folder}/bin/finegemm", "doctor", "--json"], check=True, capture_output=True).stdout
        )
        for finding in report["findings"]:
            if finding["what"] == "pack" and finding["state"] != "ok":
                raise SystemExit(f"{wheel.name}: its kernels are {finding['state']}: {finding['detail']}")
        subprocess.run([python, "-c", FIRST_CALL], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--no-tests", action="store_true", help="where ./dev test has just run on this commit")
    asked = parser.parse_args()
    cmake, changelog = ((ROOT / name).read_text() for name in ("CMakeLists.txt", "CHANGELOG.md"))
    found = faults(asked.version, cmake, changelog, output("git", "status", "-s"), output("git", "tag"))
    if found:
        print("\n".join(found), file=sys.stderr)
        return 1
    if not asked.no_tests:
        subprocess.run([ROOT / "dev", "test"], check=True)
    wheel = build()
    try_out(wheel, asked.version)
    for file in sorted(DIST.iterdir()):
        content = file.read_bytes()
        print(f"{hashlib.sha256(content).hexdigest()}  {file.name}  {len(content):,} bytes")
    print(f"To publish: git tag v{asked.version}, push it, and upload dist/* to the index")
    return 0


if __name__ == "__main__":
    sys.exit(main())
