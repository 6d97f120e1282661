#include "examples/object_store/report.hpp"

#include "examples/object_store/commands.hpp"
#include "examples/object_store/printable.hpp"
#include "examples/object_store/progress_bar.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <ctime>

namespace store {

namespace {

using nlohmann::json;

/// Keys are bytes; what is not UTF-8 is replaced rather than refused.
void print_json(const json& object) {
    fmt::print("{}\n", object.dump(-1, ' ', false, json::error_handler_t::replace));
    std::fflush(stdout);
}

std::string local_time(std::uint64_t ns) {
    constexpr std::uint64_t ns_per_s = 1'000'000'000;
    return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(ns / ns_per_s)));
}

json facts(const object_info& object) {
    return {{"key", object.key},
            {"size_bytes", object.size_bytes},
            {"modified_ns", object.modified_ns},
            {"crc32c", fmt::format("{:08x}", object.crc32c)}};
}

} // namespace

void report_transfer(const settings& s, const object_info& object, std::string_view file, double seconds,
                     sluice::path by) {
    const char* verb = s.what == command::put ? "put" : "get";
    if (s.json) {
        json line = facts(object);
        line["operation"] = verb;
        line["file"] = file;
        line["seconds"] = seconds;
        line["path"] = sluice::to_string(by);
        print_json(line);
    } else if (!s.quiet) {
        const double bytes = static_cast<double>(object.size_bytes);
        fmt::print("{} {}: {} in {:.3f} s, {}/s, crc32c {:08x}\n", verb, printable(object.key), human_bytes(bytes), seconds,
                   human_bytes(seconds > 0 ? bytes / seconds : 0), object.crc32c);
    }
}

void report_listed(const settings& s, const object_info& object) {
    if (s.json)
        print_json({{"key", object.key}, {"size_bytes", object.size_bytes}, {"modified_ns", object.modified_ns}});
    else fmt::print("{:>14}  {}  {}\n", object.size_bytes, local_time(object.modified_ns), printable(object.key));
}

void report_object(const settings& s, const object_info& object) {
    if (s.json) print_json(facts(object));
    else
        fmt::print("{}: {} bytes, put {}, crc32c {:08x}\n", printable(object.key), object.size_bytes,
                   local_time(object.modified_ns), object.crc32c);
}

void report_removed(const settings& s, std::string_view key) {
    if (s.json) print_json({{"operation", "rm"}, {"key", key}});
    else if (!s.quiet) fmt::print("removed {}\n", printable(key));
}

void report_server(const settings& s, const server_stats& n) {
    if (s.json)
        print_json({{"clients", n.clients}, {"clients_total", n.clients_total}, {"puts", n.puts}, {"gets", n.gets},
                    {"failures", n.failures}, {"tcp_bytes", n.tcp_bytes}, {"rdma_bytes", n.rdma_bytes},
                    {"file_direct_bytes", n.file_direct_bytes},
                    {"file_buffered_bytes", n.file_buffered_bytes}, {"pool_bytes", n.pool_bytes},
                    {"pool_peak_bytes", n.pool_peak_bytes}, {"pool_waits", n.pool_waits}});
    else
        fmt::print("{} clients now, {} since it started; {} puts, {} gets, {} failures\n"
                   "bytes: tcp {}, rdma {}, file-direct {}, file-buffered {}\n"
                   "pool: {}, at most {} used, {} waits\n",
                   n.clients, n.clients_total, n.puts, n.gets, n.failures, n.tcp_bytes, n.rdma_bytes, n.file_direct_bytes,
                   n.file_buffered_bytes, human_bytes(static_cast<double>(n.pool_bytes)),
                   human_bytes(static_cast<double>(n.pool_peak_bytes)), n.pool_waits);
}

void report_listening(const settings& s, std::string_view address) {
    if (s.json) print_json({{"event", "listening"}, {"address", address}, {"directory", s.directory}});
    else if (!s.quiet) fmt::print("serving {} at {}\n", printable(s.directory), printable(address));
    std::fflush(stdout);
}

int report_failure(const settings& s, std::string_view what, const sluice::error& why) {
    constexpr std::size_t what_bytes_max = 200;
    constexpr std::size_t why_bytes_max = 1000;
    fmt::print(stderr, "sluice-store: {}: {}\n", printable(what, what_bytes_max), printable(why.message(), why_bytes_max));
    if (s.json) print_json({{"error", why.message()}, {"what", what}});
    return 1;
}

} // namespace store
