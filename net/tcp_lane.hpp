#pragma once

#include <sluice/executor.hpp>
#include <sluice/operation.hpp>
#include <sluice/result.hpp>

#include "net/background.hpp"
#include "net/flow.hpp"
#include "net/tcp_gather.hpp"
#include "net/tcp_request.hpp"
#include "net/tcp_serving.hpp"
#include "net/wire.hpp"
#include "runtime/unique_fd.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice::net {

class tcp_connection;

/// One socket of a connection: a coroutine that reads frames and one that writes them, and the operations that travel
/// here. Small frames pass through a buffer, large payload goes straight between the socket and the memory it is for.
class tcp_lane {
public:
    tcp_lane(tcp_connection& connection, std::uint32_t index, detail::unique_fd socket, std::uint32_t operations);
    ~tcp_lane();
    tcp_lane(const tcp_lane&) = delete;
    tcp_lane& operator=(const tcp_lane&) = delete;

    void start() noexcept;
    std::uint32_t index() const noexcept { return index_; }
    int fd() const noexcept { return socket_.get(); }
    request_table& requests() noexcept { return requests_; }
    slot_table<tcp_serving>& servings() noexcept { return servings_; }

    /// Queues a flow for its turn: control frames go first and in order, bulk shares the rest in turns.
    void send(flow& f) noexcept;
    void send_bulk(flow& f) noexcept;
    void say_goodbye() noexcept { say(goodbye_); }
    void acknowledge_goodbye() noexcept { say(goodbye_ack_); }

    // Memory wanted back. The flow is told by source_released() and target_released(), from a later turn on.
    void interrupt_send() noexcept;
    void interrupt_receive(const flow& f) noexcept;
    /// The same at once: when it returns the kernel holds no memory under `tag`, and none that `f` lets be filled.
    void withdraw_source(const void* tag) noexcept;
    void withdraw_target(const flow& f) noexcept;

    /// Ends both directions; the coroutines end soon after, and the connection is told.
    void shut() noexcept;
    bool ended() const noexcept { return reader_done_ && writer_done_; }
    void shut_socket() noexcept;
    void close_socket(bool reset) noexcept;
    /// Ends all at once; before the destructor.
    void end(bool reset) noexcept;

    bool peer_said_goodbye = false;
    bool peer_acknowledged = false;
    error write_error{std::error_code{}}; ///< why nothing can be sent any more; the reader finds out the rest

private:
    /// A frame without anything else to it.
    class signal final : public flow {
    public:
        explicit signal(frame_type type) noexcept : type_(type) {}
        bool emit(gather& out) noexcept override;

    private:
        frame_type type_;
    };
    /// Where the payload of the current large frame goes.
    struct sink {
        flow* owner = nullptr;
        std::byte* target = nullptr; ///< null: thrown away
        std::size_t left_bytes = 0;
        std::size_t total_bytes = 0;
    };

    static constexpr std::size_t buffer_bytes = frame_header_bytes + eager_bytes_max;
    static constexpr std::size_t grown_bytes = 32 * 1024;
    static constexpr std::size_t scratch_bytes = 64 * 1024;
    static constexpr int exact_headers = 4;

    background read_loop();
    background write_loop();
    bool parse() noexcept;
    bool begin_payload(const frame& header) noexcept;
    std::span<std::byte> next_target() noexcept;
    std::span<std::byte> buffer() noexcept {
        return grown_ != nullptr ? std::span(grown_, grown_bytes) : std::span(buffer_);
    }
    void fit_buffer(std::size_t rest) noexcept;
    void release_grown() noexcept;
    bool received(std::int32_t result) noexcept;
    void take_payload(std::size_t bytes) noexcept;
    void release_target() noexcept;
    void collect() noexcept;
    bool sent(std::int32_t result) noexcept;
    void say(signal& s) noexcept;
    void settle_in_flight(operation*& op) noexcept;

    tcp_connection& connection_;
    std::uint32_t index_;
    detail::unique_fd socket_;
    bool shut_ = false;
    bool silent_ = false; // goodbye is on its way: no bulk any more
    bool muted_ = false;  // goodbye is out: nothing but signals any more

    // the reader's
    background reader_;
    bool reader_done_ = false;
    operation* receiving_ = nullptr;
    std::size_t consumed_ = 0;
    std::size_t filled_ = 0;
    int exact_ = 0; // headers still to be read alone: after bulk comes bulk
    sink sink_;
    std::unique_ptr<std::byte[]> scratch_;
    bool backlog_ = false; // the last receive filled the buffer: there is more
    std::byte* grown_ = nullptr; // stands in for buffer_ while there is a backlog, so that idle connections stay small
    std::array<std::byte, buffer_bytes> buffer_;

    // the writer's
    background writer_;
    bool writer_done_ = false;
    operation* sending_ = nullptr;
    parking_spot idle_;
    bool idling_ = false;
    flow_queue control_;
    flow_queue bulk_;
    flow_queue signals_;
    signal goodbye_;
    signal goodbye_ack_;
    gather gather_;

    request_table requests_;
    slot_table<tcp_serving> servings_;
};

} // namespace sluice::net
