"""Boots the guest of tools/rdma-guest and looks at what it promises: docs/rdma-guest.md."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))
from rdma_guest import cache, machine, settings  # noqa: E402

# ping SERVER_DEVICE ADDRESS COUNT SIZE: rping from host 1, which prints each ping that came back whole.
PING = """
ping() {
    local tries server
    rdma-guest-net on "$1" timeout 60 rping -s -a "$2" -C "$3" -S "$4" >/dev/null 2>&1 &
    server=$!
    for ((tries = 0; tries < 200; tries++)); do
        if rdma resource show cm_id | grep -q "LISTEN.*src-addr ${2%\\%*}:"; then break; fi
    done
    echo "$1 $2: $(timeout 60 rping -c -v -V -a "$2" -C "$3" -S "$4" 2>/dev/null | grep -a -c '^ping data') pings"
    kill $server 2>/dev/null
    wait $server 2>/dev/null
}
"""


class Guest(unittest.TestCase):
    maxDiff = None

    def kernel(self, two_hosts=False):
        if reason := machine.why_no_qemu():
            self.skipTest(reason)
        try:
            return cache.kernel(settings.cache_folder(), settings.kernel_name(two_hosts))
        except cache.NoGuest as reason:
            self.skipTest(str(reason))

    def run_scripts(self, kernel, wanted, *scripts):
        """[(status, lines of standard output)] of each, from one boot."""
        programs = [machine.Program(["bash", "-c", script], folder="/", seconds=240, capture=True) for script in scripts]
        with tempfile.TemporaryDirectory() as out:
            ended = machine.run(kernel, programs, wanted=wanted, out=out, seconds=600, stdout=sys.stdout.buffer,
                                stderr=sys.stderr.buffer)
            return [(ended[n], (Path(out) / f"{n}.stdout").read_text().splitlines()) for n in range(len(programs))]

    def run_tool(self, *words):
        return subprocess.run([ROOT / "tools/rdma-guest", "--guest", *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=600, check=False)

    def test_output_is_whole_and_the_status_is_the_programs(self):
        self.kernel()
        lines = "".join(f"line {n}\n" for n in range(100000))   # more than 1 MiB
        with tempfile.TemporaryDirectory() as out:
            done = self.run_tool("--env", "WORD=two words", "--out", out, "bash", "-c",
                                 'printf "line %d\\n" {0..99999}; echo "$WORD" >/dev/stderr; echo kept >$OUT/file; exit 3',
                                 "--and", "true")
            self.assertEqual((done.returncode, done.stderr.splitlines()[-1]), (3, b"two words"))   # a boot may be repeated
            self.assertTrue(done.stdout == lines.encode(), f"{len(done.stdout)} bytes, {done.stdout[-20:]}")
            self.assertEqual((Path(out) / "file").read_text(), "kept\n")

    def test_one_host(self):
        results = self.run_scripts(
            self.kernel(), "rxe siw",
            "exit 0", "exit 3", "kill -SEGV $$",
            "sleep 1000 & disown; exit 0",
            "pgrep -x sleep; exit 0",
            'echo "$SLUICE_RDMA_DEVICES|$SLUICE_RDMA_TWO_HOSTS"',
            """for device in $SLUICE_RDMA_DEVICES; do
                 echo "$device $(cat /sys/class/net/net-$device/mtu)" \
                   $(ip -br address show dev net-$device | cut -d' ' -f2- | tr ' ' '\\n' | grep / | sed 's,/.*,,')
               done""",
            "for device in rxe0 rxe1; do ibv_devinfo -d $device | awk '/active_mtu/ { print $2 }'; done",
            PING + """for entry in $SLUICE_RDMA_ADDRESSES; do
                 for address in $(tr , ' ' <<<"${entry#*=}"); do ping "${entry%%=*}" "$address" 10 4000; done
               done""")
        self.assertEqual([status for status, _ in results], [0, 3, 139, 0, 0, 0, 0, 0, 0])
        self.assertEqual(results[4][1], [], "a process outlived its program")
        devices = results[5][1][0].split("|")[0].split()
        self.assertIn(devices, (["rxe0", "rxe1", "siw0", "siw1"], ["rxe0", "rxe1"]))
        mtus = {"rxe0": 1500, "rxe1": 4200, "siw0": 1500, "siw1": 4200}
        nets = {device: n for n, device in enumerate(mtus, 1)}
        addresses = {d: [f"10.9.{nets[d]}.1", f"fd09:{nets[d]}::1", f"fe80::9:ff:fe00:{nets[d]}01"] for d in devices}
        self.assertEqual(results[6][1], [f"{d} {mtus[d]} {' '.join(addresses[d])}" for d in devices])
        self.assertEqual(results[7][1], ["1024", "4096"])
        self.assertEqual(results[8][1], [f"{d} {a}{'%net-' + d if a.startswith('fe80') else ''}: 10 pings"
                                         for d in devices for a in addresses[d]])

    def test_two_hosts(self):
        results = self.run_scripts(
            self.kernel(two_hosts=True), "rxe siw two-hosts",
            'echo "${SLUICE_RDMA_TWO_HOSTS_WHY_NOT:-crosses}"',
            PING + """ping rxe3 10.9.5.2 20 64; ping rxe3 fd09:5::2 20 20000; ping rxe5 10.9.6.2 20 20000
               rdma-guest-net shape rxe2 loss 10%
               ping rxe3 10.9.5.2 20 4000 # each loss costs a second or more, and ping has a minute
               read -r _ dropped <<<"$(rdma-guest-net counts rxe2)"; [ "$dropped" -gt 0 ] && echo dropped
               rdma-guest-net clear rxe2""",
            """state() { cut -d' ' -f2 /sys/class/infiniband/rxe2/ports/1/state; }
               state; rdma-guest-net down rxe2; state; rdma-guest-net up rxe2; state""",
            "rdma-guest-net on rxe3 ip -br address show dev net-rxe3 | grep -o 10.9.5.2")
        if results[0][1] != ["crosses"]:
            self.skipTest(results[0][1][0])
        self.assertEqual(results[1][1], ["rxe3 10.9.5.2: 20 pings", "rxe3 fd09:5::2: 20 pings", "rxe5 10.9.6.2: 20 pings",
                                         "rxe3 10.9.5.2: 20 pings", "dropped"])
        self.assertEqual(results[2][1], ["ACTIVE", "DOWN", "ACTIVE"])
        self.assertEqual(results[3][1], ["10.9.5.2"])

    def test_a_guest_that_breaks_down_is_an_error_with_its_last_words(self):
        self.kernel()
        done = self.run_tool("bash", "-c", "echo before; echo c >/proc/sysrq-trigger")
        self.assertEqual(done.returncode, 125)
        self.assertEqual(done.stdout, b"before\n")
        self.assertRegex(done.stderr.splitlines()[-1],
                         rb"^rdma-guest: the guest broke down: Kernel panic .*sysrq triggered crash \(Linux ")
        self.assertGreater(len(done.stderr.splitlines()), 5)

    def test_it_ends_at_its_time_limit(self):
        self.kernel()
        done = self.run_tool("--timeout", "0.3", "sleep", "1000")
        self.assertEqual(done.returncode, 124)
        self.assertEqual(done.stderr.splitlines()[-1][:29], b"rdma-guest: stopped after 18 ")


if __name__ == "__main__":
    unittest.main()
