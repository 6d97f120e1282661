"""This host, if it has RDMA devices of its own."""

import subprocess
from pathlib import Path

ROOT = Path("/sys/class/infiniband")


def devices():
    return sorted(entry.name for entry in ROOT.iterdir()) if ROOT.is_dir() else []


def environment():
    """What the guest tells its programs, as far as it can be said of this host: the addresses of each device's netdevs."""
    addresses = {}
    for device in devices():
        netdevs = {file.read_text().strip() for file in
                   (ROOT / device / "ports").glob("*/gid_attrs/ndevs/*") if readable(file)}
        found = []
        for netdev in sorted(netdevs):
            shown = subprocess.run(["ip", "-br", "address", "show", "dev", netdev], capture_output=True, text=True,
                                   timeout=30, check=False).stdout.split()[2:]
            found += [a.split("/")[0] + (f"%{netdev}" if a.startswith("fe80:") else "") for a in shown if "/" in a]
        addresses[device] = ",".join(found)
    return {"SLUICE_RDMA_DEVICES": " ".join(addresses),
            "SLUICE_RDMA_ADDRESSES": " ".join(f"{d}={a}" for d, a in addresses.items() if a),
            "SLUICE_RDMA_TWO_HOSTS_WHY_NOT": "this is one host, not the guest"}


def test_addresses(given):
    """The addresses that the conformance suite listens on, from environment(); empty where there is none."""
    by_device = [entry.split("=")[1].split(",") for entry in given["SLUICE_RDMA_ADDRESSES"].split()]
    first = by_device[0] if by_device else []
    ipv4 = [f"rdma://{a}:0" for a in first if ":" not in a]
    ipv6 = [f"rdma://[{a}]:0" for a in first if ":" in a and not a.startswith("fe80:")]
    others = [f"rdma://{a}:0" for addresses in by_device[1:] for a in addresses if ":" not in a]
    return {"SLUICE_TEST_RDMA_IPV4": (ipv4 or [""])[0], "SLUICE_TEST_RDMA_IPV6": (ipv6 or [""])[0],
            "SLUICE_TEST_RDMA_LARGE_MTU": (others or [""])[0]}


def readable(file):
    try:
        return bool(file.read_text().strip())
    except OSError:   # an entry that is not in use
        return False
