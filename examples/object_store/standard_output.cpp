#include "examples/object_store/standard_output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace store {

int flushed(const char* program, int status) noexcept {
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    std::fprintf(stderr, "%s: cannot write to standard output%s%s\n", program, errno != 0 ? ": " : "",
                 errno != 0 ? std::strerror(errno) : "");
    return status == 0 ? 1 : status;
}

} // namespace store
