#include "examples/object_store/command_line.hpp"

#include "examples/object_store/printable.hpp"

#include <sluice/config.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace store {

namespace {

constexpr const char* examples = R"(examples:
  sluice-store serve /srv/objects --listen tcp://0.0.0.0:7471
  sluice-store put model.bin tcp://storage-1:7471/models/7b.bin
  sluice-store put *.jpg tcp://storage-1:7471/photos/
  sluice-store get tcp://storage-1:7471/models/7b.bin model.bin
  sluice-store ls tcp://storage-1:7471/photos/
  sluice-store stat tcp://storage-1:7471            (the server's counters)
  sluice-store rm tcp://storage-1:7471/photos/a.jpg

An address is tcp://HOST:PORT, tcp://[IPV6%INTERFACE]:PORT, rdma://..., auto://... (RDMA where both ends have it, else
TCP), tcp:///PATH/OF/A.SOCKET or tcp://@NAME; the key follows after a slash. The exit status is 0 when all went well, 1 when something did not, 2 for a mistake on the command
line, 128 + N when signal N ended it; a server that is told to end by SIGINT, SIGTERM, SIGHUP or SIGQUIT exits
with 0.)";

constexpr const char* size_help = "; 64K, 1M, 2G are understood";

/// Parsed into plain numbers first, then checked and put where they belong.
struct raw_options {
    std::uint64_t chunk_bytes = 1 << 20;
    std::uint64_t pool_bytes = std::uint64_t{64} << 20;
    std::uint64_t memory_bytes = std::uint64_t{64} << 20;
    std::uint32_t slots = 8;
    double stall_seconds = 30;
    double timeout_seconds = 60;
};

CLI::Option* add_size(CLI::App& app, const std::string& name, std::uint64_t& value, const std::string& what) {
    return app.add_option(name, value, what + size_help)->transform(CLI::AsSizeValue(false))->capture_default_str();
}

void add_window(CLI::App& app, raw_options& raw) {
    add_size(app, "--chunk", raw.chunk_bytes, "bytes moved in one operation, a multiple of 4096");
    app.add_option("--window", raw.slots, "chunks on the way at once, per transfer")
        ->check(CLI::Range(1U, slots_max))
        ->capture_default_str();
}

void add_output(CLI::App& app, settings& s) {
    app.add_flag("-q,--quiet", s.quiet, "print errors only, no progress");
    app.add_flag("--json", s.json, "print one JSON object a line");
}

void add_rdma_devices(CLI::App& app, settings& s) {
    app.add_option("--rdma-devices", s.rdma_devices,
                   "RDMA devices that may be used, the preferred first: mlx5_0, mlx5_0:1, an IP address, !mlx5_1, ...")
        ->envname("SLUICE_RDMA_USE");
}

void add_serve(CLI::App& app, settings& s, raw_options& raw) {
    app.add_option("DIR", s.directory, "the directory that holds the objects")->required();
    app.add_option("--listen", s.server.listen, "address to listen on; port 0 takes any, and it is printed")->required();
    add_size(app, "--pool", raw.pool_bytes, "registered memory for all transfers");
    add_window(app, raw);
    app.add_option("--max-clients", s.server.clients_max, "clients at once, fewer if descriptors are few; further ones are told that it is busy")
        ->check(CLI::Range(1U, 1U << 20))
        ->capture_default_str();
    app.add_option("--stall-timeout", raw.stall_seconds, "seconds after which a client that stands still is dropped")
        ->capture_default_str();
    add_rdma_devices(app, s);
    add_output(app, s);
}

void add_client_options(CLI::App& app, settings& s, raw_options& raw) {
    app.add_option("--timeout", raw.timeout_seconds, "seconds without a sign of the server after which to give up")
        ->capture_default_str();
    add_rdma_devices(app, s);
    add_output(app, s);
}

void add_transfer_options(CLI::App& app, settings& s, raw_options& raw) {
    add_window(app, raw);
    app.add_option("--parallel", s.parallel, "files at once, each over its own connection")
        ->check(CLI::Range(1U, 256U))
        ->capture_default_str();
    add_size(app, "--memory", raw.memory_bytes, "memory of all files at once; chunks and windows shrink to fit");
    add_client_options(app, s, raw);
}

/// Several names and, last, where to.
void split_target(settings& s) {
    s.target = s.names.back();
    s.names.pop_back();
}

std::chrono::nanoseconds from_seconds(double seconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

/// What is wrong with values that only together make sense, or an empty text.
std::string finish(settings& s, const raw_options& raw) {
    if (raw.chunk_bytes < chunk_unit_bytes || raw.chunk_bytes > chunk_bytes_max || raw.chunk_bytes % chunk_unit_bytes != 0)
        return fmt::format("--chunk {}: give a multiple of {} up to {}", raw.chunk_bytes, chunk_unit_bytes, chunk_bytes_max);
    const std::uint64_t window_bytes = raw.chunk_bytes * raw.slots;
    if (s.what == command::serve && window_bytes * 2 > raw.pool_bytes)
        return fmt::format("--pool {}: give at least twice what one transfer takes, --chunk times --window = {}",
                           raw.pool_bytes, window_bytes);
    constexpr std::uint64_t memory_bytes_min = 1 << 20;
    if (raw.memory_bytes < memory_bytes_min)
        return fmt::format("--memory {}: give at least {}", raw.memory_bytes, memory_bytes_min);
    constexpr double seconds_min = 0.1;
    constexpr double seconds_max = 86400;
    for (const auto& [name, seconds] : {std::pair{"--stall-timeout", raw.stall_seconds}, {"--timeout", raw.timeout_seconds}})
        if (!(seconds >= seconds_min && seconds <= seconds_max)) // also when it is no number at all
            return fmt::format("{} {}: give {} to {} seconds", name, seconds, seconds_min, seconds_max);
    s.memory_bytes = raw.memory_bytes;
    s.server.chunk_bytes = s.client.chunk_bytes = static_cast<std::uint32_t>(raw.chunk_bytes);
    s.server.slots = s.client.slots = raw.slots;
    s.server.stall_timeout = from_seconds(raw.stall_seconds);
    s.client.timeout = from_seconds(raw.timeout_seconds);
    s.pool_bytes = static_cast<std::size_t>(raw.pool_bytes);
    if (s.what == command::put || s.what == command::get) {
        split_target(s);
        if (s.target.empty()) return "the last argument, where to, is empty";
    }
    return {};
}

} // namespace

std::optional<settings> parse_command_line(int argc, char** argv, int& status) {
    settings s;
    raw_options raw;
    CLI::App app("An object store: files move between disks over one-sided transfers, checked and in one step.",
                 "sluice-store");
    app.footer(examples);
    app.set_version_flag("--version", fmt::format("sluice-store {}", SLUICE_VERSION_STRING));
    app.require_subcommand(1);
    auto* serve = app.add_subcommand("serve", "serve the objects in a directory");
    auto* put = app.add_subcommand("put", "store files as objects");
    auto* get = app.add_subcommand("get", "fetch objects into files");
    auto* list = app.add_subcommand("ls", "list objects");
    auto* stat = app.add_subcommand("stat", "show an object, or a server's counters");
    auto* remove = app.add_subcommand("rm", "remove objects");
    add_serve(*serve, s, raw);
    put->add_option("FILE_AND_URL", s.names, "files, then where to; URL/PREFIX/ keeps their names")
        ->required()->expected(2, -1);
    add_transfer_options(*put, s, raw);
    get->add_option("URL_AND_FILE", s.names, "objects, then a file or, for several, a directory")
        ->required()->expected(2, -1);
    add_transfer_options(*get, s, raw);
    list->add_option("URL", s.names, "a server, perhaps with the start of keys")->required()->expected(1);
    add_client_options(*list, s, raw);
    stat->add_option("URL", s.names, "an object or a server")->required()->expected(1, -1);
    add_client_options(*stat, s, raw);
    remove->add_option("URL", s.names, "objects")->required()->expected(1, -1);
    add_client_options(*remove, s, raw);

    constexpr int usage_mistake = 2;
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        const auto is_named = [&](const CLI::App* known) { return known->get_name() == argv[1]; };
        if (argc > 1 && argv[1][0] != '-' && !std::ranges::any_of(app.get_subcommands({}), is_named))
            fmt::print(stderr, "sluice-store: there is no command \"{}\"\n", printable(argv[1], 64));
        status = app.exit(e) == 0 ? 0 : usage_mistake;
        return std::nullopt;
    }
    const std::pair<CLI::App*, command> commands[] = {{serve, command::serve}, {put, command::put},
                                                      {get, command::get},     {list, command::list},
                                                      {stat, command::stat},   {remove, command::remove}};
    for (const auto& [subcommand, what] : commands)
        if (subcommand->parsed()) s.what = what;
    if (const std::string wrong = finish(s, raw); !wrong.empty()) {
        fmt::print(stderr, "sluice-store: {}\n", wrong);
        status = usage_mistake;
        return std::nullopt;
    }
    return s;
}

} // namespace store
