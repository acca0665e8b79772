"""tools/check_layers.py finds what it is there to find."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_layers


def violations(**files: str) -> list[str]:
    """Of a tree with these files; '__' in a name stands for '/', and the suffix is .h."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in files.items():
            path = root / (name.replace("__", "/") + ".h")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_layers.violations(root)


class Layers(unittest.TestCase):
    def test_a_layer_may_include_itself_and_the_layers_below(self):
        found = violations(
            src__jit__a='#include "jit/b.h"\n#include <vector>\n',
            src__jit__b='#include "cuda/c.h"\n',
            src__cuda__c="#include <finegemm/error.h>\n",
            include__finegemm__error="",
        )
        self.assertEqual(found, [])

    def test_plan_must_not_know_jit(self):
        self.assertEqual(
            violations(src__plan__a='#include "jit/b.h"\n', src__jit__b=""),
            ["src/plan/a.h: layer 'plan' must not include 'jit/b.h' of layer 'jit'"],
        )

    def test_the_cpu_backend_needs_no_cuda(self):
        found = violations(
            src__ops__gemm__cpu='#include "cuda/c.h"\n',
            src__ops__gemm__hopper='#include "cuda/c.h"\n',
            src__cuda__c="",
        )
        self.assertEqual(found, ["src/ops/gemm/cpu.h: layer 'cpu' must not include 'cuda/c.h' of layer 'cuda'"])

    def test_kernel_headers_include_no_other_headers(self):
        found = violations(
            kernels__finegemm__core__a="#include <cstdint>\n", kernels__finegemm__device__b="  # include <cuda.h>\n"
        )
        self.assertEqual(len(found), 2)

    def test_core_must_not_include_device(self):
        found = violations(
            kernels__finegemm__core__a="#include <finegemm/device/b.h>\n", kernels__finegemm__device__b=""
        )
        self.assertEqual(len(found), 1)

    def test_a_relative_include_is_resolved(self):
        self.assertEqual(len(violations(src__plan__a='#include "../jit/b.h"\n', src__jit__b="")), 1)

    def test_front_ends_see_the_api_only(self):
        self.assertEqual(len(violations(cli__a='#include "engine/b.h"\n', src__engine__b="")), 1)
        self.assertEqual(len(violations(python__src__a='#include "engine/b.h"\n', src__engine__b="")), 1)

    def test_a_file_outside_of_every_layer_is_reported(self):
        self.assertEqual(violations(src__extra__a=""), ["src/extra/a.h: belongs to no layer"])


if __name__ == "__main__":
    unittest.main()
