"""The object store does what its README says: objects of any size, in one step, checked, and clear words otherwise."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import unittest

import store_support
from store_support import StoreTest, pattern, stand_still

KIB = 1024
MIB = 1024 * KIB


class RoundTrips(StoreTest):
    def round_trip(self, server, size, *options):
        source = self.file("source", pattern(size, seed=size))
        target = self.folder / "target"
        self.ok("put", source, f"{server.url}/object", *options)
        self.ok("get", f"{server.url}/object", target, *options)
        self.assertEqual(target.read_bytes(), source.read_bytes(), size)

    def test_objects_of_every_size_come_back_as_they_were(self):
        server = self.serve()
        for size in [0, 1, 4095, 4096, 4097, 100_000, MIB - 1, MIB, MIB + 1, 9 * MIB + 123, 40 * MIB]:
            self.round_trip(server, size)
        self.assertEqual(self.temporaries(), [])

    def test_small_windows_and_chunks_carry_large_objects(self):
        server = self.serve("--chunk", "4K", "--window", "1", "--pool", "2M")
        self.round_trip(server, 300_001)
        self.round_trip(server, 300_001, "--chunk", "64K", "--window", "3")

    def test_a_client_with_a_smaller_window_than_the_servers(self):
        server = self.serve("--chunk", "1M", "--window", "8")
        self.round_trip(server, 3 * MIB + 5, "--chunk", "16K", "--window", "2")

    def test_a_unix_socket_carries_it_as_well(self):
        address = f"tcp://{self.folder}/socket"
        server = self.serve(listen=address)
        self.round_trip(server, MIB + 77)
        self.assertEqual(json.loads(self.ok("stat", f"{address}/object", "--json"))["size_bytes"], MIB + 77)

    def test_several_files_keep_their_names(self):
        server = self.serve()
        sources = [self.file(f"file{i}", pattern(50_000 * i, seed=i)) for i in range(7)]
        self.ok("put", *sources, f"{server.url}/a/b/")
        listed = [json.loads(line) for line in self.ok("ls", f"{server.url}/a/", "--json").splitlines()]
        self.assertEqual([(o["key"], o["size_bytes"]) for o in listed],
                         [(f"a/b/file{i}", 50_000 * i) for i in range(7)])
        target = self.folder / "target"
        target.mkdir()
        self.ok("get", *[f"{server.url}/a/b/file{i}" for i in range(7)], target)
        for source in sources:
            self.assertEqual((target / source.name).read_bytes(), source.read_bytes())
        self.assertEqual(len(self.only(target)), 7)

    def test_what_it_prints_as_json_are_facts(self):
        server = self.serve()
        source = self.file("source", b"123456789")
        put = json.loads(self.ok("put", source, f"{server.url}/check", "--json"))
        self.assertEqual((put["operation"], put["key"], put["size_bytes"], put["crc32c"]), ("put", "check", 9, "e3069283"))
        self.assertEqual(json.loads(self.ok("stat", f"{server.url}/check", "--json"))["crc32c"], "e3069283")
        counters = json.loads(self.ok("stat", server.url, "--json"))
        self.assertEqual((counters["puts"], counters["gets"], counters["failures"]), (1, 0, 0))
        self.assertEqual(counters["file_buffered_bytes"] + counters["file_direct_bytes"], 2 * 4096)
        self.assertEqual(self.ok("get", f"{server.url}/check", self.folder / "target", "--quiet"), "")

    def test_an_object_is_replaced_and_removed(self):
        server = self.serve()
        self.ok("put", self.file("one", b"first"), f"{server.url}/x/y")
        self.ok("put", self.file("two", b"second"), f"{server.url}/x/y")
        self.ok("get", f"{server.url}/x/y", self.folder / "target")
        self.assertEqual((self.folder / "target").read_bytes(), b"second")
        self.ok("rm", f"{server.url}/x/y")
        self.assertEqual(self.ok("ls", server.url), "")
        self.assertEqual(self.only(self.objects), [".sluice-store"], "the empty directory x goes too")
        self.fails(["no object x/y"], "rm", f"{server.url}/x/y")


    def peak_mib(self, *arguments):
        """Runs the client and gives the most memory that it had."""
        process = subprocess.Popen([store_support.program, *map(str, arguments)])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, arguments)
        return usage.ru_maxrss // 1024

    def test_memory_goes_with_the_work(self):
        server = self.serve()
        sources = [self.file(f"source{i}", pattern(3000, seed=i)) for i in range(256)]
        many = [f"{server.url}/x/source{i}" for i in range(256)]
        target = self.folder / "target"
        target.mkdir()
        alone = self.peak_mib("put", "-q", sources[0], f"{server.url}/x/", "--parallel", "1")
        # With what a sanitizer costs; windows of 8 MiB for each would be 2 GiB.
        self.assertLess(self.peak_mib("put", "-q", *sources, f"{server.url}/x/", "--parallel", "256"), alone + 200)
        self.assertLess(self.peak_mib("get", "-q", *many, target, "--parallel", "256"), alone + 300)
        self.assertLess(self.peak_mib("get", "-q", many[0], target, "--chunk", "64M", "--window", "64"), alone + 200)
        for source in sources: self.assertEqual((target / source.name).read_bytes(), source.read_bytes())
        big = self.file("big", pattern(9 * MIB + 1))
        for options in [["--memory", "1M"], ["--memory", "1M", "--chunk", "64M"], ["--memory", "1M", "--parallel", "256"],
                        ["--memory", "3M", "--window", "1"]]:
            self.ok("put", "-q", big, *sources[:200], f"{server.url}/big/", *options)
            self.ok("get", "-q", f"{server.url}/big/big", *[f"{server.url}/big/source{i}" for i in range(200)], target,
                    *options)
            self.assertEqual((target / "big").read_bytes(), big.read_bytes())
        self.fails(["--memory 1000: give at least 1048576"], "get", many[0], target, "--memory", "1000", status=2)

    def test_a_file_that_is_replaced_hands_on_its_permissions(self):
        server = self.serve()
        self.ok("put", self.file("source", pattern(2 * MIB)), f"{server.url}/object")
        target = self.folder / "target"
        for mode in [0o600, 0o640, 0o444, 0o777]:
            target.write_bytes(b"old")
            target.chmod(mode)
            if os.geteuid() == 0: os.chown(target, 1234, 4321)
            before = target.stat()
            os.link(target, self.folder / "link")
            self.ok("get", f"{server.url}/object", target)
            after = target.stat()
            self.assertEqual((after.st_mode, after.st_uid, after.st_gid), (before.st_mode, before.st_uid, before.st_gid))
            self.assertEqual(target.stat().st_size, 2 * MIB)
            self.assertEqual((self.folder / "link").read_bytes(), b"old")
            target.unlink()
            (self.folder / "link").unlink()
        umask = os.umask(0o027)
        self.addCleanup(os.umask, umask)
        self.ok("get", f"{server.url}/object", target)
        self.assertEqual(target.stat().st_mode & 0o777, 0o640, "a new file is made as others are")


class Refusals(StoreTest):
    def test_a_missing_object_leaves_no_file(self):
        server = self.serve()
        self.fails(["get nothing", "no object nothing"], "get", f"{server.url}/nothing", self.folder / "target")
        self.assertEqual(self.only(self.folder), ["objects"])

    def test_keys_that_would_leave_the_directory(self):
        server = self.serve()
        source = self.file("source", b"x")
        outside = self.folder / "outside"
        outside.mkdir()
        (outside / "secret").write_bytes(b"secret")
        os.symlink(outside, self.objects / "link")
        os.symlink(outside / "secret", self.objects / "file-link")
        for key in ["../outside/new", "a/../../outside/new", "/etc/new", "a//b", "a/", ".", "..", ".sluice-store/x",
                    "a/.sluice-b", "x" * 513, "y" * 256, "a\nb"]:
            with self.subTest(key=key):
                # A slash at the end would be completed by the name of the file.
                words = ["key"] if not key.endswith("/") else []
                if words: self.fails(words, "put", source, f"{server.url}/{key}", status=2)
                self.fails(["key"], "get", f"{server.url}/{key}", self.folder / "target", status=2)
                self.fails(["key"], "stat", f"{server.url}/{key}", status=2)
                self.fails(["key"], "rm", f"{server.url}/{key}", status=2)
        for key in ["link/secret", "file-link"]:
            self.fails([key], "get", f"{server.url}/{key}", self.folder / "target")
        self.fails(["link/new"], "put", source, f"{server.url}/link/new")
        self.assertEqual(self.only(outside), ["secret"])
        self.assertEqual(self.only(self.folder), ["objects", "outside", "source"])
        self.assertEqual(self.temporaries(), [])
        self.ok("put", source, f"{server.url}/file-link")  # replaces the link, not what it leads to
        self.assertEqual((outside / "secret").read_bytes(), b"secret")

    def test_an_object_is_no_directory(self):
        server = self.serve()
        source = self.file("source", b"x")
        self.ok("put", source, f"{server.url}/a/b")
        self.fails(["a/b/c"], "put", source, f"{server.url}/a/b/c")
        self.fails(["a: "], "put", source, f"{server.url}/a")
        self.fails(["no object a"], "get", f"{server.url}/a", self.folder / "target")
        self.assertEqual(self.temporaries(), [])

    def test_a_damaged_object_is_noticed(self):
        server = self.serve()
        source = self.file("source", pattern(3 * MIB + 17))
        target = self.folder / "target"
        stored = self.objects / "object"

        def damage(at, content=None, size=None):
            self.ok("put", source, f"{server.url}/object")
            with open(stored, "r+b") as f:
                if size is not None: f.truncate(size)
                if content is None: return
                f.seek(at)
                old = f.read(1)
                f.seek(at)
                f.write(content or bytes([old[0] ^ 1]))

        damage(4096 + 2 * MIB + 5, b"")
        self.fails(["corrupt object", "CRC32C"], "get", f"{server.url}/object", target)
        damage(9, b"")
        self.fails(["corrupt object object", "header"], "get", f"{server.url}/object", target)
        damage(0, None, 4096 + MIB)
        self.fails(["corrupt object object", "bytes instead of"], "get", f"{server.url}/object", target)
        damage(0, None, 100)
        self.fails(["corrupt object object"], "get", f"{server.url}/object", target)
        self.assertFalse(target.exists())
        self.assertEqual(self.only(self.folder), ["objects", "source"])
        self.ok("put", source, f"{server.url}/object")
        self.ok("get", f"{server.url}/object", target)

    def test_mistakes_on_the_command_line(self):
        for arguments in [["put", "x"], ["serve", self.objects], ["frobnicate"], [],
                          ["put", "a", "tcp://127.0.0.1:1/x", "--chunk", "1000"],
                          ["serve", self.objects, "--listen", "tcp://127.0.0.1:0", "--pool", "2M"]]:
            self.fails([""], *arguments, status=2)
        self.fails(["127.0.0.1:1/x", "not the address"], "get", "127.0.0.1:1/x", "y", status=2)
        self.fails(["gopher"], "get", "gopher://127.0.0.1:1/x", "y", status=2)
        self.fails(["frobnicate"], "frobnicate", status=2)
        for verb, option in [("get", "--timeout"), ("serve", "--stall-timeout")]:
            for value in ["nan", "-1", "0", "1e9", "inf"]:
                self.fails([f"{option}", "0.1 to 86400"], verb, *(["tcp://127.0.0.1:1/x", "y"] if verb == "get" else
                           [self.objects, "--listen", "tcp://127.0.0.1:0"]), f"{option}={value}", status=2)
        self.assertRegex(self.ok("--version"), r"^sluice-store \d+\.\d+")
        self.fails(["where to, is empty"], "get", "tcp://127.0.0.1:1/x", "", status=2)
        self.fails(["cannot connect to rdma://127.0.0.1:1: "], "stat", "rdma://127.0.0.1:1")
        done = self.fails(["cannot connect to tcp://127.0.0.1:1: Connection refused\n"], "stat", "tcp://127.0.0.1:1")
        self.assertEqual(done.stderr.count("connect to"), 1, done.stderr)
        self.fails(["cannot connect to tcp://127.0.0.1:1"], "get", "tcp://127.0.0.1:1/x", self.folder / "y")
        self.assertIn("examples:", self.run_client("--help").stdout)

    def test_files_that_can_not_be_read_or_written(self):
        server = self.serve()
        self.fails(["missing"], "put", self.folder / "missing", f"{server.url}/a")
        self.fails(["not a regular file"], "put", "/dev/null", f"{server.url}/a")
        self.ok("put", self.file("source", b"x"), f"{server.url}/a")
        self.fails(["/proc/self/status says that it is empty and is not"], "put", "/proc/self/status", f"{server.url}/b")
        self.fails(["no object b"], "stat", f"{server.url}/b")
        self.fails(["has 256 bytes, at most 255"], "get", f"{server.url}/a", self.folder / ("y" * 256))
        self.fails(["cannot write /dev/null"], "get", f"{server.url}/a", "/dev/null")
        self.fails(["cannot write"], "get", f"{server.url}/a", self.folder / "missing" / "target")
        self.fails(["several files"], "put", self.folder / "source", self.folder / "source", f"{server.url}/a",
                   status=2)

    def test_a_key_that_is_too_long_is_no_other_key(self):
        server = self.serve()
        longest = "x" * 200 + "/" + "y" * 200 + "/" + "z" * 110  # 512 bytes
        self.ok("put", self.file("source", b"x"), f"{server.url}/{longest}")
        for verb in ["rm", "stat", "ls"]:
            self.fails(["513 bytes, at most 512"], verb, f"{server.url}/{longest}z", status=2)
        self.assertIn(longest, self.ok("ls", f"{server.url}/{longest}"))

    def test_a_client_at_auto_says_how_it_goes(self):
        server = self.serve()
        sources = [self.file(name, b"123456789") for name in ("a", "b")]
        url = server.url.replace("tcp://", "auto://", 1)
        put = self.run_client("put", *sources, f"{url}/")
        self.assertEqual((put.returncode, put.stderr.count("sluice-store: auto://")), (0, 1), put.stderr)
        self.assertIn(f"sluice-store: {url}: tcp: ", put.stderr)
        self.assertEqual(json.loads(self.ok("get", f"{url}/a", self.folder / "target", "--json"))["path"], "tcp")

    def test_a_link_is_not_replaced_by_a_get(self):
        server = self.serve()
        self.ok("put", self.file("source", b"x"), f"{server.url}/a")
        kept = self.file("kept", b"kept")
        link = self.folder / "link"
        for leads_to in [kept, "/dev/null", self.folder / "nothing"]:
            os.symlink(leads_to, link)
            self.fails([f"cannot write {link}", "symbolic link"], "get", f"{server.url}/a", link)
            self.assertTrue(link.is_symlink())
            link.unlink()
        self.assertEqual(kept.read_bytes(), b"kept")

    def test_ls_tells_what_it_can_not_list(self):
        server = self.serve()
        source = self.file("source", pattern(5000))
        for key in ["a", "b", "c"]: self.ok("put", source, f"{server.url}/{key}")
        os.truncate(self.objects / "b", 4096)
        (self.objects / "foreign").write_bytes(b"not an object")
        done = self.fails(["2 files can't be listed", "corrupt object"], "ls", server.url)
        self.assertEqual([line.split()[-1] for line in done.stdout.splitlines()], ["a", "c"])

    def test_a_directory_that_was_removed_is_no_empty_one(self):
        server = self.serve()
        self.assertEqual(self.ok("ls", server.url), "")
        shutil.rmtree(self.objects)
        self.fails(["the directory that the server serves was removed"], "ls", server.url)
        self.fails(["No such file"], "put", self.file("source", b"x"), f"{server.url}/a")

    def test_rm_removes_objects_only(self):
        server = self.serve()
        self.ok("put", self.file("source", pattern(5000)), f"{server.url}/damaged")
        os.truncate(self.objects / "damaged", 4096)
        (self.objects / "foreign").write_bytes(b"somebody else's, and longer than a header")
        (self.objects / "empty").write_bytes(b"")
        os.symlink("foreign", self.objects / "link")
        self.fails(["foreign was not put by sluice-store"], "rm", f"{server.url}/foreign")
        self.fails(["empty was not put by sluice-store"], "rm", f"{server.url}/empty")
        self.fails(["no object link"], "rm", f"{server.url}/link")
        self.ok("rm", f"{server.url}/damaged")
        self.assertEqual(self.only(self.objects), [".sluice-store", "empty", "foreign", "link"])

    def test_output_that_can_not_be_written_is_a_failure(self):
        server = self.serve()
        self.ok("put", self.file("source", b"x"), f"{server.url}/1")
        for i in range(40): shutil.copy(self.objects / "1", self.objects / f"{i}{'x' * 200}")
        for url in [f"{server.url}/1", server.url]:  # fits the buffer of standard output; does not
            with open("/dev/full", "w") as full:
                done = subprocess.run([store_support.program, "ls", url], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=store_support.PATIENCE_S)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("No space left on device", done.stderr)

    def test_help_and_version_that_can_not_be_written_are_failures_too(self):
        for option in ["--help", "--version"]:
            with open("/dev/full", "w") as full:
                done = subprocess.run([store_support.program, option], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=store_support.PATIENCE_S)
            self.assertEqual(done.returncode, 1, option)
            self.assertIn("sluice-store: cannot write to standard output", done.stderr)

    def test_what_strangers_wrote_does_not_reach_the_terminal(self):
        server = self.serve()
        self.ok("put", self.file("source", b"x"), f"{server.url}/1")
        evil = "evil\x1b[2J\u009b31m\x07"
        shown = "evil\\x1b[2J\\xc2\\x9b31m\\x07"
        self.fails(["put 2: ", f"{self.folder}/{shown}"], "put", self.folder / evil, f"{server.url}/2")
        self.fails([f"there is no command \"{shown}\""], evil, status=2)
        done = self.fails(["key"], "rm", f"{server.url}/{'k' * 100_000}", status=2)
        self.assertLess(len(done.stderr), 1000)
        for stream in [done.stderr, self.fails(["x"], "get", f"{server.url}/{evil}", "x", status=2).stderr]:
            self.assertNotRegex(stream, "[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")

    def test_two_sources_with_one_target(self):
        server = self.serve()
        for folder in ["1", "2"]:
            (self.folder / folder).mkdir()
            self.file(f"{folder}/same", folder.encode())
            self.ok("put", self.folder / folder / "same", f"{server.url}/{folder}/same")
        self.fails(["1/same and", "2/same would both become dup/same"], "put", self.folder / "1" / "same",
                   self.folder / "2" / "same", f"{server.url}/dup/", status=2)
        self.assertEqual(self.ok("ls", f"{server.url}/dup/"), "")
        target = self.folder / "target"
        target.mkdir()
        self.fails(["1/same and", "2/same would both become"], "get", f"{server.url}/1/same", f"{server.url}/2/same",
                   target, status=2)
        self.assertEqual(self.only(target), [])

    def test_a_server_that_takes_connections_but_never_answers(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
            self.fails([f"cannot connect to {address}: ", "200 ms"], "stat", address, "--timeout", "0.2")

    def test_what_a_server_can_not_clear_away_is_named(self):
        (self.objects / ".sluice-store" / "stray").mkdir(parents=True)
        self.fails(["cannot remove .sluice-store/stray"], "serve", self.objects, "--listen", "tcp://127.0.0.1:0")

    def test_a_directory_is_served_once(self):
        self.serve()
        with self.assertRaisesRegex(RuntimeError, "another sluice-store serves"):
            self.serve()
        self.fails(["cannot serve", "missing"], "serve", self.folder / "missing", "--listen", "tcp://127.0.0.1:0")

    def test_no_more_clients_than_descriptors(self):
        def limits(soft, hard):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        server = self.serve(preexec_fn=limits(64, 1024))
        self.assertEqual(resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE), (1024, 1024))
        server.stop()
        self.assertIn("--max-clients 4096 can need 16416 descriptors, the limit is 1024: 248 clients", server.errors)
        server = self.serve("--max-clients", "248", preexec_fn=limits(64, 1024))
        server.stop()
        self.assertEqual(server.errors, "")
        # With the smallest limit all that it takes at once find what they need, and one more is told.
        server = self.serve(preexec_fn=limits(36, 36))
        source = self.file("source", pattern(64 * MIB))
        client = self.start("put", source, f"{server.url}/deep/object", "--chunk", "64K", "--window", "1")
        store_support.wait_until(lambda: self.temporaries() or client.poll() is not None, "the put begins")
        stand_still(client)
        self.fails(["the server has 1 clients and takes no more", "open files"], "stat", server.url)
        client.send_signal(signal.SIGCONT)
        self.assertEqual(client.wait(store_support.PATIENCE_S), 0, client.stderr.read())
        self.assertEqual(client.stderr.read(), b"")
        self.assertEqual(self.ok("stat", server.url).splitlines()[0].split(",")[0], "1 clients now")

    def test_an_address_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            self.fails([f"127.0.0.1:{port}"], "serve", self.objects, "--listen", f"tcp://127.0.0.1:{port}")

    @unittest.skipIf(os.geteuid() != 0, "needs root: runs the server as another user")
    def test_a_server_that_may_not_write(self):
        if subprocess.run([store_support.program, "--help"], user=65534, capture_output=True).returncode != 0:
            self.skipTest("the build lies where other users may not read it")
        os.chmod(self.folder, 0o755)
        os.chmod(self.objects, 0o555)
        with self.assertRaisesRegex(RuntimeError, "cannot serve.*Permission denied"):
            store_support.Server(self.objects, user=65534)


if __name__ == "__main__":
    store_support.main()
