"""tools/release.py: what speaks against a release."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from release import check, faults, newest_glibc, settings

CMAKE = "project(FineGEMM VERSION 1.2.3 LANGUAGES CXX C)"
CHANGELOG = "# Changes\n\n## 1.2.3 (2026-11-25)\n\n- All of it.\n\n## 1.2.2 (2026-11-24)\n\n- Some.\n"


class Release(unittest.TestCase):
    def faults(self, version="1.2.3", cmake=CMAKE, changelog=CHANGELOG, changes="", tags="v1.2.2\n"):
        return " ".join(faults(version, cmake, changelog, changes, tags))

    def test_nothing_speaks_against_a_commit_with_its_version_everywhere(self):
        self.assertEqual(self.faults(), "")

    def test_each_text_must_have_the_version(self):
        self.assertIn("CMakeLists.txt: has version 1.2.3, must be 1.2.4", self.faults(version="1.2.4"))
        self.assertIn("no section '## 1.2.4", self.faults(version="1.2.4"))
        self.assertIn("CMakeLists.txt: has version none", self.faults(cmake=""))
        self.assertIn("must be three numbers", self.faults(version="v1"))

    def test_the_changelog_must_have_a_date_and_text(self):
        self.assertIn("no section", self.faults(changelog="## 1.2.3 (unreleased)\n\n- All.\n"))
        self.assertIn(
            "no section", self.faults(changelog="## 1.2.3 (2026-11-25)\n\n## 1.2.2 (2026-11-24)\n\n- Some.\n")
        )

    def test_the_tree_must_be_a_commit_without_that_tag(self):
        self.assertIn("commit or stash them:\n M a", self.faults(changes=" M a\n"))
        self.assertIn("v1.2.3: there is such a tag", self.faults(tags="v1.2.3\n"))


class Wheels(unittest.TestCase):
    def test_what_a_wheel_needs_of_glibc_is_read_of_its_name(self):
        self.assertEqual(newest_glibc("w-1-cp310-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64.whl"), 17)
        self.assertEqual(newest_glibc("w-1-cp310-abi3-manylinux_2_9_aarch64.manylinux_2_31_aarch64.whl"), 31)
        with self.assertRaisesRegex(SystemExit, "w-1-py3-none-any.whl: names no glibc"):
            newest_glibc("w-1-py3-none-any.whl")

    def test_another_processor_has_a_root_and_packs_and_this_one_has_not(self):
        names = ("FINEGEMM_ROOT", "FINEGEMM_PACK")
        given = " ".join(settings("aarch64", pathlib.Path("/root"), pathlib.Path("/packs")))
        self.assertIn("-Ccmake.define.FINEGEMM_TARGET=aarch64", given)
        for name in names:
            self.assertIn(name, given)
            self.assertNotIn(name, " ".join(settings("x86_64")))

    def test_a_wheel_without_its_version_or_its_kernels_is_refused(self):
        def doctor(state):
            return json.dumps({"findings": [{"what": "pack", "state": state, "detail": "0 of 9"}]})

        wheel = pathlib.Path("w.whl")
        check(wheel, "1.2.3", doctor("ok"), "1.2.3\n")
        with self.assertRaisesRegex(SystemExit, "says that it is version 1.2.2, must be 1.2.3"):
            check(wheel, "1.2.3", doctor("ok"), "1.2.2\n")
        with self.assertRaisesRegex(SystemExit, "its kernels are missing: 0 of 9"):
            check(wheel, "1.2.3", doctor("missing"), "1.2.3\n")


if __name__ == "__main__":
    unittest.main()
