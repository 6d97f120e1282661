"""The kernels of the guest: fetched once from the distribution's packages, checked by hash each time they are used.

A kernel lies in CACHE/kernel-NAME/, where NAME is what was asked for ("6.12"): the packages it came from, vmlinuz, the
initramfs that was packed from them, soft-iWARP where it had to be built, and manifest.json, which holds the hash of each
and is written last. Whatever is missing or damaged is made again from the packages, or fetched again. A filled cache
needs no network, and stays as it is when the distribution has a newer kernel.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from . import siw

HERE = Path(__file__).resolve().parent
LOCK_SECONDS = 900
FETCH_SECONDS = 900

# In the order of loading, each with its options; what a kernel has built in or lacks is left out. rxe finds crc32 only
# if it is there already.
MODULES = ["9p", "9pnet_virtio", "overlay", "virtio_pci", "virtio_console", "crc32_generic", "crc32c_generic", "rdma_rxe",
           "siw", "rdma_ucm", "ib_uverbs", "dummy numdummies=0", "veth", "sch_netem"]


class NoGuest(Exception):
    """No guest can be had here; says why."""


class NoKernel(NoGuest):
    """The distribution does not have the kernel; says which it has."""


class NoFolder(NoGuest):
    """The cache can't be written; names it and the remedy."""


def note(text):
    print(f"rdma-guest: {text}", file=sys.stderr, flush=True)


def call(*command, seconds=FETCH_SECONDS, **how):
    """The output of a command that has to succeed."""
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, timeout=seconds, check=False, **how)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise NoGuest(f"{command[0]}: {failure}") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.startswith("E:")] or \
            done.stderr.decode(errors="replace").splitlines() or ["no output"]
        raise NoGuest(f"{command[0]} failed with status {done.returncode}: {lines[0]}")
    return done.stdout


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def matches(path, expected):
    try:
        return sha256(path) == expected
    except OSError:
        return False


def write_whole(path, text):
    """A reader sees the old text or the new one, never half of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


@contextlib.contextmanager
def locked(path):
    """One run at a time fills the cache; the others wait, with a bound."""
    def give_up(*_):
        raise NoGuest(f"another run has held {path} for {LOCK_SECONDS} s; end it, or remove the cache")
    with open(path, "w") as file:
        before = signal.signal(signal.SIGALRM, give_up)
        signal.alarm(LOCK_SECONDS)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        yield


def make_writable(cache):
    """The folder of the cache, made where it is missing. A full one is only read, so this is for those who fill it."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as failure:
        raise NoFolder(f"--cache: kernels can't be kept in {cache} ({failure.strerror}); give a folder that can be made and "
                       "written with --cache or SLUICE_CACHE") from None


def distribution():
    """(ID, VERSION_CODENAME) of this system."""
    words = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    return words.get("ID", ""), words.get("VERSION_CODENAME", "")


# Which suites hold kernels for the guest, beside the own one.
SUITES = {
    ("debian", "bookworm"): ["bookworm", "bookworm-backports", "trixie-backports"],
    ("debian", "trixie"): ["trixie", "trixie-backports"],
    ("ubuntu", "noble"): ["noble", "noble-updates"],
}


class Apt:
    """apt with sources, lists and a cache of its own, in `folder`; the system's stay as they are."""

    def __init__(self, folder):
        self.folder = folder
        self.ready = False

    def run(self, program, *words, **how):
        options = [f"Dir::Etc::sourcelist={self.folder}/sources.list", "Dir::Etc::sourceparts=-",
                   f"Dir::State::Lists={self.folder}/lists", f"Dir::Cache={self.folder}/cache",
                   "Acquire::Languages=none", "APT::Sandbox::User=root"]
        return call(program, *(word for option in options for word in ("-o", option)), *words, **how).decode()

    def update(self):
        if self.ready:
            return
        system, codename = distribution()
        suites = SUITES.get((system, codename))
        if not suites:
            raise NoGuest(f"kernels are fetched on Debian 12, Debian 13 and Ubuntu 24.04 only, not on {system} {codename}")
        keyring = f"/usr/share/keyrings/{system}-archive-keyring.gpg"
        if not os.path.exists(keyring):
            raise NoGuest(f"{keyring} is missing; apt-get install {system}-archive-keyring")
        targets = call("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages").decode()
        mirrors = [line.split()[0] for line in targets.splitlines() if line.split()[1:] == [codename]]
        if not mirrors:
            raise NoGuest(f"apt has no source for {codename} to take the mirror from; add one, and run apt-get update")
        for name in ("lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "sources.list").write_text(
            "".join(f"deb [signed-by={keyring}] {mirrors[0]} {suite} main\n" for suite in suites))
        self.run("apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update")
        self.ready = True

    def names(self, start):
        return self.run("apt-cache", "pkgnames", start).split()

    def record(self, package, version=None):
        """{"name", "version", "sha256"} of the newest version of a package, or of the one that is named."""
        word = f"{package}={version}" if version else package
        text = self.run("apt-cache", "show", "--no-all-versions", word)
        fields = dict(re.findall(r"^(Version|SHA256): (\S+)$", text, re.MULTILINE))
        return {"name": package, "version": fields["Version"], "sha256": fields["SHA256"]}

    def download(self, record, folder):
        """Puts the package into `folder`, checked against the signed lists; adds "file" to its record."""
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{record['name']}_{record['sha256'][:12]}.deb"
        if not matches(target, record["sha256"]):
            with tempfile.TemporaryDirectory(dir=folder) as work:
                self.run("apt-get", "-q", "download", f"{record['name']}={record['version']}", cwd=work)
                (file,) = Path(work).iterdir()
                if not matches(file, record["sha256"]):
                    raise NoGuest(f"{file.name} does not have the hash that the package lists give")
                file.replace(target)
        return {**record, "file": target.name}


def numbers(version):
    return [int(n) for n in re.findall(r"\d+", version)]


def find_kernel(apt, name):
    """The records of the packages of the newest kernel whose version begins with `name`."""
    versions = {}   # release: packages
    names = set(apt.names("linux-image-")) | set(apt.names("linux-binary-")) | set(apt.names("linux-modules-"))
    for package in names:
        if match := re.fullmatch(r"linux-binary-([\d.]+(?:~rc\d+)?\+deb\w+(?:\.\d+)?-amd64)", package):
            versions[match[1]] = [package, f"linux-modules-{match[1]}"]
        elif match := re.fullmatch(r"linux-image-(\d[\w.+~]*(?:-\d+)?-amd64)", package):
            versions.setdefault(match[1], [package])
        elif match := re.fullmatch(r"linux-image-(\d[\d.]*-\d+-generic)", package):
            versions[match[1]] = [package, f"linux-modules-{match[1]}", f"linux-modules-extra-{match[1]}"]
    wanted = numbers(name)
    fitting = [v for v in versions if numbers(v)[:len(wanted)] == wanted and set(versions[v]) <= names]
    if not fitting:
        short = sorted({".".join(v.split(".")[:2]) for v in versions}, key=numbers)
        raise NoKernel(f"this distribution has no kernel {name} in its packages; it has {', '.join(short)}")
    release = max(fitting, key=numbers)
    return release, [apt.record(package) for package in versions[release]]


def unpack(packages, folder):
    """The files of the packages, with their modules where modprobe looks for them."""
    for package in packages:
        call("dpkg-deb", "--extract", package, folder)
    if (folder / "usr/lib/modules").is_dir() and not (folder / "lib").exists():
        (folder / "lib").symlink_to("usr/lib")


def pack_initramfs(tree, release, target):
    """Packs busybox, init and the modules, in the order of loading."""
    call("depmod", "-b", tree, release)
    root = tree / "initramfs"
    (root / "bin").mkdir(parents=True)
    (root / "modules").mkdir()
    shutil.copy(next(path for path in (tree / "bin/busybox", tree / "usr/bin/busybox") if path.exists()), root / "bin")
    shutil.copy(HERE / "init", root / "init")
    order = {}   # module: options
    for entry in MODULES:
        name, *options = entry.split()
        found = subprocess.run(["modprobe", "-d", str(tree), "-S", release, "--show-depends", name],
                               capture_output=True, text=True, timeout=60, check=False)
        files = re.findall(r"^insmod (\S+)", found.stdout, re.MULTILINE)
        for file in files:
            order.setdefault(file, "")
        if files and options:
            order[files[-1]] = " ".join(options)
    lines = []
    for file, options in order.items():
        module = re.sub(r"\.ko.*", ".ko", os.path.basename(file))
        unpacker = {".xz": ["xz"], ".zst": ["zstd", "-q"], ".gz": ["gzip"]}.get(os.path.splitext(file)[1])
        content = call(*unpacker, "-d", "-c", file) if unpacker else Path(file).read_bytes()
        (root / "modules" / module).write_bytes(content)
        lines.append(f"{module} {options}".strip())
    (root / "modules/order").write_text("".join(line + "\n" for line in lines))
    call("bash", "-o", "pipefail", "-c", 'cd "$1" && find . | LC_ALL=C sort | cpio -o -H newc -R 0:0 --quiet | '
         'zstd -q -f -3 -o "$2"', "bash", root, target)


def recipe():
    """What the initramfs depends on beside the packages."""
    return hashlib.sha256("\n".join([(HERE / "init").read_text(), *MODULES, siw.RECIPE]).encode()).hexdigest()


class Kernel:
    """One kernel of the cache, ready to boot: `vmlinuz`, `initramfs`, `release`, and `siw_missing`, the reason why it has
    no soft-iWARP ("" when it has)."""

    def __init__(self, folder, manifest):
        self.release = manifest["release"]
        self.vmlinuz = folder / manifest["vmlinuz"]["file"]
        self.initramfs = folder / manifest["initramfs"]["file"]
        self.siw_missing = manifest["siw"].get("missing", "")


def load(folder):
    """The manifest, or None where anything is missing, damaged or made by another recipe."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        whole = manifest["recipe"] == recipe() and \
            all(matches(folder / manifest[name]["file"], manifest[name]["sha256"]) for name in ("vmlinuz", "initramfs"))
        return manifest if whole else None
    except (OSError, ValueError, KeyError):
        return None


def fetch_packages(apt, folder, name):
    apt.update()
    release, records = find_kernel(apt, name)
    note(f"fetching Linux {release}")
    records.append(apt.record("busybox-static"))
    return {"release": release, "packages": [apt.download(record, folder / "packages") for record in records]}


def known_packages(folder):
    """What an earlier run fetched, if it is whole."""
    try:
        fetched = json.loads((folder / "fetched.json").read_text())
        whole = all(matches(folder / "packages" / record["file"], record["sha256"]) for record in fetched["packages"])
        return fetched if whole else None
    except (OSError, ValueError, KeyError):
        return None


def fill(cache, folder, name, refresh):
    apt = Apt(cache / "apt")
    fetched = None if refresh else known_packages(folder)
    if not fetched:
        fetched = fetch_packages(apt, folder, name)
        write_whole(folder / "fetched.json", json.dumps(fetched, indent=1))
    release = fetched["release"]
    with tempfile.TemporaryDirectory(dir=folder) as work:
        tree = Path(work)
        unpack([folder / "packages" / record["file"] for record in fetched["packages"]], tree)
        vmlinuz = next((path for path in (tree / f"boot/vmlinuz-{release}", tree / f"usr/lib/modules/{release}/vmlinuz",
                                          tree / f"lib/modules/{release}/vmlinuz") if path.exists()), None)
        if not vmlinuz:
            raise NoGuest(f"the packages of Linux {release} hold no vmlinuz")
        soft_iwarp = siw.provide(apt, folder, tree, fetched)
        if missing := soft_iwarp.get("missing"):
            note(f"Linux {release} goes without soft-iWARP: {missing}")
        pack_initramfs(tree, release, tree / "packed")
        manifest = {"release": release, "recipe": recipe(), "siw": soft_iwarp}
        for word, path in (("vmlinuz", vmlinuz), ("initramfs", tree / "packed")):
            digest = sha256(path)
            file = folder / f"{word}-{digest[:12]}"
            path.replace(file)
            manifest[word] = {"file": file.name, "sha256": digest}
    write_whole(folder / "manifest.json", json.dumps(manifest, indent=1))
    keep = {manifest["vmlinuz"]["file"], manifest["initramfs"]["file"]}
    for old in [*folder.glob("vmlinuz-*"), *folder.glob("initramfs-*")]:
        if old.name not in keep:
            old.unlink()
    for old in (folder / "packages").iterdir():
        if old.name not in {record["file"] for record in fetched["packages"]}:
            old.unlink()
    return manifest


def kernel(cache, name, refresh=False):
    """The kernel `name`, the beginning of a version, from the cache or fetched into it. Raises NoGuest."""
    assert re.fullmatch(r"[0-9.]+", name), f"{name} is to be a part of a path"
    folder = cache / f"kernel-{name}"
    manifest = None if refresh else load(folder)
    if not manifest:
        make_writable(cache)
        with locked(cache / "lock"):
            folder.mkdir(exist_ok=True)
            try:
                manifest = (None if refresh else load(folder)) or fill(cache, folder, name, refresh)
            finally:
                with contextlib.suppress(OSError):   # only an empty one goes: nothing was to be had
                    folder.rmdir()
    return Kernel(folder, manifest)
