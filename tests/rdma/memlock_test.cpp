// A process that may lock little memory and no more: what its connections say, on a real device.
#include "tests/conformance/process.hpp"
#include "tests/conformance/verify.hpp"
#include "tests/rdma/bare_cm.hpp"
#include "tests/rdma/meeting.hpp"
#include "tests/rdma/network.hpp"

#include <sluice/sleep.hpp>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sluice::rdma::testing {

namespace {

using conformance::child_process;
using conformance::must;
using conformance::must_fail;
using conformance::must_name;

constexpr rlim_t limit_bytes = 64 << 10;

/// As most programs are: without CAP_IPC_LOCK [capabilities(7)], and with the limit that many systems set.
void lock_little_memory() {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct sets[2]{};
    if (::syscall(SYS_capget, &header, sets) != 0) bare::throw_errno("capget");
    sets[0].effective &= ~(1U << CAP_IPC_LOCK);
    sets[0].permitted &= ~(1U << CAP_IPC_LOCK);
    if (::syscall(SYS_capset, &header, sets) != 0) bare::throw_errno("capset");
    const rlimit limit{limit_bytes, limit_bytes};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) bare::throw_errno("setrlimit");
}

/// Kilobytes that devices hold of this process [proc(5)].
long pinned() {
    std::ifstream status("/proc/self/status");
    std::string word;
    while (status >> word)
        if (word == "VmPin:" && status >> word) return std::stol(word);
    throw bare::failure("/proc/self/status has no VmPin");
}

void must_hold_nothing() {
    const live_objects left = count_live();
    if (!(left == live_objects{})) throw bare::failure("left: " + left.to_string());
    VERIFY_EQUAL(pinned(), 0);
}

task<void> can_not_connect(runtime& rt, std::string to, const child_process::channel& test) {
    const error why = must_fail(co_await rt.connect(to), errc::out_of_resources);
    test.say(why.message());
}

task<void> can_not_be_connected_to(runtime& rt, std::string on, const child_process::channel& test) {
    auto listener = must(co_await rt.listen(on));
    test.say(listener.address().to_string());
    while (listener.rejected() == 0) co_await yield();
}

task<void> takes_none(runtime& rt, std::string on, std::promise<std::string>& where, std::atomic<bool>& over) {
    auto listener = must(co_await rt.listen(on));
    where.set_value(listener.address().to_string());
    while (!over.load()) co_await yield();
    VERIFY_EQUAL(listener.rejected(), 0U);
}

task<void> is_refused_for_want_of_memory(runtime& rt, std::string to) {
    const error why = must_fail(co_await rt.connect(to), errc::out_of_resources);
    must_name(why, "the peer's device has no resources");
}

/// What the limited process does; `body` is told what the test said first.
child_process limited(const std::function<task<void>(runtime&, std::string, const child_process::channel&)>& body) {
    return child_process([body](const child_process::channel& test) {
        const std::string told = test.hear();
        try {
            lock_little_memory();
            our_end::running([&](runtime& rt) { return body(rt, told, test); })->join();
            must_hold_nothing();
            test.say("nothing left");
        } catch (const std::exception& e) {
            test.say(std::string("failed: ") + e.what());
        }
    });
}

} // namespace

TEST_CASE("Memlock.too_low_a_limit_is_named_with_the_need_and_the_remedy_and_nothing_stays") {
    const std::string device = untouched_device();
    const std::string on = address_of_device(device);
    child_process child = limited(can_not_connect);
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    std::promise<std::string> where;
    std::atomic<bool> over = false;
    auto listening = our_end::running([&](runtime& rt) { return takes_none(rt, on, where, over); });
    child.pipes().say(where.get_future().get());
    const std::string why = child.pipes().hear();
    over = true;
    listening->join();
    INFO(why);
    CHECK(why.find("65536 bytes") != std::string::npos);              // the limit
    CHECK(why.find(" bytes are needed") != std::string::npos);        // the need
    CHECK(why.find("ulimit -l") != std::string::npos);                // the remedy
    CHECK(why.find(device) != std::string::npos);
    std::printf("%s\n", why.c_str());
    CHECK(child.pipes().hear() == "nothing left");
}

TEST_CASE("Memlock.a_peer_of_a_listener_with_too_low_a_limit_is_told_so") {
    const std::string on = address_of_device(untouched_device());
    child_process child = limited(can_not_be_connected_to);
    const conformance::watchdog bounded(Catch::getResultCapture().getCurrentTestName());
    child.pipes().say(on);
    const std::string to = child.pipes().hear();
    REQUIRE(to.starts_with("rdma://"));
    our_end::running([&](runtime& rt) { return is_refused_for_want_of_memory(rt, to); })->join();
    CHECK(child.pipes().hear() == "nothing left");
    check_nothing_left();
}

} // namespace sluice::rdma::testing
