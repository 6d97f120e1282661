#include <sluice/error.hpp>
#include <sluice/result.hpp>

#include <atomic>
#include <cerrno>

namespace sluice {

namespace {

class errc_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "sluice"; }
    std::string message(int value) const override {
        switch (static_cast<errc>(value)) {
        case errc::closed: return "closed";
        case errc::canceled: return "canceled";
        case errc::deadline_exceeded: return "deadline exceeded";
        case errc::invalid_address: return "invalid address";
        case errc::invalid_argument: return "invalid argument";
        case errc::access_denied: return "remote access denied";
        case errc::out_of_range: return "out of the remote region's range";
        case errc::message_too_long: return "message too long";
        case errc::protocol_error: return "the peer broke the protocol";
        case errc::version_mismatch: return "no common protocol version";
        case errc::unsupported: return "not supported here";
        case errc::out_of_resources: return "out of resources";
        case errc::end_of_file: return "end of file";
        case errc::peer_lost: return "the peer no longer answers";
        }
        return "unknown sluice error " + std::to_string(value);
    }
};

condition of_sluice(int value) noexcept {
    switch (static_cast<errc>(value)) {
    case errc::closed: return condition::closed;
    case errc::canceled: return condition::canceled;
    case errc::deadline_exceeded: return condition::timed_out;
    case errc::invalid_address:
    case errc::invalid_argument: return condition::invalid;
    case errc::access_denied: return condition::access_denied;
    case errc::out_of_range:
    case errc::end_of_file: return condition::out_of_range;
    case errc::message_too_long: return condition::out_of_range;
    case errc::protocol_error:
    case errc::version_mismatch: return condition::protocol_error;
    case errc::unsupported: return condition::unsupported;
    case errc::out_of_resources: return condition::out_of_resources;
    case errc::peer_lost: return condition::closed;
    }
    return condition{};
}

condition of_errno(int value) noexcept {
    switch (value) {
    case ECANCELED: return condition::canceled;
    case ETIMEDOUT:
    case ETIME: return condition::timed_out;
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
    case ESHUTDOWN:
    case EBADF: return condition::closed;
    case EACCES:
    case EPERM:
    case EROFS: return condition::access_denied;
    case ERANGE:
    case EOVERFLOW:
    case EFBIG: return condition::out_of_range;
    case EOPNOTSUPP:
    case ENOSYS:
    case EPROTONOSUPPORT:
    case EAFNOSUPPORT: return condition::unsupported;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOBUFS: return condition::out_of_resources;
    case EBUSY:
    case EAGAIN:
    case ETXTBSY:
    case EADDRINUSE: return condition::busy;
    case ENOENT: return condition::not_found;
    case EEXIST: return condition::already_exists;
    case ENOSPC:
    case EDQUOT: return condition::no_space;
    case EINVAL:
    case EFAULT:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR: return condition::invalid;
    case EPROTO: return condition::protocol_error;
    default: return condition{};
    }
}

class condition_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "sluice condition"; }
    std::string message(int value) const override {
        switch (static_cast<condition>(value)) {
        case condition::canceled: return "canceled";
        case condition::timed_out: return "timed out";
        case condition::closed: return "closed";
        case condition::access_denied: return "access denied";
        case condition::out_of_range: return "out of range";
        case condition::unsupported: return "unsupported";
        case condition::out_of_resources: return "out of resources";
        case condition::busy: return "busy";
        case condition::not_found: return "not found";
        case condition::already_exists: return "already exists";
        case condition::no_space: return "no space left";
        case condition::invalid: return "invalid";
        case condition::protocol_error: return "protocol error";
        }
        return "unknown condition " + std::to_string(value);
    }
    bool equivalent(const std::error_code& code, int value) const noexcept override {
        const auto wanted = static_cast<condition>(value);
        if (code.category() == errc_category()) return of_sluice(code.value()) == wanted;
        if (code.category() == std::generic_category() || code.category() == std::system_category())
            return of_errno(code.value()) == wanted;
        return false;
    }
};

} // namespace

const std::error_category& errc_category() noexcept {
    static const errc_category_type category;
    return category;
}

const std::error_category& condition_category() noexcept {
    static const condition_category_type category;
    return category;
}

struct error::text {
    std::atomic<int> references{1};
    std::string value;
};

error::error(std::error_code code, std::string_view detail) : code_(code) {
    if (!detail.empty()) text_ = new text{.value = std::string(detail)};
}

error::error(const error& other) noexcept : code_(other.code_), text_(other.text_) {
    if (text_ != nullptr) text_->references.fetch_add(1, std::memory_order_relaxed);
}

void error::drop_text() noexcept {
    if (text_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete text_;
}

error error::from_errno(int errno_value, std::string_view detail) {
    SLUICE_EXPECTS(errno_value > 0, "error::from_errno: errno values are positive");
    return {std::error_code(errno_value, std::generic_category()), detail};
}

std::string error::message() const {
    if (text_ == nullptr) return code_.message();
    return text_->value + ": " + code_.message();
}

std::string_view error::detail() const noexcept {
    return text_ == nullptr ? std::string_view{} : std::string_view(text_->value);
}

namespace detail {

void throw_error(const error& e) { throw std::system_error(e.code(), std::string(e.detail())); }

} // namespace detail

} // namespace sluice
