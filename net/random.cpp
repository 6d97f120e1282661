#include "net/random.hpp"

#include <sluice/contract.hpp>

#include <cerrno>
#include <sys/random.h>

namespace sluice::net {

std::uint64_t random_number() noexcept {
    std::uint64_t number = 0;
    ssize_t got = 0;
    do got = getrandom(&number, sizeof number, 0);
    while (got < 0 && errno == EINTR);
    SLUICE_EXPECTS(got == static_cast<ssize_t>(sizeof number), "getrandom: the kernel gave no random bytes");
    return number;
}

} // namespace sluice::net
