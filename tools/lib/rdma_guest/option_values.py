"""The values that the options of tools/rdma-guest may have, looked at before anything is booted.

Each function takes the text of the command line and gives the value, or raises argparse.ArgumentTypeError, which names
the value and what is allowed; argparse puts the option before it.
"""

import argparse
import math
import os
import re
import tempfile
from pathlib import Path

MINUTES_MAX = 7 * 24 * 60   # a week; epoll_wait(2) counts milliseconds in an int: 24 days
MEMORY_MIN_MIB = 256
PROCESSORS_MAX = 255   # of QEMU's machine "pc"


def wrong(text, allowed):
    return argparse.ArgumentTypeError(f'"{text}" is not allowed: {allowed}')


def minutes(text):
    allowed = f"give minutes above 0 and up to {MINUTES_MAX}"
    try:
        value = float(text)
    except ValueError:
        raise wrong(text, allowed) from None
    if not math.isfinite(value) or not 0 < value <= MINUTES_MAX:
        raise wrong(text, allowed)
    return value


def whole_number(text, least, most, allowed):
    if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
        raise wrong(text, allowed)
    return int(text)


def memory_here():
    """MiB of this machine [proc_meminfo(5)]."""
    return int(re.search(r"^MemTotal: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)[1]) >> 10


def memory(text):
    here = memory_here()
    return whole_number(text, MEMORY_MIN_MIB, here, f"give {MEMORY_MIN_MIB} to {here} MiB, what this machine has")


def processors_here():
    """Two even where there is one: settings.cpus()."""
    return min(max(os.cpu_count() or 2, 2), PROCESSORS_MAX)


def processors(text):
    here = processors_here()
    return whole_number(text, 1, here, f"give 1 to {here}, for this machine has {os.cpu_count()}")


def kernel(text):
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)*", text):
        raise wrong(text, "give the beginning of a version, such as 6.12")
    return text


def variable(text):
    if "=" not in text[1:]:
        raise wrong(text, "give NAME=VALUE")
    return text


def folder_to_write(text):
    """A folder that can be made and written, as root's rights to /proc don't tell; it is not there afterwards if it was
    not before."""
    folder = Path(text).absolute()
    missing = []
    try:
        for each in [folder, *folder.parents]:
            if each.exists():
                break
            missing.append(each)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as failure:
        raise wrong(text, f"give a folder that can be made and written ({failure.strerror})") from None
    finally:
        for each in missing:
            try:
                each.rmdir()
            except OSError:   # not made, or somebody uses it by now
                break
    return text
