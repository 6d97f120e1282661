#include "tests/rdma/fake_names.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <netdb.h>
#include <utility>

namespace {

std::mutex mutex;
std::string known;
std::vector<std::string> its_addresses;

using function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);

} // namespace

namespace sluice::testing {

fake_name::fake_name(std::string name, std::vector<std::string> addresses) {
    const std::lock_guard lock(mutex);
    if (!known.empty()) std::abort(); // one at a time
    known = std::move(name);
    its_addresses = std::move(addresses);
}

fake_name::~fake_name() {
    const std::lock_guard lock(mutex);
    known.clear();
}

} // namespace sluice::testing

/// In front of the library's own: what the program defines goes first [ld.so(8)]. A list is made of those of each address,
/// which freeaddrinfo(3) takes as any other.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** into) {
    static const auto real = reinterpret_cast<function>(dlsym(RTLD_NEXT, "getaddrinfo"));
    const std::lock_guard lock(mutex);
    if (name == nullptr || known != name) return real(name, service, hints, into);
    addrinfo** end = into;
    *end = nullptr;
    for (const std::string& each : its_addresses) {
        if (const int failed = real(each.c_str(), service, hints, end); failed != 0) return failed;
        while (*end != nullptr) end = &(*end)->ai_next;
    }
    return 0;
}
