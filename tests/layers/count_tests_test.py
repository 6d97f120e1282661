"""Test logs are counted in cases, and no failure is lost."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/lib"))
import count_tests  # noqa: E402


def entry(result, stdout="", stderr=""):
    return {"name": "a test", "result": result, "stdout": stdout, "stderr": stderr, "duration": 1.0, "command": ["run"]}


class Counting(unittest.TestCase):
    def assert_counts(self, expected, *arguments):
        self.assertEqual(count_tests.count_test(entry(*arguments)), expected)

    def test_catch2_counts_are_cases_and_not_assertions(self):
        self.assert_counts((2, 0, 0), "OK", "All tests passed (24 assertions in 2 test cases)\n")
        self.assert_counts((1, 0, 0), "OK", "All tests passed (1 assertion in 1 test case)\n")
        self.assert_counts((3, 0, 2), "OK", "test cases: 5 | 3 passed | 2 skipped\nassertions: 9 | 9 passed\n")
        self.assert_counts((1, 2, 1), "FAIL", "test cases: 4 | 1 passed | 2 failed | 1 skipped\n")
        self.assert_counts((3, 0, 0), "OK", "test cases: 3 | 2 passed | 1 failed as expected\n")
        self.assert_counts((0, 0, 1), "SKIP", "test cases: 1 | 1 skipped\nassertions: - none -\n")

    def test_unittest_counts_are_read_from_standard_error(self):
        self.assert_counts((11, 0, 0), "OK", "", "...\nRan 11 tests in 0.2s\n\nOK\n")
        self.assert_counts((9, 0, 2), "OK", "", "Ran 11 tests in 0.2s\n\nOK (skipped=2)\n")
        self.assert_counts((7, 3, 1), "FAIL", "", "Ran 11 tests in 0.2s\n\nFAILED (failures=1, errors=2, skipped=1)\n")

    def test_a_plain_program_is_one_case(self):
        self.assert_counts((1, 0, 0), "OK", "some words\n")
        self.assert_counts((0, 1, 0), "FAIL", "some words\n")
        self.assert_counts((0, 0, 1), "SKIP", "no device\n")

    def test_a_failure_after_the_last_case_still_counts(self):
        self.assert_counts((2, 1, 0), "FAIL", "All tests passed (2 assertions in 2 test cases)\n", "leak")
        self.assert_counts((0, 1, 0), "TIMEOUT", "Filters: [#a]\n")
        self.assert_counts((0, 1, 0), "ERROR", "")


class Ending(unittest.TestCase):
    def run_main(self, entries, *options):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "testlog.json"
            log.write_text("".join(json.dumps(e) + "\n" for e in entries))
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                status = count_tests.main([*options, f"asan={log}"])
        return status, output.getvalue().splitlines()

    def test_the_last_line_sums_all_tests(self):
        status, lines = self.run_main([entry("OK", "All tests passed (9 assertions in 4 test cases)"), entry("SKIP")])
        self.assertEqual((status, lines[-1]), (0, "4 passed, 0 failed, 1 skipped"))

    def test_a_failure_is_shown_with_the_end_of_its_output(self):
        words = "\n".join(f"line {n}" for n in range(100))
        status, lines = self.run_main([entry("OK"), entry("FAIL", words)])
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("  | line 99", lines)
        self.assertNotIn("  | line 59", lines)

    def test_skipped_cases_do_not_push_a_failure_out_of_sight(self):
        line, dots = "-" * 79, "." * 79
        case = "{0}\nName of a case -\nover two lines\n{0}\na_test.cpp:1\n{1}\n\na_test.cpp:2: {2}:\n" \
               "explicitly with message:\n  why\n  and more\n\n"
        skipped = case.format(line, dots, "SKIPPED")
        _, lines = self.run_main([entry("FAIL", skipped + case.format(line, dots, "FAILED") + skipped * 9)])
        self.assertIn("  | a_test.cpp:2: FAILED:", lines)
        self.assertNotIn("  | a_test.cpp:2: SKIPPED:", lines)

    def test_a_broken_build_and_an_empty_run_are_failures(self):
        self.assertEqual(self.run_main([entry("OK")], "--broken", "2"), (1, ["1 passed, 2 failed, 0 skipped"]))
        self.assertEqual(self.run_main([]), (1, ["0 passed, 0 failed, 0 skipped"]))


if __name__ == "__main__":
    unittest.main()
