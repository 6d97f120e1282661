#pragma once

#include "rdma/rail.hpp"
#include "rdma/rail_core.hpp"

#include <memory>

namespace sluice::rdma {

struct rail::impl {
    std::unique_ptr<rail_core> core;
};

} // namespace sluice::rdma
