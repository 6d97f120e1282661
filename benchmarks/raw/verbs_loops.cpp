#include "benchmarks/raw/verbs.hpp"

#include "benchmarks/bench.hpp"

#include <algorithm>

namespace sluice::bench::raw {

// ---- one-sided ----

one_sided_loop::one_sided_loop(const std::string& address, const one_sided_load& load)
    : load_(load), pair_(address, load.size_bytes * load.depth, load.depth, 1) {}

void one_sided(verbs_end& client, const verbs_end& server, ibv_wr_opcode what, const one_sided_load& load,
               std::uint64_t operations) {
    std::uint64_t started = 0;
    const auto start = [&](std::uint64_t block) {
        client.add(what, block, block * load.size_bytes, load.size_bytes, &server);
        ++started;
    };
    for (unsigned i = 0; i < load.depth && started < operations; ++i) start(i);
    client.post();
    for (std::uint64_t done = 0; done < operations;) {
        const auto seen = client.next(load.how);
        done += seen.size();
        for (const ibv_wc& each : seen)
            if (started < operations) start(each.wr_id);
        client.post();
    }
}

// ---- messages ----

namespace {
// Numbers of receives are above those of sends. The blocks for sends come first in the memory.
constexpr std::uint64_t first_receive = 1U << 20;
// So many that a server which was off its processor for a while still has some.
constexpr unsigned receives_of_stream = 512;
} // namespace

send_loop::send_loop(const std::string& address, std::size_t size_bytes, unsigned depth, wait how)
    : size_bytes_(size_bytes), depth_(depth), receives_(depth == 1 ? 2 : receives_of_stream), how_(how),
      pair_(address, size_bytes * (depth + receives_), depth + 1, receives_) {
    for (verbs_end* each : {&pair_.client(), &pair_.server()})
        for (std::uint64_t i = 0; i < receives_; ++i)
            each->post_receive(first_receive + i, (depth_ + i) * size_bytes_, size_bytes_);
    server_ = std::thread([this] { serve(); });
}

send_loop::~send_loop() {
    operations_ = 0;
    started_.release();
    server_.join();
}

void send_loop::run(std::uint64_t operations) {
    operations_ = operations;
    started_.release();
    if (depth_ == 1) ping_pong(operations);
    else stream(operations);
}

/// Between runs it sleeps, so as not to take a processor from the other contender.
void send_loop::serve() {
    for (started_.acquire(); operations_ > 0; started_.acquire()) serve_one_run();
}

void send_loop::serve_one_run() {
    verbs_end& s = pair_.server();
    const std::uint64_t all = operations_;
    std::uint64_t unsent = 0; // answers whose completion has not come
    for (std::uint64_t got = 0; got < all || unsent > 0;) {
        const auto seen = s.next(how_);
        for (const ibv_wc& each : seen) {
            if (each.wr_id < first_receive) {
                --unsent;
                continue;
            }
            ++got;
            s.post_receive(each.wr_id, (depth_ + each.wr_id - first_receive) * size_bytes_, size_bytes_);
            if (depth_ > 1 && got < all) continue;
            s.add(IBV_WR_SEND, 0, 0, size_bytes_);
            s.post();
            ++unsent;
        }
    }
}

void send_loop::ping_pong(std::uint64_t operations) {
    verbs_end& c = pair_.client();
    for (std::uint64_t i = 0; i < operations; ++i) {
        c.add(IBV_WR_SEND, 0, 0, size_bytes_);
        c.post();
        bool left = false;
        bool answered = false;
        while (!left || !answered) {
            const auto seen = c.next(how_);
            for (const ibv_wc& each : seen) {
                if (each.wr_id < first_receive) {
                    left = true;
                    continue;
                }
                answered = true;
                c.post_receive(each.wr_id, (depth_ + each.wr_id - first_receive) * size_bytes_, size_bytes_);
            }
        }
    }
}

void send_loop::stream(std::uint64_t operations) {
    verbs_end& c = pair_.client();
    std::uint64_t started = 0;
    for (; started < std::min<std::uint64_t>(depth_, operations); ++started)
        c.add(IBV_WR_SEND, started, started * size_bytes_, size_bytes_);
    c.post();
    std::uint64_t left = 0;
    for (bool answered = false; !answered || left < operations;) {
        const auto seen = c.next(how_);
        for (const ibv_wc& each : seen) {
            if (each.wr_id >= first_receive) {
                answered = true;
                c.post_receive(each.wr_id, (depth_ + each.wr_id - first_receive) * size_bytes_, size_bytes_);
                continue;
            }
            ++left;
            if (started == operations) continue;
            c.add(IBV_WR_SEND, each.wr_id, each.wr_id * size_bytes_, size_bytes_);
            ++started;
        }
        c.post();
    }
}

} // namespace sluice::bench::raw
