"""What the guest is unless somebody says otherwise."""

import os
from pathlib import Path

# Which kernel can do what was probed: docs/rdma-guest.md. 6.12 is the one for which soft-iWARP can be built with the
# compiler of Debian 12; soft-RoCE reaches another network namespace from 7 on.
ONE_HOST_KERNEL, TWO_HOSTS_KERNEL = "6.12", "7"
UBUNTU_KERNEL = "6.8"
MEMORY_MIB = 2048
SANITIZERS = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS")


def kernel_name(two_hosts):
    if two_hosts:
        return TWO_HOSTS_KERNEL
    return UBUNTU_KERNEL if "ID=ubuntu" in Path("/etc/os-release").read_text() else ONE_HOST_KERNEL


def cpus():
    """At least two: on one, two programs that poll take turns of milliseconds."""
    return min(max(os.cpu_count() or 2, 2), 4)


def cache_folder(named=None):
    named = named or os.environ.get("SLUICE_CACHE")
    if not named:
        named = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluice"
    return Path(named).absolute() / "rdma-guest"


def passed_on():
    """What of this environment the programs in the guest get too."""
    return {name: value for name, value in os.environ.items() if name.startswith("SLUICE_") or name in SANITIZERS}
