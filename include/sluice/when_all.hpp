#pragma once

#include <sluice/detail/branch.hpp>
#include <sluice/task.hpp>

#include <tuple>
#include <utility>
#include <vector>

namespace sluice {

namespace detail {

template <class... Ts>
task<std::tuple<held<Ts>...>> join_all(std::tuple<task<Ts>...> tasks) {
    executor& home = co_await this_executor();
    branch_group group(home, co_await this_stop_token(), branch_group::stops_at::first_exception);
    std::apply([&](task<Ts>&... each) { (group.start(each), ...); }, tasks);
    co_await group.join();
    group.rethrow_first_exception();
    co_return std::apply([](task<Ts>&... each) { return std::tuple<held<Ts>...>{take_held(each)...}; }, tasks);
}

} // namespace detail

/// `co_await when_all(a(), b())`: runs the tasks side by side on the awaiting task's executor and resumes when all have
/// ended, with a tuple of what they returned, in the order of the arguments (`std::monostate` for void). A task that
/// runs without suspending keeps the others waiting: they share one thread.
///
/// Errors: values, results that hold an error among them, are just returned and don't stop the others. An exception
/// does: the others are asked to stop, joined, and the first exception is rethrown. A stop of the awaiting task reaches
/// all of them. Keep the tuple in a named variable, without structured bindings.
/// Lifetime: owns the tasks; it is a task itself. Thread rule: executor-bound.
template <class... Ts>
task<std::tuple<detail::held<Ts>...>> when_all(task<Ts>... tasks) {
    return detail::join_all<Ts...>(std::tuple<task<Ts>...>(std::move(tasks)...));
}

/// The same for any number of tasks of one type. An empty list ends at once.
template <class T>
task<std::vector<T>> when_all(std::vector<task<T>> tasks) {
    executor& home = co_await this_executor();
    detail::branch_group group(home, co_await this_stop_token(), detail::branch_group::stops_at::first_exception);
    for (task<T>& each : tasks) group.start(each);
    co_await group.join();
    group.rethrow_first_exception();
    std::vector<T> values;
    values.reserve(tasks.size());
    for (task<T>& each : tasks) values.push_back(each.promise().take());
    co_return values;
}

/// The same for tasks that return nothing.
inline task<void> when_all(std::vector<task<void>> tasks) {
    executor& home = co_await this_executor();
    detail::branch_group group(home, co_await this_stop_token(), detail::branch_group::stops_at::first_exception);
    for (task<void>& each : tasks) group.start(each);
    co_await group.join();
    group.rethrow_first_exception();
}

} // namespace sluice
