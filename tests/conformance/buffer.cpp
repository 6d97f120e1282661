#include "tests/conformance/buffer.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

namespace sluice::conformance {

namespace {

[[noreturn]] void fail(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

std::byte* map(void* where, std::size_t size_bytes, int flags, int fd) {
    void* memory = mmap(where, size_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) fail("mmap");
    return static_cast<std::byte*>(memory);
}

std::uint64_t mixed(std::uint64_t x) noexcept { // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

} // namespace

buffer::mapping::~mapping() {
    if (data != nullptr) munmap(data, size_bytes);
}

buffer::buffer(std::size_t size_bytes) {
    const std::size_t mapped = std::max<std::size_t>(size_bytes, 1);
    memory_ = {map(nullptr, mapped, MAP_PRIVATE | MAP_ANONYMOUS, -1), mapped};
    region_ = must(memory_region::create({data(), mapped}));
}

buffer buffer::repeated(std::size_t size_bytes, std::size_t period_bytes) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t mapped = (size_bytes + page - 1) / page * page;
    const int fd = memfd_create("sluice-conformance", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(period_bytes)) != 0) fail("memfd");
    buffer made;
    made.memory_ = {map(nullptr, mapped, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1), mapped};
    for (std::size_t at = 0; at < mapped; at += period_bytes)
        map(made.data() + at, std::min(period_bytes, mapped - at), MAP_SHARED | MAP_FIXED, fd);
    close(fd);
    made.region_ = must(memory_region::create({made.data(), size_bytes}));
    return made;
}

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
        const std::uint64_t word = mixed(seed ^ at);
        std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
    }
}

void fill_with(std::span<std::byte> bytes, std::byte value) {
    if (!bytes.empty()) std::memset(bytes.data(), std::to_integer<int>(value), bytes.size());
}

std::size_t first_difference(std::span<const std::byte> bytes, std::uint64_t seed) {
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
        const std::uint64_t word = mixed(seed ^ at);
        const std::size_t n = std::min<std::size_t>(8, bytes.size() - at);
        if (std::memcmp(bytes.data() + at, &word, n) == 0) continue;
        const auto* expected = reinterpret_cast<const std::byte*>(&word);
        return at + static_cast<std::size_t>(std::mismatch(expected, expected + n, bytes.data() + at).first - expected);
    }
    return bytes.size();
}

std::size_t first_other(std::span<const std::byte> bytes, std::byte value) {
    // Each byte equal to the one before it; the library's loops take seconds without optimisation.
    if (bytes.empty()) return 0;
    if (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0) return bytes.size();
    return static_cast<std::size_t>(
        std::find_if(bytes.begin(), bytes.end(), [value](std::byte b) { return b != value; }) - bytes.begin());
}

} // namespace sluice::conformance
