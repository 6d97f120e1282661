#include "rdma/verbs.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch_test_macros.hpp>

using namespace sluice::rdma;

TEST_CASE("The real table names a function for every call") {
    using slots = std::array<std::uintptr_t, sizeof(verbs) / sizeof(void (*)())>;
    const auto functions = std::bit_cast<slots>(real_verbs());
    CHECK(std::ranges::count(functions, std::uintptr_t{0}) == 0);
}

TEST_CASE("A test's table is used until the real one is put back") {
    REQUIRE(&api() == &real_verbs());
    verbs mine = real_verbs();
    mine.is_fork_initialized = [] { return 4711; };
    use_verbs(&mine);
    CHECK(api().is_fork_initialized() == 4711);
    use_verbs(nullptr);
    CHECK(&api() == &real_verbs());
}
