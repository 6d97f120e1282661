#include "tests/conformance/fake_rdma.hpp"

#include "rdma/device.hpp"
#include "tests/conformance/provider.hpp"

namespace sluice::conformance {

fake_rdma::fake_rdma(const provider& p) {
    world_.add_device(p.iwarp ? testing::soft_iwarp() : testing::fake_device_options());
    world_.automatic(true);
}

fake_rdma::~fake_rdma() { rdma::device::close_all(); }

} // namespace sluice::conformance
