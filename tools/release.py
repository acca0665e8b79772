#!/usr/bin/env python3
"""Makes a release in dist/: the source archive and, from it, the wheels, each tried in an environment of its own.

The wheel for aarch64 is built and tried on x86-64: it runs under QEMU, where it has no GPU.

Nothing is published: what to do with dist/ and the tag is said at the end.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv

from foreign import Foreign

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
GLIBC = "manylinux_2_28"  # cmake/manylinux.cmake compiles for it
OF_BITS = ("gemm", "unscaled", "affine", "heads", "grouped", "k_grouped", "scale_layout", "routing", "calls", "errors")
TESTS_OF_BITS = [f"test_{name}.py" for name in OF_BITS]


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


def settings(machine: str, root: pathlib.Path | None = None, pack: pathlib.Path | None = None) -> list[str]:
    """What a wheel is built with; `root` and `pack`: for another processor than this machine's."""
    defines = {
        "CMAKE_TOOLCHAIN_FILE": ROOT / "cmake/manylinux.cmake",
        "FINEGEMM_ZIG_PYTHON": sys.executable,
        "FINEGEMM_TARGET": machine,
        "FINEGEMM_ROOT": root,
        "FINEGEMM_PACK": pack,
    }
    return [f"-Ccmake.define.{name}={value}" for name, value in defines.items() if value]


def build(folder: pathlib.Path) -> pathlib.Path:
    """The wheel, of the source archive: what that lacks is noticed. The platform tag is what its symbols need."""
    made = folder / "made"
    command = [sys.executable, "-m", "build", *settings("x86_64"), f"-Cbuild-dir={folder / 'build'}"]
    subprocess.run([*command, "--outdir", made, ROOT], check=True)
    (archive,) = made.glob("*.tar.gz")
    (wheel,) = made.glob("*.whl")
    repair = ["repair", "--strip", "--plat", f"{GLIBC}_x86_64", "-w", str(DIST), str(wheel)]
    subprocess.run([sys.executable, "-m", "auditwheel", *repair], check=True)
    shutil.copy(archive, DIST)
    (repaired,) = DIST.glob("*.whl")
    return repaired


def newest_glibc(wheel: str) -> int:
    """N of the newest glibc 2.N that a wheel's name asks for, as auditwheel has written it."""
    found = re.findall(r"manylinux_2_(\d+)_", wheel)
    if not found:
        raise SystemExit(f"{wheel}: names no glibc; look at `auditwheel show`")
    return max(int(n) for n in found)


def cross_build(folder: pathlib.Path, foreign: Foreign) -> pathlib.Path:
    """The wheel for another processor, of the source archive and with the packs of this machine's wheel."""
    (archive,) = DIST.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    given = settings(foreign.machine, foreign.root, folder / "build/generated")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", *given]
    source, made = folder / archive.name.removesuffix(".tar.gz"), folder / foreign.machine
    platform = {**os.environ, "_PYTHON_HOST_PLATFORM": f"linux-{foreign.machine}"}  # which the wheel's name says
    subprocess.run([*command, "--outdir", made, source], check=True, env=platform)
    (wheel,) = made.glob("*.whl")
    # Tags of another processor are auditwheel's to choose.
    repair = ["repair", "--plat", "auto", "-w", str(DIST), str(wheel)]
    subprocess.run([sys.executable, "-m", "auditwheel", *repair], check=True)
    (repaired,) = DIST.glob(f"*{foreign.machine}.whl")
    if newest_glibc(repaired.name) > newest_glibc(f"{GLIBC}_"):
        raise SystemExit(f"{repaired.name}: needs a newer glibc than {GLIBC} has")
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


def check(wheel: pathlib.Path, version: str, doctor: str, said: str) -> None:
    """That what `finegemm --version` and `finegemm doctor --json` say of a wheel is right."""
    if said.strip() != version:
        raise SystemExit(f"{wheel.name}: says that it is version {said.strip()}, must be {version}")
    for finding in json.loads(doctor)["findings"]:
        if finding["what"] == "pack" and finding["state"] != "ok":
            raise SystemExit(f"{wheel.name}: its kernels are {finding['state']}: {finding['detail']}")


def try_out(wheel: pathlib.Path, version: str) -> None:
    """Installs the wheel and nothing else, and runs it: on the CPU where there is no GPU."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python, tool = f"{folder}/bin/python", f"{folder}/bin/finegemm"
        begin = time.monotonic()
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", wheel], check=True)
        print(f"{wheel.name}: pip install {time.monotonic() - begin:.1f} s", flush=True)
        check(wheel, version, output(tool, "doctor", "--json"), output(tool, "--version"))
        subprocess.run([python, "-c", FIRST_CALL], check=True)


def try_out_under_qemu(wheel: pathlib.Path, version: str, foreign: Foreign) -> None:
    """Tests whose right values are bits or bounds, on the emulated processor."""
    with tempfile.TemporaryDirectory() as folder:
        site, tests = pathlib.Path(folder), ROOT / "python/tests"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", folder, "--only-binary", ":all:"]
        for glibc in (GLIBC, "manylinux_2_17", "manylinux2014"):
            pip += ["--platform", f"{glibc}_{foreign.machine}"]
        pip += ["--python-version", foreign.python().name.removeprefix("python")]
        subprocess.run([*pip, "-r", ROOT / "python/requirements.txt", wheel], check=True)
        said = [foreign.run(site, "-m", "finegemm", *of, cwd=tests) for of in (["doctor", "--json"], ["--version"])]
        check(wheel, version, *said)
        print(f"{wheel.name}: under QEMU, {foreign.run(site, '-c', FIRST_CALL, cwd=tests)}", end="", flush=True)
        tested = foreign.run(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS_OF_BITS, cwd=tests)
        print(f"{wheel.name}: under QEMU, {tested.splitlines()[-1]}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--no-tests", action="store_true", help="where ./dev test has just run on this commit")
    parser.add_argument("--no-aarch64", action="store_true", help="no wheel for aarch64, and nothing fetched for it")
    asked = parser.parse_args()
    cmake, changelog = ((ROOT / name).read_text() for name in ("CMakeLists.txt", "CHANGELOG.md"))
    found = faults(asked.version, cmake, changelog, output("git", "status", "-s"), output("git", "tag"))
    if found:
        print("\n".join(found), file=sys.stderr)
        return 1
    if not asked.no_tests:
        subprocess.run([ROOT / "dev", "test"], check=True)
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        try_out(build(pathlib.Path(folder)), asked.version)
        if not asked.no_aarch64:
            foreign = Foreign("aarch64", ROOT / "build-aarch64")
            foreign.make()
            try_out_under_qemu(cross_build(pathlib.Path(folder), foreign), asked.version, foreign)
    for file in sorted(DIST.iterdir()):
        content = file.read_bytes()
        print(f"{hashlib.sha256(content).hexdigest()}  {file.name}  {len(content):,} bytes")
    print(f"To publish: git tag v{asked.version}, push it, and upload dist/* to the index")
    return 0


if __name__ == "__main__":
    sys.exit(main())
