#pragma once

#include <sluice/export.hpp>

#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace sluice {

/// Errors that sluice itself finds. What the kernel reports keeps its own code (`std::generic_category`, the value of
/// errno), so that nothing is lost; compare either kind with a `condition`.
enum class errc {
    closed = 1,           ///< the connection, channel or file was closed before the operation was done
    canceled,             ///< a stop was requested and the operation had not succeeded yet
    deadline_exceeded,    ///< the operation's deadline passed first
    invalid_address,      ///< an address does not parse, or names something that can't exist
    invalid_argument,     ///< an option or argument outside what its documentation allows
    access_denied,        ///< the remote key is wrong or revoked, or does not grant this access
    out_of_range,         ///< the range does not lie within the remote region
    message_too_long,     ///< a message is larger than the receiver's buffer or the negotiated limit
    protocol_error,       ///< the peer broke the wire protocol
    version_mismatch,     ///< the peer speaks no common version of the wire protocol
    unsupported,          ///< neither this build, this machine nor this provider can do it
    out_of_resources,     ///< a limit (pool size, memlock, descriptors) forbids it
    end_of_file,          ///< the file ended before all bytes were read
    peer_lost,            ///< the peer stopped answering (keep-alive or user timeout)
};

/// What went wrong, portably. `result.error() == condition::timed_out` holds whichever layer reported it.
enum class condition {
    canceled = 1,
    timed_out,
    closed,
    access_denied,
    out_of_range,
    unsupported,
    out_of_resources,
    busy,
    not_found,
    already_exists,
    no_space,
    invalid,
    protocol_error,
};

///@{
/// "sluice" for errc and "sluice condition" for condition; one object each in a process. Thread rule: thread-safe.
SLUICE_EXPORT const std::error_category& errc_category() noexcept;
SLUICE_EXPORT const std::error_category& condition_category() noexcept;
///@}

///@{
/// Found by argument-dependent look-up: they make the enumerations work with <system_error>.
inline std::error_code make_error_code(errc code) noexcept { return {static_cast<int>(code), errc_category()}; }
inline std::error_condition make_error_condition(condition c) noexcept {
    return {static_cast<int>(c), condition_category()};
}
///@}

} // namespace sluice

template <>
struct std::is_error_code_enum<sluice::errc> : std::true_type {};
template <>
struct std::is_error_condition_enum<sluice::condition> : std::true_type {};

namespace sluice {

/// An error value: a code for programs and a sentence for people. Copying shares the sentence (reference counted);
/// an error without one costs no allocation.
///
/// Lifetime: self-contained. Thread rule: distinct objects safe.
class SLUICE_EXPORT error {
public:
    ///@{
    /// Implicit and free of allocation. The code 0 means success: never make a result of it.
    error(std::error_code code) noexcept : code_(code) {}
    error(errc code) noexcept : code_(code) {}
    ///@}
    /// `detail` names what, the value, what is allowed and the remedy; it is put before the code's own text.
    error(std::error_code code, std::string_view detail);
    error(const error& other) noexcept;
    error(error&& other) noexcept : code_(other.code_), text_(std::exchange(other.text_, nullptr)) {}
    error& operator=(error other) noexcept {
        std::swap(code_, other.code_);
        std::swap(text_, other.text_);
        return *this;
    }
    ~error() {
        if (text_ != nullptr) drop_text();
    }

    /// An error from a system call's errno value (positive).
    static error from_errno(int errno_value, std::string_view detail = {});

    /// In errc_category() for what sluice found, in std::generic_category() for an errno of the kernel.
    std::error_code code() const noexcept { return code_; }
    /// "DETAIL: TEXT OF THE CODE", or just the text of the code.
    std::string message() const;
    /// The sentence alone, empty when there is none; valid while this error, or a copy of it, lives.
    std::string_view detail() const noexcept;

    friend bool operator==(const error& e, condition c) noexcept { return e.code_ == make_error_condition(c); }
    friend bool operator==(const error& e, errc c) noexcept { return e.code_ == make_error_code(c); }
    friend bool operator==(const error& e, std::error_code c) noexcept { return e.code_ == c; }
    friend bool operator==(const error& e, std::errc c) noexcept { return e.code_ == c; }
    friend bool operator==(const error& a, const error& b) noexcept { return a.code_ == b.code_; }

private:
    struct text;
    void drop_text() noexcept;
    std::error_code code_;
    text* text_ = nullptr;
};

} // namespace sluice
