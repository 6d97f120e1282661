#include "benchmarks/temporary_file.hpp"

#include "benchmarks/bench.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <unistd.h>
#include <vector>

namespace sluice::bench {

temporary_file::temporary_file(const std::string& directory, std::size_t size_bytes)
    : path_(directory + "/sluice-bench.XXXXXX"), size_bytes_(size_bytes) {
    const int fd = mkstemp(path_.data());
    if (fd < 0) fail(fmt::format("{}: {}; give --directory", path_, std::strerror(errno)));
    std::vector<std::uint64_t> block(std::size_t{1} << 17);
    std::mt19937_64 random(1);
    for (std::size_t written = 0; written < size_bytes;) {
        for (std::uint64_t& word : block) word = random();
        const ssize_t n = write(fd, block.data(), std::min(block.size() * sizeof block[0], size_bytes - written));
        if (n < 0) {
            const int why = errno;
            unlink(path_.c_str());
            fail(fmt::format("{}: {}; {} bytes are needed, see --file-size", path_, std::strerror(why), size_bytes));
        }
        written += static_cast<std::size_t>(n);
    }
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    direct_fd_ = open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (direct_fd_ < 0) {
        const int why = errno;
        unlink(path_.c_str());
        fail(fmt::format("{}: open with O_DIRECT: {}; give --directory on another file system", path_, std::strerror(why)));
    }
}

temporary_file::~temporary_file() {
    close(direct_fd_);
    unlink(path_.c_str());
}

bool have_fio() { return std::system("command -v fio >/dev/null 2>&1") == 0; }

double fio_reads_per_second(const temporary_file& file, std::size_t block_bytes, unsigned depth, std::uint64_t reads) {
    const std::string command = fmt::format(
        "fio --name=reads --filename='{}' --ioengine=io_uring --direct=1 --rw=randread --bs={} --iodepth={} "
        "--number_ios={} --size={} --fixedbufs=1 --registerfiles=1 --thread --output-format=json 2>/dev/null",
        file.path(), block_bytes, depth, reads, file.size_bytes());
    const auto closes = [](FILE* f) { pclose(f); };
    const std::unique_ptr<FILE, decltype(closes)> pipe(popen(command.c_str(), "r"), closes);
    if (!pipe) fail(fmt::format("fio: {}", std::strerror(errno)));
    std::string text;
    std::vector<char> part(1 << 16);
    for (std::size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe.get())) > 0;) text.append(part.data(), n);
    const auto answer = nlohmann::json::parse(text, nullptr, false);
    if (answer.is_discarded()) fail("fio: its answer is no JSON: " + text.substr(0, 200));
    return answer.at("jobs").at(0).at("read").at("iops").get<double>();
}

} // namespace sluice::bench
