"""What has passed of gpu_check.py so far: a run that is cut short, or that is one of several, is not lost."""

import json
import pathlib


class Progress:
    """The results of checks that passed, in a file until all have. `of`: what must be the same for them to count."""

    def __init__(self, file: pathlib.Path, of: dict):
        self.file, self.of = file, of
        kept = json.loads(file.read_text()) if file.exists() else {}
        self.passed = kept["passed"] if kept.get("of") == of else {}

    def missing(self, names) -> list:
        return [name for name in names if name not in self.passed]

    def add(self, name: str, result: dict) -> None:
        self.passed[name] = result
        self.file.write_text(json.dumps({"of": self.of, "passed": self.passed}, indent=1) + "\n")

    def done(self) -> None:
        self.file.unlink(missing_ok=True)
