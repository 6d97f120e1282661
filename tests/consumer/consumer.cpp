#include <sluice/config.hpp>
#include <sluice/executor.hpp>
#include <sluice/sleep.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>

#include <chrono>
#include <cstdio>

sluice::task<sluice::result<int>> answer_after(std::chrono::milliseconds delay) {
    const auto slept = co_await sluice::sleep_for(delay);
    if (!slept) co_return slept.error();
    co_return 42;
}

int main() {
    auto executor = sluice::executor::create();
    if (!executor) return std::fprintf(stderr, "%s\n", executor.error().message().c_str()), 1;
    const auto answer = sluice::sync_wait(**executor, answer_after(std::chrono::milliseconds(10)));
    std::printf("sluice %s, %s: %d\n", SLUICE_VERSION_STRING, (*executor)->description().c_str(), answer.value_or(-1));
    return answer && *answer == 42 && SLUICE_VERSION_AT_LEAST(0, 1, 0) ? 0 : 1;
}
