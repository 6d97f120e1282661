#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice::bench {

/// A file of random bytes, on disk and out of the page cache; removed when it goes.
class temporary_file {
public:
    temporary_file(const std::string& directory, std::size_t size_bytes);
    ~temporary_file();
    temporary_file(const temporary_file&) = delete;
    temporary_file& operator=(const temporary_file&) = delete;

    const std::string& path() const noexcept { return path_; }
    std::size_t size_bytes() const noexcept { return size_bytes_; }
    /// Open for reading with O_DIRECT.
    int direct_fd() const noexcept { return direct_fd_; }

private:
    std::string path_;
    std::size_t size_bytes_;
    int direct_fd_ = -1;
};

/// Whether fio can be run.
bool have_fio();

/// Random direct reads by fio with its io_uring engine, registered file and memory, on the same file.
double fio_reads_per_second(const temporary_file& file, std::size_t block_bytes, unsigned depth, std::uint64_t reads);

} // namespace sluice::bench
