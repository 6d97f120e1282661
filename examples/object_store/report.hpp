#pragma once

#include "examples/object_store/client.hpp"
#include "examples/object_store/command_line.hpp"

#include <string_view>

namespace store {

/// What the commands print on standard output: a line for people, or one JSON object with the same facts.
void report_transfer(const settings& s, const object_info& object, std::string_view file, double seconds,
                     sluice::path by);
void report_listed(const settings& s, const object_info& object);
void report_object(const settings& s, const object_info& object);
void report_removed(const settings& s, std::string_view key);
void report_server(const settings& s, const server_stats& stats);
void report_listening(const settings& s, std::string_view address);

} // namespace store
