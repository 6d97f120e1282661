#!/usr/bin/env python3
"""Runs one subcommand of sluice-bench with a few operations and checks that each line is a whole result.

usage: smoke_test.py SLUICE_BENCH SUBCOMMAND [ARGUMENT...]

Says nothing about speed. Ends with 77 (skipped) where the folder's file system has no direct I/O, or the machine no RDMA
device.
"""

import json
import subprocess
import sys

FIELDS = {"name": str, "unit": str, "ours": float, "baseline": float, "baseline_name": str, "ratio": float,
          "ratio_low": float, "ratio_high": float, "runs": int, "better": str, "machine": dict}
MACHINE = ["kernel", "cpu", "cores", "compiler", "build_type", "flags", "commit"]


def check(line, subcommand):
    row = json.loads(line)
    for field, kind in FIELDS.items():
        assert field in row, f"no {field} in {line}"
        assert isinstance(row[field], kind) or kind is float and isinstance(row[field], int), f"{field} in {line}"
    for field in MACHINE:
        assert row["machine"].get(field) not in (None, "") or field == "flags", f"no machine.{field} in {line}"
    assert row["name"].startswith(subcommand + "."), row["name"]
    assert row["ours"] > 0 and row["baseline"] > 0 and row["ratio"] > 0, line
    assert abs(row["ratio"] - row["ours"] / row["baseline"]) < 1e-6 * row["ratio"], f"one run, but another ratio: {line}"
    assert "target" in row and "allocations_per_operation" in row, line
    return row


def main():
    program, subcommand, *arguments = sys.argv[1:]
    ran = subprocess.run([program, subcommand, "--json", "--repeat", "1", *arguments], capture_output=True, text=True,
                         timeout=120)
    if ran.returncode != 0:
        print(ran.stderr, end="")
        missing = ["O_DIRECT", "no direct I/O", "no RDMA device here"]
        return 77 if any(words in ran.stderr for words in missing) else 1
    rows = [check(line, subcommand) for line in ran.stdout.splitlines()]
    names = [(row["name"], row["baseline_name"]) for row in rows]
    assert rows, "nothing was measured"
    assert len(set(names)) == len(names), f"the same comparison twice: {names}"
    for row in rows:
        if subcommand in ("switch", "spawn", "nop", "rdma-post"):
            assert row["allocations_per_operation"] == 0, f"operations touch the heap: {row}"
        print(row["name"], row["ratio"])
    return 0


sys.exit(main())
