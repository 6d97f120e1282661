#include "examples/object_store/commands.hpp"

#include "examples/object_store/report.hpp"

#include <fmt/format.h>

#include <utility>

// ls, stat and rm: a question, an answer, no bulk data.

namespace store {

namespace {

sluice::task<sluice::result<void>> list(const settings& s, client& link, std::string prefix) {
    auto objects = co_await link.list(std::move(prefix));
    if (!objects) co_return std::move(objects).error();
    for (const object_info& object : *objects) report_listed(s, object);
    co_return sluice::result<void>();
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

sluice::task<sluice::result<void>> ask_one(sluice::runtime& runtime, const settings& s, std::string name) {
    auto where = location::parse(name);
    if (!where) co_return std::move(where).error();
    auto link = co_await client::open(runtime, where->server, s.client);
    if (!link) co_return sluice::error(link.error().code(), fmt::format("cannot connect to {}", where->server));
    sluice::result<void> asked;
    if (s.what == command::list) asked = co_await list(s, *link, std::move(where->key));
    else if (s.what == command::stat) asked = co_await stat(s, *link, std::move(where->key));
    else asked = co_await remove(s, *link, std::move(where->key));
    if (asked) (void)co_await link->close();
    co_return asked;
}

} // namespace

sluice::task<int> run_queries(sluice::runtime& runtime, const settings& s) {
    int status = 0;
    for (const std::string& name : s.names) {
        auto asked = co_await ask_one(runtime, s, name);
        if (!asked) status = report_failure(s, name, asked.error());
    }
    co_return status;
}

} // namespace store
