#pragma once

#include <sluice/result.hpp>

#include <string>
#include <string_view>

namespace store {

/// An object of a server, as written on the command line: an address of sluice, a slash and the key.
///
/// | text                              | server                 | key       |
/// |-----------------------------------|------------------------|-----------|
/// | `tcp://10.0.0.2:7471/a/b.bin`     | `tcp://10.0.0.2:7471`  | `a/b.bin` |
/// | `auto://[fe80::1%eth0]:7471/b`    | `auto://[fe80::1%eth0]:7471` | `b` |
/// | `tcp://@name/b`                   | `tcp://@name`          | `b`       |
/// | `tcp:///run/store.sock/a/b`       | `tcp:///run/store.sock` | `a/b`    |
/// In a path the first part that is a socket ends the address; a path without one is an address without a key.
struct location {
    std::string server;
    std::string key; ///< may be empty: not every command needs one

    /// Errors: errc::invalid_address, which quotes the text. The key is not checked here.
    static sluice::result<location> parse(std::string_view text);
};

} // namespace store
