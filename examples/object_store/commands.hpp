#pragma once

#include "examples/object_store/command_line.hpp"
#include "examples/object_store/location.hpp"

#include <sluice/result.hpp>
#include <sluice/runtime.hpp>
#include <sluice/task.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace store {

/// One file and the object that it becomes or comes from.
struct transfer_job {
    std::string file;
    location object;
};

/// What `put` or `get` have to do; finds mistakes before anything moves.
sluice::result<std::vector<transfer_job>> plan_transfers(const settings& s);

/// What `ls`, `stat` and `rm` ask about, likewise.
sluice::result<std::vector<location>> plan_queries(const settings& s);

/// "cannot connect to SERVER", with the library's reason.
sluice::error cannot_connect(const std::string& server, const sluice::error& why);

/// The commands. Each prints what it has to say and gives the exit status.
sluice::task<int> run_serve(sluice::runtime& runtime, const settings& s);
sluice::task<int> run_transfers(sluice::runtime& runtime, const settings& s, const std::vector<transfer_job>& jobs);
sluice::task<int> run_queries(sluice::runtime& runtime, const settings& s, const std::vector<location>& places);

/// Prints "sluice-store: WHAT: WHY" on standard error, as JSON on standard output too if that is wanted. Gives 1.
int report_failure(const settings& s, std::string_view what, const sluice::error& why);

} // namespace store
