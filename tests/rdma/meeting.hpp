#pragma once

#include <sluice/connection.hpp>
#include <sluice/runtime.hpp>
#include <sluice/task.hpp>

#include "tests/conformance/watchdog.hpp"
#include "tests/rdma/bare_peer.hpp"
#include "tests/rdma/live_objects.hpp"

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>

/// One end of the library's and a bare one, on an RDMA device of this machine.
namespace sluice::rdma::testing {

/// "rdma://HOST:0" of a device here, from the environment variable SLUICE_TEST_RDMA_IPV4; skips the test without it, or
/// where no device has it.
std::string device_address();

/// What our end does with its connection, on a thread of its own: the bare one blocks in the test's. It tells by
/// exceptions, see tests/conformance/verify.hpp.
using our_part = std::function<task<void>(runtime&, connection&)>;

/// Our end, and its runtime. Its thread ends by itself once the other end has gone, so let that go first. It prints at
/// once what it throws: the other end may hang for it.
class our_end {
public:
    /// Listens at `address` for one, which must come within half a minute; connects to it. With a device of another
    /// host, there; see tests/rdma/network.hpp.
    static std::unique_ptr<our_end> listening(std::string address, our_part body, const connection_options& options,
                                              std::string on_host_of = "");
    static std::unique_ptr<our_end> connecting(std::string address, our_part body, const connection_options& options,
                                               std::string on_host_of = "");
    /// Runs a task without a connection.
    static std::unique_ptr<our_end> running(std::function<task<void>(runtime&)> body);
    ~our_end();

    /// Where it listens.
    std::string address() { return where_.get_future().get(); }
    bool is_over() const { return done_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
    /// Waits for its end and rethrows what it threw.
    void join() { done_.get(); }

private:
    our_end();
    void start(std::function<task<void>(our_end&)> body);
    runtime runtime_;
    std::promise<std::string> where_;
    std::future<void> done_;
};

/// For connections that need only be: one end sends a word and closes, the other gets it and hears of that.
task<void> says_a_word(connection& c);
task<void> hears_a_word(connection& c);

/// What the bare end is.
enum class role { client, server };
const char* to_string(role r);

struct meeting {
    bare::hello hello{}; ///< of the bare end; as server it answers with the smaller of both limits
    connection_options ours{};
    bool ours_closes = true; ///< our end closes at last, and the bare one agrees; else the parts do that
};

/// A connection of both ends, from the handshake on: `ours` and `theirs` do what they do, then all ends, and nothing of
/// ours may be left.
void meet(role bare, const our_part& ours, const std::function<void(bare::peer&)>& theirs, const meeting& with = {});

/// The smaller limits of the two, as an acceptance of `request`.
bare::hello answer(bare::hello mine, const bare::hello& request);

/// Fails the test when the library holds anything of verbs or the connection manager; its runtimes are gone.
void check_nothing_left();

} // namespace sluice::rdma::testing
