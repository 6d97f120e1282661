#include "benchmarks/message_ends.hpp"

#include <sluice/scope.hpp>

namespace sluice::bench {

// ---- the serving end ----

message_server::message_server(runtime& rt, const work& w, std::string listen_on) : runtime_(rt), work_(w) {
    listener_ = rt.sync_wait(start(rt, std::move(listen_on)));
    thread_ = std::thread([this] { runtime_.sync_wait(serve(*this)); });
}

task<listener> message_server::start(runtime& rt, std::string on) {
    auto made = co_await rt.listen(on);
    co_return must(std::move(made), "listen");
}

task<void> message_server::receive_some(message_server& self, unsigned index, std::uint64_t messages) {
    const region_view here = self.memory_.subview(index * self.work_.size_bytes, self.work_.size_bytes);
    for (std::uint64_t i = 0; i < messages; ++i) {
        auto got = co_await self.peer_.receive(here);
        must(std::move(got), "receive");
    }
}

task<void> message_server::serve(message_server& self) {
    auto accepted = co_await self.listener_.accept();
    self.peer_ = must(std::move(accepted), "accept");
    auto leased = co_await self.runtime_.pool().allocate(self.work_.size_bytes * self.work_.depth);
    self.memory_ = must(std::move(leased), "pool");
    const region_view one = self.memory_.first(self.work_.size_bytes);
    for (;;) {
        if (self.work_.depth == 1) {
            auto got = co_await self.peer_.receive(one);
            if (!got) break;
        } else {
            auto announced = co_await self.peer_.receive<std::uint64_t>();
            if (!announced) break;
            scope receiving;
            for (unsigned i = 0; i < self.work_.depth; ++i)
                receiving.spawn(receive_some(self, i, *announced / self.work_.depth));
            auto all = co_await receiving.join();
            must(std::move(all), "receive");
        }
        auto answered = co_await self.peer_.send(one);
        must(std::move(answered), "send");
    }
    auto gone = co_await self.peer_.closed();
    must(std::move(gone), "closed");
    self.memory_.reset();
    self.peer_ = {};
    self.listener_.close();
    self.listener_ = {};
}

// ---- the end that is measured ----

message_client::message_client(runtime& rt, const work& w, std::string to) : runtime_(rt), work_(w) {
    rt.sync_wait(connect(*this, std::move(to)));
}

message_client::~message_client() { runtime_.sync_wait(leave(*this)); }

run_figures message_client::run(path carried, std::uint64_t operations) {
    return runtime_.sync_wait(run_all(*this, carried, operations));
}

task<void> message_client::connect(message_client& self, std::string to) {
    auto made = co_await self.runtime_.connect(to);
    self.connection_ = must(std::move(made), "connect");
    auto leased = co_await self.runtime_.pool().allocate(self.work_.size_bytes * self.work_.depth);
    self.memory_ = must(std::move(leased), "pool");
}

task<void> message_client::leave(message_client& self) {
    auto closed = co_await self.connection_.close();
    must(std::move(closed), "close");
    self.memory_.reset();
    self.connection_ = {};
}

task<void> message_client::go_and_come(message_client& self, std::uint64_t operations) {
    const region_view here = self.memory_.first(self.work_.size_bytes);
    for (std::uint64_t i = 0; i < operations; ++i) {
        auto sent = co_await self.connection_.send(here);
        must(std::move(sent), "send");
        auto got = co_await self.connection_.receive(here);
        must(std::move(got), "receive");
    }
}

task<void> message_client::send_some(message_client& self, unsigned index, std::uint64_t messages) {
    const region_view here = self.memory_.subview(index * self.work_.size_bytes, self.work_.size_bytes);
    for (std::uint64_t i = 0; i < messages; ++i) {
        auto sent = co_await self.connection_.send(here);
        must(std::move(sent), "send");
    }
}

task<void> message_client::stream(message_client& self, std::uint64_t operations) {
    scope sending;
    for (unsigned i = 0; i < self.work_.depth; ++i) sending.spawn(send_some(self, i, operations / self.work_.depth));
    auto all = co_await sending.join();
    must(std::move(all), "send");
    auto answered = co_await self.connection_.receive(self.memory_.first(self.work_.size_bytes));
    must(std::move(answered), "receive");
}

task<run_figures> message_client::run_all(message_client& self, path carried, std::uint64_t operations) {
    if (self.work_.depth > 1) {
        auto announced = co_await self.connection_.send(operations);
        must(std::move(announced), "send");
    }
    const std::uint64_t before = self.connection_.stats().send.bytes(carried);
    const stopwatch watch;
    task<void> work = self.work_.depth == 1 ? go_and_come(self, operations) : stream(self, operations);
    co_await std::move(work);
    const run_figures seen = watch.read();
    if (self.connection_.stats().send.bytes(carried) - before != operations * self.work_.size_bytes)
        fail(fmt::format("send: the byte counters of path {} don't tell what was moved", to_string(carried)));
    co_return seen;
}

} // namespace sluice::bench
