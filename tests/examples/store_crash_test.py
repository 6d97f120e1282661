"""What the object store leaves behind when something breaks: its old or its new self, and never a half."""

import json
import os
import signal
import socket
import subprocess
import time
import unittest

import store_support
from store_support import PATIENCE_S, StoreTest, pattern, stand_still, wait_until

MIB = 1 << 20


class KilledServer(StoreTest):
    size = 24 * MIB
    slow = ("--chunk", "64K", "--window", "2")  # more steps, more places to be killed at

    def check_object(self, server, contents):
        """The object is exactly one of these."""
        target = self.folder / "check"
        self.ok("get", f"{server.url}/object", target)
        found = target.read_bytes()
        self.assertTrue(any(found == content for content in contents), "neither the old nor the new object")
        target.unlink()
        return found

    def test_kill_at_any_moment_of_a_put_leaves_the_old_or_the_new_object(self):
        old, new = pattern(self.size, seed=1), pattern(self.size, seed=2)
        source_old, source_new = self.file("old", old), self.file("new", new)
        server = self.serve()
        self.ok("put", source_old, f"{server.url}/object")
        outcomes = {"old": 0, "new": 0}
        # Seen from outside, in the order of a put: bytes on their way, about to be named, just named.
        for delay_s in [0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, None]:
            client = self.start("put", source_new, f"{server.url}/object", *self.slow)
            if delay_s is None:
                client.wait(PATIENCE_S)
            else:
                wait_until(lambda: self.temporaries() or client.poll() is not None, "the put begins")
                time.sleep(delay_s)
            server.stop(signal.SIGKILL)
            status = client.wait(PATIENCE_S)
            if status != 0:
                self.assertRegex(client.stderr.read().decode(), "sluice-store: put object: .*(is gone|gave no sign)")
            server = self.serve()
            self.assertEqual(self.temporaries(), [], "a server that starts removes what was half-written")
            found = self.check_object(server, [old, new])
            self.assertTrue(status != 0 or found == new, "a put that succeeded is the new object")
            outcomes["new" if found == new else "old"] += 1
            self.ok("put", source_old, f"{server.url}/object")
        self.assertGreater(outcomes["old"], 0, outcomes)
        self.assertGreater(outcomes["new"], 0, outcomes)

    def test_kill_during_a_get_leaves_no_file(self):
        server = self.serve()
        self.ok("put", self.file("source", pattern(64 * MIB)), f"{server.url}/object")
        target = self.folder / "target"
        target.mkdir()
        client = self.start("get", f"{server.url}/object", target / "file", *self.slow)
        wait_until(lambda: self.only(target) or client.poll() is not None, "the get begins")
        server.stop(signal.SIGKILL)
        self.assertEqual(client.wait(PATIENCE_S), 1)
        self.assertRegex(client.stderr.read().decode(), "sluice-store: get object: .*is gone")
        self.assertEqual(self.only(target), [])


class Interrupted(StoreTest):
    def test_a_client_that_is_interrupted_leaves_nothing(self):
        target = self.folder / "target"
        target.mkdir()
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]:
            server = self.serve()
            self.ok("put", self.file("source", pattern(64 * MIB)), f"{server.url}/object")
            client = self.start("get", f"{server.url}/object", str(target / "file"), "--chunk", "64K", "--window", "1")
            wait_until(lambda: self.only(target) or client.poll() is not None, "the get begins")
            client.send_signal(number)
            self.assertEqual(client.wait(PATIENCE_S), 128 + number)
            self.assertNotIn("corrupt", client.stderr.read().decode())
            self.assertEqual(self.only(target), [])
            self.assertEqual(server.stop(), 0)

    def test_a_client_that_is_interrupted_while_it_connects_says_so(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
            client = self.start("get", f"{address}/object", self.folder / "target")
            peer = silent.accept()[0]
            self.addCleanup(peer.close)
            client.send_signal(signal.SIGINT)
            self.assertEqual(client.wait(PATIENCE_S), 128 + signal.SIGINT)
            self.assertEqual(client.stderr.read().decode(),
                             f"sluice-store: get object: interrupted while connecting to {address}: Operation canceled\n")

    def test_what_was_started_with_nohup_stays(self):
        server = self.serve(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        server.process.send_signal(signal.SIGHUP)
        self.ok("put", self.file("source", b"x"), f"{server.url}/object")
        self.assertEqual(server.stop(), 0)

    def test_a_client_gives_up_on_a_silent_server(self):
        server = self.serve()
        self.ok("put", self.file("source", b"x"), f"{server.url}/object")
        stand_still(server.process)
        try:
            done = self.run_client("get", f"{server.url}/object", self.folder / "target", "--timeout", "1")
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "gave no sign for 1 s|cannot connect")
        self.assertFalse((self.folder / "target").exists())

    def test_a_server_that_is_told_to_end_ends_well(self):
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]:
            server = self.serve()
            source = self.file("source", pattern(64 * MIB))
            client = self.start("put", source, f"{server.url}/object", "--chunk", "64K", "--window", "1")
            wait_until(lambda: self.temporaries() or client.poll() is not None, "the put begins")
            self.assertEqual(server.stop(number), 0)
            self.assertEqual(client.wait(PATIENCE_S), 1)
            self.assertEqual(self.temporaries(), [])
            self.assertEqual(self.only(self.objects), [".sluice-store"])

    def test_a_killed_client_leaves_nothing_on_the_server(self):
        server = self.serve()
        source = self.file("source", pattern(64 * MIB))
        client = self.start("put", source, f"{server.url}/object", "--chunk", "64K", "--window", "1")
        wait_until(lambda: self.temporaries() or client.poll() is not None, "the put begins")
        client.kill()
        client.wait(PATIENCE_S)
        wait_until(lambda: self.temporaries() == [], "the temporary file goes")
        self.assertEqual(self.ok("ls", server.url), "")

    def test_a_client_that_stands_still_is_dropped(self):
        server = self.serve("--stall-timeout", "1")
        source = self.file("source", pattern(64 * MIB))
        client = self.start("put", source, f"{server.url}/object", "--chunk", "64K", "--window", "1")
        wait_until(lambda: self.temporaries() or client.poll() is not None, "the put begins")
        stand_still(client)
        wait_until(lambda: self.temporaries() == [], "the temporary file goes")
        client.send_signal(signal.SIGCONT)
        self.assertEqual(client.wait(PATIENCE_S), 1)
        self.assertEqual(json.loads(self.ok("stat", server.url, "--json"))["failures"], 1)
        server.stop()
        self.assertIn("the client stood still for 1 s", server.errors)


@unittest.skipIf(os.geteuid() != 0, "needs root: mounts a small file system")
class FullDisk(StoreTest):
    def mount(self, folder):
        folder.mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest("cannot mount a tmpfs here: " + done.stderr.strip())
        self.addCleanup(subprocess.run, ["umount", "-l", folder], check=True)

    def test_a_full_disk_on_either_side(self):
        self.mount(self.objects)
        small = self.folder / "small"
        self.mount(small)
        server = self.serve()
        big, fits = self.file("big", pattern(20 * MIB)), self.file("fits", pattern(6 * MIB))
        self.fails(["put big", "cannot make a file of", "No space left"], "put", big, f"{server.url}/big")
        self.assertEqual(self.temporaries(), [])
        self.ok("put", fits, f"{server.url}/fits")
        (small / "filler").write_bytes(bytes(4 * MIB))
        self.fails(["get fits", "cannot make room", "No space left"], "get", f"{server.url}/fits", small / "target")
        self.assertEqual(self.only(small), ["filler"])
        self.ok("get", f"{server.url}/fits", self.folder / "target")
        self.assertEqual((self.folder / "target").read_bytes(), fits.read_bytes())


if __name__ == "__main__":
    store_support.main()
