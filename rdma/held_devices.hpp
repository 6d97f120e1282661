#pragma once

#include <sluice/result.hpp>

#include "rdma/limits.hpp"
#include "rdma/verbs.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>

namespace sluice::rdma {

/// The devices that librdmacm knows. While this lives it closes none of them, also when a device goes; without it, one
/// that went is closed as soon as no id is bound to it, whatever else uses it [librdmacm's cma.c: sync_devices_list,
/// rdma_free_devices].
///
/// Thread rule: thread-safe.
class held_devices {
public:
    /// Opens those that it has not opened yet: for a helper thread. Errors: what rdma_get_devices(3) reports.
    static result<held_devices> take() {
        int count = 0;
        errno = 0;
        held_devices made;
        made.list_.reset(api().get_devices(&count));
        if (made.list_ == nullptr) return verbs_error(errno, "rdma_get_devices");
        made.count_ = static_cast<std::size_t>(count);
        return made;
    }
    std::span<ibv_context* const> all() const noexcept { return {list_.get(), count_}; }
    bool contains(const ibv_context* context) const noexcept {
        return std::ranges::find(all(), context) != all().end();
    }

private:
    struct release {
        void operator()(ibv_context** list) const noexcept { api().free_devices(list); }
    };
    std::unique_ptr<ibv_context*, release> list_;
    std::size_t count_ = 0;
};

} // namespace sluice::rdma
