#include <sluice/address.hpp>

#include "net/text.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/un.h>

namespace sluice {

namespace {

constexpr std::size_t unix_path_bytes_max = sizeof(sockaddr_un::sun_path) - 1; // a NUL ends it, or begins an abstract one
constexpr std::size_t name_bytes_max = 253;                                    // [RFC 1035 2.3.4]
constexpr std::size_t label_bytes_max = 63;

struct scheme_name {
    std::string_view text;
    scheme value;
};
constexpr std::array<scheme_name, 3> schemes{
    {{"auto", scheme::automatic}, {"tcp", scheme::tcp}, {"rdma", scheme::rdma}}};

error wrong(std::string_view whole, const std::string& what) {
    return {errc::invalid_address, "address " + net::quoted(whole) + ": " + what};
}

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

bool is_name_character(char c) noexcept {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

/// What is wrong with a host name, or nothing.
std::string fault_of_name(std::string_view name) {
    const auto odd = std::find_if_not(name.begin(), name.end(), is_name_character);
    if (odd != name.end())
        return "the host " + net::quoted(name) + " has " + net::quoted(std::string_view(&*odd, 1)) +
               "; a name is made of letters, digits, '-', '_' and '.' (write others in punycode), an IPv6 address stands "
               "in brackets";
    if (name.size() > name_bytes_max)
        return "the host has " + std::to_string(name.size()) + " characters, a name has at most 253";
    if (name.ends_with('.')) name.remove_suffix(1);
    for (std::size_t start = 0; start <= name.size();) {
        const std::size_t end = std::min(name.find('.', start), name.size());
        if (end == start || end - start > label_bytes_max)
            return "the host " + net::quoted(name) + " has a part of " + std::to_string(end - start) +
                   " characters between its dots, allowed are 1..63";
        start = end + 1;
    }
    return {};
}

std::string fault_of_host(std::string_view host) {
    if (host.empty()) return "the host is empty; to listen on every address write [::] or 0.0.0.0";
    if (host.find(':') != host.npos)
        return "the host " + net::quoted(host) + " has colons; an IPv6 address stands in brackets, as in [::1]:7471";
    if (std::all_of(host.begin(), host.end(), [](char c) { return is_digit(c) || c == '.'; })) {
        in_addr ignored{};
        if (inet_pton(AF_INET, std::string(host).c_str(), &ignored) != 1)
            return "the host " + net::quoted(host) + " is not an IPv4 address, which has four numbers from 0 to 255";
        return {};
    }
    return fault_of_name(host);
}

std::string fault_of_ipv6(std::string_view host, const std::string& scope, bool has_scope) {
    in6_addr parsed{};
    // inet_pton takes a C string: a NUL inside would hide the rest.
    if (host.find('\0') != host.npos || inet_pton(AF_INET6, std::string(host).c_str(), &parsed) != 1)
        return "the host " + net::quoted(host) + " in brackets is not an IPv6 address";
    const bool needs_scope = IN6_IS_ADDR_LINKLOCAL(&parsed) || IN6_IS_ADDR_MC_LINKLOCAL(&parsed);
    if (needs_scope && !has_scope)
        return "the host " + net::quoted(host) + " is link-local; name the interface, as in [fe80::1%eth0]";
    if (!has_scope) return {};
    if (!needs_scope)
        return "the scope " + net::quoted(scope) + " follows " + net::quoted(host) +
               ", but only a link-local address (fe80::...) has one";
    const bool odd = std::any_of(scope.begin(), scope.end(),
                                 [](char c) { return c <= ' ' || c == '/' || c == '%' || c == '[' || c == '\x7f'; });
    if (scope.empty() || scope.size() >= IF_NAMESIZE || odd)
        return "the scope " + net::quoted(scope) + " is no interface name or index, which has 1..15 characters";
    return {};
}

std::string fault_of_unix_path(std::string_view path, scheme wanted) {
    if (wanted == scheme::rdma) return "the path " + net::quoted(path) + " is a unix socket, and rdma:// has none; use tcp://";
    if (path.size() > unix_path_bytes_max)
        return "the unix socket's name has " + std::to_string(path.size()) + " bytes, allowed are " +
               std::to_string(unix_path_bytes_max);
    if (path.find('\0') != path.npos) return "the unix socket's name has a NUL byte";
    if (path == "@") return "the name after '@' is empty";
    if (path.ends_with('/') && path.front() == '/') return "the path " + net::quoted(path) + " names a directory";
    return {};
}

std::string fault_of_port(std::string_view text, std::uint16_t& port) {
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, port);
    if (text.empty()) return "the port is empty, allowed is 0..65535";
    if (parsed.ec != std::errc{} || parsed.ptr != end)
        return "the port " + net::quoted(text) + " is not a number in 0..65535";
    return {};
}

/// Takes "HOST:PORT" or "[IPV6%SCOPE]:PORT" apart.
std::string fault_of_host_and_port(std::string_view text, address& into) {
    std::string_view port;
    if (text.starts_with('[')) {
        const std::size_t close = text.find(']');
        if (close == text.npos) return "the bracket before the IPv6 address is not closed";
        std::string_view host = text.substr(1, close - 1);
        const std::size_t percent = host.find('%');
        if (percent != host.npos) {
            into.scope = host.substr(percent + 1);
            host = host.substr(0, percent);
        }
        into.host = host;
        if (auto fault = fault_of_ipv6(host, into.scope, percent != host.npos); !fault.empty()) return fault;
        port = text.substr(close + 1);
        if (!port.starts_with(':')) return "no port follows the bracket; write ]:7471";
        port.remove_prefix(1);
    } else {
        const std::size_t colon = text.rfind(':');
        if (colon == text.npos) return "no port follows the host; write " + std::string(text.empty() ? "HOST" : text) + ":7471";
        into.host = text.substr(0, colon);
        if (auto fault = fault_of_host(into.host); !fault.empty()) return fault;
        port = text.substr(colon + 1);
    }
    return fault_of_port(port, into.port);
}

} // namespace

result<address> address::parse(std::string_view text) {
    const std::size_t mark = text.find("://");
    if (mark == text.npos) return wrong(text, "it begins with no scheme; write tcp://, rdma:// or auto://");
    const auto known = std::find_if(schemes.begin(), schemes.end(),
                                    [&](const scheme_name& s) { return s.text == text.substr(0, mark); });
    if (known == schemes.end())
        return wrong(text, "the scheme " + net::quoted(text.substr(0, mark)) + " is unknown; allowed are tcp, rdma and auto");

    address made;
    made.scheme = known->value;
    const std::string_view rest = text.substr(mark + 3);
    std::string fault;
    if (rest.starts_with('/') || rest.starts_with('@')) {
        made.unix_path = rest;
        fault = fault_of_unix_path(rest, made.scheme);
    } else {
        fault = fault_of_host_and_port(rest, made);
    }
    if (!fault.empty()) return wrong(text, fault);
    return made;
}

std::string address::to_string() const {
    const auto known =
        std::find_if(schemes.begin(), schemes.end(), [&](const scheme_name& s) { return s.value == scheme; });
    SLUICE_EXPECTS(known != schemes.end(), "address: a scheme that is none of the enumeration");
    std::string text(known->text);
    text += "://";
    if (is_unix()) return text + unix_path;
    if (host.find(':') == host.npos) {
        text += host;
    } else {
        text += '[' + host;
        if (!scope.empty()) text += '%' + scope;
        text += ']';
    }
    return text + ':' + std::to_string(port);
}

} // namespace sluice
