#pragma once

#include "benchmarks/bench.hpp"

#include <sluice/connection.hpp>
#include <sluice/runtime.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <thread>
#include <utility>

/// Both ends of a connection of ours under load, whichever provider carries it.
namespace sluice::bench {

enum class direction { read, write };

/// What one run does.
struct work {
    std::size_t size_bytes;
    unsigned depth;
    std::uint64_t operations; ///< a multiple of depth
};

/// One run, as the thread that drove it saw it.
struct run_figures {
    std::chrono::nanoseconds wall{0};
    std::chrono::nanoseconds cpu{0};
    std::uint64_t allocations = 0;
};

/// The value, or the end of the program with the error.
template <class T>
T must(result<T> r, const char* what) {
    if (!r) fail(fmt::format("{}: {}", what, r.error().message()));
    if constexpr (!std::is_void_v<T>) return std::move(*r);
}

/// "64B", "4KiB", "1MiB"
std::string text_of_size(std::size_t bytes);

/// Starts counting when it is made; on the measured thread.
class stopwatch {
public:
    run_figures read() const noexcept {
        return {.wall = std::chrono::steady_clock::now() - wall_,
                .cpu = thread_cpu_time() - cpu_,
                .allocations = bench::allocations() - allocations_};
    }

private:
    std::chrono::steady_clock::time_point wall_ = std::chrono::steady_clock::now();
    std::chrono::nanoseconds cpu_ = thread_cpu_time();
    std::uint64_t allocations_ = bench::allocations();
};

/// The other side: shares memory with one client, says where, and waits until it has gone. Runs on an executor of `rt`.
class sharing_server {
public:
    sharing_server(runtime& rt, std::uint32_t executor_index, std::string listen_on, std::size_t memory_bytes);
    ~sharing_server() { thread_.join(); }
    sharing_server(const sharing_server&) = delete;
    sharing_server& operator=(const sharing_server&) = delete;
    std::string address() const { return listener_.address().to_string(); }

private:
    static task<listener> start(runtime& rt, std::string on);
    static task<void> serve(sharing_server& self);

    runtime& runtime_;
    std::size_t memory_bytes_;
    listener listener_;
    std::thread thread_;
};

/// What `depth` tasks work on, each with a block of its own, one operation after another.
struct one_sided_blocks {
    connection& over;
    region_view here;
    const remote_region& there;
    std::size_t size_bytes;
};
task<void> one_sided(one_sided_blocks on, direction way, unsigned depth, std::uint64_t operations);

/// A connection to a sharing_server with `depth` blocks of memory at both ends, on executor 0 of `rt`.
class one_sided_client {
public:
    one_sided_client(runtime& rt, const work& w, std::string to);
    ~one_sided_client();
    one_sided_client(const one_sided_client&) = delete;
    one_sided_client& operator=(const one_sided_client&) = delete;

    /// `depth` tasks, each one operation after another. Ends the program unless the counters of `carried` tell that
    /// exactly these bytes went that way.
    run_figures run(direction way, path carried, std::uint64_t operations);

private:
    static task<void> connect(one_sided_client& self, std::string to);
    static task<void> leave(one_sided_client& self);
    static task<run_figures> run_all(one_sided_client& self, direction way, path carried, std::uint64_t operations);

    runtime& runtime_;
    work work_;
    connection connection_;
    remote_region remote_;
    pooled_buffer memory_;
};

} // namespace sluice::bench
