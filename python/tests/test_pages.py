"""What documents show of Python and of the tool runs as it stands, and prints what they say."""

import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", *(p.relative_to(ROOT).as_posix() for p in sorted(ROOT.glob("docs/*/*.md")))]
MOCK = os.environ.get("FINEGEMM_MOCK_DRIVER")
ON_A_GPU = "docs/tutorials/tune.md"  # of a driver that computes nothing


@pytest.mark.parametrize("page", PAGES)
def test_page(page):
    if page == ON_A_GPU and not MOCK:
        pytest.skip("FINEGEMM_MOCK_DRIVER names no driver that computes nothing")
    environment = os.environ | {"FINEGEMM_CACHE_DIR": "", "FINEGEMM_CPU_THREADS": "2"}
    environment["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    if page == ON_A_GPU:
        environment["FINEGEMM_DRIVER"] = MOCK
    ran = subprocess.run(
        [sys.executable, ROOT / "tools/run_pages.py", ROOT / page], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
