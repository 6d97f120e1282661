// What a user's first program needs: the version, an error, a result, and a symbol from the shared library.
#include <sluice/config.hpp>
#include <sluice/result.hpp>

#include <cstdio>

namespace {

sluice::result<int> parse_lanes(int lanes) {
    if (lanes < 1) return sluice::error(sluice::errc::invalid_argument, "lanes: 0; allowed are 1 to 64");
    return lanes;
}

} // namespace

int main() {
    const auto refused = parse_lanes(0);
    const auto taken = parse_lanes(4);
    if (refused || refused.error() != sluice::condition::invalid || !taken || *taken != 4) return 1;
    std::printf("sluice %s: %s\n", SLUICE_VERSION_STRING, refused.error().message().c_str());
    return SLUICE_VERSION_AT_LEAST(0, 1, 0) ? 0 : 1;
}
