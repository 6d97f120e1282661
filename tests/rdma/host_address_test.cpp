#include "rdma/host_address.hpp"

#include <sluice/address.hpp>

#include "net/endpoint.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string_view>

using namespace sluice;

namespace {

bool is_here(std::string_view text) {
    return rdma::is_of_this_host((*net::numeric_endpoint(*address::parse(text)))->storage);
}

} // namespace

TEST_CASE("Host_address.of_this_host_is_what_a_socket_can_have") {
    CHECK(is_here("rdma://127.0.0.1:0"));
    CHECK(is_here("rdma://127.0.0.1:1")); // whatever the port, and who may have it
    CHECK_FALSE(is_here("rdma://192.0.2.1:4711")); // for documentation alone [RFC 5737]
    CHECK_FALSE(is_here("rdma://[2001:db8::1]:4711")); // [RFC 3849]
    CHECK(rdma::is_of_this_host({})); // an id that has none yet
}
