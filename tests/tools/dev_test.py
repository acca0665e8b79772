"""./dev has each command that it names."""

import pathlib
import re
import subprocess
import unittest

DEV = pathlib.Path(__file__).resolve().parents[2] / "dev"


class Dev(unittest.TestCase):
    def test_every_command_of_the_help_runs_what_there_is(self):
        text = DEV.read_text()
        usage = re.findall(r"^  (\w[\w, -]*?)  +\S", text, re.MULTILINE)
        named = {name for names in usage for name in names.split(", ")}
        cases = re.findall(r"^    ([\w |-]+)\) (\w+)", text.partition("case $command in")[2], re.MULTILINE)
        self.assertLessEqual(named, {name for names, _ in cases for name in names.split(" | ")})
        functions = text.partition("command=${1:-help}")[0]
        for _, called in cases:
            known = subprocess.run(["bash", "-c", f"{functions}\ntype -t {called}"], capture_output=True, text=True)
            self.assertIn(known.stdout.strip(), ("function", "builtin", "file"), called)


if __name__ == "__main__":
    unittest.main()
