"""The parts of tools/rdma-guest that can be wrong without a guest: its streams, its cache, its command line, its log."""

import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))
import rdma_tests  # noqa: E402
from rdma_guest import cache, machine, option_values  # noqa: E402

TOKEN = b"0123456789abcdef"


class Streams(unittest.TestCase):
    def pass_on(self, *pieces):
        target = io.BytesIO()
        outlet = machine.Outlet(target, TOKEN)
        for piece in pieces:
            outlet.feed(piece)
        return target.getvalue(), outlet.ended

    def test_output_ends_at_the_token_however_it_is_cut(self):
        whole = b"words 012" + TOKEN
        for cut in range(len(whole)):
            self.assertEqual(self.pass_on(whole[:cut], whole[cut:]), (b"words 012", True))

    def test_what_only_begins_like_the_token_is_passed_on(self):
        self.assertEqual(self.pass_on(b"a0123", b"4x", b"b", TOKEN), (b"a01234xb", True))

    def test_output_streams_before_the_token_comes(self):
        self.assertEqual(self.pass_on(b"line\n"), (b"line\n", False))

    def test_output_that_is_cut_off_is_not_held_back(self):
        target = io.BytesIO()
        outlet = machine.Outlet(target, TOKEN)
        outlet.feed(b"end 0123")
        outlet.cut_off()
        self.assertEqual(target.getvalue(), b"end 0123")


class Cache(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.folder = Path(self.work.name)
        for name in ("vmlinuz", "initramfs"):
            (self.folder / name).write_text(name)
        self.manifest = {"release": "6", "recipe": cache.recipe(), "siw": {},
                         **{name: {"file": name, "sha256": cache.sha256(self.folder / name)}
                            for name in ("vmlinuz", "initramfs")}}
        self.write()

    def write(self):
        (self.folder / "manifest.json").write_text(json.dumps(self.manifest))

    def test_a_whole_cache_is_used(self):
        self.assertEqual(cache.load(self.folder), self.manifest)

    def test_a_damaged_kernel_is_not_used(self):
        (self.folder / "vmlinuz").write_text("vmlinux")
        self.assertIsNone(cache.load(self.folder))

    def test_a_missing_initramfs_is_not_used(self):
        (self.folder / "initramfs").unlink()
        self.assertIsNone(cache.load(self.folder))

    def test_another_recipe_is_not_used(self):
        self.manifest["recipe"] = "older"
        self.write()
        self.assertIsNone(cache.load(self.folder))

    def test_half_a_manifest_is_not_used(self):
        (self.folder / "manifest.json").write_text('{"release": ')
        self.assertIsNone(cache.load(self.folder))


class FakeApt:
    def __init__(self, names):
        self.all = names

    def update(self):
        pass

    def names(self, start):
        return [name for name in self.all if name.startswith(start)]

    def record(self, package, version=None):
        return package


class Kernels(unittest.TestCase):
    NAMES = ["linux-image-6.12.95+deb12-amd64", "linux-image-6.12.9+deb12-amd64", "linux-image-6.12.95+deb12-cloud-amd64",
             "linux-image-6.1.0-50-amd64", "linux-image-amd64", "linux-image-7.2.12+deb13-amd64",
             "linux-binary-7.2.12+deb13-amd64", "linux-modules-7.2.12+deb13-amd64", "linux-image-6.8.0-9-generic",
             "linux-modules-6.8.0-9-generic", "linux-modules-extra-6.8.0-9-generic"]

    def find(self, name):
        return cache.find_kernel(FakeApt(self.NAMES), name)

    def test_the_newest_that_begins_so_is_taken(self):
        self.assertEqual(self.find("6.12"), ("6.12.95+deb12-amd64", ["linux-image-6.12.95+deb12-amd64"]))
        self.assertEqual(self.find("6.1"), ("6.1.0-50-amd64", ["linux-image-6.1.0-50-amd64"]))

    def test_kernels_in_several_packages_are_taken_whole(self):
        self.assertEqual(self.find("7"), ("7.2.12+deb13-amd64", ["linux-binary-7.2.12+deb13-amd64",
                                                                "linux-modules-7.2.12+deb13-amd64"]))
        self.assertEqual(len(self.find("6.8")[1]), 3)

    def test_a_kernel_that_is_not_there_is_named_with_those_that_are(self):
        with self.assertRaisesRegex(cache.NoKernel, r"no kernel 5 .*6\.1, 6\.8, 6\.12, 7\.2"):
            self.find("5")

    def run_main(self, *words):
        """(status, standard error), with apt as it would be."""
        loader = SourceFileLoader("rdma_guest_tool", str(ROOT / "tools/rdma-guest"))
        tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(tool)
        with mock.patch.object(cache, "Apt", lambda _: FakeApt(self.NAMES)), \
                mock.patch.object(machine, "why_no_qemu", lambda: ""), \
                mock.patch.object(sys, "stderr", io.StringIO()) as stderr, self.assertRaises(SystemExit) as ended:
            tool.main([*words, "--guest", "true"])
        return ended.exception.code, stderr.getvalue()

    def test_asking_for_a_kernel_that_is_not_there_is_a_mistake_and_leaves_nothing_in_the_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            status, text = self.run_main("--cache", folder, "--kernel", "99")
            self.assertEqual(list(Path(folder).glob("rdma-guest/kernel-*")), [])
        self.assertEqual((status, text.count("\n")), (2, 1))
        self.assertRegex(text, r'--kernel: "99" is not to be had; this distribution has no kernel 99 .*6\.12, 7\.2')

    def test_that_the_default_kernel_is_not_there_is_no_mistake(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"SLUICE_CACHE": folder}), \
                mock.patch("rdma_guest.settings.kernel_name", lambda _: "5"):
            status, text = self.run_main()
        self.assertEqual(status, 77)
        self.assertIn("skipped: no RDMA device here, and no guest: this distribution has no kernel 5", text)

    def test_a_cache_that_can_not_be_made_is_a_mistake(self):
        status, text = self.run_main("--cache", "/proc/nope")
        self.assertEqual((status, text.count("\n")), (2, 1))
        self.assertRegex(text, r"--cache: kernels can't be kept in /proc/nope/rdma-guest \(.+\); give a folder that can be made")


class Booting(unittest.TestCase):
    KERNEL = SimpleNamespace(vmlinuz="vmlinuz", initramfs="initramfs")

    def boots(self, accelerator, script):
        """(how often QEMU was started, the failure), of one that is `script`."""
        with tempfile.TemporaryDirectory() as folder:
            qemu = Path(folder) / "qemu-system-x86_64"
            qemu.write_text(f"#!/bin/sh\necho >>{folder}/boots\n{script}\n")
            qemu.chmod(0o755)
            with mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}), \
                    mock.patch.object(machine, "note"), self.assertRaises(machine.GuestFailed) as raised:
                machine.run(self.KERNEL, [machine.Program(["true"])], accelerator=accelerator, stdout=io.BytesIO(),
                            stderr=io.BytesIO())
            return (Path(folder) / "boots").read_text().count("\n"), raised.exception

    def test_a_qemu_that_refuses_is_not_asked_again(self):
        for accelerator in ("tcg", "kvm"):
            boots, failure = self.boots(accelerator, "echo first >&2; echo 'no such memory' >&2; exit 1")
            self.assertEqual((boots, str(failure), failure.console), (1, "QEMU did not start: no such memory", ""))

    def test_a_guest_that_does_not_come_up_is_booted_again_when_it_is_emulated(self):
        for accelerator, expected in (("tcg", machine.BOOTS), ("kvm", 1)):
            boots, failure = self.boots(accelerator, "exit 0")
            self.assertEqual((boots, str(failure)), (expected, "the guest did not come up"))

    def test_where_kvm_is_refused_emulation_is_tried(self):
        with mock.patch.object(machine, "why_no_kvm", lambda: ""):
            self.assertEqual(self.boots("auto", "exit 1")[0], 2)

    def test_why_there_is_no_kvm_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            device, processors = f"{folder}/kvm", Path(folder) / "cpuinfo"
            self.assertRegex(machine.why_no_kvm(device), "/kvm is missing: load kvm_intel or kvm_amd")
            Path(device).touch()
            processors.write_text("flags\t\t: fpu sse2\n")
            self.assertRegex(machine.why_no_kvm(device, processors), "/kvm is there, but .* neither vmx nor svm")
            processors.write_text("flags\t\t: fpu vmx\n")
            self.assertEqual(machine.why_no_kvm(device, processors), "")


class CommandLine(unittest.TestCase):
    def run_tool(self, *words, **environment):
        done = subprocess.run([ROOT / "tools/rdma-guest", *words], env={**os.environ, **environment}, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stderr.splitlines()

    def test_a_missing_program_is_an_error_of_one_line(self):
        self.assertEqual(self.run_tool("--guest", "/nowhere/program"),
                         (127, ["rdma-guest: there is no program /nowhere/program"]))

    def test_what_is_no_program_is_named_as_what_it_is(self):
        for file, said in (("/etc/passwd", "is not executable"), ("/etc", "is a folder")):
            status, lines = self.run_tool("--guest", file)
            self.assertEqual((status, len(lines)), (127, 1))
            self.assertIn(f"{file} {said}", lines[0])

    def is_a_mistake(self, option, value, allowed):
        status, lines = self.run_tool("--guest", option, value, "touch", "/nowhere/started")   # its failure would be 1
        self.assertEqual((status, len(lines)), (2, 1), lines)
        self.assertIn(f'{option}: "{value}" is not allowed: {allowed}', lines[0])

    def test_a_value_that_is_not_allowed_is_named_with_those_that_are(self):
        for value in ("nan", "inf", "1e300", "0", "-1", "10081", "soon"):
            self.is_a_mistake("--timeout", value, "give minutes above 0 and up to 10080")
        for value in ("../../etc", "6.", "", "٦"):
            self.is_a_mistake("--kernel", value, "give the beginning of a version, such as 6.12")
        for value in ("0", "100000", "two", "1" * 30):
            self.is_a_mistake("--cpus", value, f"give 1 to {max(os.cpu_count(), 2)}, for this machine has {os.cpu_count()}")
        for value in ("255", "99999999", "1G"):
            self.is_a_mistake("--memory", value, f"give 256 to {option_values.memory_here()} MiB, what this machine has")
        self.is_a_mistake("--env", "=x", "give NAME=VALUE")

    def test_a_folder_for_the_results_that_can_not_be_made_is_a_mistake_before_anything_runs(self):
        for where in ("--host", "--guest"):
            for value in ("/proc/x", "/proc/x/y", "/proc", "/etc/passwd", "/etc/passwd/x"):
                with tempfile.TemporaryDirectory() as folder:
                    status, lines = self.run_tool(where, "--out", value, "touch", f"{folder}/ran")
                    self.assertEqual((status, len(lines), os.listdir(folder)), (2, 1, []))
                self.assertIn(f'--out: "{value}" is not allowed: give a folder that can be made and written (', lines[0])

    def test_looking_whether_a_folder_can_be_made_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/there")
            for name in ("there", "there/a/b", "new"):
                self.assertEqual(option_values.folder_to_write(f"{folder}/{name}"), f"{folder}/{name}")
            self.assertEqual([str(path.relative_to(folder)) for path in Path(folder).rglob("*")], ["there"])

    def test_and_stands_between_two_programs(self):
        for words in (["--and"], ["--and", "true"], ["true", "--and"], ["true", "--and", "--and", "true"]):
            self.assertEqual(self.run_tool("--host", *words), (2, [
                "rdma-guest: --and: it stands between two programs, and one of them is missing; --help lists the options"]))

    def test_kvm_is_not_tried_where_there_is_none(self):
        reason = machine.why_no_kvm()
        if not reason:
            self.skipTest("this machine has KVM")
        self.assertEqual(self.run_tool("--guest", "--accel", "kvm", "true"), (2, [
            f"rdma-guest: --accel kvm: {reason}; leave it out for emulation; --help lists the options"]))

    def test_without_qemu_it_is_skipped_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("python3", "env", "true"):
                os.symlink(subprocess.check_output(["which", name], text=True).strip(), f"{folder}/{name}")
            status, lines = self.run_tool("--guest", "true", PATH=folder)
        self.assertEqual(status, 77)
        self.assertRegex(lines[-1], "no guest: qemu-system-x86_64 is missing; apt-get install qemu-system-x86")

    def test_on_the_host_the_status_is_the_programs(self):
        self.assertEqual(self.run_tool("--host", "true", "--and", "bash", "-c", "exit 3")[0], 3)

    def test_on_the_host_what_programs_leave_comes_back_too(self):
        with tempfile.TemporaryDirectory() as folder:
            status, lines = self.run_tool("--host", "--out", f"{folder}/results", "bash", "-c", "echo one >$OUT/a",
                                          "--and", "bash", "-c", "cat $OUT/a >$OUT/b; exit 4")
            self.assertEqual((status, lines), (4, []))
            self.assertEqual((Path(folder) / "results/b").read_text(), "one\n")

    def test_on_the_host_the_timeout_is_for_all_programs(self):
        status, lines = self.run_tool("--host", "--timeout", "0.01", "sleep", "0.4", "--and", "sleep", "0.4", "--and", "true")
        self.assertEqual((status, lines), (124, ["rdma-guest: stopped after 1 s"]))

    def test_the_host_is_not_asked_for_what_only_the_guest_has(self):
        for option in (["--provider", "siw"], ["--kernel", "6.1"], ["--two-hosts"]):
            status, lines = self.run_tool("--host", *option, "true")
            self.assertEqual(status, 2)
            self.assertIn(f"--host and {option[0]} contradict each other", lines[-1])


class Log(unittest.TestCase):
    def some(self, *names):
        entry = {"cmd": ["/bin/true"], "env": {}, "workdir": None, "timeout": 10, "priority": 0,
                 "suite": ["sluice:rdma"]}
        return [rdma_tests.Test({**entry, "name": name}, 1) for name in names]

    def test_the_order_is_that_of_the_build_by_priority(self):
        entries = [{"name": name, "cmd": [], "env": {}, "workdir": None, "timeout": 10, "priority": priority, "suite": []}
                   for name, priority in (("last", -1), ("a", 0), ("b", 0), ("first", 1))]
        with mock.patch.object(rdma_tests.subprocess, "run", lambda *_, **__: mock.Mock(stdout=json.dumps(entries))):
            self.assertEqual([test.name for test in rdma_tests.read_tests("build", 1)], ["first", "a", "b", "last"])

    def test_a_test_that_breaks_the_guest_costs_its_own_result_only(self):
        tests = self.some("a", "breaks", "c")
        boots = []

        def run(_, programs, on_event, **__):
            boots.append(len(programs))
            for number in range(len(programs)):
                on_event("start", str(number))
                if len(boots) == 1 and number == 1:
                    failure = machine.GuestFailed("the guest broke down", "a console")
                    failure.ended = {0: 0}
                    raise failure
                on_event("end", f"{number} 0")
            return dict.fromkeys(range(len(programs)), 0)
        with mock.patch.object(machine, "run", run), mock.patch.object(machine, "why_no_qemu", lambda: ""), \
                mock.patch.object(cache, "kernel", lambda *_: None):
            rdma_tests.run_in_guest(tests, False)
        self.assertEqual(boots, [3, 1])
        self.assertEqual([test.result["result"] for test in tests], ["OK", "ERROR", "OK"])
        self.assertIn("a console", tests[1].result["stderr"])

    def test_a_guest_that_never_comes_up_fails_every_test(self):
        tests = self.some("a", "b")
        with mock.patch.object(machine, "run", mock.Mock(side_effect=machine.GuestFailed("the guest did not come up"))), \
                mock.patch.object(machine, "why_no_qemu", lambda: ""), mock.patch.object(cache, "kernel", lambda *_: None):
            rdma_tests.run_in_guest(tests, False)
        self.assertEqual([test.result["result"] for test in tests], ["ERROR", "ERROR"])


if __name__ == "__main__":
    unittest.main()
