#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <utility>

/// The network of the guest, docs/rdma-guest.md, and what tests do to it. What a test changes there comes back when the
/// object goes that changed it: others run after it in the same guest.
namespace sluice::rdma::testing {

/// Skips the test outside of the guest, whose network may be broken.
void needs_guest();
/// A device of host 1 and the device of host 2 that it reaches, of the pair with this number in SLUICE_RDMA_PAIRS; skips
/// the test where there is none.
std::pair<std::string, std::string> pair_of_devices(std::size_t number);
/// A device of this host of the same kind that is not `other`; skips the test where there is none.
std::string other_device(const std::string& other);
/// The device whose address SLUICE_TEST_RDMA_IPV4 is, by the guest's lists: librdmacm keeps open what it was once asked
/// about, in this process and in its children. Skips the test where there is none.
std::string untouched_device();
/// "rdma://10.9.5.1:0"
std::string address_of_device(const std::string& device);

/// The thread that calls it is on the host of this device from now on: what it asks of the connection manager goes there.
void enter_host_of(const std::string& device);

/// Runs a command of the guest; throws when it fails, with what it said.
void command(const std::string& line);

/// A command that runs beside the test.
class running_command {
public:
    explicit running_command(std::string line);
    struct ended {
        int status = 0; ///< as a shell has it
        std::string said;
    };
    bool is_over() const { return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
    /// Waits for its end.
    ended wait() { return result_.get(); }

private:
    std::future<ended> result_;
};

/// Drops, delays or reorders what a device sends, or lo: the words of tc-netem(8).
class shaped_link {
public:
    shaped_link(std::string device, const std::string& how);
    ~shaped_link();
    shaped_link(const shaped_link&) = delete;
    shaped_link& operator=(const shaped_link&) = delete;
    struct packets {
        std::uint64_t sent = 0;
        std::uint64_t dropped = 0;
    };
    packets count() const;

private:
    std::string device_;
};

/// The link of a device of host 1, which goes up again in the end at the latest.
class cut_link {
public:
    explicit cut_link(std::string device);
    ~cut_link();
    cut_link(const cut_link&) = delete;
    cut_link& operator=(const cut_link&) = delete;
    /// Takes it down: the port has gone when this returns.
    void down() const;
    void up() const;
    /// As verbs has it, now. "ACTIVE", "DOWN"
    std::string port_state() const;

private:
    std::string device_;
};

/// A device that is deleted, and comes back in the end.
class deleted_device {
public:
    explicit deleted_device(std::string device);
    ~deleted_device();
    deleted_device(const deleted_device&) = delete;
    deleted_device& operator=(const deleted_device&) = delete;
    /// Begins. The kernel may end it only when the last program has closed the device.
    void begin();
    bool is_over() const { return deleting_->is_over(); }
    /// Waits until the device is gone.
    void wait();

private:
    std::string device_;
    std::optional<running_command> deleting_;
    bool waited_ = false;
};

} // namespace sluice::rdma::testing
