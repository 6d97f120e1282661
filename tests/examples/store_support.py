"""A server of the object store to test against, and ways to run its client."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PATIENCE_S = 120  # nothing here takes as long; what does hangs

# Set by main(): the program under test.
program = None


def main():
    """Runs the tests of the calling script: SCRIPT PROGRAM [unittest arguments]."""
    global program
    program = sys.argv.pop(1)
    for number in [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]: # ignored in the background of a shell, and inherited
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    unittest.main(module=sys.modules["__main__"])


def pattern(size, seed=1):
    """Bytes that differ from place to place and from seed to seed."""
    block = bytes((i * 2654435761 + seed * 97 + (i >> 8)) % 251 for i in range(1 << 16))
    whole = block * (size // len(block) + 1)
    stamped = bytearray(whole[:size])
    for at in range(0, size - 8, 4096):
        stamped[at:at + 8] = (at * 31 + seed).to_bytes(8, "little")
    return bytes(stamped)


def wait_until(condition, what):
    """Polls; the condition is an event elsewhere that nothing announces."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.002)


def stand_still(process):
    """Stops a child, all its threads: a signal alone returns while they still run, and answer."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


class Server:
    """`sluice-store serve` in a process of its own."""

    def __init__(self, directory, *options, listen="tcp://127.0.0.1:0", **popen):
        self.directory = Path(directory)
        self.process = subprocess.Popen([program, "serve", str(directory), "--listen", listen, "--json", *options],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen)
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        first = json.loads(self.process.stdout.readline() or "{}") if ready else {}
        if "address" not in first:
            self.process.kill()
            raise RuntimeError("the server did not start: " + self.process.communicate()[1].decode())
        self.url = first["address"]

    def stop(self, how=signal.SIGTERM):
        """Ends it and gives its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.errors = self.process.communicate(timeout=PATIENCE_S)[1].decode()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode

    def resident_kib(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise RuntimeError("no VmRSS")


class StoreTest(unittest.TestCase):
    """Each test has a folder of its own, and servers that end with it."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-store-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.objects = self.folder / "objects"
        self.objects.mkdir()

    def serve(self, *options, **more):
        server = Server(self.objects, *options, **more)
        self.addCleanup(self.end, server)
        return server

    @staticmethod
    def end(server):
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()

    def start(self, *arguments, **more):
        """Starts the client and gives its process."""
        process = subprocess.Popen([program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        self.addCleanup(self.reap, process)
        return process

    @staticmethod
    def reap(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def run_client(self, *arguments, **more):
        return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S, **more)

    def ok(self, *arguments):
        done = self.run_client(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def fails(self, words, *arguments, status=1):
        """Runs it, and expects this exit status and one line on standard error that has all of the words."""
        done = self.run_client(*arguments)
        self.assertEqual(done.returncode, status, (arguments, done.stdout, done.stderr))
        for word in words:
            self.assertIn(word, done.stderr)
        return done

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def temporaries(self):
        """What is half-written on the server's side."""
        return sorted(os.listdir(self.objects / ".sluice-store"))

    def only(self, folder):
        """Names in a folder, so that nothing half-written hides there."""
        return sorted(os.listdir(folder))
