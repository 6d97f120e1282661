#include "rdma/device_selector.hpp"

#include "net/text.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <limits>

namespace sluice::rdma {

namespace {

constexpr std::size_t name_bytes_max = 63; // IBV_SYSFS_NAME_MAX

error malformed(std::string_view part, const std::string& why) {
    return {make_error_code(errc::invalid_argument), "rdma device " + net::quoted(part) + ": " + why};
}

/// A decimal number of the whole text.
template <class T>
std::optional<T> number(std::string_view text) noexcept {
    T value{};
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

bool is_name(std::string_view text) noexcept {
    return !text.empty() && text.size() <= name_bytes_max && std::ranges::all_of(text, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' || c == '@';
    });
}

std::vector<std::string_view> split(std::string_view text, char at) {
    std::vector<std::string_view> parts;
    for (;;) {
        const auto end = text.find(at);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

/// "rxe0:1 (active), rxe1:1 (down)"
std::string list(const std::vector<described_port>& ports) {
    std::string all;
    for (const described_port& each : ports)
        all += (all.empty() ? "" : ", ") + each.device + ":" + std::to_string(each.number) +
               (each.active ? " (active)" : " (down)");
    return all.empty() ? "there is none" : "there are " + all;
}

bool has_netdev(const described_port& port, const std::string& name) {
    return std::ranges::count(port.netdevs, name) != 0;
}

} // namespace

result<device_selector> device_selector::parse(std::string_view text) {
    device_selector made;
    for (const std::string_view part : split(text, ',')) {
        auto one = parse_item(part);
        if (!one) return one.error();
        made.items_.push_back(std::move(*one));
    }
    return made;
}

result<device_selector::item> device_selector::parse_item(std::string_view text) {
    item made{.text = std::string(text)};
    std::string_view rest = text;
    if (rest.starts_with('!')) {
        made.denies = true;
        rest.remove_prefix(1);
    }
    if (rest.empty())
        return malformed(
            text,
            "nothing is named; allowed are a device, device:port, device:port:gid, an IP address, a netdev, and *");
    if (rest == "*") {
        if (made.denies) return malformed(text, "would deny every device; name those that are not wanted");
        return made;
    }
    std::string_view bare = rest;
    const bool bracketed = rest.starts_with('[') && rest.ends_with(']');
    if (bracketed) bare = rest.substr(1, rest.size() - 2);
    const auto scope_at = bare.find('%');
    if (auto parsed = parse_gid(bare.substr(0, scope_at)); parsed) {
        made.what = item::kind::address;
        made.address = *parsed;
        if (scope_at != std::string_view::npos) made.name = bare.substr(scope_at + 1);
        if (scope_at != std::string_view::npos && !is_name(made.name))
            return malformed(text, "after % belongs the name of a netdev");
        if (made.address.is_zero() || (made.address.is_ipv4() && made.address.bytes[12] == 0))
            return malformed(text, "no device has this address; for every one of them write *");
        return made;
    }
    if (bracketed || scope_at != std::string_view::npos) return malformed(text, "not an IP address");
    const auto parts = split(rest, ':');
    made.what = item::kind::name;
    made.name = parts[0];
    if (!is_name(parts[0]))
        return malformed(text, "the name of a device has 1.." + std::to_string(name_bytes_max) +
                                   " letters, digits and any of _-.@");
    if (parts.size() > 3) return malformed(text, "allowed is at most device:port:gid");
    if (parts.size() > 1) {
        const auto port = number<std::uint8_t>(parts[1]);
        if (!port || *port == 0) return malformed(text, "ports are numbered 1..255, not " + net::quoted(parts[1]));
        made.port = *port;
    }
    if (parts.size() > 2) {
        const auto index = number<std::uint16_t>(parts[2]);
        if (!index) return malformed(text, "the index of a GID is 0..65535, not " + net::quoted(parts[2]));
        if (made.denies)
            return malformed(text, "a port is denied, not one of its GIDs: leave :" + std::string(parts[2]) + " out");
        made.gid_index = *index;
    }
    return made;
}

bool device_selector::matches(const item& wanted, const described_port& port) {
    switch (wanted.what) {
    case item::kind::all: return true;
    case item::kind::name:
        if (wanted.port != 0) return wanted.name == port.device && wanted.port == port.number;
        return wanted.name == port.device || has_netdev(port, wanted.name);
    case item::kind::address: {
        if (!wanted.name.empty() && !has_netdev(port, wanted.name)) return false;
        const bool in_table = std::ranges::any_of(port.gids, [&](const gid_entry& each) {
            return each.address == wanted.address &&
                   (wanted.name.empty() || each.netdev.empty() || each.netdev == wanted.name);
        });
        return in_table || std::ranges::count(port.addresses, wanted.address) != 0;
    }
    }
    return false;
}

const device_selector::item* device_selector::denial_of(const described_port& port) const {
    const auto found =
        std::ranges::find_if(items_, [&](const item& each) { return each.denies && matches(each, port); });
    return found == items_.end() ? nullptr : &*found;
}

device_selector::verdict device_selector::judge(const described_port& port) const {
    if (const item* const no = denial_of(port); no != nullptr) return {"denied by " + net::quoted(no->text)};
    const auto found =
        std::ranges::find_if(items_, [&](const item& each) { return !each.denies && matches(each, port); });
    if (found != items_.end()) return {{}, found->gid_index};
    if (std::ranges::all_of(items_, &item::denies)) return {};
    return {"not in the list"};
}

result<std::vector<device_selector::choice>> device_selector::match(const std::vector<described_port>& ports) const {
    const item everything{.text = "*"};
    std::vector<const item*> wanted;
    for (const item& each : items_)
        if (!each.denies) wanted.push_back(&each);
    if (wanted.empty()) wanted.push_back(&everything);
    std::vector<choice> chosen;
    const item* down = nullptr;
    for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
        const item* const each = wanted[rank];
        std::size_t found = 0;
        for (const described_port& port : ports) {
            if (!matches(*each, port)) continue;
            ++found;
            if (!port.active) {
                down = each;
                continue;
            }
            if (denial_of(port) != nullptr) continue;
            const auto earlier = std::ranges::find(chosen, &port, &choice::port);
            if (earlier != chosen.end() && each->gid_index && each->gid_index != earlier->gid_index)
                return error::from_errno(EINVAL, "rdma device " + net::quoted(each->text) + ": the list has this port already, by " +
                                                     net::quoted(wanted[earlier->rank]->text) + "; of its GIDs name one only");
            if (earlier != chosen.end()) continue;
            if (each->gid_index && std::ranges::count(port.gids, *each->gid_index, &gid_entry::index) == 0)
                return error::from_errno(ENODEV, "rdma device " + net::quoted(each->text) +
                                                     ": this place of the table of GIDs is empty");
            chosen.push_back({&port, each->gid_index, rank});
        }
        if (found > 1 && each->what == item::kind::address && each->name.empty() && each->address.is_link_local())
            return error::from_errno(EINVAL, "rdma device " + net::quoted(each->text) + ": " + std::to_string(found) +
                                                 " ports have this link-local address; add % and the netdev of one");
        if (found == 0)
            return error::from_errno(ENODEV,
                                     "rdma device " + net::quoted(each->text) + ": no such device; " + list(ports));
    }
    if (!chosen.empty()) return chosen;
    if (down != nullptr)
        return error::from_errno(ENETDOWN, "rdma device " + net::quoted(down->text) + ": no port of it is active; " +
                                               list(ports));
    return error::from_errno(ENODEV, "rdma devices: all are denied; " + list(ports));
}

} // namespace sluice::rdma
