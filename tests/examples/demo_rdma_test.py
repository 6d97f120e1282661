"""The demo over RDMA moves what its objects have, all of it by RDMA: DEMO_RDMA_TEST PROGRAM."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PATIENCE_S = 280
program = sys.argv.pop(1)
address = os.environ.get("SLUICE_TEST_RDMA_IPV4")


@unittest.skipUnless(address and os.path.isdir("/sys/class/infiniband"), "no RDMA device, or no SLUICE_TEST_RDMA_IPV4")
class DemoOverRdma(unittest.TestCase):
    def test_the_rdma_counter_is_what_was_moved(self):
        with tempfile.TemporaryDirectory() as scratch:
            done = subprocess.run([program, "--listen", address, "--directory", scratch, "--files", "40", "--big", "16M",
                                   "--json"], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        facts, last = done.stdout.splitlines()[-2:]
        phases = json.loads(facts)["phases"]
        self.assertEqual([(p["phase"], p["objects"]) for p in phases],
                         [("put files", 40), ("put big", 1), ("get files", 40), ("get big", 1)])
        self.assertEqual(phases[1]["bytes"], 16 << 20)
        for phase in phases:
            self.assertEqual((phase["tcp_bytes"], phase["rdma_bytes"]), (0, phase["bytes"]))
        self.assertEqual(last, f"demo: 41 objects, {phases[0]['bytes'] + phases[1]['bytes']} bytes, all verified")


if __name__ == "__main__":
    unittest.main()
