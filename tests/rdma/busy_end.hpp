#pragma once

#include <sluice/connection.hpp>
#include <sluice/error.hpp>
#include <sluice/task.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <latch>

/// Connections in the middle of their work, for tests that take away what they stand on.
namespace sluice::rdma::testing {

class our_end;

/// What both ends and the test share.
struct interruption {
    std::latch busy{2};                                          ///< open once both ends are in motion
    std::array<std::chrono::steady_clock::time_point, 2> over{}; ///< when each end heard that the connection is over
};

/// Writes and waits for a message while it shares memory, until the connection ends below it: all that was in flight and
/// all that comes later must have failed with `condition::closed` and the one cause, which it returns. `self` is 0 or 1.
task<error> is_busy_until_cut_off(connection& c, interruption& by, std::size_t self);

/// Waits until both ends are in motion, or one has failed.
void wait_until_busy(const interruption& both, const our_end& listening, const our_end& connecting);

} // namespace sluice::rdma::testing
