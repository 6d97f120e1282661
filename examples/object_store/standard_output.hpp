#pragma once

namespace store {

/// What could not be printed has not been said: that is a failure too. Gives `status`, or 1 instead of 0 after saying so.
int flushed(const char* program, int status) noexcept;

} // namespace store
