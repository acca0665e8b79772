"""bench/c_structs.py lays structs out as the C compiler does. tests/api/c_abi_test.cpp has the same numbers."""

import ctypes
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from c_structs import HEADERS, structs

TEXT = "".join(header.read_text() for header in HEADERS)


class CStructs(unittest.TestCase):
    def test_layouts_are_those_of_the_compiler(self):
        found = structs(TEXT)
        sizes = {"error": 2048, "matrix": 56, "gemm_args": 5 * 56, "stack": 72, "groups": 48, "epilogue": 536}
        sizes |= {
            "grouped_gemm_args": 5 * 72 + 48,
            "options": 32 + 11 * 4096 + 16,
            "logged_call": 48,
            "quantize_weights_args": 4 * 72,
            "quantize_columns_args": 7 * 56,
            "reencode_args": 4 * 72 + 56,
            "reencode_options": 32,
            "scale_layout_args": 2 * 72 + 48,
        }
        self.assertEqual({name: ctypes.sizeof(found[name]) for name in sizes}, sizes)
        offsets = {
            ("groups", "device_type"): 40,
            ("gemm_options", "stream"): 16,
            ("gemm_options", "prefetch_weights"): 44,
            ("gemm_options", "poll_data"): 56,
            ("gemm_options", "epilogue"): 64,
            ("epilogue", "c"): 16,
            ("epilogue", "bias"): 88,
            ("epilogue", "head_left"): 144,
            ("quantize_options", "stream"): 8,
            ("reencode_args", "scales"): 3 * 72,
            ("reencode_options", "poll"): 16,
            ("shape", "k_groups"): 56,
            ("shape", "batch_invariant"): 76,
            ("shape", "plan_table"): 88,
        }
        self.assertEqual({of: getattr(found[of[0]], of[1]).offset for of in offsets}, offsets)

    def test_every_struct_of_the_header_is_found(self):
        text = TEXT
        opaque = len(re.findall(r"typedef struct (\w+) \1;", text))
        self.assertEqual(len(structs(text)), text.count("typedef struct ") - opaque)

    def test_a_type_that_it_does_not_know_is_an_error(self):
        with self.assertRaisesRegex(KeyError, "long"):
            structs("typedef struct finegemm_x {\n    long alpha;\n} finegemm_x;\n")


if __name__ == "__main__":
    unittest.main()
