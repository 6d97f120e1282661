#include "tests/conformance/process.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace sluice::conformance {

namespace {

[[noreturn]] void fail(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

[[noreturn]] void run_child(const std::function<void(const child_process::channel&)>& body,
                            const child_process::channel& pipes) {
    constexpr unsigned seconds_to_live = 120;
    for (const int signal : {SIGABRT, SIGALRM, SIGSEGV, SIGTERM}) std::signal(signal, SIG_DFL); // not the framework's
    std::signal(SIGPIPE, SIG_IGN);
    alarm(seconds_to_live);
    try {
        body(pipes);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "child: %s\n", e.what());
        _exit(EXIT_FAILURE);
    }
    _exit(EXIT_SUCCESS);
}

} // namespace

void child_process::channel::say(std::string_view line) const {
    std::string text(line);
    text += '\n';
    for (std::string_view left = text; !left.empty();) {
        const ssize_t n = write(out, left.data(), left.size());
        if (n < 0 && errno != EINTR) fail("write");
        if (n > 0) left.remove_prefix(static_cast<std::size_t>(n));
    }
}

std::string child_process::channel::hear() const {
    std::string line;
    for (;;) {
        char c = 0;
        const ssize_t n = read(in, &c, 1);
        if (n < 0 && errno != EINTR) fail("read");
        if (n == 0 || c == '\n') return line;
        if (n > 0) line += c;
    }
}

child_process::child_process(const std::function<void(const channel&)>& body) {
    std::array<int, 2> down{};
    std::array<int, 2> up{};
    if (pipe(down.data()) != 0 || pipe(up.data()) != 0) fail("pipe");
    std::fflush(nullptr);
    id_ = fork();
    if (id_ < 0) fail("fork");
    if (id_ == 0) {
        close(down[1]);
        close(up[0]);
        run_child(body, {.in = down[0], .out = up[1]});
    }
    close(down[0]);
    close(up[1]);
    pipes_ = {.in = up[0], .out = down[1]};
}

child_process::~child_process() {
    kill_now();
    close(pipes_.in);
    close(pipes_.out);
}

void child_process::kill_now() noexcept {
    if (id_ < 0) return;
    kill(id_, SIGKILL);
    while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
    id_ = -1;
}

} // namespace sluice::conformance
