"""tools/foreign.py: packages of another processor in a folder, and programs of it, by stand-ins for the tools."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from foreign import PACKAGES, Foreign

APT = """
echo "$@" >>"$TOLD"
[ -z "$APT_FAILS" ] || exit 100
case "$*" in *install*) touch "$ARCHIVES/a.deb" ;; esac
"""
DPKG = 'mkdir -p "$3/usr/bin" && touch "$3/usr/bin/python3.11" "$3/usr/bin/python3.11-config"'
QEMU = 'echo "$@ with $PYTHONPATH"; exit "${QEMU_STATUS:-0}"'


class Foreigners(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name)
        for name, text in (("apt-get", APT), ("dpkg-deb", DPKG), ("qemu-aarch64-static", QEMU)):
            (self.here / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.here / name).chmod(0o755)
        self.foreign = Foreign("aarch64", self.here / "foreign")
        self.told = self.here / "told"
        self.set(
            PATH=f"{self.here}:{os.environ['PATH']}", TOLD=str(self.told), ARCHIVES=f"{self.here}/foreign/archives"
        )

    def set(self, **variables):
        patch = mock.patch.dict(os.environ, variables)
        patch.start()
        self.addCleanup(patch.stop)

    def test_packages_are_fetched_once_and_into_the_folder_alone(self):
        self.foreign.make()
        self.foreign.make()
        update, install = self.told.read_text().splitlines()
        for line in (update, install):
            self.assertIn("APT::Architecture=arm64", line)
            self.assertIn(f"Dir::State={self.here}/foreign", line)
        self.assertIn("--download-only", install)
        self.assertIn(" ".join(PACKAGES), install)
        self.assertEqual(self.foreign.python(), self.foreign.root / "usr/bin/python3.11")

    def test_what_cannot_be_fetched_is_an_error_and_tried_again(self):
        self.set(APT_FAILS="1")
        with self.assertRaisesRegex(SystemExit, "aarch64: its packages cannot be fetched; .* --no-aarch64"):
            self.foreign.make()
        self.set(APT_FAILS="")
        self.foreign.make()
        self.assertTrue(self.foreign.python().exists())

    def test_a_program_that_fails_is_an_error_with_what_it_printed(self):
        self.foreign.make()
        said = self.foreign.run(self.here, "-m", "finegemm", cwd=self.here)
        self.assertEqual(said, f"-L {self.foreign.root} {self.foreign.python()} -m finegemm with {self.here}\n")
        self.set(QEMU_STATUS="3")
        with self.assertRaisesRegex(SystemExit, "(?s)with .*python -m finegemm: failed under QEMU"):
            self.foreign.run(self.here, "-m", "finegemm", cwd=self.here)


if __name__ == "__main__":
    unittest.main()
