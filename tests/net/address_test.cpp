#include <sluice/address.hpp>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>
#include <vector>

using sluice::address;
using sluice::scheme;

namespace {

using namespace std::string_literals;

struct good_form {
    std::string text;
    address parts;
    std::string canonical{}; ///< of to_string, where it differs from `text`
};

address host_of(scheme s, std::string host, std::uint16_t port, std::string scope = {}) {
    return {.scheme = s, .host = std::move(host), .scope = std::move(scope), .unix_path = {}, .port = port};
}
address unix_of(scheme s, std::string path) {
    return {.scheme = s, .host = {}, .scope = {}, .unix_path = std::move(path), .port = 0};
}

const std::vector<good_form>& good_forms() {
    static const std::vector<good_form> forms{
        {"tcp://10.0.0.2:7471", host_of(scheme::tcp, "10.0.0.2", 7471)},
        {"rdma://10.0.0.2:7471", host_of(scheme::rdma, "10.0.0.2", 7471)},
        {"auto://10.0.0.2:7471", host_of(scheme::automatic, "10.0.0.2", 7471)},
        {"tcp://0.0.0.0:0", host_of(scheme::tcp, "0.0.0.0", 0)},
        {"tcp://255.255.255.255:65535", host_of(scheme::tcp, "255.255.255.255", 65535)},
        {"tcp://127.0.0.1:1", host_of(scheme::tcp, "127.0.0.1", 1)},
        {"tcp://127.0.0.1:00080", host_of(scheme::tcp, "127.0.0.1", 80), "tcp://127.0.0.1:80"},
        {"auto://[fe80::1%eth0]:7471", host_of(scheme::automatic, "fe80::1", 7471, "eth0")},
        {"rdma://[fe80::1%2]:7471", host_of(scheme::rdma, "fe80::1", 7471, "2")},
        {"tcp://[fe80::1%br-0.12_x]:1", host_of(scheme::tcp, "fe80::1", 1, "br-0.12_x")},
        {"tcp://[ff02::1%lo]:1", host_of(scheme::tcp, "ff02::1", 1, "lo")},
        {"tcp://[::]:7471", host_of(scheme::tcp, "::", 7471)},
        {"tcp://[::1]:0", host_of(scheme::tcp, "::1", 0)},
        {"tcp://[2001:db8::8:800:200C:417A]:80", host_of(scheme::tcp, "2001:db8::8:800:200C:417A", 80)},
        {"tcp://[::ffff:10.0.0.1]:80", host_of(scheme::tcp, "::ffff:10.0.0.1", 80)},
        {"tcp://[1:2:3:4:5:6:7:8]:80", host_of(scheme::tcp, "1:2:3:4:5:6:7:8", 80)},
        {"auto://storage-1:7471", host_of(scheme::automatic, "storage-1", 7471)},
        {"tcp://localhost:7471", host_of(scheme::tcp, "localhost", 7471)},
        {"tcp://a.b.example.org:7471", host_of(scheme::tcp, "a.b.example.org", 7471)},
        {"tcp://example.org.:7471", host_of(scheme::tcp, "example.org.", 7471)},
        {"tcp://_srv.Example:7471", host_of(scheme::tcp, "_srv.Example", 7471)},
        {"tcp://xn--bcher-kva:7471", host_of(scheme::tcp, "xn--bcher-kva", 7471)},
        {"tcp://3com:7471", host_of(scheme::tcp, "3com", 7471)},
        {"tcp://" + std::string(63, 'a') + ":1", host_of(scheme::tcp, std::string(63, 'a'), 1)},
        {"tcp:///run/sluice.sock", unix_of(scheme::tcp, "/run/sluice.sock")},
        {"auto:///run/a b:c%d", unix_of(scheme::automatic, "/run/a b:c%d")},
        {"tcp://@sluice", unix_of(scheme::tcp, "@sluice")},
        {"tcp://@a/b:1", unix_of(scheme::tcp, "@a/b:1")},
        {"tcp://@@", unix_of(scheme::tcp, "@@")},
        {"tcp:///" + std::string(106, 'p'), unix_of(scheme::tcp, "/" + std::string(106, 'p'))},
        {"tcp://@" + std::string(106, 'p'), unix_of(scheme::tcp, "@" + std::string(106, 'p'))},
    };
    return forms;
}

struct bad_form {
    std::string text;
    std::string_view says; ///< what the message must name
};

const std::vector<bad_form>& bad_forms() {
    static const std::vector<bad_form> forms{
        {"", "address \"\": it begins with no scheme"},
        {"10.0.0.2:7471", "no scheme"},
        {"tcp:10.0.0.2:7471", "no scheme"},
        {"tcp:/10.0.0.2:7471", "no scheme"},
        {"://10.0.0.2:7471", "the scheme \"\" is unknown"},
        {"TCP://10.0.0.2:7471", "the scheme \"TCP\" is unknown; allowed are tcp, rdma and auto"},
        {"http://10.0.0.2:7471", "the scheme \"http\""},
        {" tcp://10.0.0.2:7471", "the scheme \" tcp\""},
        {"tcp://", "no port follows the host"},
        {"tcp://10.0.0.2", "write 10.0.0.2:7471"},
        {"tcp://:7471", "the host is empty"},
        {"tcp://10.0.0.2:", "the port is empty"},
        {"tcp://10.0.0.2:65536", "the port \"65536\""},
        {"tcp://10.0.0.2:99999999999999999999", "the port \"99999999999999999999\""},
        {"tcp://10.0.0.2:-1", "the port \"-1\""},
        {"tcp://10.0.0.2:+1", "the port \"+1\""},
        {"tcp://10.0.0.2: 1", "the port \" 1\""},
        {"tcp://10.0.0.2:1 ", "the port \"1 \""},
        {"tcp://10.0.0.2:0x10", "the port \"0x10\""},
        {"tcp://10.0.0.2:http", "the port \"http\" is not a number in 0..65535"},
        {"tcp://10.0.0.2:7471/key", "the port \"7471/key\""},
        {"tcp://10.0.0.256:1", "the host \"10.0.0.256\" is not an IPv4 address"},
        {"tcp://10.0.0:1", "the host \"10.0.0\" is not an IPv4 address"},
        {"tcp://1.2.3.4.5:1", "not an IPv4 address"},
        {"tcp://167772162:1", "not an IPv4 address"},
        {"tcp://010.0.0.1:1", "not an IPv4 address"},
        {"tcp://...:1", "not an IPv4 address"},
        {"tcp://::1:7471", "stands in brackets"},
        {"tcp://fe80::1:7471", "stands in brackets"},
        {"tcp://[::1", "not closed"},
        {"tcp://[::1:7471", "not closed"},
        {"tcp://[::1]", "no port follows the bracket"},
        {"tcp://[::1]7471", "no port follows the bracket"},
        {"tcp://[::1]:", "the port is empty"},
        {"tcp://[::1]:x", "the port \"x\""},
        {"tcp://[]:1", "the host \"\" in brackets is not an IPv6 address"},
        {"tcp://[10.0.0.2]:1", "the host \"10.0.0.2\" in brackets"},
        {"tcp://[::g]:1", "the host \"::g\" in brackets"},
        {"tcp://[1:2:3:4:5:6:7:8:9]:1", "in brackets is not an IPv6 address"},
        {"tcp://["s + std::string("::1\0x", 5) + "]:1", "\"::1\\x00x\" in brackets"},
        {"tcp://[fe80::1]:1", "link-local; name the interface"},
        {"tcp://[fe80::1%]:1", "the scope \"\""},
        {"tcp://[fe80::1%a-very-long-interface]:1", "the scope \"a-very-long-interface\""},
        {"tcp://[fe80::1%e 0]:1", "the scope \"e 0\""},
        {"tcp://[fe80::1%eth0%1]:1", "the scope \"eth0%1\""},
        {"tcp://[::1%lo]:1", "only a link-local address"},
        {"tcp://[2001:db8::1%eth0]:1", "only a link-local address"},
        {"tcp://a host:1", "has \" \""},
        {"tcp://a/b:1", "has \"/\""},
        {"tcp://user@host:1", "has \"@\""},
        {"tcp://b\xc3\xbc" "cher:1", "punycode"},
        {"tcp://a..b:1", "a part of 0 characters"},
        {"tcp://.a:1", "a part of 0 characters"},
        {"tcp://" + std::string(64, 'a') + ":1", "a part of 64 characters"},
        {"tcp://" + std::string(300, 'a') + ":1", "the host has 300 characters"},
        {"tcp://@", "the name after '@' is empty"},
        {"tcp:///", "names a directory"},
        {"tcp:///run/", "names a directory"},
        {"tcp:///" + std::string(107, 'p'), "has 108 bytes, allowed are 107"},
        {"tcp://@" + std::string(107, 'p'), "has 108 bytes, allowed are 107"},
        {"tcp:///a"s + std::string("\0b", 2), "NUL"},
        {"rdma:///run/sluice.sock", "rdma:// has none"},
        {"rdma://@sluice", "rdma:// has none"},
    };
    return forms;
}

} // namespace

TEST_CASE("Address.takes_each_documented_form_apart") {
    for (const good_form& form : good_forms()) {
        INFO(form.text);
        const auto parsed = address::parse(form.text);
        if (!parsed) FAIL_CHECK(parsed.error().message());
        else CHECK(*parsed == form.parts);
    }
}

TEST_CASE("Address.prints_what_it_parsed") {
    for (const good_form& form : good_forms()) {
        INFO(form.text);
        const std::string printed = form.parts.to_string();
        CHECK(printed == (form.canonical.empty() ? form.text : form.canonical));
        const auto again = address::parse(printed);
        REQUIRE(again);
        CHECK(*again == form.parts);
    }
}

TEST_CASE("Address.quotes_a_malformed_one_and_names_the_wrong_part") {
    for (const bad_form& form : bad_forms()) {
        INFO(form.text);
        const auto parsed = address::parse(form.text);
        REQUIRE_FALSE(parsed);
        INFO(parsed.error().message());
        CHECK(parsed.error() == sluice::errc::invalid_address);
        CHECK(parsed.error() == sluice::condition::invalid);
        CHECK(parsed.error().message().find(form.says) != std::string::npos);
        CHECK(parsed.error().message().starts_with("address \"" + form.text.substr(0, form.text.find_first_of("\"\\\0\xc3"s))
                                                                       .substr(0, 200)));
    }
}

TEST_CASE("Address.escapes_and_shortens_hostile_text_in_its_errors") {
    const auto parsed = address::parse("tcp\n\x1b[31m\"" + std::string(100'000, 'x'));
    REQUIRE_FALSE(parsed);
    const std::string message = parsed.error().message();
    CHECK(message.find("\\x0a\\x1b[31m\\\"xxx") != std::string::npos);
    CHECK(message.find("x...\"") != std::string::npos);
    CHECK(message.size() < 400);
}
