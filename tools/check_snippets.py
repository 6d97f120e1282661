#!/usr/bin/env python3
"""Checks that the C++ programs in the documentation are parts of files that are compiled and run.

usage: check_snippets.py ROOT

In README.md and docs/, a block fenced with ```cpp follows a comment line that names where it was taken from,
"<!-- from examples/x.cpp -->"; its lines must stand in that file in one piece, whatever their indentation. A block that
is no part of a program says "<!-- sketch -->" instead.
"""

import re
import sys
import textwrap
from pathlib import Path

BLOCK = re.compile(r"^(?:<!-- (?P<origin>.*?) -->\n+)?```cpp\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def stands_in(code, text):
    """True if the lines of `code` follow one another in `text`, all indented by the same further amount."""
    wanted = textwrap.dedent(code).splitlines()
    lines = text.splitlines()
    return any(textwrap.dedent("\n".join(lines[i:i + len(wanted)])).splitlines() == wanted
               for i in range(len(lines) - len(wanted) + 1))


def check_page(root, page):
    text = page.read_text()
    for match in BLOCK.finditer(text):
        where = f"{page.relative_to(root)}:{text.count(chr(10), 0, match.start('code'))}"
        origin = match["origin"] or ""
        if origin == "sketch":
            continue
        if not origin.startswith("from "):
            yield f'{where}: say where this code is from: "<!-- from FILE -->" above the block, or "<!-- sketch -->"'
            continue
        source = root / origin.removeprefix("from ")
        if not source.is_file():
            yield f"{where}: {source.relative_to(root)} does not exist"
        elif not stands_in(match["code"], source.read_text()):
            yield f"{where}: differs from {source.relative_to(root)}; take the lines from there"


def check(root):
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if page.exists():
            yield from check_page(root, page)


def main(arguments):
    if len(arguments) != 1 or not (Path(arguments[0]) / "README.md").exists():
        print("usage: check_snippets.py ROOT, the folder that holds README.md", file=sys.stderr)
        return 2
    wrong = list(check(Path(arguments[0]).resolve()))
    print(*wrong, f"{len(wrong)} blocks of code differ from what compiles", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
