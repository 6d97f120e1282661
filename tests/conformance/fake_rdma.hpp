#pragma once

#include "tests/rdma/fake_verbs.hpp"

namespace sluice::conformance {

struct provider;

/// The world of a test case over fake devices: one device that executes what is posted at once. At the end nothing may
/// be left of what the test made.
class fake_rdma {
public:
    explicit fake_rdma(const provider& p);
    ~fake_rdma();
    fake_rdma(const fake_rdma&) = delete;
    fake_rdma& operator=(const fake_rdma&) = delete;

private:
    testing::fake_verbs world_;
};

} // namespace sluice::conformance
