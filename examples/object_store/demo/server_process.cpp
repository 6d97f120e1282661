#include "examples/object_store/demo/server_process.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace demo {

namespace {

[[noreturn]] void become_server(const std::vector<std::string>& words, int output) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL); // whatever happens to the demo, nothing of it stays behind
    dup2(output, STDOUT_FILENO);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    std::perror(arguments[0]);
    constexpr int cannot_run = 127;
    _exit(cannot_run);
}

/// The first line that the server prints names its address; an empty text when it ended without one.
std::string address_from(int fd) {
    FILE* output = fdopen(fd, "r");
    if (output == nullptr) return {};
    char line[4096];
    std::string address;
    if (std::fgets(line, sizeof line, output) != nullptr) {
        const auto said = nlohmann::json::parse(line, nullptr, false);
        if (said.is_object() && said.contains("address")) address = said["address"].get<std::string>();
    }
    std::fclose(output);
    return address;
}

} // namespace

sluice::result<server_process> server_process::start(const std::string& program, const std::string& directory,
                                                     const std::vector<std::string>& options, const std::string& listen) {
    std::vector<std::string> words = {program, "serve", directory, "--listen", listen, "--json"};
    words.insert(words.end(), options.begin(), options.end());
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return sluice::error::from_errno(errno, "pipe");
    const pid_t pid = fork();
    if (pid < 0) return sluice::error::from_errno(errno, "fork");
    if (pid == 0) become_server(words, ends[1]);
    close(ends[1]);
    server_process made(pid, address_from(ends[0]));
    if (made.address_.empty())
        return sluice::error::from_errno(ECHILD, fmt::format("{} did not start; see what it wrote above", program));
    return made;
}

server_process::server_process(server_process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), address_(std::move(other.address_)) {}

server_process::~server_process() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
}

double server_process::cpu_seconds() const {
    std::ifstream in(fmt::format("/proc/{}/stat", pid_));
    std::string text((std::istreambuf_iterator<char>(in)), {});
    unsigned long user = 0;
    unsigned long system = 0;
    const std::size_t after_name = text.rfind(')'); // the name may hold anything [proc(5)]
    if (after_name == text.npos ||
        std::sscanf(text.c_str() + after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        return 0;
    return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

sluice::result<void> server_process::stop() {
    const pid_t pid = std::exchange(pid_, -1);
    kill(pid, SIGTERM);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return sluice::error::from_errno(errno, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    return sluice::error::from_errno(ECHILD, WIFSIGNALED(status)
                                                 ? fmt::format("the server was ended by signal {}", WTERMSIG(status))
                                                 : fmt::format("the server ended with status {}", WEXITSTATUS(status)));
}

} // namespace demo
