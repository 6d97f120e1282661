#!/usr/bin/env python3
"""Runs the tests of a build that need RDMA, where RDMA exists: on this host if it has a device, else in the guest.

usage: rdma_tests.py BUILD --log TESTLOG.json [--multiplier N]

They are the tests that the build marks with the suite "rdma", or "rdma-two-hosts" for those that need a second host: one
boot for each of the two. The log has the form of Meson's, so that count_tests.py counts both alike. Where there is
neither a device nor a guest, each is logged as skipped, with the reason. The exit status is 0 if the log was written.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from rdma_guest import cache, host, machine, settings  # noqa: E402

SKIPPED, ERROR, TIMED_OUT = 77, 99, 124   # 77 and 99 are Meson's words, 124 that of timeout(1)
BOOT_SECONDS = 300


class Test:
    """One test of the build, as "meson introspect --tests" describes it, and later its result."""

    def __init__(self, entry, multiplier):
        self.name = entry["name"]
        self.words = entry["cmd"]
        self.environment = entry["env"]
        self.folder = entry["workdir"] or None
        self.seconds = int(entry["timeout"] * multiplier) if entry["timeout"] > 0 else 3600
        self.priority = entry["priority"]
        self.suites = {suite.split(":")[-1] for suite in entry["suite"]}
        self.tool = ["tools/rdma-guest", *(["--two-hosts"] if "rdma-two-hosts" in self.suites else [])]
        self.result = None

    def ended(self, status, stdout, stderr, duration):
        words = {0: "OK", SKIPPED: "SKIP", ERROR: "ERROR", TIMED_OUT: "TIMEOUT"}
        variables = [word for name, value in self.environment.items() for word in ("--env", f"{name}={value}")]
        self.result = {"name": self.name, "result": words.get(status, "FAIL"), "returncode": status, "duration": duration,
                       "command": [*self.tool, *variables, *self.words], "stdout": stdout, "stderr": stderr}


def read_tests(build, multiplier):
    shown = subprocess.run(["meson", "introspect", "--tests", build], stdout=subprocess.PIPE, check=True, timeout=60)
    tests = [Test(entry, multiplier) for entry in json.loads(shown.stdout)]
    return sorted(tests, key=lambda test: -test.priority)  # as Meson itself does


def run_on_host(tests):
    environment = {**settings.passed_on(), **host.environment()}
    addresses = host.test_addresses(environment)
    for test in tests:
        start = time.monotonic()
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            settled = [f"{name}={value}" for name, value in {**environment, **test.environment, **addresses}.items()]
            status = subprocess.run(["timeout", "--kill-after=5", str(test.seconds), "env", *settled, *test.words],
                                    cwd=test.folder, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                    check=False).returncode
            texts = []
            for file in (stdout, stderr):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        test.ended(status if status >= 0 else 128 - status, *texts, time.monotonic() - start)


class Times:
    """When each program started and ended, from the events of the guest."""

    def __init__(self):
        self.started, self.durations = {}, {}

    def __call__(self, word, rest):
        if word == "start":
            self.started[int(rest)] = time.monotonic()
        elif word == "end":
            number = int(rest.split()[0])
            self.durations[number] = time.monotonic() - self.started[number]


def boot_once(kernel, tests, wanted):
    """Runs tests in one boot, in order, as far as it gets."""
    programs = [machine.Program(t.words, t.folder, t.environment, t.seconds, capture=True) for t in tests]
    times, trouble, console = Times(), None, ""
    with tempfile.TemporaryDirectory(prefix="rdma-tests.") as folder:
        try:
            ended = machine.run(kernel, programs, wanted=wanted, environment=settings.passed_on(), out=folder,
                                seconds=BOOT_SECONDS + sum(t.seconds for t in tests), memory=settings.MEMORY_MIB,
                                cpus=settings.cpus(), stdout=sys.stdout.buffer, stderr=sys.stderr.buffer, on_event=times)
        except machine.GuestFailed as failure:
            ended, trouble, console = failure.ended, str(failure), failure.console
        for number, test in enumerate(tests):
            texts = [file.read_text(errors="replace") if file.exists() else "" for file in
                     (Path(folder) / f"{number}.stdout", Path(folder) / f"{number}.stderr")]
            if number in ended:
                test.ended(ended[number], *texts, times.durations.get(number, 0))
            elif trouble and number in times.started:
                test.ended(ERROR, texts[0], f"{texts[1]}\n{console}\nrdma-guest: {trouble}", 0)
    if trouble and not times.started:
        for test in tests:
            test.ended(ERROR, "", f"{console}\nrdma-guest: {trouble}", 0)


def run_in_guest(tests, two_hosts):
    if reason := machine.why_no_qemu():
        raise cache.NoGuest(reason)
    kernel = cache.kernel(settings.cache_folder(), settings.kernel_name(two_hosts))
    # A test that breaks the guest costs its own result and no other's: each boot takes off one test at least.
    while left := [test for test in tests if not test.result]:
        boot_once(kernel, left, "rxe siw two-hosts" if two_hosts else "rxe siw")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--log", required=True)
    parser.add_argument("--multiplier", type=float, default=4, help="of the tests' own time limits (default: 4)")
    options = parser.parse_args(arguments)
    tests = read_tests(options.build, options.multiplier)
    groups = [([t for t in tests if "rdma" in t.suites], False), ([t for t in tests if "rdma-two-hosts" in t.suites], True)]
    for group, two_hosts in groups:
        if group and host.devices() and not two_hosts:
            run_on_host(group)
        elif group:
            try:
                run_in_guest(group, two_hosts)
            except cache.NoGuest as reason:
                print(f"rdma: skipped: no RDMA device here, and no guest: {reason}", flush=True)
                for test in group:
                    test.ended(SKIPPED, "", f"no RDMA device here, and no guest: {reason}\n", 0)
    results = [test.result for group, _ in groups for test in group]
    if results:
        Path(options.log).write_text("".join(json.dumps(result) + "\n" for result in results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
