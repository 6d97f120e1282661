#!/usr/bin/env python3
"""Checks who includes whom, against the table in docs/architecture.md, and that no source is left out of the build.

usage: check_layers.py ROOT

Prints one line per broken rule, "FILE:LINE: what, and what is allowed", and ends with 1 if there is any.
"""

import re
import sys
from pathlib import Path

STANDARD = set("""
algorithm any array atomic barrier bit bitset charconv chrono codecvt compare complex concepts condition_variable
coroutine deque exception execution expected filesystem format forward_list fstream functional future generator
initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory memory_resource mutex
new numbers numeric optional ostream print queue random ranges ratio regex scoped_allocator semaphore set shared_mutex
source_location span sstream stack stacktrace stdexcept stop_token streambuf string string_view syncstream
system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector
version cassert cctype cerrno cfenv cfloat cinttypes climits clocale cmath csetjmp csignal cstdarg cstddef cstdint
cstdio cstdlib cstring ctime cuchar cwchar cwctype
""".split())

PUBLIC = r"<sluice/[^>]+>"
PRIVATE = r'"(runtime|net|rdma|gpu|tests|benchmarks|tools|examples)/[^"]+"'
URING = r"<liburing(/[^>]+)?(\.h)?>"
VERBS = r"<(infiniband|rdma)/[^>]+>"
CUDA = r"<cuda[^>]*>"
FOREIGN = [URING, VERBS, CUDA]

# Folder: (the borders of the house an include may cross, what the rule says). An include that matches none of the
# border patterns at all, such as <vector> or <sys/mman.h>, is free except in include/sluice.
RULES = {
    "include/sluice": ([PUBLIC], "the standard library and <sluice/...>"),
    "include/sluice/native": ([PUBLIC, *FOREIGN], "the standard library, <sluice/...> and one foreign API"),
    "runtime": ([PUBLIC, r'"runtime/.*"', URING], '<sluice/...>, "runtime/..." and liburing'),
    "net": ([PUBLIC, r'"(runtime|net)/.*"'], '<sluice/...>, "runtime/..." and "net/..."'),
    "rdma": ([PUBLIC, r'"(runtime|rdma)/.*"', r'"net/(?!tcp_|wire\.)[^"]+"', VERBS],
             '<sluice/...>, "runtime/...", "rdma/...", of "net/..." what is not tcp\'s (tcp_*, wire) and verbs'),
    "gpu": ([PUBLIC, r'"(runtime|gpu)/.*"', CUDA], '<sluice/...>, "runtime/...", "gpu/..." and CUDA'),
    "examples": ([PUBLIC, r'"examples/.*"'], '<sluice/...> and "examples/..."'),
    "benchmarks": ([PUBLIC, PRIVATE, *FOREIGN], "everything"),
    "tools": ([PUBLIC, PRIVATE, *FOREIGN], "everything"),
    "tests": ([PUBLIC, PRIVATE, *FOREIGN], "everything"),
}
BORDERS = [PUBLIC, PRIVATE, *FOREIGN]
INCLUDE = re.compile(r'^\s*#\s*include\s*(<[^>]+>|"[^"]+")')


def folder_of(path):
    """The longest folder of RULES that holds `path`, or None."""
    return max((f for f in RULES if path.startswith(f + "/")), key=len, default=None)


def check_include(folder, include):
    """What is wrong with this include in this folder, or None."""
    allowed, says = RULES[folder]
    if any(re.fullmatch(pattern, include) for pattern in allowed):
        return None
    if folder.startswith("include/sluice"):
        if include.startswith("<") and include[1:-1] in STANDARD:
            return None
        return f"includes {include}; {folder}/ may include only {says}"
    if any(re.fullmatch(pattern, include) for pattern in BORDERS):
        return f"includes {include}; {folder}/ may include only {says}"
    if include.startswith('"'):
        return f"includes {include}; a private header is named by its path from the root, as in \"runtime/ring.hpp\""
    return None


def check_file(path, text):
    folder = folder_of(path)
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if match := INCLUDE.match(line):
            if wrong := check_include(folder, match.group(1)):
                yield f"{path}:{number}: {wrong}"
    if path.endswith(".hpp") and "#pragma once" not in lines:
        yield f"{path}:1: has no #pragma once"


def check_listed(root, path):
    """A source that no meson.build on the way to the root names would be neither compiled nor tested."""
    folder = (root / path).parent
    while folder != root:
        build = folder / "meson.build"
        if build.exists():
            name = str((root / path).relative_to(folder))
            if f"'{name}'" in build.read_text():
                return None
        folder = folder.parent
    return f"{path}:1: is named in no meson.build: it would be neither compiled nor tested"


def sources(root):
    for folder in (f for f in RULES if "/native" not in f):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".hpp", ".cpp", ".h") and "subprojects" not in path.parts:
                yield str(path.relative_to(root))


def check(root):
    for path in sources(root):
        yield from check_file(path, (root / path).read_text())
        if path.endswith(".cpp") or path.startswith("include/"):
            if wrong := check_listed(root, path):
                yield wrong


def main(arguments):
    if len(arguments) != 1 or not (Path(arguments[0]) / "include/sluice").is_dir():
        print("usage: check_layers.py ROOT, the folder that holds include/sluice", file=sys.stderr)
        return 2
    root = Path(arguments[0]).resolve()
    count = sum(1 for _ in sources(root))
    broken = list(check(root))
    print(*broken, f"{count} files, {len(broken)} broken rules", sep="\n")
    return 1 if broken or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
