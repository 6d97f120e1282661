#pragma once

#include <sluice/address.hpp>
#include <sluice/connection.hpp>
#include <sluice/executor.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>
#include <sluice/transfer_operation.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace sluice {

namespace detail {
/// Of one connection, whoever carries it: what both wires can express, and connection_options::lanes says.
inline constexpr std::uint8_t lanes_max = 16;
} // namespace detail

/// What a shared_region holds: the sharing provider's record of it. It outlives the connection when the user keeps it.
struct shared_region::slot {
    slot() = default;
    virtual ~slot() = default;
    slot(const slot&) = delete;
    slot& operator=(const slot&) = delete;
    /// Once it returns nothing reads or writes the memory for the peer any more. Idempotent.
    virtual void revoke() noexcept = 0;
};

namespace detail {

/// One end of a connection, as a provider implements it. Everything is called on `home()`'s thread.
class provider_connection {
public:
    struct shared {
        std::shared_ptr<shared_region::slot> slot;
        remote_region description;
    };

    provider_connection(executor& home, const connection_options& options) noexcept : home_(home), options_(options) {}
    virtual ~provider_connection();
    provider_connection(const provider_connection&) = delete;
    provider_connection& operator=(const provider_connection&) = delete;

    executor& home() const noexcept { return home_; }
    const connection_options& options() const noexcept { return options_; }

    /// Takes the transfer, which stays valid until the provider has called complete() on it, exactly once, now or
    /// later. Sizes of both sides are equal, words are aligned; everything else is the provider's to check.
    virtual void start(transfer& t) noexcept = 0;
    /// Asks to end a started transfer early: it still completes exactly once, with `why` or better, after the provider
    /// has let go of its memory. May come several times; the first counts.
    virtual void cancel(transfer& t, error why) noexcept = 0;

    virtual task<result<shared>> share(region_view memory, access granted) = 0;
    virtual task<result<void>> close() = 0;
    virtual task<result<void>> closed() = 0;

    virtual bool is_open() const noexcept = 0;
    virtual sluice::path path() const noexcept = 0;
    virtual sluice::capabilities capabilities() const noexcept = 0;
    virtual std::string peer_address() const = 0;
    virtual std::string local_address() const = 0;
    virtual std::string choice() const = 0;
    virtual connection_stats stats() const;

    // ---- for transfer ----
    void began() noexcept { ++in_flight_; }
    void ended(const transfer& t, bool ok) noexcept;
    std::uint32_t in_flight() const noexcept { return in_flight_; }

private:
    enum class counted : std::uint8_t { read, write, atomic, send, receive, count_ };
    static counted counted_as(transfer_kind kind) noexcept;

    executor& home_;
    connection_options options_;
    std::uint32_t in_flight_ = 0;
    // Made at the first operation of their kind, so that an idle connection stays small.
    std::array<std::unique_ptr<operation_stats>, static_cast<std::size_t>(counted::count_)> stats_;
};

/// Where a provider takes connections in. Destroying it stops it.
class provider_listener {
public:
    provider_listener() = default;
    virtual ~provider_listener() = default;
    provider_listener(const provider_listener&) = delete;
    provider_listener& operator=(const provider_listener&) = delete;

    virtual task<result<std::unique_ptr<provider_connection>>> accept() = 0;
    virtual void close() noexcept = 0;
    virtual sluice::address address() const = 0;
    virtual std::uint64_t rejected() const noexcept = 0;
};

/// What a runtime tells a provider about the connections that it makes.
struct provider_setup {
    std::string choice;      ///< what connection::choice() says
    std::uint64_t owner = 0; ///< stands in every remote_region that is shared over them
    std::string rdma_devices{}; ///< those that may be used (runtime_options.rdma_devices); empty: all
};

/// A way to carry connections. One object for the whole process, without state of its own.
class provider {
public:
    provider() = default;
    provider(const provider&) = delete;
    provider& operator=(const provider&) = delete;

    virtual sluice::scheme scheme() const noexcept = 0;
    /// Success, or why it can't be used on this machine with these devices (provider_setup); may block.
    virtual result<void> available(const std::string& rdma_devices) const = 0;
    /// Whether this text chooses devices at all, whatever there is. Errors: errc::invalid_argument that quotes the part.
    virtual result<void> check_devices(const std::string&) const { return {}; }
    /// The options have been validated.
    virtual task<result<std::unique_ptr<provider_connection>>> connect(sluice::address to, connection_options options,
                                                                       provider_setup setup) const = 0;
    virtual task<result<std::unique_ptr<provider_listener>>> listen(sluice::address on, listen_options options,
                                                                    provider_setup setup) const = 0;

protected:
    ~provider() = default;
};

/// The providers of this build, the preferred one first.
std::span<const provider* const> providers() noexcept;
/// The one of this scheme, or null where this build has none.
const provider* provider_of(scheme wanted) noexcept;
/// Of rdma/, where SLUICE_HAS_RDMA is 1: net/ knows no more of it.
const provider& rdma_provider() noexcept;

} // namespace detail

} // namespace sluice
