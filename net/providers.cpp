#include "net/provider.hpp"
#include "net/tcp_provider.hpp"

#include <array>

namespace sluice::detail {

std::span<const provider* const> providers() noexcept {
    static const std::array<const provider*, 1> all{&net::tcp_provider()};
    return all;
}

} // namespace sluice::detail
