#pragma once

#include <sluice/result.hpp>

#include <filesystem>

namespace sluice::rdma {

/// rdma_available() of rdma_provider.hpp with another folder for "/". Errors: errc::unsupported when there is no
/// device, or none with an active port; ENOENT, EACCES, EPERM for the device nodes; each with the remedy.
result<void> rdma_available_in(const std::filesystem::path& root);

} // namespace sluice::rdma
