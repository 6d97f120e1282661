#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace sluice::bench {

/// Connected TCP sockets over the loopback, without Nagle's delay; closed when it goes.
class tcp_pairs {
public:
    explicit tcp_pairs(std::size_t count);
    ~tcp_pairs();
    tcp_pairs(const tcp_pairs&) = delete;
    tcp_pairs& operator=(const tcp_pairs&) = delete;

    std::span<const int> clients() const noexcept { return clients_; }
    /// Ownership of the server's ends may be taken over by give_servers().
    std::span<const int> servers() const noexcept { return servers_; }
    std::vector<int> give_servers() noexcept { return std::exchange(servers_, {}); }

private:
    std::vector<int> clients_;
    std::vector<int> servers_;
};

/// Sends `size_bytes` on every socket and again on each that has its answer, until `operations` answers have come.
void drive_echo(std::span<const int> sockets, std::size_t size_bytes, std::uint64_t operations);

/// The calling thread runs on this CPU, where the machine has it.
void pin_thread(unsigned cpu) noexcept;

} // namespace sluice::bench
