#pragma once

#include <sluice/blocking.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace sluice::detail {

/// run_blocking() for the coroutines of objects that are destroyed at once: the coroutine may be destroyed while the call
/// runs, which then waits for it. What `f` made must not be lost with it: let it store that where it is found.
template <class F>
    requires std::is_invocable_v<std::decay_t<F>&>
blocking_operation<std::decay_t<F>, true> run_joined(F&& f) {
    return blocking_operation<std::decay_t<F>, true>(std::forward<F>(f));
}

} // namespace sluice::detail
