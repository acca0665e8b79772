"""python -m finegemm.deep_gemm: `import deep_gemm` as a name of finegemm.deep_gemm."""

import os
import subprocess
import sys

import pytest

from finegemm.deep_gemm.install import alias


def run(*arguments, path=()):
    """A new interpreter, with the folders of `path` first on its path."""
    given = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), *([given] if given else [])])}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")


def command(*arguments, path=()):
    return run("-m", "finegemm.deep_gemm", *arguments, path=path)


@pytest.fixture(autouse=True)
def no_other():
    if (found := alias.resolved()) is not None:
        pytest.skip(f"this environment has a deep_gemm of its own, in {found}")


@pytest.fixture
def other(tmp_path):
    """A package of that name from elsewhere."""
    folder = tmp_path / "other"
    (folder / "deep_gemm").mkdir(parents=True)
    (folder / "deep_gemm" / "__init__.py").write_text("whose = 'another'\n")
    return folder


def test_the_installed_name_is_this_package_and_each_module_exists_once(tmp_path):
    done = command("--install", "--target", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"wrote {tmp_path}/deep_gemm, which forwards to finegemm.deep_gemm")
    code = """
import deep_gemm
import deep_gemm.utils.layout
from deep_gemm.testing.bench import bench_kineto
from deep_gemm.utils import ceil_div
import finegemm.deep_gemm as ours
import importlib.util
assert deep_gemm is ours and deep_gemm.utils.layout is ours.utils.layout and ceil_div is ours.ceil_div
deep_gemm.set_pdl(True)
assert ours.get_pdl() and importlib.util.find_spec("deep_gemm") and deep_gemm.__path__
"""
    assert run("-c", code, path=(tmp_path,)).stderr == ""


def test_uninstalling_takes_it_away(tmp_path):
    (tmp_path / "kept").mkdir()
    command("--install", "--target", tmp_path)
    assert run("-c", "import deep_gemm", path=(tmp_path,)).returncode == 0
    done = command("--uninstall", "--target", tmp_path)
    assert done.stdout == f"removed {tmp_path}/deep_gemm\n" and [p.name for p in tmp_path.iterdir()] == ["kept"]
    assert "there is no" in command("--uninstall", "--target", tmp_path).stdout


def test_installing_twice_is_no_error(tmp_path):
    for _ in range(2):
        assert command("--install", "--target", tmp_path, path=(tmp_path,)).returncode == 0


def test_another_package_of_the_name_refuses_it_unless_told_to(tmp_path, other):
    target = tmp_path / "target"
    target.mkdir()
    done = command("--install", "--target", target, path=(other,))
    assert done.returncode == 1 and done.stdout == "" and list(target.iterdir()) == []
    assert done.stderr.startswith(f"`import deep_gemm` finds {other}/deep_gemm; remove it first")
    forced = command("--install", "--force", "--target", target, path=(target, other))
    assert (forced.returncode, forced.stdout) == (
        0,
        f"wrote {target}/deep_gemm, which forwards to finegemm.deep_gemm\n",
    )
    behind = command("--install", "--force", "--target", target, path=(other, target))
    assert f"still finds {other}/deep_gemm, which comes first" in behind.stdout


@pytest.mark.parametrize("arguments", (("--install",), ("--install", "--force"), ("--uninstall",)))
def test_files_of_another_package_are_never_touched(other, arguments):
    done = command(*arguments, "--target", other, path=(other,))
    assert done.returncode == 1 and f"{other}/deep_gemm is " in done.stderr
    assert (other / "deep_gemm" / "__init__.py").read_text() == "whose = 'another'\n"


def test_a_target_that_is_not_on_the_path_is_said(tmp_path):
    assert (
        "is not on this interpreter's path: add it to PYTHONPATH" in command("--install", "--target", tmp_path).stdout
    )
