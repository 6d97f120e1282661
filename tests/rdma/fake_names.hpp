#pragma once

#include <string>
#include <vector>

namespace sluice::testing {

/// A name that has these addresses, in this order, for as long as it lives: getaddrinfo(3) says so in this program.
class fake_name {
public:
    fake_name(std::string name, std::vector<std::string> addresses);
    ~fake_name();
    fake_name(const fake_name&) = delete;
    fake_name& operator=(const fake_name&) = delete;
};

} // namespace sluice::testing
