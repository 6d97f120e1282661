#include "examples/object_store/demo/phases.hpp"
#include "examples/object_store/demo/server_process.hpp"
#include "examples/object_store/demo/workload.hpp"

#include "examples/object_store/progress_bar.hpp"
#include "examples/object_store/signals.hpp"
#include "examples/object_store/standard_output.hpp"

#include <sluice/blocking.hpp>
#include <sluice/config.hpp>
#include <sluice/runtime.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

// sluice-demo: real files of this machine become objects of a server and files again, and every byte is compared.

namespace demo {

namespace {

namespace fs = std::filesystem;

/// Whether it exists shows when the demo works in it.
std::string default_directory() {
    const char* chosen = std::getenv("TMPDIR");
    return chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
}

struct settings {
    std::string directory = default_directory();
    std::size_t files = 400;
    std::uint64_t big_bytes = std::uint64_t{1} << 30;
    std::size_t clients = 4;
    std::string listen = "tcp://127.0.0.1:0";
    std::string rdma_devices; ///< of both ends, as runtime_options.rdma_devices
    bool json = false;
};

/// Everything that the demo writes lies in here.
class scratch_directory {
public:
    static sluice::result<scratch_directory> make(const std::string& parent) {
        std::string name = parent + "/sluice-demo-XXXXXX";
        if (mkdtemp(name.data()) == nullptr)
            return sluice::error::from_errno(errno, fmt::format("cannot make a directory in {}; use --directory", parent));
        return scratch_directory(std::move(name));
    }
    scratch_directory(scratch_directory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    scratch_directory& operator=(scratch_directory&&) = delete;
    ~scratch_directory() {
        std::error_code ignored;
        if (!path_.empty()) fs::remove_all(path_, ignored);
    }
    std::string folder(const char* name) const {
        const std::string path = path_ + "/" + name;
        fs::create_directory(path);
        return path;
    }
    const std::string& path() const noexcept { return path_; }

private:
    explicit scratch_directory(std::string path) : path_(std::move(path)) {}
    std::string path_;
};

std::string beside_this_program(const char* name) {
    std::error_code ignored;
    return (fs::read_symlink("/proc/self/exe", ignored).parent_path() / name).string();
}

/// What the demo has found out, and where it works.
struct demonstration {
    const settings& s;
    scratch_directory scratch;
    std::vector<item> items{}; ///< the big one last
    std::vector<measured> phases{};

    void say(const std::string& text) const {
        if (!s.json) fmt::print("{}\n", text);
        std::fflush(stdout);
    }
};

std::uint64_t total_bytes(const std::vector<item>& items) {
    std::uint64_t sum = 0;
    for (const item& each : items) sum += each.size_bytes;
    return sum;
}

sluice::task<sluice::result<void>> prepare(demonstration& d, sluice::runtime& runtime) {
    const std::string fetched = d.scratch.folder("fetched");
    auto chosen = choose_files(d.s.files, fetched);
    if (!chosen) co_return std::move(chosen).error();
    d.items = std::move(*chosen);
    d.items.push_back({.source = d.scratch.path() + "/big", .key = "big", .fetched = fetched + "/big",
                       .size_bytes = d.s.big_bytes});
    // As objects and fetched, the big one as the source too, and blocks are rounded up.
    constexpr std::uint64_t slack_bytes = std::uint64_t{128} << 20;
    auto room = check_room(d.s.directory, 2 * total_bytes(d.items) + d.s.big_bytes + slack_bytes);
    if (!room) co_return std::move(room).error();
    auto made = co_await make_big_file(runtime, d.items.back().source, d.s.big_bytes);
    if (!made) co_return std::move(made).error();

    std::vector<std::string> names;
    for (const item& each : d.items) names.push_back(each.source);
    auto sums = co_await sluice::run_blocking([&] { return sha256_of(names, d.scratch.path()); });
    if (!sums) co_return std::move(sums).error();
    for (std::size_t i = 0; i < d.items.size(); ++i) d.items[i].sha256 = std::move((*sums)[i]);
    d.say(fmt::format("{} files of /usr/include and /usr/lib and one of {}: {} in all", d.items.size() - 1,
                      store::human_bytes(static_cast<double>(d.s.big_bytes)),
                      store::human_bytes(static_cast<double>(total_bytes(d.items)))));
    co_return sluice::result<void>();
}

sluice::task<sluice::result<void>> run_phases(demonstration& d, sluice::runtime& runtime, const server_process& server) {
    const std::span<const item> all = d.items;
    const std::span<const item> small = all.first(all.size() - 1);
    const std::span<const item> big = all.last(1);
    for (const way direction : {way::put, way::get}) {
        const std::string verb = direction == way::put ? "put" : "get";
        for (const bool is_big : {false, true}) {
            // Named first: gcc 12 destroys conditionals in co_await's operand twice.
            const std::string name = verb + (is_big ? " big" : " files");
            const std::span<const item> items = is_big ? big : small;
            auto done = co_await run_phase(runtime, name, direction, items, server, d.s.clients, store::client_options{});
            if (!done) co_return sluice::error(done.error().code(), fmt::format("{} {}", verb, done.error().detail()));
            d.phases.push_back(std::move(*done));
        }
        std::error_code ignored;
        fs::remove(d.items.back().source, ignored); // room for the fetched one; its checksum is known
    }
    co_return sluice::result<void>();
}

sluice::result<void> verify(demonstration& d) {
    std::vector<std::string> names;
    for (const item& each : d.items) names.push_back(each.fetched);
    auto sums = sha256_of(names, d.scratch.path());
    if (!sums) return std::move(sums).error();
    for (std::size_t i = 0; i < d.items.size(); ++i)
        if ((*sums)[i] != d.items[i].sha256)
            return sluice::error::from_errno(EIO, fmt::format("SHA-256 of {} is {}, of what came back {}",
                                                              d.items[i].source, d.items[i].sha256, (*sums)[i]));
    return {};
}

void print_table(const std::vector<measured>& phases) {
    fmt::print("\n{:<10}{:>8}{:>11}{:>9}{:>11}{:>10}{:>10}{:>8}{:>8}{:>11}{:>11}{:>12}{:>14}\n", "", "objects", "bytes",
               "seconds", "per s", "p50 ms", "p99 ms", "cpu c", "cpu s", "tcp", "rdma", "file-direct", "file-buffered");
    for (const measured& m : phases) {
        const double rate = m.seconds > 0 ? static_cast<double>(m.bytes) / m.seconds : 0;
        const auto human = [](std::uint64_t n) { return store::human_bytes(static_cast<double>(n)); };
        fmt::print("{:<10}{:>8}{:>11}{:>9.2f}{:>11}{:>10.2f}{:>10.2f}{:>8.2f}{:>8.2f}{:>11}{:>11}{:>12}{:>14}\n", m.name,
                   m.objects, human(m.bytes), m.seconds, store::human_bytes(rate), m.p50_ms, m.p99_ms,
                   m.client_cpu_seconds, m.server_cpu_seconds, human(m.tcp_bytes), human(m.rdma_bytes), human(m.file_direct_bytes),
                   human(m.file_buffered_bytes));
    }
    fmt::print("cpu c, cpu s: processor seconds of the clients and of the server; file-direct and -buffered: of both\n\n");
}

void print_json(const std::vector<measured>& phases) {
    auto all = nlohmann::json::array();
    for (const measured& m : phases)
        all.push_back({{"phase", m.name}, {"objects", m.objects}, {"bytes", m.bytes}, {"seconds", m.seconds},
                       {"p50_ms", m.p50_ms}, {"p99_ms", m.p99_ms}, {"client_cpu_seconds", m.client_cpu_seconds},
                       {"server_cpu_seconds", m.server_cpu_seconds}, {"tcp_bytes", m.tcp_bytes}, {"rdma_bytes", m.rdma_bytes},
                       {"file_direct_bytes", m.file_direct_bytes}, {"file_buffered_bytes", m.file_buffered_bytes}});
    fmt::print("{}\n", nlohmann::json({{"phases", all}}).dump());
}

/// Over rdma:// every byte of every object must have gone that way: nothing else would tell a silent detour.
sluice::result<void> check_path(const demonstration& d) {
    if (!d.s.listen.starts_with("rdma://")) return {};
    for (const measured& m : d.phases)
        if (m.rdma_bytes != m.bytes)
            return sluice::error::from_errno(EIO, fmt::format("{}: {} bytes were moved, {} of them over RDMA", m.name, m.bytes,
                                                              m.rdma_bytes));
    d.say(fmt::format("over RDMA: {} bytes put and got, as many as the objects have, twice", 2 * total_bytes(d.items)));
    return {};
}

sluice::task<sluice::result<void>> demonstrate(demonstration& d, sluice::runtime& runtime) {
    auto prepared = co_await prepare(d, runtime);
    if (!prepared) co_return std::move(prepared).error();
    std::vector<std::string> options;
    if (!d.s.rdma_devices.empty()) options = {"--rdma-devices", d.s.rdma_devices};
    auto server =
        server_process::start(beside_this_program("sluice-store"), d.scratch.folder("objects"), options, d.s.listen);
    if (!server) co_return std::move(server).error();
    d.say(fmt::format("a server at {}, {} clients in this process", server->address(), d.s.clients));
    auto moved = co_await run_phases(d, runtime, *server);
    if (!moved) co_return std::move(moved).error();
    if (auto carried = check_path(d); !carried) co_return std::move(carried).error();
    auto stopped = server->stop();
    if (!stopped) co_return std::move(stopped).error();
    co_return co_await sluice::run_blocking([&d] { return verify(d); });
}

sluice::task<int> run(const settings& s, sluice::runtime& runtime) {
    sluice::result<void> done;
    std::string summary;
    if (auto scratch = scratch_directory::make(s.directory); !scratch) {
        done = std::move(scratch).error();
    } else {
        demonstration d{s, std::move(*scratch)};
        done = co_await demonstrate(d, runtime);
        if (done && s.json) print_json(d.phases);
        else if (done) print_table(d.phases);
        summary = fmt::format("demo: {} objects, {} bytes, all verified", d.items.size(), total_bytes(d.items));
    }
    fmt::print("{}\n", done ? summary : fmt::format("demo: FAILED: {}", done.error().message()));
    std::fflush(stdout);
    co_return done ? 0 : 1;
}

std::optional<settings> parse(int argc, char** argv, int& status) {
    settings s;
    CLI::App app("Puts real files of this machine into an object store, gets them back and compares every byte.",
                 "sluice-demo");
    app.add_option("--directory", s.directory, "where to work: in a subdirectory of its own, which alone is removed again")
        ->capture_default_str();
    app.add_option("--files", s.files, "files to take from /usr/include and /usr/lib")
        ->check(CLI::Range(std::size_t{1}, std::size_t{100'000}))
        ->capture_default_str();
    app.add_option("--big", s.big_bytes, "size of the one big file; 64M, 2G are understood")
        ->transform(CLI::AsSizeValue(false))
        ->capture_default_str();
    app.add_option("--clients", s.clients, "clients at once")->check(CLI::Range(1, 256))->capture_default_str();
    app.add_option("--listen", s.listen, "where the server listens: tcp://, rdma:// or auto:// with an address of this machine")
        ->capture_default_str();
    app.add_option("--rdma-devices", s.rdma_devices, "RDMA devices that both ends may use: mlx5_0, mlx5_0:1, an IP address, !mlx5_1, ...")
        ->envname("SLUICE_RDMA_USE");
    app.add_flag("--json", s.json, "print one JSON object instead of the table; the last line stays");
    app.set_version_flag("--version", fmt::format("sluice-demo {}", SLUICE_VERSION_STRING));
    app.footer("The last line is \"demo: N objects, N bytes, all verified\" or \"demo: FAILED: WHY\", with status 1.");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        constexpr int usage_mistake = 2;
        status = app.exit(e) == 0 ? 0 : usage_mistake;
        return std::nullopt;
    }
    return s;
}

} // namespace

} // namespace demo

int main(int argc, char** argv) {
    int status = 0;
    const auto settings = demo::parse(argc, argv, status);
    if (!settings) return store::flushed("sluice-demo", status);
    store::stop_signals signals;
    const store::client_options one;
    const std::size_t windows = settings->clients * one.chunk_bytes * one.slots;
    constexpr std::size_t others = std::size_t{8} << 20;
    try {
        status = sluice::run(
            [&](sluice::runtime& runtime) { return store::until_signal(signals, demo::run(*settings, runtime)); },
            {.pool_bytes = others + windows * 5 / 4, .rdma_devices = settings->rdma_devices});
    } catch (const std::system_error& e) { // fmt::print, when what it prints no longer fits the buffer
        std::fprintf(stderr, "sluice-demo: cannot write the output: %s\n", e.what());
        return 1;
    }
    return store::flushed("sluice-demo", status);
}
