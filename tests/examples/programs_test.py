"""The small example programs run and do what they say: PROGRAMS_TEST FOLDER_OF_PROGRAMS."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PATIENCE_S = 120
folder = Path(sys.argv.pop(1))


def run(name, *arguments):
    return subprocess.run([folder / name, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S)


class Programs(unittest.TestCase):
    def test_one_reads_the_page_that_the_other_shares(self):
        server = subprocess.Popen([folder / "02-share-a-page", "tcp://127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        address = server.stdout.readline().split()[-1]
        for _ in range(3):
            done = run("01-read-a-peer", address)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout, "read 65536 bytes: hello from the other side\n")

    def test_a_server_that_is_told_to_end_leaves_no_socket(self):
        for number in [signal.SIGINT, signal.SIGTERM]:
            with tempfile.TemporaryDirectory() as scratch:
                path = Path(scratch) / "socket"
                server = subprocess.Popen([folder / "02-share-a-page", f"tcp://{path}"], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True)
                self.addCleanup(server.communicate)
                self.addCleanup(server.kill)
                server.stdout.readline()
                self.assertEqual(run("01-read-a-peer", f"tcp://{path}").returncode, 0)
                server.send_signal(number)
                self.assertEqual((server.wait(PATIENCE_S), server.stderr.read()), (0, ""))
                self.assertEqual(os.listdir(scratch), [])

    def test_a_peer_that_is_not_there(self):
        done = run("01-read-a-peer", "tcp://127.0.0.1:1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("refused", done.stderr)

    def test_deadlines_and_batches(self):
        done = run("03-deadlines-and-batches")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), [
            "a replica answered",
            "a receive with a deadline: deadline exceeded",
            "a task with a timeout: deadline exceeded",
            "a batch of 2 operations"])

    def test_a_file_goes_to_a_peer_and_back(self):
        with tempfile.TemporaryDirectory() as scratch:
            source, target = Path(scratch) / "source", Path(scratch) / "target"
            # Nothing; a window of eight chunks and its neighbours; more than the program has memory for.
            for size in [0, 1, 8 << 20, (8 << 20) + 1, 20_000_001, (64 << 20) + 1]:
                source.write_bytes(os.urandom(size))
                done = run("04-disk-to-peer", source, target)
                self.assertEqual((done.returncode, done.stderr), (0, ""), size)
                self.assertEqual(done.stdout, f"{size} bytes, there and back\n")
                self.assertEqual(target.read_bytes(), source.read_bytes())
            done = run("04-disk-to-peer", Path(scratch) / "missing", target)
            self.assertEqual(done.returncode, 1)
            self.assertIn("missing", done.stderr)

    def test_info_says_all_or_fails(self):
        info = folder.parent / "tools" / "sluice-info"
        if not info.exists():
            self.skipTest("sluice-info was not built")
        done = subprocess.run([info, "--json"], stdout=subprocess.PIPE, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(json.loads(done.stdout)["limits"]["open_files"]["note"],
                         "a connection over TCP takes one per lane; over RDMA none of its own")
        for option in ["--json", "--version"]:
            with open("/dev/full", "w") as full:
                done = subprocess.run([info, option], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 1, option)
            self.assertIn("sluice-info: cannot write to standard output", done.stderr)
        self.assertEqual(subprocess.run([info, "--nonsense"], stderr=subprocess.DEVNULL, timeout=PATIENCE_S).returncode, 2)


if __name__ == "__main__":
    unittest.main()
