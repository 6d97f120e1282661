#include <sluice/config.hpp>

#include "net/provider.hpp"
#include "net/tcp_provider.hpp"
#include "runtime/runtime_impl.hpp"

#include <array>

namespace sluice::detail {

std::span<const provider* const> providers() noexcept {
#if SLUICE_HAS_RDMA
    static const std::array<const provider*, 2> all{&rdma_provider(), &net::tcp_provider()};
#else
    static const std::array<const provider*, 1> all{&net::tcp_provider()};
#endif
    return all;
}

const provider* provider_of(scheme wanted) noexcept {
    for (const provider* each : providers())
        if (each->scheme() == wanted) return each;
    return nullptr;
}

result<void> rdma_usable(const std::string& devices) {
    for (const provider* each : providers())
        if (each->scheme() == scheme::rdma) return each->available(devices);
    return error(errc::unsupported, "this build of sluice has no RDMA provider");
}

result<void> check_rdma_devices(const std::string& devices) {
    for (const provider* each : providers())
        if (each->scheme() == scheme::rdma) return each->check_devices(devices);
    return {}; // there is nothing to be chosen from: whoever asks for RDMA hears of that
}

} // namespace sluice::detail
