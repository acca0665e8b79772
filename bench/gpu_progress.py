"""The record of gpu_check.py: what passed, of which sources and on which GPU. A check runs again when these change."""

import json
import pathlib


class Progress:
    """Results of checks in a file. `of`: for each check, what must be the same for its result to count."""

    def __init__(self, file: pathlib.Path, of: dict[str, dict]):
        kept = json.loads(file.read_text()) if file.exists() else {}
        self.file, self.of = file, of
        self.checks: dict[str, dict] = kept.get("checks", {})
        self.origins: dict[str, dict] = kept.get("of", {})

    def missing(self) -> list[str]:
        return [name for name, of in self.of.items() if not of.items() <= self.origins.get(name, {}).items()]

    def add(self, name: str, result: dict, origin: dict) -> None:
        """`origin`: what else to say of this run, the machine say."""
        self.checks[name], self.origins[name] = result, origin | self.of[name]
        kept = {name: self.checks[name] for name in self.of if name in self.checks}
        record = {"checks": kept, "of": {name: self.origins.get(name, {}) for name in kept}}
        self.file.write_text(json.dumps(record, indent=1) + "\n")
