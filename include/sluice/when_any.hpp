#pragma once

#include <sluice/contract.hpp>
#include <sluice/detail/branch.hpp>
#include <sluice/task.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace sluice {

/// Which task ended first, and what it returned.
template <class T>
struct when_any_result {
    std::size_t index; ///< position among the arguments, from 0
    T value;           ///< of that task
};

namespace detail {

template <class T, class... Ts>
inline constexpr bool all_same = (std::is_same_v<T, Ts> && ...);

template <class... Ts>
struct any_value {
    using type = std::variant<held<Ts>...>;
    static constexpr bool is_variant = true;
};
template <class T, class... Ts>
    requires all_same<T, Ts...>
struct any_value<T, Ts...> {
    using type = held<T>;
    static constexpr bool is_variant = false;
};

template <std::size_t I, class... Ts>
typename any_value<Ts...>::type take_nth(std::tuple<task<Ts>...>& tasks) {
    if constexpr (any_value<Ts...>::is_variant)
        return typename any_value<Ts...>::type(std::in_place_index<I>, take_held(std::get<I>(tasks)));
    else return take_held(std::get<I>(tasks));
}

template <class... Ts, std::size_t... Is>
typename any_value<Ts...>::type take_one(std::tuple<task<Ts>...>& tasks, std::size_t index, std::index_sequence<Is...>) {
    using taker = typename any_value<Ts...>::type (*)(std::tuple<task<Ts>...>&);
    constexpr std::array<taker, sizeof...(Ts)> takers{&take_nth<Is, Ts...>...};
    return takers[index](tasks);
}

template <class... Ts>
task<when_any_result<typename any_value<Ts...>::type>> join_any(std::tuple<task<Ts>...> tasks) {
    executor& home = co_await this_executor();
    branch_group group(home, co_await this_stop_token(), branch_group::stops_at::first_end);
    std::apply([&](task<Ts>&... each) { (group.start(each), ...); }, tasks);
    co_await group.join();
    using winner = when_any_result<typename any_value<Ts...>::type>;
    co_return winner{group.first(), take_one<Ts...>(tasks, group.first(), std::index_sequence_for<Ts...>())};
}

} // namespace detail

/// `co_await when_any(a(), b())`: runs the tasks side by side; when the first has ended the others are asked to stop,
/// and it resumes when those have ended as well, with the first one's index and value. The value is a `T` when all tasks
/// return `T` (`std::monostate` for void), and a variant, with the same index, when they differ.
///
/// Errors: ending with an error is ending. An exception of the first is rethrown; what the others return or throw is
/// dropped. A stop of the awaiting task reaches all of them. Lifetime: owns the tasks; it is a task itself. Thread rule:
/// executor-bound.
template <class... Ts>
    requires(sizeof...(Ts) > 0)
task<when_any_result<typename detail::any_value<Ts...>::type>> when_any(task<Ts>... tasks) {
    return detail::join_any<Ts...>(std::tuple<task<Ts>...>(std::move(tasks)...));
}

/// The same for any number of tasks of one type, at least one.
template <class T>
task<when_any_result<detail::held<T>>> when_any(std::vector<task<T>> tasks) {
    SLUICE_EXPECTS(!tasks.empty(), "when_any: needs at least one task");
    executor& home = co_await this_executor();
    detail::branch_group group(home, co_await this_stop_token(), detail::branch_group::stops_at::first_end);
    for (task<T>& each : tasks) group.start(each);
    co_await group.join();
    using winner = when_any_result<detail::held<T>>;
    co_return winner{group.first(), detail::take_held(tasks[group.first()])};
}

} // namespace sluice
