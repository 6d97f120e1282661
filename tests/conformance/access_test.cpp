#include "tests/conformance/pair.hpp"

#include <array>
#include <optional>

namespace sluice::conformance {

namespace {

constexpr std::byte untouched{0x5a};

/// Every operation on `aim` must fail as expected and leave both memories alone.
task<void> is_refused(connection& c, remote_view aim, condition expected, const char* what) {
    buffer mine(aim.size_bytes());
    fill_with(mine.bytes(), std::byte{0xee});
    try {
        must_fail(co_await c.write(aim, mine), expected);
        must_fail(co_await c.write_with_immediate(aim, mine, 1), expected);
        must_fail(co_await c.read(aim, mine), expected);
        if (aim.size_bytes() % 8 == 0 && aim.address() % 8 == 0) {
            const remote_view last = aim.subview(aim.size_bytes() - 8, 8);
            must_fail(co_await c.fetch_add(last, 1), expected);
            must_fail(co_await c.compare_swap(last, 0x5a5a5a5a5a5a5a5a, 1), expected);
        }
    } catch (const failure& f) {
        throw failure(std::string(what) + ": " + f.what(), std::source_location::current());
    }
}

task<void> aims_wrong(runtime&, connection& c) {
    const remote_region good = must(co_await c.receive<remote_region>());
    remote_region r = good;
    r.key ^= 1;
    co_await is_refused(c, r, condition::access_denied, "a key off by a bit");
    r.key = 0;
    co_await is_refused(c, r, condition::access_denied, "no key");
    r = good;
    r.generation += 1;
    co_await is_refused(c, r, condition::access_denied, "another generation");
    r = good;
    r.owner ^= 1;
    co_await is_refused(c, r, condition::access_denied, "another owner");
    r = good;
    r.size_bytes += 1;
    co_await is_refused(c, r, condition::out_of_range, "one byte past the end");
    r = good;
    r.size_bytes += 8;
    co_await is_refused(c, r, condition::out_of_range, "a word past the end");
    r = good;
    r.address -= 8;
    r.size_bytes = 8;
    co_await is_refused(c, r, condition::out_of_range, "before the beginning");
    r = good;
    r.address += good.size_bytes;
    co_await is_refused(c, r, condition::out_of_range, "behind the end");
    r = good;
    r.address = UINT64_MAX - 103; // address + size wraps
    co_await is_refused(c, r, condition::out_of_range, "a range that wraps");
    r = good;
    r.address = 0;
    co_await is_refused(c, r, condition::out_of_range, "address 0");
    VERIFY(c.is_open());
    VERIFY_EQUAL(c.stats().read.failures, 10U);
    VERIFY_EQUAL(c.stats().read.operations, 0U);

    buffer mine(good.size_bytes);
    must(co_await c.read(good, mine)); // the connection lives
    must_be_all(mine.bytes(), untouched);
    must(co_await c.send(char{1}));
}

task<void> is_aimed_at(runtime&, connection& c) {
    // Neighbours on both sides, so that a miss shows.
    buffer memory(3 * 4096);
    fill_with(memory.bytes(), untouched);
    auto shared = must(co_await c.share(memory.subview(4096, 4096),
                                        access::remote_read | access::remote_write | access::remote_atomic));
    must(co_await c.send(shared.description()));
    must(co_await c.receive<char>()); // and no immediate of a refused write before it
    must_be_all(memory.bytes(), untouched);
    if (!c.capabilities().remote_cpu_bypass) VERIFY(c.stats().refused_operations >= 10 * 3);
    must(co_await c.closed());
}

constexpr std::array grants{access::remote_read, access::remote_write, access::remote_atomic};

/// Tries what was granted and what was not, on each of the three shares.
task<void> tries_each_access(runtime&, connection& c) {
    buffer mine(4096);
    fill_with(mine.bytes(), untouched);
    for (const access granted : grants) {
        const remote_region r = must(co_await c.receive<remote_region>());
        VERIFY(r.granted == granted);
        const auto check = [granted](const auto& outcome, access needed) {
            if (allows(granted, needed)) must(outcome);
            else must_fail(outcome, condition::access_denied);
        };
        const auto read = co_await c.read(r, mine);
        check(read, access::remote_read);
        fill_with(mine.bytes(), untouched);
        const auto wrote = co_await c.write(r, mine);
        check(wrote, access::remote_write);
        if (c.capabilities().atomics) {
            const auto added = co_await c.fetch_add(r.first(8), 0);
            check(added, access::remote_atomic);
            const auto swapped = co_await c.compare_swap(r.first(8), 1, 1);
            check(swapped, access::remote_atomic);
        }
        // Claiming more in the description doesn't help: what counts is what the owner granted.
        remote_region claimed = r;
        claimed.granted = access::remote_read | access::remote_write | access::remote_atomic;
        const auto again = co_await c.write(claimed, mine);
        check(again, access::remote_write);
    }
    must(co_await c.send(char{1}));
}

task<void> grants_each_access(runtime&, connection& c) {
    buffer memory(4096);
    fill_with(memory.bytes(), untouched);
    std::array<shared_region, grants.size()> shares;
    for (std::size_t i = 0; i < grants.size(); ++i) {
        shares[i] = must(co_await c.share(memory, grants[i]));
        must(co_await c.send(shares[i].description()));
    }
    VERIFY(shares[0].description().key != shares[1].description().key);
    must(co_await c.receive<char>());
    must_be_all(memory.bytes(), untouched);
    must(co_await c.closed());
}

task<void> uses_revoked(runtime&, connection& c) {
    const remote_region r = must(co_await c.receive<remote_region>());
    buffer mine(r.size_bytes);
    must(co_await c.read(r, mine));
    must(co_await c.send(char{1}));
    must(co_await c.receive<char>()); // revoked now
    co_await is_refused(c, r, condition::access_denied, "a revoked key");
    // Shared again: the old description stays dead, also when the slot is used again.
    const remote_region fresh = must(co_await c.receive<remote_region>());
    VERIFY(fresh.key != r.key || fresh.generation != r.generation);
    co_await is_refused(c, r, condition::access_denied, "the key of an earlier share");
    must(co_await c.read(fresh, mine));
    must(co_await c.send(char{1}));
}

task<void> revokes(runtime&, connection& c) {
    buffer memory(4096);
    fill_with(memory.bytes(), untouched);
    auto shared = must(co_await c.share(memory, access::remote_read | access::remote_write));
    must(co_await c.send(shared.description()));
    must(co_await c.receive<char>());
    shared.revoke();
    shared.revoke();
    must(co_await c.send(char{1}));
    auto again = must(co_await c.share(memory, access::remote_read | access::remote_write));
    must(co_await c.send(again.description()));
    must(co_await c.receive<char>());
    must_be_all(memory.bytes(), untouched);
    must(co_await c.closed());
}

constexpr std::size_t large = std::size_t{24} << 20;

/// Reads and writes until it is refused; every end is one of the two.
task<result<void>> use_until_revoked(connection& c, remote_region r, region_view mine, bool writes) {
    for (;;) {
        auto done = co_await move_task(writes, c, r, mine);
        if (!done) co_return done;
    }
}

constexpr int rounds_in_flight = 6;

task<void> is_revoked_in_flight(runtime&, connection& c, const provider& p, int first) {
    buffer mine(large);
    for (int round = first; round < (p.refusal_keeps_connection ? rounds_in_flight : first + 1); ++round) {
        const remote_region r = must(co_await c.receive<remote_region>());
        const bool writes = round % 2 == 1;
        fill_with(mine.bytes(), std::byte{0xee});
        const auto ended = co_await use_until_revoked(c, r, mine, writes);
        must_fail(ended, condition::access_denied);
        if (!p.refusal_keeps_connection) { // unless word of the revocation was faster
            if (!c.is_open()) must_fail(co_await c.closed(), condition::closed);
            c = connection();
            co_return;
        }
        VERIFY(c.is_open());
        must(co_await c.send(char{1}));
    }
}

/// After revoke() the memory is the owner's alone: it is unmapped at once, so that a late access is a crash.
task<void> revokes_in_flight(runtime&, connection& c, const provider& p, int first) {
    for (int round = first; round < (p.refusal_keeps_connection ? rounds_in_flight : first + 1); ++round) {
        std::optional<buffer> memory(std::in_place, large);
        fill_with(memory->bytes(), untouched);
        auto shared = must(co_await c.share(*memory, access::remote_read | access::remote_write));
        must(co_await c.send(shared.description()));
        for (int turns = 0; turns < 10 * round; ++turns) co_await yield();
        co_await until_used(c, 1);
        if (round % 3 == 2) {
            shared = shared_region(); // its end revokes as well
        } else {
            shared.revoke();
        }
        memory.reset();
        if (!p.refusal_keeps_connection) {
            must_fail(co_await c.closed(), condition::closed);
            co_return;
        }
        must(co_await c.receive<char>());
    }
    must(co_await c.closed());
}

task<void> shares_nothing(runtime&, connection& c) {
    buffer memory(64);
    must_fail(co_await c.share(memory.first(0), access::remote_read), condition::invalid);
    must_fail(co_await c.share(memory, access::none), condition::invalid);
    VERIFY(c.is_open());
}

/// The share is kept longer than the connection; revoking it then is fine.
task<void> outlives(runtime&, connection& c) {
    buffer memory(64);
    auto shared = must(co_await c.share(memory, access::remote_read));
    must(co_await c.close());
    must_fail(co_await c.share(memory, access::remote_read), condition::closed);
    c = connection();
    shared.revoke();
}

task<void> waits(runtime&, connection& c) { must(co_await c.closed()); }

} // namespace

CONFORMANCE_TEST("Access.wrong_key_and_bounds_fail_the_operation_only", p) { run_pair(p, aims_wrong, is_aimed_at); }

CONFORMANCE_TEST("Access.what_was_not_granted_is_refused", p) { run_pair(p, tries_each_access, grants_each_access); }

CONFORMANCE_TEST("Access.a_revoked_key_is_dead", p) { run_pair(p, uses_revoked, revokes); }

CONFORMANCE_TEST("Access.revoking_waits_for_nobody_and_nothing_touches_the_memory_afterwards", p) {
    pair_options options;
    options.ends_by_itself = !p.refusal_keeps_connection;
    for (int first = 0; first < (p.refusal_keeps_connection ? 1 : rounds_in_flight); ++first)
        run_pair(
            p, [&p, first](runtime& rt, connection& c) { return is_revoked_in_flight(rt, c, p, first); },
            [&p, first](runtime& rt, connection& c) { return revokes_in_flight(rt, c, p, first); }, options);
}

CONFORMANCE_TEST("Access.sharing_nothing_is_invalid", p) { run_pair(p, shares_nothing, waits); }

CONFORMANCE_TEST("Access.a_share_may_outlive_its_connection", p) {
    pair_options options;
    options.ends_by_itself = true;
    run_pair(p, outlives, waits, options);
}

} // namespace sluice::conformance
