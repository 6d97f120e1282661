#!/usr/bin/env python3
"""Counts test cases in Meson's test logs, shows what failed, and ends with "N passed, N failed, N skipped".

usage: count_tests.py [--broken N] [NAME=TESTLOG.json]...     (--broken: builds that failed, each counts as one failure)

A test that is a Catch2 program or a Python unittest counts as its cases, any other as one. Exit status 0 only if some
passed and none failed.
"""

import json
import re
import sys

TAIL_LINES = 40
CATCH2_ALL = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)", re.MULTILINE)
CATCH2_SOME = re.compile(r"^test cases:\s*\d+(.*)$", re.MULTILINE)
CATCH2_SKIP = re.compile(r"^-{79}\n(?:(?!-{79}).+\n)+-{79}\n.+\n\.{79}\n\n.+: SKIPPED:\nexplicitly with message:\n(?:  .*\n)+\n?",
                         re.MULTILINE)
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(?: \((.*)\))?", re.MULTILINE)


def last(pattern, text):
    found = list(pattern.finditer(text))
    return found[-1] if found else None


def cases(output):
    """(passed, failed, skipped) as the test program itself counted them, or None if it printed no count."""
    if match := last(CATCH2_SOME, output):
        count = {word: int(n) for n, word in re.findall(r"\|\s*(\d+) (passed|failed as expected|failed|skipped)",
                                                        match.group(1))}
        return count.get("passed", 0) + count.get("failed as expected", 0), count.get("failed", 0), count.get("skipped", 0)
    if match := last(CATCH2_ALL, output):
        return int(match.group(1)), 0, 0
    if match := last(UNITTEST, output):
        count = {word: int(n) for word, n in re.findall(r"(failures|errors|skipped)=(\d+)", match.group(2) or "")}
        failed = count.get("failures", 0) + count.get("errors", 0)
        return int(match.group(1)) - failed - count.get("skipped", 0), failed, count.get("skipped", 0)
    return None


def count_test(entry):
    """(passed, failed, skipped) of one test of the log. A test that failed counts at least one failure, whatever it
    printed: it may have crashed, hung, or leaked at its end."""
    counted = cases(entry.get("stdout", "") + "\n" + entry.get("stderr", ""))
    if entry["result"] in ("OK", "EXPECTEDFAIL"):
        return counted or (1, 0, 0)
    if entry["result"] == "SKIP":
        return counted or (0, 0, 1)
    passed, failed, skipped = counted or (0, 0, 0)
    return passed, max(failed, 1), skipped


def show_failure(build, entry):
    print(f"\nFAILED {build}: {entry['name']} ({entry['result'].lower()}, {entry['duration']:.1f} s)")
    print("  run again: " + " ".join(entry["command"]))
    for stream in ("stdout", "stderr"):
        lines = CATCH2_SKIP.sub("", entry.get(stream, "")).rstrip().splitlines()
        if len(lines) > TAIL_LINES:
            print(f"  ... {len(lines) - TAIL_LINES} earlier lines of {stream}")
        for line in lines[-TAIL_LINES:]:
            print("  | " + line)


def main(arguments):
    broken = 0
    if arguments[:1] == ["--broken"]:
        broken = int(arguments[1])
        arguments = arguments[2:]
    totals = [0, broken, 0]
    for argument in arguments:
        build, path = argument.split("=", 1)
        with open(path, encoding="utf-8", errors="replace") as log:
            for entry in map(json.loads, log):
                counts = count_test(entry)
                totals = [a + b for a, b in zip(totals, counts)]
                if counts[1]:
                    show_failure(build, entry)
                elif counts[2]:
                    print(f"skipped {build}: {entry['name']}: {counts[2]}")
    print("{} passed, {} failed, {} skipped".format(*totals))
    return 0 if totals[0] > 0 and totals[1] == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
