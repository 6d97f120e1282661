#include "tests/rdma/busy_end.hpp"

#include "tests/conformance/buffer.hpp"
#include "tests/conformance/verify.hpp"
#include "tests/rdma/meeting.hpp"

#include <sluice/scope.hpp>

#include <optional>
#include <thread>

namespace sluice::rdma::testing {

namespace {

using conformance::buffer;
using conformance::must;
using conformance::must_fail;

constexpr std::size_t part_bytes = 64 << 10;
constexpr int writes_before = 20; // of each end, so that all is in motion

task<void> writes_until_it_ends(connection& c, remote_view there, region_view from, std::latch& busy,
                                std::optional<error>& why) {
    for (int done = 0; !why; ++done) {
        const auto written = co_await c.write(there, from);
        if (!written) why = written.error();
        if (done == writes_before) busy.count_down();
    }
}

task<void> receives_until_it_ends(connection& c, region_view into, std::optional<error>& why) {
    const auto got = co_await c.receive(into);
    if (!got) why = got.error();
}

} // namespace

task<error> is_busy_until_cut_off(connection& c, interruption& by, std::size_t self) {
    buffer mine(part_bytes);
    buffer from(part_bytes);
    buffer message(64);
    auto shared = must(co_await c.share(mine, access::remote_write));
    must(co_await c.send(shared.description()));
    const remote_region there = must(co_await c.receive<remote_region>());
    std::optional<error> no_write;
    std::optional<error> no_receive;
    scope work;
    work.spawn(writes_until_it_ends(c, there, from, by.busy, no_write));
    work.spawn(receives_until_it_ends(c, message, no_receive));
    const auto ended = co_await c.closed();
    by.over[self] = std::chrono::steady_clock::now();
    must(co_await work.join());
    const error cause = must_fail(ended, condition::closed);
    VERIFY(no_write && no_receive);
    VERIFY_EQUAL(no_write->message(), cause.message());
    VERIFY_EQUAL(no_receive->message(), cause.message());
    VERIFY(!c.is_open());
    must_fail(co_await c.send(std::uint32_t{1}), condition::closed);
    must_fail(co_await c.close(), condition::closed);
    co_return cause;
}

void wait_until_busy(const interruption& both, const our_end& listening, const our_end& connecting) {
    while (!both.busy.try_wait() && !connecting.is_over() && !listening.is_over()) std::this_thread::yield();
}

} // namespace sluice::rdma::testing
