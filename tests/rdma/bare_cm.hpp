#pragma once

#include "tests/rdma/bare_wire.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/socket.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/// What the bare peer needs of the connection manager.
namespace sluice::bare {

inline constexpr int wait_limit_ms = 20'000; ///< of every wait

[[noreturn]] void throw_errno(const char* call);
[[noreturn]] void throw_errno(const char* call, int number);
/// Of calls that give 0, or -1 and errno.
void check(int rc, const char* call);
void make_non_blocking(int fd);

/// "rdma://HOST:PORT" with a numeric host.
class endpoint {
public:
    explicit endpoint(const std::string& address);
    sockaddr* get() const noexcept { return reinterpret_cast<sockaddr*>(const_cast<sockaddr_storage*>(&storage_)); }
    /// "10.0.0.2", or "[fd00::2]"
    const std::string& host() const noexcept { return host_; }

private:
    sockaddr_storage storage_{};
    std::string host_;
};

/// An event, copied and acknowledged.
struct cm_event {
    rdma_cm_event_type type{};
    int status = 0;
    rdma_cm_id* id = nullptr;
    bytes private_data{};
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::string text() const;
};

/// Non-blocking.
rdma_event_channel* make_channel();
std::optional<cm_event> event_if_any(rdma_event_channel* channel);
/// Waits for one.
cm_event next_event(rdma_event_channel* channel);
/// The next event must be this one.
cm_event expect_event(rdma_event_channel* channel, rdma_cm_event_type wanted);
/// All that the device can do, for rdma_connect and rdma_accept; "receiver not ready" is not retried.
rdma_conn_param parameters(ibv_context* context, std::span<const std::byte> private_data);

} // namespace sluice::bare
