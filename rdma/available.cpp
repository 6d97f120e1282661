#include "rdma/available.hpp"
#include "rdma/chosen_ports.hpp"
#include "rdma/rdma_provider.hpp"
#include "rdma/verbs.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace sluice::rdma {

namespace {

namespace files = std::filesystem;

std::string first_line(const files::path& file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
}

/// Sorted, so that reasons do not depend on the file system.
std::vector<files::path> entries(const files::path& folder) {
    std::vector<files::path> all;
    std::error_code none;
    for (files::directory_iterator at(folder, none), end; !none && at != end; at.increment(none))
        all.push_back(at->path());
    std::ranges::sort(all);
    return all;
}

/// Read and write, as verbs open it.
result<void> check_node(const files::path& root, const std::string& node, const char* remedy) {
    const files::path file = root / node;
    if (::access(file.c_str(), R_OK | W_OK) == 0) return {};
    const int reason = errno;
    return error::from_errno(
        reason,
        "rdma: /" + node +
            (reason == ENOENT
                 ? std::string(" is missing; ") + remedy
                 : " may not be opened by this process; see its group and mode, and the container's device rules"));
}

/// The node of a device's verbs, "dev/infiniband/uverbs0", or empty.
std::string verbs_node(const files::path& root, const std::string& device) {
    for (const auto& each : entries(root / "sys/class/infiniband_verbs"))
        if (first_line(each / "ibdev") == device) return "dev/infiniband/" + each.filename().string();
    return {};
}

} // namespace

result<void> rdma_available_in(const files::path& root) {
    std::vector<std::string> active;
    std::string states; // "rxe0 port 1 is 1: DOWN"
    for (const auto& device : entries(root / "sys/class/infiniband"))
        for (const auto& port : entries(device / "ports")) {
            const std::string state = first_line(port / "state"); // "4: ACTIVE" [sysfs-class-infiniband]
            if (state.starts_with("4:")) active.push_back(device.filename().string());
            else
                states += (states.empty() ? "" : ", ") + device.filename().string() + " port " +
                          port.filename().string() + " is " + state;
        }
    if (active.empty() && states.empty())
        return error(make_error_code(errc::unsupported), "rdma: no device (/sys/class/infiniband is empty); a software "
                                                         "one: rdma link add rxe0 type rxe netdev eth0");
    if (active.empty())
        return error(make_error_code(errc::unsupported), "rdma: no active port: " + states + "; is its netdev up?");
    if (auto node = check_node(root, "dev/infiniband/rdma_cm", "modprobe rdma_ucm"); !node) return node;
    result<void> usable = errc::unsupported;
    for (const std::string& device : active) {
        const std::string node = verbs_node(root, device);
        usable = node.empty() ? error(make_error_code(errc::unsupported),
                                      "rdma: " + device + " has no verbs for programs; modprobe ib_uverbs")
                              : check_node(root, node, "in a container, pass it in (--device)");
        if (usable) break;
    }
    return usable;
}

result<void> rdma_available(const std::string& devices) {
    if (!devices.empty()) // a mistake in the text is one on any machine
        if (auto parsed = device_selector::parse(devices); !parsed) return std::move(parsed).error();
    if (auto any = rdma_available_in(api().root); !any || devices.empty()) return any;
    if (auto chosen = ports_to_connect_by(devices); !chosen) return std::move(chosen).error();
    return {};
}

} // namespace sluice::rdma
