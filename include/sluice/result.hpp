#pragma once

#include <sluice/contract.hpp>
#include <sluice/error.hpp>

#include <functional>
#include <memory>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

namespace sluice {

template <class T>
class result;

namespace detail {

template <class T>
inline constexpr bool is_result = false;
template <class T>
inline constexpr bool is_result<result<T>> = true;

[[noreturn]] SLUICE_EXPORT void throw_error(const error& e);

} // namespace detail

/// Either a `T` or an `error`, with the names of `std::expected` (and never that type: a C++23 program must link
/// against a C++20 library). Reading the side that isn't there is a broken contract; `value()` throws
/// `std::system_error` instead, for programs that prefer exceptions.
///
/// Lifetime: owns its value. Thread rule: distinct objects safe.
template <class T>
class [[nodiscard]] result {
    static_assert(!std::is_reference_v<T> && !std::is_same_v<std::remove_cv_t<T>, sluice::error>);

public:
    ///@{
    /// As std::expected.
    using value_type = T;
    using error_type = sluice::error;
    ///@}

    result() noexcept(std::is_nothrow_default_constructible_v<T>)
        requires std::is_default_constructible_v<T>
        : value_(), has_value_(true) {}

    /// Success; implicit, from whatever makes a `T`.
    template <class U = T>
        requires(std::is_constructible_v<T, U> && !std::is_same_v<std::remove_cvref_t<U>, result> &&
                 !std::is_convertible_v<U, sluice::error>)
    result(U&& value) noexcept(std::is_nothrow_constructible_v<T, U>)
        : value_(std::forward<U>(value)), has_value_(true) {}

    ///@{
    /// A failure; implicit, so that `return errc::closed;` and `co_return` of an error work.
    result(sluice::error e) noexcept : error_(std::move(e)), has_value_(false) {}
    result(errc code) noexcept : error_(code), has_value_(false) {}
    result(std::error_code code) noexcept : error_(code), has_value_(false) {}
    ///@}

    /// A copied error shares its sentence.
    result(const result& other)
        requires std::is_copy_constructible_v<T>
        : has_value_(other.has_value_) {
        if (has_value_) std::construct_at(std::addressof(value_), other.value_);
        else std::construct_at(std::addressof(error_), other.error_);
    }
    result(result&& other) noexcept(std::is_nothrow_move_constructible_v<T>) : has_value_(other.has_value_) {
        if (has_value_) std::construct_at(std::addressof(value_), std::move(other.value_));
        else std::construct_at(std::addressof(error_), std::move(other.error_));
    }
    result& operator=(const result& other)
        requires std::is_copy_constructible_v<T>
    {
        if (this != &other) {
            result copy(other);
            destroy();
            construct_from(std::move(copy));
        }
        return *this;
    }
    result& operator=(result&& other) noexcept(std::is_nothrow_move_constructible_v<T>) {
        if (this != &other) {
            destroy();
            construct_from(std::move(other));
        }
        return *this;
    }
    ~result() { destroy(); }

    /// Success? A result that was moved from keeps its answer.
    bool has_value() const noexcept { return has_value_; }
    explicit operator bool() const noexcept { return has_value_; }

    T& operator*() & noexcept { return checked(); }
    const T& operator*() const& noexcept { return const_cast<result*>(this)->checked(); }
    T&& operator*() && noexcept { return std::move(checked()); }
    T* operator->() noexcept { return std::addressof(checked()); }
    const T* operator->() const noexcept { return std::addressof(const_cast<result*>(this)->checked()); }

    ///@{
    /// Throws std::system_error with the error's code and sentence when there is no value.
    T& value() & { return throwing(); }
    const T& value() const& { return const_cast<result*>(this)->throwing(); }
    T&& value() && { return std::move(throwing()); }
    ///@}

    ///@{
    /// A broken contract when it holds a value.
    const sluice::error& error() const& noexcept {
        SLUICE_EXPECTS(!has_value_, "result: error() of a result that holds a value");
        return error_;
    }
    sluice::error error() && noexcept {
        SLUICE_EXPECTS(!has_value_, "result: error() of a result that holds a value");
        return std::move(error_);
    }
    ///@}

    ///@{
    /// The value, or `fallback` for any error, which is evaluated in either case.
    template <class U>
    T value_or(U&& fallback) const& {
        return has_value_ ? value_ : static_cast<T>(std::forward<U>(fallback));
    }
    template <class U>
    T value_or(U&& fallback) && {
        return has_value_ ? std::move(value_) : static_cast<T>(std::forward<U>(fallback));
    }
    ///@}

    /// `f(value)`, which returns a result; an error is passed on and `f` not called.
    template <class F>
    auto and_then(F&& f) && -> std::invoke_result_t<F, T&&> {
        if (!has_value_) return std::move(error_);
        return std::invoke(std::forward<F>(f), std::move(value_));
    }
    /// A result of what `f(value)` returns; an error is passed on and `f` not called.
    template <class F>
    auto transform(F&& f) && -> result<std::invoke_result_t<F, T&&>> {
        if (!has_value_) return std::move(error_);
        if constexpr (std::is_void_v<std::invoke_result_t<F, T&&>>) {
            std::invoke(std::forward<F>(f), std::move(value_));
            return {};
        } else {
            return std::invoke(std::forward<F>(f), std::move(value_));
        }
    }
    /// `f(error)`, which returns a result of this type; success is passed on and `f` not called.
    template <class F>
    result or_else(F&& f) && {
        if (has_value_) return std::move(*this);
        return std::invoke(std::forward<F>(f), std::move(error_));
    }

private:
    T& checked() noexcept {
        SLUICE_EXPECTS(has_value_, "result: the value of a result that holds an error");
        return value_;
    }
    T& throwing() {
        if (!has_value_) detail::throw_error(error_);
        return value_;
    }
    void destroy() noexcept {
        if (has_value_) std::destroy_at(std::addressof(value_));
        else std::destroy_at(std::addressof(error_));
    }
    void construct_from(result&& other) noexcept(std::is_nothrow_move_constructible_v<T>) {
        has_value_ = other.has_value_;
        if (has_value_) std::construct_at(std::addressof(value_), std::move(other.value_));
        else std::construct_at(std::addressof(error_), std::move(other.error_));
    }

    union {
        T value_;
        sluice::error error_;
    };
    bool has_value_;
};

/// Success without a value, or an error.
template <>
class [[nodiscard]] result<void> {
public:
    ///@{
    /// As std::expected.
    using value_type = void;
    using error_type = sluice::error;
    ///@}

    // Success makes no error object: its std::error_code would cost a call into the C++ library.
    result() noexcept : none_(), has_value_(true) {}
    ///@{
    /// A failure; implicit, so that `return errc::closed;` and `co_return` of an error work.
    result(sluice::error e) noexcept : error_(std::move(e)), has_value_(false) {}
    result(errc code) noexcept : error_(code), has_value_(false) {}
    result(std::error_code code) noexcept : error_(code), has_value_(false) {}
    ///@}
    /// A copied error shares its sentence.
    result(const result& other) noexcept : none_(), has_value_(other.has_value_) {
        if (!has_value_) std::construct_at(std::addressof(error_), other.error_);
    }
    result(result&& other) noexcept : none_(), has_value_(other.has_value_) {
        if (!has_value_) std::construct_at(std::addressof(error_), std::move(other.error_));
    }
    result& operator=(result other) noexcept {
        destroy();
        has_value_ = other.has_value_;
        if (has_value_) none_ = {};
        else std::construct_at(std::addressof(error_), std::move(other.error_));
        return *this;
    }
    ~result() { destroy(); }

    /// Success? A result that was moved from keeps its answer.
    bool has_value() const noexcept { return has_value_; }
    explicit operator bool() const noexcept { return has_value_; }
    void operator*() const noexcept {
        SLUICE_EXPECTS(has_value_, "result: the value of a result that holds an error");
    }
    /// Throws std::system_error with the error's code and sentence when it holds one.
    void value() const {
        if (!has_value_) detail::throw_error(error_);
    }
    ///@{
    /// A broken contract when it holds a value.
    const sluice::error& error() const& noexcept {
        SLUICE_EXPECTS(!has_value_, "result: error() of a result that holds a value");
        return error_;
    }
    sluice::error error() && noexcept {
        SLUICE_EXPECTS(!has_value_, "result: error() of a result that holds a value");
        return std::move(error_);
    }
    ///@}
    /// `f()`, which returns a result, after success; otherwise its error is passed on.
    template <class F>
    auto and_then(F&& f) && -> std::invoke_result_t<F> {
        if (!has_value_) return std::move(error_);
        return std::invoke(std::forward<F>(f));
    }
    /// `f(error)`, which returns a result of this type; success is passed on and `f` not called.
    template <class F>
    result or_else(F&& f) && {
        if (has_value_) return std::move(*this);
        return std::invoke(std::forward<F>(f), std::move(error_));
    }

private:
    void destroy() noexcept {
        if (!has_value_) std::destroy_at(std::addressof(error_));
    }

    struct nothing {};
    union {
        nothing none_;
        sluice::error error_;
    };
    bool has_value_;
};

} // namespace sluice
