#pragma once

#include <string>
#include <string_view>

namespace sluice::net {

/// `text` in double quotes for an error message: what does not print is escaped as \xNN, and of a long text only the
/// beginning is shown, so that hostile input can't spoil a log.
std::string quoted(std::string_view text);

} // namespace sluice::net
