#pragma once

#include "benchmarks/report.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sluice::bench {

/// What the command line asks for. 0 means: what the subcommand finds right.
struct settings {
    std::uint64_t iterations = 0;  ///< operations per run
    unsigned repeat = 25;          ///< runs of each contender, interleaved
    std::size_t size_bytes = 0;    ///< of one operation
    unsigned depth = 0;            ///< operations in flight
    unsigned connections = 0;
    std::string directory = ".";   ///< where the temporary file of `file` goes
    std::size_t file_bytes = std::size_t{256} << 20;
    bool with_fio = true;          ///< beside `file`, where fio is installed
    std::string address;           ///< rdma:// address of a device here; empty: the first one that is found
    std::string wait = "all";      ///< of rdma-*: all, poll or event
    std::string engine = "all";    ///< contenders to run: all, ours or baseline; one alone is for profilers
    bool json = false;

    std::uint64_t iterations_or(std::uint64_t otherwise) const noexcept { return iterations != 0 ? iterations : otherwise; }
    bool wants_ours() const noexcept { return engine != "baseline"; }
    bool wants_baseline() const noexcept { return engine != "ours"; }
};

/// CPU time of the calling thread, user and system: what a noisy neighbour disturbs least.
std::chrono::nanoseconds thread_cpu_time() noexcept;

/// One way to do the work; a call is one run and gives its figure.
using contender = std::function<double()>;

/// Runs each contender once to warm up and then `repeat` times, taking turns so that a disturbance meets all of them,
/// and starting each round with another one. Figures by contender, in order of the rounds; empty for null contenders.
std::vector<std::vector<double>> interleave(unsigned repeat, const std::vector<contender>& contenders);

/// Both sides of one comparison and what they mean.
row compare(std::string name, std::string unit, const std::vector<double>& ours, std::string baseline_name,
            const std::vector<double>& baseline);

double median(std::vector<double> values);

/// Stops the program with a message: for whatever the world refuses (no io_uring, no space).
[[noreturn]] void fail(const std::string& why);

/// Calls of operator new by this thread so far.
std::uint64_t allocations() noexcept;

void run_switch(const settings& s, report& out);
void run_spawn(const settings& s, report& out);
void run_nop(const settings& s, report& out);
void run_file(const settings& s, report& out);
void run_echo(const settings& s, report& out);
void run_read(const settings& s, report& out);
void run_write(const settings& s, report& out);
void run_zero_copy(const settings& s, report& out);
///@{
/// Only where the feature `rdma` is on.
void run_rdma_read(const settings& s, report& out);
void run_rdma_write(const settings& s, report& out);
void run_rdma_send(const settings& s, report& out);
/// Without a device.
void run_rdma_post(const settings& s, report& out);
///@}

} // namespace sluice::bench
