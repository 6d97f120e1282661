#pragma once

#include <sluice/error.hpp>
#include <sluice/result.hpp>

#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace sluice::conformance {

/// A check that did not hold. An exception, because both ends run on threads of their own, where the test framework's
/// checks are not safe; run_pair hands it to the framework.
struct failure : std::runtime_error {
    failure(const std::string& what, const std::source_location& where)
        : runtime_error(std::string(where.file_name()) + ':' + std::to_string(where.line()) + ": " + what) {}
};

inline void verify(bool holds, const char* text, std::source_location where = std::source_location::current()) {
    if (!holds) throw failure(text, where);
}

template <class A, class B>
void verify_equal(const A& a, const B& b, const char* text,
                  std::source_location where = std::source_location::current()) {
    if (a == b) return;
    std::ostringstream message;
    message << text << ": " << a << " != " << b;
    throw failure(message.str(), where);
}

/// The value of a result that must have one.
template <class T>
T must(result<T> r, std::source_location where = std::source_location::current()) {
    if (!r) throw failure("failed: " + r.error().message(), where);
    if constexpr (!std::is_void_v<T>) return std::move(*r);
}

inline std::string make_text(condition c) { return "condition '" + make_error_condition(c).message() + "'"; }
inline std::string make_text(std::errc c) { return "error '" + std::make_error_code(c).message() + "'"; }
inline std::string make_text(errc c) { return "errc '" + make_error_code(c).message() + "'"; }

/// The error of a result that must have failed, and that way.
template <class T, class Expected>
error must_fail(const result<T>& r, Expected expected, std::source_location where = std::source_location::current()) {
    if (r) throw failure("succeeded; should have failed with " + make_text(expected), where);
    if (!(r.error() == expected))
        throw failure("failed with '" + r.error().message() + "'; should be " + make_text(expected), where);
    return r.error();
}
/// The message of an error must name something.
inline void must_name(const error& e, const std::string& part,
                      std::source_location where = std::source_location::current()) {
    if (e.message().find(part) == std::string::npos)
        throw failure("the error '" + e.message() + "' does not name '" + part + "'", where);
}

} // namespace sluice::conformance

#define VERIFY(...) ::sluice::conformance::verify(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__)
#define VERIFY_EQUAL(A, B) ::sluice::conformance::verify_equal(A, B, #A " == " #B)
