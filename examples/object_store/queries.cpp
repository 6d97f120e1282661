#include "examples/object_store/commands.hpp"

#include "examples/object_store/key.hpp"
#include "examples/object_store/report.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

// ls, stat and rm: a question, an answer, no bulk data.

namespace store {

namespace {

sluice::task<sluice::result<void>> list(const settings& s, client& link, std::string prefix) {
    auto found = co_await link.list(std::move(prefix));
    if (!found) co_return std::move(found).error();
    for (const object_info& object : found->objects) report_listed(s, object);
    co_return std::move(found->complete);
}

sluice::task<sluice::result<void>> stat(const settings& s, client& link, std::string key) {
    if (key.empty()) {
        auto stats = co_await link.server();
        if (!stats) co_return std::move(stats).error();
        report_server(s, *stats);
        co_return sluice::result<void>();
    }
    auto object = co_await link.stat(std::move(key));
    if (!object) co_return std::move(object).error();
    report_object(s, *object);
    co_return sluice::result<void>();
}

sluice::task<sluice::result<void>> remove(const settings& s, client& link, std::string key) {
    auto removed = co_await link.remove(key);
    if (!removed) co_return std::move(removed).error();
    report_removed(s, key);
    co_return sluice::result<void>();
}

sluice::task<sluice::result<void>> ask_one(sluice::runtime& runtime, const settings& s, location where) {
    auto link = co_await client::open(runtime, where.server, s.client);
    if (!link) co_return cannot_connect(where.server, link.error());
    sluice::result<void> asked;
    if (s.what == command::list) asked = co_await list(s, *link, std::move(where.key));
    else if (s.what == command::stat) asked = co_await stat(s, *link, std::move(where.key));
    else asked = co_await remove(s, *link, std::move(where.key));
    if (asked) (void)co_await link->close();
    co_return asked;
}

sluice::result<void> check_question(command what, const std::string& key) {
    if (what == command::stat && key.empty()) return {}; // the server's counters
    if (what != command::list) return check_key(key);
    if (key.size() > key_bytes_max)
        return sluice::error(sluice::errc::invalid_argument,
                             fmt::format("the start of keys has {} bytes, at most {} are allowed", key.size(), key_bytes_max));
    return {};
}

} // namespace

sluice::result<std::vector<location>> plan_queries(const settings& s) {
    std::vector<location> places;
    for (const std::string& name : s.names) {
        auto where = location::parse(name);
        if (!where) return std::move(where).error();
        if (auto allowed = check_question(s.what, where->key); !allowed) return std::move(allowed).error();
        places.push_back(std::move(*where));
    }
    return places;
}

sluice::task<int> run_queries(sluice::runtime& runtime, const settings& s, const std::vector<location>& places) {
    int status = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
        auto asked = co_await ask_one(runtime, s, places[i]);
        if (!asked) status = report_failure(s, s.names[i], asked.error());
    }
    co_return status;
}

} // namespace store
