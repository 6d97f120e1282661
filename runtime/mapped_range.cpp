#include "runtime/mapped_range.hpp"
#include "runtime/log.hpp"

#include <sluice/contract.hpp>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/mman.h>

namespace sluice::detail {

namespace {

constexpr int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr int two_mebibyte_pages = MAP_HUGETLB | (21 << MAP_HUGE_SHIFT); // 2^21, whatever the default size is

/// Pages of the file in sysfs, or -1 where the kernel has no such pages.
long huge_pages_free() {
    std::ifstream file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    long count = -1;
    file >> count;
    return file ? count : -1;
}

/// "1024 huge pages of 2 MiB needed, 0 free; reserve them with sysctl vm.nr_hugepages=1024"
std::string huge_page_shortage(std::size_t size_bytes) {
    const std::string needed = std::to_string(size_bytes / huge_page_bytes);
    const long free = huge_pages_free();
    return needed + " huge pages of 2 MiB needed, " + (free < 0 ? "none supported here" : std::to_string(free) + " free") +
           "; reserve them with sysctl vm.nr_hugepages=" + needed;
}

std::byte* map_huge(std::size_t size_bytes) noexcept {
    void* const at = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, anonymous | two_mebibyte_pages, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    // A control group's limit on huge pages would otherwise show as SIGBUS at the first touch.
    if (madvise(at, size_bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
        const int reason = errno;
        munmap(at, size_bytes);
        errno = reason;
        return nullptr;
    }
    return static_cast<std::byte*>(at);
}

/// Small pages, yet aligned to 2 MiB so that the kernel can put huge ones beneath.
std::byte* map_small(std::size_t size_bytes) noexcept {
    const std::size_t room = size_bytes + huge_page_bytes;
    void* const at = mmap(nullptr, room, PROT_READ | PROT_WRITE, anonymous, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    auto* const start = static_cast<std::byte*>(at);
    const std::size_t before = (huge_page_bytes - reinterpret_cast<std::uintptr_t>(start) % huge_page_bytes) % huge_page_bytes;
    if (before != 0) munmap(start, before);
    munmap(start + before + size_bytes, huge_page_bytes - before);
    return start + before;
}

} // namespace

result<mapped_range> mapped_range::map(std::size_t size_bytes, mode huge_pages) {
    SLUICE_EXPECTS(size_bytes > 0 && size_bytes % huge_page_bytes == 0, "mapped range: a multiple of 2 MiB");
    std::byte* at = huge_pages == mode::off ? nullptr : map_huge(size_bytes);
    const bool huge = at != nullptr;
    if (!huge && huge_pages == mode::require)
        return error(make_error_code(errc::out_of_resources), huge_page_shortage(size_bytes));
    if (!huge) at = map_small(size_bytes);
    if (at == nullptr)
        return error(make_error_code(errc::out_of_resources), "mmap of " + std::to_string(size_bytes) + " bytes: " +
                                                                  std::strerror(errno) + "; make it smaller");
    mapped_range range(at, size_bytes, huge);
    if (huge_pages == mode::off) static_cast<void>(madvise(at, size_bytes, MADV_NOHUGEPAGE));
    if (huge_pages == mode::automatic && !huge) {
        const bool transparent = madvise(at, size_bytes, MADV_HUGEPAGE) == 0;
        SLUICE_LOG(info, "memory pool: ", huge_page_shortage(size_bytes), "; using 4 KiB pages",
                   transparent ? " and asking for transparent huge ones" : "");
    }
    if (madvise(at, size_bytes, MADV_DONTFORK) != 0) return error::from_errno(errno, "madvise(MADV_DONTFORK)");
    return range;
}

mapped_range::~mapped_range() {
    if (data_ != nullptr) munmap(data_, size_bytes_);
}

} // namespace sluice::detail
