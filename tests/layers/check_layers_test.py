"""The checker of layers finds what it should: one planted mistake per rule."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_layers  # noqa: E402


class IncludeRules(unittest.TestCase):
    def assert_allowed(self, folder, *includes):
        for include in includes:
            self.assertIsNone(check_layers.check_include(folder, include), f"{include} in {folder}")

    def assert_refused(self, folder, *includes):
        for include in includes:
            self.assertIsNotNone(check_layers.check_include(folder, include), f"{include} in {folder}")

    def test_public_headers_see_the_standard_library_only(self):
        self.assert_allowed("include/sluice", "<vector>", "<cstdint>", "<sluice/error.hpp>")
        self.assert_refused("include/sluice", "<liburing.h>", "<infiniband/verbs.h>", "<cuda.h>", "<sys/uio.h>",
                            "<unistd.h>", '"runtime/ring.hpp"', '"error.hpp"', "<fmt/core.h>")

    def test_native_headers_may_see_a_foreign_api(self):
        self.assert_allowed("include/sluice/native", "<liburing.h>", "<infiniband/verbs.h>")
        self.assert_refused("include/sluice/native", '"runtime/ring.hpp"', "<fmt/core.h>")

    def test_runtime_sees_liburing_and_not_the_layers_above(self):
        self.assert_allowed("runtime", "<liburing.h>", "<sys/mman.h>", "<vector>", '"runtime/ring.hpp"')
        self.assert_refused("runtime", '"net/wire.hpp"', '"rdma/verbs.hpp"', '"gpu/driver.hpp"',
                            "<infiniband/verbs.h>", "<rdma/rdma_cma.h>", "<cuda.h>", '"ring.hpp"')

    def test_net_sees_runtime_and_no_foreign_api(self):
        self.assert_allowed("net", '"runtime/ring.hpp"', '"net/wire.hpp"', "<netinet/tcp.h>")
        self.assert_refused("net", '"rdma/verbs.hpp"', '"gpu/driver.hpp"', "<infiniband/verbs.h>", "<liburing.h>")

    def test_rdma_sees_of_net_what_is_not_another_providers(self):
        self.assert_allowed("rdma", '"net/provider.hpp"', '"net/background.hpp"', "<infiniband/verbs.h>",
                            '"runtime/ring.hpp"')
        self.assert_refused("rdma", '"net/tcp_lane.hpp"', '"net/wire.hpp"', '"gpu/driver.hpp"', "<cuda.h>")

    def test_gpu_sees_neither_net_nor_rdma(self):
        self.assert_allowed("gpu", '"runtime/ring.hpp"', "<cuda.h>", '"gpu/driver.hpp"')
        self.assert_refused("gpu", '"net/provider.hpp"', '"rdma/verbs.hpp"', "<infiniband/verbs.h>")

    def test_examples_see_public_headers_only(self):
        self.assert_allowed("examples", "<sluice/sluice.hpp>", "<fmt/core.h>", '"examples/object_store/wire.hpp"')
        self.assert_refused("examples", '"runtime/ring.hpp"', "<liburing.h>")


class WholeTree(unittest.TestCase):
    def tree(self, files):
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        for name, text in files.items():
            path = Path(root.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return list(check_layers.check(Path(root.name)))

    def test_a_clean_tree_has_nothing_to_say(self):
        self.assertEqual(self.tree({
            "include/sluice/a.hpp": "#pragma once\n#include <vector>\n",
            "include/sluice/meson.build": "files('a.hpp')",
            "tests/net/a_test.cpp": "",
            "tests/meson.build": "files('net/a_test.cpp')",
        }), [])

    def test_file_and_line_of_a_forbidden_include_are_named(self):
        broken = self.tree({
            "runtime/meson.build": "files('a.cpp')",
            "runtime/a.cpp": '#include <vector>\n  #  include "net/wire.hpp"\n',
        })
        self.assertEqual(len(broken), 1)
        self.assertTrue(broken[0].startswith('runtime/a.cpp:2: includes "net/wire.hpp"'), broken)

    def test_a_source_outside_the_build_is_found(self):
        broken = self.tree({"tests/net/meson.build": "files('a_test.cpp')", "tests/net/b_test.cpp": ""})
        self.assertEqual(broken, ["tests/net/b_test.cpp:1: is named in no meson.build: "
                                  "it would be neither compiled nor tested"])

    def test_a_header_without_a_guard_is_found(self):
        broken = self.tree({"net/a.hpp": "struct a;\n"})
        self.assertEqual(broken, ["net/a.hpp:1: has no #pragma once"])


if __name__ == "__main__":
    unittest.main()
