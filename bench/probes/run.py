#!/usr/bin/env python3
"""Builds the probes of this folder with nvcc, runs them on a Hopper GPU and writes what they say.

Usage: run.py [--only NAME,...] [--nvcc FILE] [--build DIR] [--out FILE] [--no-run]

A probe is a program that answers a question about the hardware; its first comment has what was expected before it ran.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WIDTHS = (16, 32, 64, 96, 128, 192, 256)
SKIPPED = 77
LIMIT = 60  # seconds for a probe


def accumulate(n: int, a_in_registers: bool) -> str:
    """D[64 x n] += A[64 x 128] * B[n x 128]^T. Results that nobody adds to are deleted by ptxas, so it adds."""
    regs = n // 2
    d = ", ".join(f"%{i}" for i in range(regs))
    b = regs + (16 if a_in_registers else 1)  # the operand that is B's descriptor; A's are those before it
    text = "{\\n.reg .b64 a<4>, b<4>;\\n"
    for k in range(4):
        text += f"add.s64 b{k}, %{b}, {2 * k};\\n" + ("" if a_in_registers else f"add.s64 a{k}, %{regs}, {2 * k};\\n")
    for k in range(4):
        a = "{" + ", ".join(f"%{regs + 4 * k + i}" for i in range(4)) + "}" if a_in_registers else f"a{k}"
        text += f"wgmma.mma_async.sync.aligned.m64n{n}k32.f32.e4m3.e4m3 {{{d}}}, {a}, b{k}, 1, 1, 1;\\n"
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(regs))
    inputs = ", ".join(f'"r"(a[{i}])' for i in range(16)) if a_in_registers else '"l"(a)'
    operand = "const uint32_t (&a)[16]" if a_in_registers else "uint64_t a"
    return f"""__device__ inline void wgmma_accumulate(float (&d)[{regs}], {operand}, uint64_t b) {{
    asm volatile("{text}}}" : {outputs} : {inputs}, "l"(b));
}}
"""


def nvcc() -> str:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("nvcc") or f"{home}/bin/nvcc"


def build(names: list, compiler: str, folder: pathlib.Path) -> None:
    """All at once; a warning is an error, as ptxas warns when it serialises wgmma."""
    wrappers = "".join(accumulate(n, where) for n in WIDTHS for where in (False, True))
    (folder / "wgmma_accumulate.inl").write_text(f"namespace probe {{\n{wrappers}}}\n")
    flags = ["-std=c++20", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-Werror=all-warnings"]
    paths = [f"-I{ROOT / 'kernels'}", f"-I{folder}"]

    def start(name: str) -> subprocess.Popen:
        command = [compiler, *flags, *paths, str(HERE / f"{name}.cu"), "-o", str(folder / name)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    running = {name: start(name) for name in names}
    for name, process in running.items():
        text = process.communicate()[0].decode()
        if process.returncode or "are serialized" in text:
            sys.exit(f"{name} does not build:\n{text}")


def run(name: str, folder: pathlib.Path) -> dict:
    try:
        done = subprocess.run([folder / name], capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"probe": name, "error": f"has not ended after {LIMIT} s"}
    if done.returncode == SKIPPED:
        print(f"{name}: {done.stderr.strip()}")
        sys.exit(SKIPPED)
    if done.returncode:
        return {"probe": name, "error": done.stderr.strip() or f"exit status {done.returncode}"}
    return json.loads(done.stdout)


def machine() -> dict:
    query = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit"
    text = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout
    return dict(zip(query.split(","), (fact.strip() for fact in text.split("\n")[0].split(",")), strict=False))


def main() -> None:
    probes = sorted(path.stem for path in HERE.glob("*.cu"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(probes), help="names of probes, with commas between them")
    parser.add_argument("--nvcc", default=nvcc())
    parser.add_argument("--build", type=pathlib.Path, help="where to build; a folder that goes away, if not given")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/probes_h200.json")
    parser.add_argument("--no-run", action="store_true", help="only build")
    options = parser.parse_args()
    names = options.only.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.build or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        build(names, options.nvcc, folder)
        if options.no_run:
            return
        results = [run(name, folder) for name in names]
    head = json.dumps({"machine": machine(), "date": time.strftime("%Y-%m-%d")}, indent=1)[:-2]
    rows = [{"probe": result["probe"]} | row for result in results for row in result.get("rows", [result])]
    lines = [json.dumps(row) for row in rows]
    options.out.write_text(head + ',\n "rows": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
