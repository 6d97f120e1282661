#include "examples/object_store/commands.hpp"

#include "examples/object_store/descriptors.hpp"
#include "examples/object_store/key.hpp"
#include "examples/object_store/printable.hpp"
#include "examples/object_store/progress_bar.hpp"
#include "examples/object_store/report.hpp"

#include <sluice/when_all.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace store {

namespace {

std::string last_part_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

sluice::result<std::vector<transfer_job>> plan_put(const settings& s) {
    auto target = location::parse(s.target);
    if (!target) return std::move(target).error();
    const bool into_prefix = target->key.empty() || target->key.back() == '/';
    if (s.names.size() > 1 && !into_prefix)
        return sluice::error(sluice::errc::invalid_argument,
                             fmt::format("several files can't become the one object {}; end it with a slash", s.target));
    std::vector<transfer_job> jobs;
    for (const std::string& file : s.names) {
        transfer_job job{file, *target};
        if (into_prefix) job.object.key += last_part_of(file);
        if (auto allowed = check_key(job.object.key); !allowed) return std::move(allowed).error();
        jobs.push_back(std::move(job));
    }
    return jobs;
}

sluice::result<std::vector<transfer_job>> plan_get(const settings& s) {
    std::error_code ignored;
    const bool into_directory = s.target.ends_with('/') || std::filesystem::is_directory(s.target, ignored);
    if (s.names.size() > 1 && !into_directory)
        return sluice::error(sluice::errc::invalid_argument,
                             fmt::format("several objects can't become the one file {}; name a directory", s.target));
    std::vector<transfer_job> jobs;
    for (const std::string& name : s.names) {
        auto source = location::parse(name);
        if (!source) return std::move(source).error();
        if (auto allowed = check_key(source->key); !allowed) return std::move(allowed).error();
        std::string file = s.target;
        if (into_directory) file = (std::filesystem::path(file) / last_part_of(source->key)).string();
        jobs.push_back({std::move(file), std::move(*source)});
    }
    return jobs;
}

/// The later of two would silently replace the earlier.
sluice::result<void> check_distinct(const settings& s, const std::vector<transfer_job>& jobs) {
    std::map<std::string_view, std::size_t> by_target;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const std::string& target = s.what == command::put ? jobs[i].object.key : jobs[i].file;
        const auto [before, is_new] = by_target.emplace(target, i);
        if (!is_new)
            return sluice::error(sluice::errc::invalid_argument, fmt::format("{} and {} would both become {}",
                                                                             s.names[before->second], s.names[i], target));
    }
    return {};
}

/// What the workers of a command share.
struct transfers {
    sluice::runtime& runtime;
    const settings& s;
    const std::vector<transfer_job>& jobs;
    progress_bar bar;
    std::size_t next = 0;
    std::size_t failed = 0;
    std::set<std::string> told{}; ///< servers of which was said how they are reached
};

/// A client for this server, and it may be the one of the last job.
sluice::task<sluice::result<void>> connect(transfers& t, const std::string& server, std::optional<client>& link,
                                           std::string& linked_to) {
    if (link && link->is_usable() && linked_to == server) co_return sluice::result<void>();
    link.reset();
    auto opened = co_await client::open(t.runtime, server, t.s.client);
    if (!opened) co_return cannot_connect(server, opened.error());
    link.emplace(std::move(*opened));
    linked_to = server;
    if (!t.s.quiet && !t.s.json && server.starts_with("auto:") && t.told.insert(server).second) {
        t.bar.clear();
        fmt::print(stderr, "sluice-store: {}: {}\n", printable(server), link->choice());
    }
    co_return sluice::result<void>();
}

sluice::task<sluice::result<object_info>> move_one(transfers& t, const transfer_job& job, client& link) {
    transfer_watch watch{.expected = [&t](std::uint64_t bytes) { t.bar.expect(bytes); },
                         .moved = [&t](std::uint64_t bytes) { t.bar.advance(bytes); }};
    if (t.s.what == command::put) co_return co_await link.put(job.file, job.object.key, std::move(watch));
    co_return co_await link.get(job.object.key, job.file, std::move(watch));
}

sluice::task<void> work(transfers& t) {
    std::optional<client> link;
    std::string linked_to;
    const sluice::stop_token stop = co_await sluice::this_stop_token();
    while (t.next < t.jobs.size() && !stop.stop_requested()) {
        const transfer_job& job = t.jobs[t.next++];
        const auto started = std::chrono::steady_clock::now();
        sluice::result<object_info> moved = sluice::errc::canceled;
        auto connected = co_await connect(t, job.object.server, link, linked_to);
        if (!connected) moved = std::move(connected).error();
        else moved = co_await move_one(t, job, *link);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
        t.bar.clear();
        if (moved) {
            report_transfer(t.s, *moved, job.file, took.count(), link->path());
        } else {
            ++t.failed;
            const char* verb = t.s.what == command::put ? "put" : "get";
            report_failure(t.s, fmt::format("{} {}", verb, job.object.key), moved.error());
        }
    }
    if (link && link->is_usable()) (void)co_await link->close();
}

} // namespace

sluice::result<std::vector<transfer_job>> plan_transfers(const settings& s) {
    auto jobs = s.what == command::put ? plan_put(s) : plan_get(s);
    if (jobs)
        if (auto distinct = check_distinct(s, *jobs); !distinct) return std::move(distinct).error();
    return jobs;
}

sluice::error cannot_connect(const std::string& server, const sluice::error& why) {
    if (why == sluice::condition::canceled) return {why.code(), fmt::format("interrupted while connecting to {}", server)};
    std::string_view reason = why.detail();
    // What was tried has been said.
    const std::string tried = fmt::format("connect to {}", server);
    if (reason.starts_with(tried)) reason.remove_prefix(tried.size());
    while (reason.starts_with(": ")) reason.remove_prefix(2);
    return {why.code(), fmt::format("cannot connect to {}{}{}", server, reason.empty() ? "" : ": ", reason)};
}

sluice::task<int> run_transfers(sluice::runtime& runtime, const settings& s, const std::vector<transfer_job>& jobs) {
    transfers t{runtime, s, jobs, {s.what == command::put ? "put" : "get", !s.quiet && !s.json}};
    std::vector<sluice::task<void>> workers;
    for (std::size_t i = 0; i < std::min<std::size_t>(s.parallel, jobs.size()); ++i) workers.push_back(work(t));
    co_await sluice::when_all(std::move(workers));
    co_return t.failed == 0 ? 0 : 1;
}

/// As many clients as there are descriptors for: a server without any can neither accept nor open what it has.
server_options within_descriptors(const settings& s) {
    server_options options = s.server;
    const std::uint64_t limit = raise_descriptor_limit();
    options.clients_max = std::min(options.clients_max, clients_within(limit));
    if (options.clients_max < s.server.clients_max && !s.quiet)
        fmt::print(stderr,
                   "sluice-store: --max-clients {} can need {} descriptors, the limit is {}: {} clients at once are "
                   "taken; raise the limit of open files (ulimit -Hn) or give a smaller --max-clients\n",
                   s.server.clients_max, descriptors_for(s.server.clients_max), limit, options.clients_max);
    return options;
}

sluice::task<int> run_serve(sluice::runtime& runtime, const settings& s) {
    auto objects = co_await object_directory::open(s.directory);
    if (!objects) co_return report_failure(s, "serve", objects.error());
    server here{.runtime = runtime, .objects = *objects, .options = within_descriptors(s), .log = [&s](const std::string& line) {
                    if (!s.quiet) fmt::print(stderr, "sluice-store: {}\n", printable(line));
                }};
    auto served = co_await serve(here, [&s](const std::string& address) { report_listening(s, address); });
    if (!served) co_return report_failure(s, fmt::format("cannot serve at {}", s.server.listen), served.error());
    co_return 0;
}

} // namespace store
