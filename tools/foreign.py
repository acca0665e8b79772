"""A folder with the packages of another processor, unpacked: what a wheel for it is built on, and QEMU runs it with."""

import os
import pathlib
import subprocess

PACKAGES = [
    *("python3-minimal", "libpython3-stdlib", "libpython3-dev", "libstdc++6"),
    *("libfmt-dev", "nlohmann-json3-dev", "libcli11-dev", "libxxhash-dev", "libzstd-dev", "libhwy-dev"),
]
ARCHITECTURES = {"aarch64": "arm64"}  # as Debian calls them


class Foreign:
    """Debian's packages for `machine`, in `folder`, which is made once. Nothing of this system changes."""

    def __init__(self, machine: str, folder: pathlib.Path) -> None:
        self.machine, self.folder = machine, folder
        self.root = folder / "root"

    def make(self) -> None:
        stamp, wanted = self.folder / "stamp", f"{self.machine} {PACKAGES}"
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print(f"== Fetching {self.machine}'s packages into {self.folder}", flush=True)
        for name in ("lists/partial", "archives/partial", "root"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()  # of packages: none is installed
        try:
            self._apt("update")
            self._apt("install", "--download-only", "--yes", "--no-install-recommends", *PACKAGES)
        except subprocess.CalledProcessError as e:
            raise SystemExit(
                f"{self.machine}: its packages cannot be fetched; the mirror of this system must have them, as "
                "Debian's have: release there, or leave the wheel out with --no-aarch64"
            ) from e
        for package in sorted((self.folder / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, self.root], check=True)
        stamp.write_text(wanted)

    def _apt(self, *command: str) -> None:
        architecture = ARCHITECTURES[self.machine]
        settings = {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "root",  # who can write there
            "Dir::State": self.folder,
            "Dir::State::status": self.folder / "status",
            "Dir::Cache": self.folder,
            "Debug::NoLocking": "1",
        }
        options = [f"-o{name}={value}" for name, value in settings.items()]
        subprocess.run(["apt-get", "-qq", *options, *command], check=True, stdout=subprocess.DEVNULL)

    def python(self) -> pathlib.Path:
        (python,) = (self.root / "usr/bin").glob("python3.*[0-9]")
        return python

    def run(self, path: pathlib.Path, *arguments: str, cwd: pathlib.Path) -> str:
        """What its Python prints, run by QEMU with modules of `path`."""
        emulator = [f"qemu-{self.machine}-static", "-L", str(self.root), str(self.python())]
        variables = {**os.environ, "PYTHONPATH": str(path), "PYTHONNOUSERSITE": "1"}
        ran = subprocess.run([*emulator, *arguments], cwd=cwd, env=variables, stdout=subprocess.PIPE, text=True)
        if ran.returncode != 0:
            raise SystemExit(f"{ran.stdout}{self.machine}: python {' '.join(arguments)}: failed under QEMU")
        return ran.stdout
