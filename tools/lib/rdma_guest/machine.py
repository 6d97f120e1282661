"""Boots the guest, has it run programs, and carries out what they print.

The guest sees the files of the host (9p, read-only, with a layer of memory on top), so that paths, libraries and tools
are those of the host. A folder of the run is shared both ways: the commands go in, $OUT comes back. Three virtio ports
carry standard output, standard error and events ("up", "start N", "end N STATUS", "finished"); both outputs end with a
token, so that nothing is lost when the guest is ended.
"""

import os
import re
import secrets
import selectors
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .cache import HERE, note

CONSOLE_LINES = 15
# A kernel that patches its own code while another emulated processor runs it falls over now and then, always before any
# program ran: it is booted again. With KVM it boots once.
BOOTS = 3
UP_SECONDS = {"tcg": 90, "kvm": 20}
HIDDEN = ("/tmp", "/run", "/dev/shm", "/var/run")   # the guest has its own


class GuestFailed(Exception):
    """The guest did not come up, broke down, or took too long. `ended` are the programs that ended before; `refused` says
    that QEMU itself did not start, as it won't the next time."""

    def __init__(self, message, console="", timed_out=False):
        super().__init__(message)
        self.console = console
        self.timed_out = timed_out
        self.refused = False
        self.ended = {}


class Program:
    """A command for the guest. `seconds` bounds it there (0: not); `capture` keeps its output in $OUT/N.stdout and
    N.stderr instead of passing it on."""

    def __init__(self, words, folder=None, environment=None, seconds=0, capture=False):
        self.words = [str(word) for word in words]
        self.folder = folder or os.getcwd()
        self.environment = environment or {}
        self.seconds = seconds
        self.capture = capture


def paths_to_keep(programs):
    """What of the folders that the guest has of its own has to be the host's."""
    keep = set()
    words = [word for program in programs for word in [program.folder, *program.words]]
    for word in words:
        path = os.path.normpath(os.path.join(os.getcwd(), word)) if "/" in word else ""
        for hidden in HIDDEN:
            if path.startswith(hidden + "/") and os.path.exists(path):
                top = path[len(hidden) + 1:].split("/")[0]
                keep.add(f"{hidden}/{top}")
    return sorted(keep)


def write_job(folder, programs, wanted, environment):
    token = "\0" + secrets.token_hex(16) + "\n"
    (folder / "out").mkdir()
    (folder / "token").write_text(token.strip("\0\n"))
    (folder / "wanted").write_text(wanted + "\n")
    (folder / "visible").write_text("".join(path + "\n" for path in paths_to_keep(programs)))
    (folder / "environment").write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in environment.items()))
    lines = []
    for number, program in enumerate(programs):
        settings = [f"{name}={value}" for name, value in program.environment.items()]
        words = (["env", *settings] if settings else []) + program.words
        capture = "CAPTURE=1 " if program.capture else ""
        lines.append(f"{capture}program {number} {program.seconds} {shlex.quote(program.folder)} {shlex.join(words)}\n")
    (folder / "commands").write_text("".join(lines))
    for name in ("guest.bash", "rdma-guest-net"):
        shutil.copy(HERE / name, folder / name)
    return token.strip("\0\n").encode()


class Outlet:
    """Passes on what comes until the token that ends it."""

    def __init__(self, target, token):
        self.target, self.token, self.held, self.ended = target, token, b"", False

    def feed(self, data):
        if self.ended:
            return
        data = self.held + data
        before, found, _ = data.partition(self.token)
        self.ended = bool(found)
        length = 0
        if not found:   # hold back what may be the token's beginning
            length = next((n for n in range(min(len(self.token) - 1, len(data)), 0, -1)
                           if data.endswith(self.token[:n])), 0)
            before = data[:len(data) - length]
        self.held = data[len(data) - length:]
        self.target.write(before)
        self.target.flush()

    def cut_off(self):
        if not self.ended:
            self.target.write(self.held)
            self.target.flush()


def qemu_command(kernel, folder, ports, accelerator, memory, cpus):
    words = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-M", "pc", "-accel",
             "tcg,thread=multi" if accelerator == "tcg" else "kvm", "-cpu", "max" if accelerator == "tcg" else "host",
             "-smp", str(cpus), "-m", str(memory), "-nodefaults", "-no-user-config", "-display", "none", "-nic", "none",
             "-no-reboot", "-serial", f"file:{folder}/console", "-kernel", str(kernel.vmlinuz),
             "-initrd", str(kernel.initramfs), "-append",
             "console=ttyS0 loglevel=4 panic=-1 oops=panic mitigations=off nokaslr",
             "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
             "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
             "-fsdev", f"local,id=job,path={folder}/job,security_model=none,multidevs=remap",
             "-device", "virtio-9p-pci,fsdev=job,mount_tag=job", "-device", "virtio-serial-pci"]
    for number, port in enumerate(ports, 1):
        words += ["-chardev", f"socket,id=port{number},fd={port.fileno()}",
                  "-device", f"virtserialport,chardev=port{number},nr={number}"]
    return words


class Run:
    """One boot of the guest."""

    def __init__(self, kernel, accelerator, stdout, stderr, on_event=None):
        self.kernel, self.accelerator = kernel, accelerator
        self.stdout, self.stderr = stdout, stderr
        self.on_event = on_event or (lambda *_: None)
        self.up = self.finished = False
        self.running = None
        self.ended = {}   # number: status
        self.lines = b""

    def event(self, line):
        word, *rest = line.split(" ", 1)
        if word == "up":
            self.up = True
        elif word == "start":
            self.running = int(rest[0])
        elif word == "end":
            number, status = map(int, rest[0].split())
            self.ended[number] = status
            self.running = None
        elif word == "finished":
            self.finished = True
        self.on_event(word, rest[0] if rest else "")

    def feed_events(self, data):
        *lines, self.lines = (self.lines + data).split(b"\n")
        for line in lines:
            self.event(line.decode(errors="replace"))

    def follow(self, ports, outlets, seconds):
        """Until both outputs have ended and the guest says so. Raises GuestFailed."""
        start = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for port, feed in zip(ports, [outlets[0].feed, outlets[1].feed, self.feed_events]):
                selector.register(port, selectors.EVENT_READ, feed)
            while not (self.finished and all(outlet.ended for outlet in outlets)):
                bound = seconds if self.up else min(seconds, UP_SECONDS[self.accelerator])
                left = start + bound - time.monotonic()
                if left <= 0 and (self.up or bound == seconds):
                    raise GuestFailed(f"stopped after {seconds:.0f} s", timed_out=True)
                if left <= 0:
                    raise GuestFailed(f"the guest did not come up within {bound:.0f} s")
                for key, _ in selector.select(left):
                    data = key.fileobj.recv(1 << 16)
                    if data:
                        key.data(data)
                    else:
                        selector.unregister(key.fileobj)
                if not selector.get_map():
                    raise GuestFailed("the guest broke down" if self.up else "the guest did not come up")

    def boot(self, programs, wanted, environment, seconds, memory, cpus, out):
        with tempfile.TemporaryDirectory(prefix="rdma-guest.") as name:
            folder = Path(name)
            (folder / "job").mkdir()
            token = write_job(folder / "job", programs, wanted, environment)
            pairs = [socket.socketpair() for _ in range(3)]
            outlets = [Outlet(self.stdout, token), Outlet(self.stderr, token)]
            theirs = [pair[1] for pair in pairs]
            with open(folder / "qemu", "wb") as log:
                process = subprocess.Popen(
                    qemu_command(self.kernel, folder, theirs, self.accelerator, memory, cpus), stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, pass_fds=[port.fileno() for port in theirs])
            for port in theirs:
                port.close()
            try:
                self.follow([pair[0] for pair in pairs], outlets, seconds)
            except GuestFailed as failure:
                raise self.told(failure, process, folder) from None
            finally:
                process.kill()
                process.wait()
                for outlet in outlets:
                    outlet.cut_off()
                for pair in pairs:
                    pair[0].close()
                if out:
                    shutil.copytree(folder / "job/out", out, dirs_exist_ok=True)
        return self.ended


    def told(self, failure, process, folder):
        """The failure with what the guest, or QEMU, said last."""
        if not self.up and not failure.timed_out and gave_up(process):
            words = (folder / "qemu").read_text(errors="replace").splitlines()
            told = GuestFailed(f"QEMU did not start: {words[-1] if words else f'status {process.returncode}'}")
            told.refused = True
            return told
        cause, console = last_words(folder)
        told = GuestFailed(f"{failure}{cause and ': ' + cause}", console, failure.timed_out)
        told.ended = self.ended
        return told


def gave_up(qemu):
    """Whether QEMU ended by itself with an error; it ends with 0 when the guest's kernel gave up."""
    try:
        return qemu.wait(1) > 0   # its ports are closed a moment before it has ended
    except subprocess.TimeoutExpired:
        return False


def last_words(folder):
    """(why the kernel gave up, if it says so, the last lines of the console)."""
    text = "".join((folder / name).read_text(errors="replace") if (folder / name).exists() else ""
                   for name in ("console", "qemu"))
    cause = re.search(r"Kernel panic - not syncing: .*|BUG: .*|Oops: .*|rdma-guest: .*", text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return cause[0].strip() if cause else "", "\n".join(lines[-CONSOLE_LINES:])


def why_no_kvm(device="/dev/kvm", processors="/proc/cpuinfo"):
    """Why KVM is not worth a try, "" when it is: some machines have the device and not the processor's support."""
    if not os.path.exists(device):
        return f"{device} is missing: load kvm_intel or kvm_amd, or pass it into the container"
    if not os.access(device, os.R_OK | os.W_OK):
        return f"{device} may not be read and written by this user: join its group"
    if not re.search(r"^flags\s*:.* (vmx|svm)( |$)", Path(processors).read_text(), re.MULTILINE):
        return f"{device} is there, but this machine's processors can't virtualize: {processors} has neither vmx nor svm"
    return ""


def why_no_qemu():
    if os.uname().machine != "x86_64":
        return f"the guest is for x86-64, this machine is {os.uname().machine}"
    for command, package in (("qemu-system-x86_64", "qemu-system-x86"), ("rdma", "iproute2"), ("rping", "rdmacm-utils"),
                             ("modprobe", "kmod"), ("cpio", "cpio"), ("zstd", "zstd"), ("dpkg-deb", "dpkg"),
                             ("apt-get", "apt"), ("xz", "xz-utils"), ("setpriv", "util-linux")):
        if not shutil.which(command, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            return f"{command} is missing; apt-get install {package}"
    return ""


def run(kernel, programs, *, wanted="rxe siw", environment=None, seconds=1800, memory=2048, cpus=2, out=None,
        accelerator="auto", stdout, stderr, on_event=None):
    """Runs the programs in one boot; returns {number: status}. Raises GuestFailed."""
    attempts = {"kvm": ["kvm"], "tcg": ["tcg"] * BOOTS, "auto": ["kvm"] * (not why_no_kvm()) + ["tcg"] * BOOTS}[accelerator]
    for number, name in enumerate(attempts, 1):
        attempt = Run(kernel, name, stdout, stderr, on_event)
        try:
            return attempt.boot(programs, wanted, environment or {}, seconds, memory, cpus, out)
        except GuestFailed as failure:
            last = number == len(attempts) or (failure.refused and attempts[number] == name)
            if attempt.up or failure.timed_out or last:
                raise
            note(f"{failure}; booting it again")
    raise AssertionError("there is an attempt")
