"""tools/project_urls.py: addresses in the package's metadata."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from project_urls import dynamic_metadata, urls

ROOT = pathlib.Path(__file__).resolve().parents[2]
METADATA = "import sys, scikit_build_core.build as b; b.prepare_metadata_for_build_wheel(sys.argv[1], {})"


def metadata(**environment: str) -> str:
    """METADATA of the wheel that pyproject.toml describes; nothing is compiled for it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", METADATA, folder]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=True, capture_output=True)
        (file,) = pathlib.Path(folder).glob("*.dist-info/METADATA")
        return file.read_text()


class ProjectUrls(unittest.TestCase):
    def test_pages_are_below_the_homepage(self) -> None:
        for homepage in ("https://code.example/someone/finegemm", "https://code.example/someone/finegemm/"):
            with unittest.mock.patch.dict("os.environ", FINEGEMM_HOMEPAGE=homepage):
                found = dynamic_metadata("urls", {})
            self.assertEqual(found["Homepage"], "https://code.example/someone/finegemm")
            self.assertEqual(found["Issues"], "https://code.example/someone/finegemm/issues")
            self.assertEqual(set(found), {"Homepage", "Documentation", "Changelog", "Issues", "Source"})

    def test_pages_are_files_of_the_repository(self) -> None:
        for address in urls("https://code.example/x").values():
            _, main, path = address.partition("/blob/main/")
            self.assertTrue(not main or (ROOT / path).is_file(), address)

    def test_a_wheel_has_them(self) -> None:
        self.assertIn(
            "Project-URL: Issues, https://code.example/x/issues", metadata(FINEGEMM_HOMEPAGE="https://code.example/x")
        )
        self.assertNotIn("Project-URL", metadata(FINEGEMM_HOMEPAGE=""))

    def test_no_homepage_means_no_addresses(self) -> None:
        self.assertEqual(urls(""), {})

    def test_what_is_no_address_is_refused(self) -> None:
        for homepage in ("code.example/x", "http://code.example/x", "https://code", "https://code.example/a b"):
            with self.assertRaisesRegex(SystemExit, "FINEGEMM_HOMEPAGE: is .* must be the https address"):
                urls(homepage)


if __name__ == "__main__":
    unittest.main()
