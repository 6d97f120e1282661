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


def readable(file):
    try:
        return bool(file.read_text().strip())
    except OSError:   # an entry that is not in use
        return False
