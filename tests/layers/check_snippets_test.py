"""The checker of snippets tells copies from inventions."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_snippets  # noqa: E402

PROGRAM = "int f() {\n    if (true) {\n        a();\n\n        b();\n    }\n}\n"


class Snippets(unittest.TestCase):
    def check(self, page):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "a.cpp").write_text(PROGRAM)
            (root / "README.md").write_text(page)
            return list(check_snippets.check(root))

    def test_a_whole_file_and_a_piece_of_it_are_copies(self):
        self.assertEqual(self.check(f"# A\n<!-- from a.cpp -->\n```cpp\n{PROGRAM}```\n"), [])
        self.assertEqual(self.check("<!-- from a.cpp -->\n\n```cpp\na();\n\nb();\n```\n"), [])

    def test_a_changed_line_is_no_copy(self):
        self.assertEqual(self.check("x\n<!-- from a.cpp -->\n```cpp\na();\nc();\n```\n"),
                         ["README.md:3: differs from a.cpp; take the lines from there"])

    def test_lines_that_do_not_follow_one_another_are_no_copy(self):
        self.assertEqual(len(self.check("<!-- from a.cpp -->\n```cpp\na();\nb();\n```\n")), 1)

    def test_code_without_an_origin_and_a_missing_origin_are_named(self):
        self.assertIn("say where this code is from", self.check("```cpp\na();\n```\n")[0])
        self.assertIn("b.cpp does not exist", self.check("<!-- from b.cpp -->\n```cpp\na();\n```\n")[0])

    def test_sketches_and_other_languages_are_free(self):
        self.assertEqual(self.check("<!-- sketch -->\n```cpp\nwhatever\n```\n```sh\nls\n```\n"), [])


if __name__ == "__main__":
    unittest.main()
