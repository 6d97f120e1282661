"""Soft-iWARP for kernels that come without it: built from the distribution's own kernel source, once per kernel.

Debian switches it off. The module is compiled against the headers of exactly that kernel, by the compiler that they
name; where that is not possible, the guest goes without it and says why.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import cache

FOLDER = "drivers/infiniband/sw/siw"
RECIPE = "1"   # raise it when what is done here changes
BUILD_SECONDS = 600


def has_module(tree, release):
    return any((tree / "lib/modules" / release).glob("**/siw.ko*"))


def provide(apt, folder, tree, fetched):
    """Puts siw.ko into the modules in `tree`. Returns what the manifest says of it: {"missing": reason}, or where it is
    from."""
    release = fetched["release"]
    if has_module(tree, release):
        return {"from": "the kernel's own packages"}
    version = fetched["packages"][0]["version"]
    built = folder / "siw.ko"
    stamp = folder / "siw.inputs"   # of what it was built, and its hash
    inputs = f"{RECIPE} {release} {version}"
    if not (stamp.exists() and stamp.read_text() == f"{inputs} {cache.sha256(built) if built.exists() else ''}"):
        try:
            build(apt, folder, release, version, built)
        except cache.NoGuest as failure:
            return {"missing": str(failure)}
        cache.write_whole(stamp, f"{inputs} {cache.sha256(built)}")
    updates = tree / "lib/modules" / release / "updates"
    updates.mkdir()
    shutil.copy(built, updates / "siw.ko")
    return {"from": f"the source of Linux {version}"}


def build(apt, folder, release, version, target):
    series = ".".join(release.split(".")[:2])
    flavour = release.rsplit("-", 1)[0]
    apt.update()
    names = [f"linux-headers-{release}", f"linux-headers-{flavour}-common", f"linux-kbuild-{flavour}",
             f"linux-source-{series}"]
    for name in names:
        if name not in apt.names(name):
            raise cache.NoGuest(f"the distribution has no {name} to build it from")
    if not shutil.which("make"):
        raise cache.NoGuest("make is not installed")
    with tempfile.TemporaryDirectory(dir=folder) as folder_name:
        work = Path(folder_name)
        *headers, source = [apt.download(apt.record(name, version), work / "packages")["file"] for name in names]
        for package in headers:
            cache.call("dpkg-deb", "--extract", work / "packages" / package, work)
        tree = work / "usr/src" / f"linux-headers-{release}"
        compiler = re.search(r"gcc-\d+", (tree / ".kernelvariables").read_text())
        if compiler and not shutil.which(compiler[0]):
            raise cache.NoGuest(f"its headers want {compiler[0]}, which is not installed")
        cache.note(f"building soft-iWARP for Linux {release}, once")
        makefile = tree / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{work}/usr/src/"))
        cache.call("bash", "-o", "pipefail", "-c",
                   'cd "$1" && dpkg-deb --fsys-tarfile "packages/$2" | tar -xO "./usr/src/linux-source-$3.tar.xz" | '
                   'tar -xJ "linux-source-$3/$4"', "bash", work, source, series, FOLDER)
        # Type information for BPF would need a tool and the whole kernel's.
        done = subprocess.run(["make", "-C", str(tree), f"M={work}/linux-source-{series}/{FOLDER}", "CONFIG_RDMA_SIW=m",
                               "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"],
                              capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        result = work / f"linux-source-{series}" / FOLDER / "siw.ko"
        if done.returncode != 0 or not result.exists():
            errors = re.findall(r".*error.*", done.stdout + done.stderr) or ["make failed"]
            raise cache.NoGuest(f"its build failed: {errors[0].strip()}")
        cache.call("strip", "--strip-debug", result)
        result.replace(target)
