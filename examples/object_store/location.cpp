#include "examples/object_store/location.hpp"

#include <sluice/address.hpp>

#include <cstddef>
#include <filesystem>
#include <system_error>

namespace store {

namespace {

/// Where the address ends in `text`, a path of a unix socket and perhaps a key.
std::size_t end_of_socket_path(std::string_view text, std::size_t path_at) {
    for (std::size_t end = text.find('/', path_at + 1);; end = text.find('/', end + 1)) {
        std::error_code ignored;
        if (std::filesystem::is_socket(text.substr(path_at, end - path_at), ignored))
            return end == text.npos ? text.size() : end;
        if (end == text.npos) return text.size();
    }
}

} // namespace

sluice::result<location> location::parse(std::string_view text) {
    const std::size_t scheme_end = text.find("://");
    if (scheme_end == text.npos)
        return sluice::error(sluice::errc::invalid_address,
                             "\"" + std::string(text) +
                                 "\" is not the address of an object; write it as tcp://HOST:PORT/KEY");
    const std::size_t host_at = scheme_end + 3;
    const bool is_path = host_at < text.size() && text[host_at] == '/';
    std::size_t end = is_path ? end_of_socket_path(text, host_at) : text.find('/', host_at);
    if (end == text.npos) end = text.size();

    location found;
    found.server = text.substr(0, end);
    if (end < text.size()) found.key = text.substr(end + 1);
    if (auto address = sluice::address::parse(found.server); !address) return std::move(address).error();
    return found;
}

} // namespace store
