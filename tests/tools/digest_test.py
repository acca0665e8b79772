"""tools/gpu_digest.py: what changes the digest of an operation, and what has none."""

import json
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import gpu_digest  # noqa: E402


class Digests(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write(
            "tests/golden/kernel_text.json",
            '{"nvrtc": {"FineGEMM_m64": "1", "FineGEMM_quantize_rows": "2", "FineGEMM_scale_layout_unpack": "3"}}',
        )
        self.write("src/jit/pack.cpp", "int x;")
        self.write("src/plan/cost.cpp", 'auto f = "a  b";')
        self.write("src/ops/gemm/cpu.cpp", "int y;")
        self.before = self.digests()

    def write(self, name: str, text: str):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def digests(self) -> dict:
        return {operation: gpu_digest.digest(operation, self.root) for operation in gpu_digest.OPERATIONS}

    def test_a_kernel_is_of_the_operation_that_it_is_named_after(self):
        of = {"FineGEMM_bf16_gemm_m64": "gemm", "FineGEMM_mqa_logits_h8": "mqa", "FineGEMM_paged_mqa_schedule": "mqa"}
        of["FineGEMM_reencode_rows"] = "quantize"
        self.assertEqual({name: gpu_digest.operation_of(name) for name in of}, of)

    def assert_changed(self, *operations):
        after = self.digests()
        self.assertEqual(
            {name for name in after if after[name] != self.before[name]},
            set(operations),
        )

    def test_machine_code_counts_for_its_operation(self):
        self.write(
            "tests/golden/kernel_text.json",
            '{"nvrtc": {"FineGEMM_m64": "3", "FineGEMM_quantize_rows": "2", "FineGEMM_scale_layout_unpack": "4"}}',
        )
        self.assert_changed("gemm", "scale_layout")

    def test_a_file_of_one_operation_leaves_the_others_valid(self):
        self.write("src/plan/cost.cpp", "auto g = 1;")
        self.assert_changed("gemm")

    def test_a_shared_file_counts_for_all(self):
        self.write("src/jit/pack.cpp", "int z;")
        self.assert_changed(*gpu_digest.OPERATIONS)

    def test_a_new_file_counts(self):
        self.write("src/cuda/new.h", "")
        self.assert_changed(*gpu_digest.OPERATIONS)

    def test_comments_layout_and_the_cpu_backend_do_not_count(self):
        self.write("src/jit/pack.cpp", "// why\nint\n    x; /* and how */")
        self.write("src/ops/gemm/cpu.cpp", "int z;")
        self.assert_changed()

    def test_strings_count_to_the_blank(self):
        self.write("src/plan/cost.cpp", 'auto f = "a b";')
        self.assert_changed("gemm")

    def test_a_file_that_moves_out_of_the_patterns_is_named(self):
        sources = {
            "src/jit/pack.cpp",
            "src/runtime/launch.cpp",
            "src/ops/gemm/cpu.cpp",
            "kernels/finegemm/x.cuh",
        }
        self.assertEqual(gpu_digest.without_digest(sources), ["src/runtime/launch.cpp"])

    def test_a_record_counts_for_the_operations_that_it_names(self):
        record = {"gemm": {"digest": self.before["gemm"]}}
        self.write("gpu-validated.json", json.dumps(record))
        self.assertEqual(
            [text.partition(":")[0] for text in gpu_digest.complaints(self.root)],
            [operation for operation in gpu_digest.OPERATIONS if operation != "gemm"],
        )
        self.write(
            "gpu-validated.json",
            json.dumps(record | {"quantize": {"digest": "another"}}),
        )
        self.assertIn("STALE", gpu_digest.complaints(self.root)[0])

    def test_a_missed_bar_of_speed_is_said_of_an_operation_that_is_right(self):
        record = {"gemm": {"digest": self.before["gemm"], "short": ["einsum_speed"]}, "mqa": {"digest": "another"}}
        self.write("gpu-validated.json", json.dumps(record))
        self.assertEqual(gpu_digest.shortfalls(self.root), ["gemm: right, but short of its bar of speed: einsum_speed"])
        self.assertFalse(any(text.startswith("gemm") for text in gpu_digest.complaints(self.root)))


class Sources(unittest.TestCase):
    def test_they_are_the_projects_wherever_the_build_is(self):
        text = """CMakeFiles/finegemm_engine.dir/a.o: #deps 3, deps mtime 1 (VALID)
    {root}/src/engine/hopper.cpp
    /usr/include/stdio.h
    generated/kernel_files.cpp

CMakeFiles/finegemm_api.dir/b.o: #deps 1, deps mtime 1 (VALID)
    {root}/src/api/context.cpp
"""
        listed = mock.Mock(stdout=text.format(root=ROOT))
        for build in (ROOT / "build", pathlib.Path("/tmp/elsewhere")):
            with mock.patch.object(gpu_digest.subprocess, "run", return_value=listed):
                self.assertEqual(gpu_digest.sources_of(build), {"src/engine/hopper.cpp"}, build)


if __name__ == "__main__":
    unittest.main()
