"""tools/check_counts.py finds what it is there to find."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_counts

BACKEND = "virtual ~Backend() = default;\nvirtual void gemm(const Call& call) = 0;\n"


def faults(**files: str) -> list[str]:
    """Of files with these texts; '__' in a name stands for '/', and the suffix is .h."""
    texts = {"src/engine/backend.h": BACKEND} | {n.replace("__", "/") + ".h": text for n, text in files.items()}
    return check_counts.faults(texts)


class Counts(unittest.TestCase):
    def test_the_host_is_within_its_bounds(self):
        files = check_counts.files_in(check_counts.ROOT, check_counts.HOST)
        self.assertGreater(len(files), 100)
        self.assertEqual(check_counts.faults(files), [])
        self.assertEqual(check_counts.virtuals(files), ["gemm", "check_values", "run", "problems"])

    def test_the_kernels_are_within_their_bounds(self):
        files = check_counts.files_in(check_counts.ROOT, check_counts.KERNELS)
        self.assertGreater(len(files), 50)
        self.assertEqual(check_counts.kernel_faults(files), [])
        self.assertGreater(len(check_counts.lines_with(files, check_counts.QUESTION_OF_GROUPING)), 2)

    def test_finishes_are_within_their_bounds(self):
        files = check_counts.files_in(check_counts.ROOT, check_counts.FINISHED)
        self.assertEqual(check_counts.finish_faults(files), [])
        known = check_counts.files_of_finishes(files)
        self.assertLessEqual({"affine", "head_gaps"}, set(known))
        for named_in in known.values():
            self.assertIn("kernels/finegemm/gemm/finish.h", named_in)
            self.assertGreaterEqual(len(named_in), 7)

    def test_files_that_know_of_a_finish_are_found(self):
        rows = (
            '{Finish::Bent, &GemmShape::bent, ""} visit(A{"slope", Finish::Bent, ""}) visit(A{"c", Finish::Bent, ""})'
        )
        files = {"src/plan/fields.h": rows, "src/bent.h": "slope", "src/plan/candidates/x.cpp": "kBent"}
        files |= {"src/x.h": "// bent\n/* slope */ c", "src/y.h": "slopes", "src/peers/z.h": "slope"}
        self.assertEqual(check_counts.files_of_finishes(files), {"bent": ["src/plan/fields.h"]})
        for word in ("slope", "bent_kind", "BentParams", "kBent"):
            known = check_counts.files_of_finishes(files | {"cli/x.cpp": word})
            self.assertEqual(known["bent"], ["src/plan/fields.h", "cli/x.cpp"])
        self.assertEqual(check_counts.finish_faults(files | {f"cli/{i}.h": "slope" for i in range(6)}), [])
        self.assertEqual(len(check_counts.finish_faults(files | {f"cli/{i}.h": "slope" for i in range(7)})), 1)

    def test_a_question_of_grouping_too_many_is_found(self):
        asks = ["c.row_groups()", "C.k_groups()", "c.grouped()", "c.grouping == Grouping::K", "C.grouping"]
        self.assertEqual(check_counts.kernel_faults({"kernels/gemm/x.h": "\n".join(asks)}), [])
        self.assertEqual(len(check_counts.kernel_faults({"kernels/gemm/x.h": "\n".join([*asks, asks[0]])})), 1)

    def test_a_compile_time_branch_too_many_is_found(self):
        branch = "    if constexpr (C.cluster > 1) f();\n"
        self.assertEqual(check_counts.kernel_faults({"kernels/device/x.cuh": branch * 40}), [])
        self.assertEqual(check_counts.kernel_faults({"kernels/gemm/x.h": branch * 41}), [])
        self.assertEqual(len(check_counts.kernel_faults({"kernels/device/x.cuh": branch * 41})), 1)

    def test_a_file_of_a_family_is_found(self):
        self.assertEqual(len(faults(cli__grouped_session="")), 1)

    def test_many_files_that_name_a_family_are_found(self):
        self.assertEqual(faults(**{f"src__a{i}__x": "k_grouped_gemm" for i in range(12)}), [])
        self.assertEqual(len(faults(**{f"src__a{i}__x": "k_grouped_gemm" for i in range(13)})), 1)

    def test_one_more_virtual_function_is_found(self):
        more = BACKEND + "".join(f"virtual void f{i}() = 0;\n" for i in range(4))
        self.assertEqual(len(check_counts.faults({"src/engine/backend.h": more})), 1)

    def test_a_second_place_that_builds_problems_is_found(self):
        first = "Problem problem_of(const GemmShape& s) {\n    return {.m = 1};\n}\n"
        calls = "plan::Problem problem_of(const Call& call) {\n    return plan::problem_of(shape);\n}\n"
        self.assertEqual(faults(src__plan__problem=first, src__ops__call=calls), [])
        self.assertEqual(len(faults(src__plan__problem=first, src__x="const plan::Problem p{1, 8, 16};")), 1)
        self.assertEqual(len(faults(src__plan__problem=first, src__y=first)), 1)

    def test_a_gpu_file_that_includes_a_cpu_file_is_found(self):
        self.assertEqual(len(faults(src__ops__gemm__hopper='#include "ops/gemm/cpu.h"\n')), 1)

    def test_a_crowded_folder_is_found(self):
        self.assertEqual(faults(**{f"src__a__x{i}": "" for i in range(20)}), [])
        self.assertEqual(len(faults(**{f"src__a__x{i}": "" for i in range(21)})), 1)


if __name__ == "__main__":
    unittest.main()
