#include "tests/support/death.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <system_error>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice::testing {

namespace {

[[noreturn]] void run_child(void (*body)(), int errors) {
    constexpr unsigned seconds_to_live = 60;
    std::signal(SIGABRT, SIG_DFL); // the test framework's handler would report the crash as its own
    std::signal(SIGALRM, SIG_DFL);
    alarm(seconds_to_live);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(errors, STDERR_FILENO);
    try {
        body();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "exception: %s\n", e.what());
        _exit(EXIT_FAILURE);
    }
    _exit(EXIT_SUCCESS);
}

[[noreturn]] void fail(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

std::string read_to_end(int fd) {
    std::string text;
    char buffer[4096];
    for (;;) {
        const ssize_t n = read(fd, buffer, sizeof buffer);
        if (n > 0) text.append(buffer, static_cast<std::size_t>(n));
        else if (n == 0) return text;
        else if (errno != EINTR) fail("read");
    }
}

} // namespace

death die_in_child(void (*body)()) {
    int ends[2];
    if (pipe(ends) != 0) fail("pipe");
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        close(ends[0]);
        run_child(body, ends[1]);
    }
    close(ends[1]);
    death end;
    end.errors = read_to_end(ends[0]);
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail("waitpid");
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    else end.exit_status = WEXITSTATUS(status);
    return end;
}

} // namespace sluice::testing
