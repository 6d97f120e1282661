#pragma once

#include "runtime/operation_table.hpp"
#include "tests/support/temporary_directory.hpp"

#include <sluice/executor.hpp>
#include <sluice/operation.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <vector>

namespace sluice::testing {

/// A request as it is, awaited; understands the two completions of zero-copy sends.
class [[nodiscard]] raw_operation final : public operation {
public:
    explicit raw_operation(const sluice::request& what) noexcept : operation(&raw_operation::step) { request_ = what; }
    result<std::int32_t> await_resume() const {
        if (result_ < 0) return error::from_errno(-result_);
        return result_;
    }
    int completions() const noexcept { return completions_; }

private:
    static bool step(operation& op) noexcept;
    std::int32_t value_ = 0;
    int completions_ = 0;
};

/// Everything that a request of any opcode may refer to. The three recipes below must know every row of the operation
/// table; the tests are generated from them.
class world {
public:
    explicit world(executor& home);
    ~world();
    world(const world&) = delete;
    world& operator=(const world&) = delete;

    /// One that succeeds at once; each call may use up something, so make one per operation.
    sluice::request working(opcode code);
    /// One that fails with `errno_value`.
    sluice::request failing(opcode code, int& errno_value);
    /// One that stays in flight until it is canceled. For the rows with `can_block`.
    sluice::request blocking(opcode code);

    /// Closes what the operation made.
    static void clean_up(opcode code, std::int32_t result);
    /// Descriptors that `working(close)` made and that were not closed.
    void close_leftovers();

private:
    int keep(int fd);
    std::string& name(const char* prefix);
    sluice::request on_memory(opcode code, int fd);
    sluice::request socket_request(opcode code, int fd);
    int full_pipe();
    int full_socket();
    int tcp_listener(int backlog, sockaddr_in& address);
    std::array<int, 2> tcp_pair();

    executor& home_;
    temporary_directory dir_{"/dev/shm"}; // hundreds of fsyncs take no time there
    std::vector<int> fds_;
    std::vector<int> to_be_closed_;
    std::vector<std::unique_ptr<std::string>> names_;
    alignas(4096) std::array<std::byte, 4096> memory_{};
    iovec vector_{};
    msghdr message_{};
    std::array<std::byte, 256> status_{};
    std::array<std::uint64_t, 3> how_{};
    sockaddr_in target_{};
    int file_ = -1;
    int listener_ = -1;
    int drain_ = -1; // the far end of `fed_`
    int fed_ = -1;
    bool buffers_registered_ = false;
    unsigned count_ = 0;
};

} // namespace sluice::testing
