#!/usr/bin/env python3
"""Adds up the results that ctest left in build folders.

Usage: test_summary.py BUILD...    each with ctest.xml, and results/NAME.xml for entries that ran many tests
The last line is "N passed, N failed, N skipped"; before it, what failed and why something was skipped.
"""

import collections
import dataclasses
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Results:
    passed: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # reason, test

    def add(self, name: str, failed: bool, skipped: str | None) -> None:
        if failed:
            self.failed.append(name)
        elif skipped is not None:
            self.skipped.append((skipped, name))
        else:
            self.passed += 1


def last_line(text: str | None) -> str:
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def add_cases(results: Results, suite: str, file: pathlib.Path) -> None:
    """A JUnit file of GoogleTest or pytest."""
    for case in ElementTree.parse(file).iter("testcase"):
        skipped = case.find("skipped")
        reason = None
        if skipped is not None:
            # Where pytest skips a whole file, only the text has the reason: ('file.py', line, 'Skipped: reason').
            reason = last_line(skipped.get("message"))
            if reason == "collection skipped":
                reason = last_line(skipped.text).rstrip("')").partition("Skipped: ")[2]
        elif case.get("result") == "skipped":
            reason = last_line(None)
        name = f"{suite}: " + f"{case.get('classname')}.{case.get('name')}".strip(".")
        results.add(name, case.find("failure") is not None or case.find("error") is not None, reason)


def add_build(results: Results, build: pathlib.Path) -> None:
    for entry in ElementTree.parse(build / "ctest.xml").iter("testcase"):
        name, status = entry.get("name", ""), entry.get("status")
        cases = build / "results" / f"{name}.xml"
        failures = len(results.failed)
        if cases.exists():
            add_cases(results, name, cases)
        if status == "fail" and len(results.failed) == failures:
            results.failed.append(f"{name} (it failed as a whole: crash, time-out or exit code)")
        elif not cases.exists():
            reason = last_line(entry.findtext("system-out")) if status in ("notrun", "disabled") else None
            results.add(name, status == "fail", reason)


def main(builds: list[str]) -> int:
    results = Results()
    for build in builds:
        add_build(results, pathlib.Path(build))
    reasons = collections.Counter(reason for reason, _ in results.skipped)
    for reason, count in reasons.most_common():
        first = next(test for r, test in results.skipped if r == reason)
        print(f"skipped {count}: {reason} ({first}{', ...' if count > 1 else ''})")
    for name in results.failed:
        print(f"FAILED {name}")
    print(f"{results.passed} passed, {len(results.failed)} failed, {len(results.skipped)} skipped")
    return 1 if results.failed or results.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
