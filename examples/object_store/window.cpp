#include "examples/object_store/window.hpp"

#include <utility>

namespace store {

sluice::task<sluice::result<void>> stop_others_on_error(sluice::scope& pipeline,
                                                        sluice::task<sluice::result<void>> work) {
    auto done = co_await std::move(work);
    // Not when it was canceled: the scope would take that for its own wish, and join() would report success.
    if (!done && done.error() != sluice::condition::canceled) pipeline.request_stop();
    co_return done;
}

} // namespace store
