// Random direct reads of a file, beside a bare ring and beside fio where it is installed.
#include "benchmarks/measure.hpp"
#include "benchmarks/raw/file.hpp"
#include "benchmarks/temporary_file.hpp"

#include <sluice/file.hpp>
#include <sluice/pool.hpp>
#include <sluice/scope.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <random>
#include <unistd.h>

namespace sluice::bench {

namespace {

struct work {
    std::string path;
    std::size_t block_bytes;
    unsigned depth;
    std::vector<std::uint64_t> offsets;
};

double per_second(std::uint64_t operations, std::chrono::nanoseconds time) {
    return static_cast<double>(operations) * 1e9 / static_cast<double>(std::max<std::int64_t>(time.count(), 1));
}

/// Each takes the next offset until there is none.
task<void> read_blocks(file& from, const work& w, std::size_t& next, std::span<std::byte> block) {
    while (next < w.offsets.size()) {
        const std::uint64_t offset = w.offsets[next++];
        const auto got = co_await from.read(offset, block);
        if (!got) fail("read: " + got.error().message());
        if (*got != block.size()) fail("read: the file is shorter than it was");
    }
}

task<void> read_all(file& from, const work& w, std::span<std::byte> memory) {
    std::size_t next = 0;
    scope readers;
    for (unsigned i = 0; i < w.depth; ++i)
        readers.spawn(read_blocks(from, w, next, memory.subspan(i * w.block_bytes, w.block_bytes)));
    const auto done = co_await readers.join();
    if (!done) fail("read: " + done.error().message());
}

task<file> open_direct(std::string path) {
    auto opened = co_await file::open(path, {.direct = true});
    if (!opened) fail(opened.error().message());
    if (!opened->is_direct()) fail(path + ": no direct I/O on this file system; give --directory on another one");
    co_return std::move(*opened);
}

task<void> close_it(file& f) {
    const auto closed = co_await f.close();
    if (!closed) fail("close: " + closed.error().message());
}

/// Ours: a file, pool memory registered with the ring.
class our_reader {
public:
    explicit our_reader(const work& w) : work_(w) {
        auto pool = memory_pool::create({.size_bytes = std::size_t{4} << 20});
        if (!pool) fail(pool.error().message());
        pool_ = std::move(*pool);
        if (auto ok = home_->register_memory(pool_->registration()); !ok) fail(ok.error().message());
        auto buffer = pool_->try_allocate(w.block_bytes * w.depth);
        if (!buffer) fail(buffer.error().message());
        buffer_ = std::move(*buffer);
        file_ = sync_wait(*home_, open_direct(w.path));
    }
    ~our_reader() {
        sync_wait(*home_, close_it(file_));
        buffer_.reset();
        home_->unregister_memory(pool_->registration());
    }
    our_reader(const our_reader&) = delete;
    our_reader& operator=(const our_reader&) = delete;

    void run() {
        const std::uint64_t before = direct_bytes();
        sync_wait(*home_, read_all(file_, work_, buffer_.bytes()));
        if (direct_bytes() - before != work_.offsets.size() * work_.block_bytes)
            fail("file: bytes went another way than past the page cache");
    }

private:
    std::uint64_t direct_bytes() const { return file_.stats().read.bytes(path::file_direct); }

    const work& work_;
    std::unique_ptr<executor> home_ = make_executor();
    std::unique_ptr<memory_pool> pool_;
    pooled_buffer buffer_;
    file file_;
};

std::vector<std::uint64_t> random_offsets(std::size_t count, std::size_t file_bytes, std::size_t block_bytes) {
    std::mt19937_64 random(4711);
    std::uniform_int_distribution<std::uint64_t> block(0, file_bytes / block_bytes - 1);
    std::vector<std::uint64_t> offsets(count);
    for (std::uint64_t& o : offsets) o = block(random) * block_bytes;
    return offsets;
}

struct figures {
    double per_second;
    double cpu_ns;
};

template <class F>
figures timed(std::uint64_t operations, F&& run) {
    const auto cpu = thread_cpu_time();
    const auto start = std::chrono::steady_clock::now();
    run();
    return {per_second(operations, std::chrono::steady_clock::now() - start),
            static_cast<double>((thread_cpu_time() - cpu).count()) / static_cast<double>(operations)};
}

void run_depth(const settings& s, report& out, const temporary_file& data, unsigned depth) {
    work w{.path = data.path(), .block_bytes = s.size_bytes != 0 ? s.size_bytes : 4096, .depth = depth, .offsets = {}};
    const std::uint64_t operations = s.iterations_or(depth == 1 ? 2000 : 8000);
    w.offsets = random_offsets(operations, data.size_bytes(), w.block_bytes);
    const std::string name = fmt::format("file.read_{}_qd{}", w.block_bytes, depth);

    our_reader ours(w);
    std::vector<std::byte> raw_memory(w.block_bytes * depth + 4096);
    auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(raw_memory.data()) + 4095) & ~4095UL);
    raw::file_reader bare(data.direct_fd(), {aligned, w.block_bytes * depth}, w.block_bytes, depth);

    std::vector<double> ours_cpu;
    std::vector<double> bare_cpu;
    const auto measure = [operations](auto&& run, std::vector<double>& cpu) {
        const figures f = timed(operations, run);
        cpu.push_back(f.cpu_ns);
        return f.per_second;
    };
    const bool with_fio = s.wants_baseline() && s.with_fio && have_fio();
    const auto seen = interleave(
        s.repeat,
        {if_wanted(s.wants_ours(), [&] { return measure([&] { ours.run(); }, ours_cpu); }),
         if_wanted(s.wants_baseline(), [&] { return measure([&] { bare.run(w.offsets); }, bare_cpu); }),
         if_wanted(with_fio, [&] { return fio_reads_per_second(data, w.block_bytes, depth, operations); })});
    if (!ours_cpu.empty()) ours_cpu.erase(ours_cpu.begin()); // the warm-up
    if (!bare_cpu.empty()) bare_cpu.erase(bare_cpu.begin());

    row r = compare(name, "reads/s", seen[0], "liburing, registered file and memory", seen[1]);
    r.higher_is_better = true;
    r.target = 0.98;
    out.add(r);
    out.add(compare(name + "_cpu", "ns/op", ours_cpu, "liburing, registered file and memory", bare_cpu));
    if (!with_fio) return;
    row f = compare(name + "_fio", "reads/s", seen[0], "fio, io_uring engine", seen[2]);
    f.higher_is_better = true;
    f.target = 0.98;
    out.add(f);
}

} // namespace

void run_file(const settings& s, report& out) {
    const temporary_file data(s.directory, s.file_bytes);
    if (s.depth != 0) {
        run_depth(s, out, data, s.depth);
        return;
    }
    for (const unsigned depth : {1U, 64U}) run_depth(s, out, data, depth);
}

} // namespace sluice::bench
