#include "tests/rdma/network.hpp"

#include "tests/rdma/bare_peer.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <net/if.h>
#include <sched.h>
#include <sstream>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace sluice::rdma::testing {

namespace {

using bare::failure;

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

std::vector<std::string> words(const std::string& of) {
    std::istringstream from(of);
    std::vector<std::string> all;
    for (std::string word; from >> word;) all.push_back(word);
    return all;
}

/// What stands behind "NAME=" in a list of such words.
std::string value_of(const std::string& list, const std::string& name) {
    for (const std::string& word : words(list))
        if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
    return "";
}

[[noreturn]] void throw_errno(const std::string& what) { throw failure(what + ": " + std::strerror(errno)); }

running_command::ended run(const std::string& line) {
    FILE* pipe = ::popen((line + " 2>&1").c_str(), "re");
    if (pipe == nullptr) throw_errno(line);
    std::string said;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) said.push_back(static_cast<char>(c));
    const int status = ::pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), said};
}

/// What a command says; throws unless it ends with 0.
std::string output_of(const std::string& line) {
    const auto ended = run(line);
    if (ended.status != 0)
        throw failure("\"" + line + "\" ended with " + std::to_string(ended.status) + ": " + ended.said);
    return ended.said;
}

/// netdevice(7). By a call and not by a command, whose own time would be counted with the event's.
void set_link(const std::string& device, bool up) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) throw_errno("socket");
    const std::string name = "net-" + device;
    ifreq request{};
    std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name.c_str());
    int rc = ::ioctl(fd, SIOCGIFFLAGS, &request);
    if (rc == 0) {
        request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
        rc = ::ioctl(fd, SIOCSIFFLAGS, &request);
    }
    const int cause = errno;
    ::close(fd);
    errno = cause;
    if (rc != 0) throw_errno("link of " + name);
}

} // namespace

void needs_guest() {
    if (variable("SLUICE_RDMA_GUEST").empty()) SKIP("breaks the network or the devices: only in the guest");
}

std::pair<std::string, std::string> pair_of_devices(std::size_t number) {
    needs_guest();
    const auto pairs = words(variable("SLUICE_RDMA_PAIRS"));
    if (number >= pairs.size()) {
        const std::string why_not = variable("SLUICE_RDMA_TWO_HOSTS_WHY_NOT");
        SKIP("no pair " << number << " of devices on two hosts: " << why_not);
    }
    const std::string& pair = pairs[number];
    const auto middle = pair.find('=');
    if (middle == std::string::npos) throw failure("SLUICE_RDMA_PAIRS: \"" + pair + "\" is no pair");
    return {pair.substr(0, middle), pair.substr(middle + 1)};
}

std::string other_device(const std::string& other) {
    const auto devices = words(variable("SLUICE_RDMA_DEVICES"));
    const auto found = std::ranges::find_if(devices, [&](const std::string& each) {
        return each != other && each.starts_with(other.substr(0, 3));
    });
    if (found == devices.end()) SKIP("there is no device like " << other << " but itself");
    return *found;
}

std::string untouched_device() {
    needs_guest();
    const std::string address = variable("SLUICE_TEST_RDMA_IPV4");
    const auto devices = words(variable("SLUICE_RDMA_DEVICES"));
    const auto found =
        std::ranges::find_if(devices, [&](const std::string& each) { return address_of_device(each) == address; });
    if (found == devices.end()) SKIP("no device has the address SLUICE_TEST_RDMA_IPV4 = \"" << address << "\"");
    return *found;
}

std::string address_of_device(const std::string& device) {
    const std::string all = value_of(variable("SLUICE_RDMA_ADDRESSES"), device);
    if (all.empty()) throw failure("SLUICE_RDMA_ADDRESSES has no " + device);
    return "rdma://" + all.substr(0, all.find(',')) + ":0";
}

void enter_host_of(const std::string& device) {
    const auto pairs = words(variable("SLUICE_RDMA_PAIRS"));
    const bool away = std::ranges::any_of(pairs, [&](const std::string& p) { return p.ends_with("=" + device); });
    const char* space = away ? "/run/netns/host2" : "/proc/1/ns/net";
    const int fd = ::open(space, O_RDONLY | O_CLOEXEC);
    if (fd < 0) throw_errno(space);
    const int rc = ::setns(fd, CLONE_NEWNET);
    const int cause = errno;
    ::close(fd);
    errno = cause;
    if (rc != 0) throw_errno("setns");
}

void command(const std::string& line) { static_cast<void>(output_of(line)); }

running_command::running_command(std::string line)
    : result_(std::async(std::launch::async, [line = std::move(line)] { return run(line); })) {}

// ---- devices ----

deleted_device::deleted_device(std::string device) : device_(std::move(device)) {}

deleted_device::~deleted_device() {
    if (!deleting_) return;
    try {
        wait();
        command("rdma-guest-net on " + device_ + " rdma link add " + device_ + " type " + device_.substr(0, 3) +
                " netdev net-" + device_);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
    }
}

void deleted_device::begin() { deleting_.emplace("rdma-guest-net on " + device_ + " rdma link delete " + device_); }

void deleted_device::wait() {
    if (std::exchange(waited_, true)) return;
    const auto ended = deleting_->wait();
    if (ended.status != 0) throw failure("rdma link delete " + device_ + ": " + ended.said);
}

// ---- links ----

shaped_link::shaped_link(std::string device, const std::string& how) : device_(std::move(device)) {
    command("rdma-guest-net shape " + device_ + " " + how);
}

shaped_link::~shaped_link() {
    try {
        command("rdma-guest-net clear " + device_);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
    }
}

shaped_link::packets shaped_link::count() const {
    std::istringstream said(output_of("rdma-guest-net counts " + device_));
    packets counted;
    if (!(said >> counted.sent >> counted.dropped)) throw failure("rdma-guest-net counts " + device_ + " gave no counts");
    return counted;
}

cut_link::cut_link(std::string device) : device_(std::move(device)) {}

cut_link::~cut_link() {
    try {
        up();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
    }
}

void cut_link::down() const { set_link(device_, false); }
void cut_link::up() const { set_link(device_, true); }

std::string cut_link::port_state() const {
    std::ifstream file("/sys/class/infiniband/" + device_ + "/ports/1/state");
    int number = 0;
    std::string state;
    if (!(file >> number) || file.get() != ':' || !(file >> state)) throw failure("no state of the port of " + device_);
    return state;
}

} // namespace sluice::rdma::testing
