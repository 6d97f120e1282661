"""The demo verifies what it moved, says so in its last line, and leaves nothing behind: DEMO_TEST PROGRAM."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PATIENCE_S = 240
program = sys.argv.pop(1)


class Demo(unittest.TestCase):
    def run_demo(self, *arguments):
        with tempfile.TemporaryDirectory() as scratch:
            done = subprocess.run([program, "--directory", scratch, *arguments], capture_output=True, text=True,
                                  timeout=PATIENCE_S)
            self.assertEqual(os.listdir(scratch), [])
        return done

    def test_a_small_one(self):
        done = self.run_demo("--files", "40", "--big", "24M", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        facts, last = done.stdout.splitlines()
        phases = json.loads(facts)["phases"]
        self.assertEqual([(p["phase"], p["objects"]) for p in phases],
                         [("put files", 40), ("put big", 1), ("get files", 40), ("get big", 1)])
        total = phases[0]["bytes"] + phases[1]["bytes"]
        self.assertEqual(last, f"demo: 41 objects, {total} bytes, all verified")
        self.assertEqual(phases[1]["bytes"], 24 << 20)
        for phase in phases:
            self.assertGreaterEqual(phase["tcp_bytes"], phase["bytes"])
            # At both ends: one reads what the other writes.
            self.assertGreaterEqual(phase["file_direct_bytes"] + phase["file_buffered_bytes"], 2 * phase["bytes"])

    def test_output_that_can_not_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full, tempfile.TemporaryDirectory() as scratch:
            done = subprocess.run([program, "--directory", scratch, "--files", "1", "--big", "1M"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
            self.assertEqual(os.listdir(scratch), [])
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^sluice-demo: cannot write .*\n$")

    def test_what_fails_is_the_last_line(self):
        done = self.run_demo("--big", str(1 << 62))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout.splitlines()[-1], "^demo: FAILED: .* are needed; use --directory.*No space left")
        for folder in ["/nonexistent", "/dev/null"]:
            done = subprocess.run([program], env={**os.environ, "TMPDIR": folder}, capture_output=True, text=True,
                                  timeout=PATIENCE_S)
            self.assertEqual((done.returncode, done.stderr), (1, ""))
            self.assertRegex(done.stdout, f"^demo: FAILED: cannot make a directory in {folder}; use --directory: .*\n$")
        done = self.run_demo("--files", "100000")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout.splitlines()[-1], "^demo: FAILED: .*use --files")


if __name__ == "__main__":
    unittest.main()
