#pragma once

#include <sluice/contract.hpp>
#include <sluice/export.hpp>
#include <sluice/memory.hpp>
#include <sluice/result.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace sluice {

namespace detail {

class attachment;

/// One stretch of memory that devices know: what providers hang their keys on. Lives in the pool or memory_region, which
/// announce it; one made anywhere else is known to no device. Stays where it is.
struct registration {
    std::byte* base = nullptr;
    std::size_t size_bytes = 0;
    memory_kind kind = memory_kind::host;
    /// What each device knows of it, one for each, in a list without locks: see runtime/registration.hpp.
    std::atomic<attachment*> attachments{nullptr};
};

/// Withdraws it from the devices first.
struct SLUICE_EXPORT registration_deleter {
    void operator()(registration* memory) const noexcept;
};

} // namespace detail

class region_view;

/// A readable range of registered memory: the source of a write or send.
///
/// Lifetime: does not own; the pool buffer or memory_region behind it must outlive every operation that uses it.
class const_region_view {
public:
    constexpr const_region_view() noexcept = default;
    /// A range that leaves `home` is a broken contract; `home` must outlive the view.
    const_region_view(const std::byte* data, std::size_t size_bytes, const detail::registration& home) noexcept
        : data_(data), size_bytes_(size_bytes), registration_(&home) {
        SLUICE_EXPECTS(data >= home.base && size_bytes <= home.size_bytes &&
                           static_cast<std::size_t>(data - home.base) <= home.size_bytes - size_bytes,
                       "region view: outside its registered memory");
    }

    ///@{
    /// Null and 0 for an empty view. registration() is all the memory that the view is a part of.
    const std::byte* data() const noexcept { return data_; }
    std::size_t size_bytes() const noexcept { return size_bytes_; }
    std::span<const std::byte> bytes() const noexcept { return {data_, size_bytes_}; }
    const detail::registration* registration() const noexcept { return registration_; }
    ///@}

    /// The first `n` bytes; more than there are is a broken contract.
    const_region_view first(std::size_t n) const noexcept { return subview(0, n); }
    /// `n` bytes from `offset`; a range that leaves the view is a broken contract.
    const_region_view subview(std::size_t offset, std::size_t n) const noexcept {
        SLUICE_EXPECTS(offset <= size_bytes_ && n <= size_bytes_ - offset, "region view: subview past the end");
        const_region_view part = *this;
        part.data_ += offset;
        part.size_bytes_ = n;
        return part;
    }

private:
    const std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
    const detail::registration* registration_ = nullptr;
};

/// A writable range of registered memory: the target of a read or receive. Converts to const_region_view.
///
/// Lifetime: as const_region_view.
class region_view {
public:
    constexpr region_view() noexcept = default;
    /// As const_region_view.
    region_view(std::byte* data, std::size_t size_bytes, const detail::registration& home) noexcept
        : data_(data), checked_(data, size_bytes, home) {}

    operator const_region_view() const noexcept { return checked_; }
    ///@{
    /// As const_region_view, writable.
    std::byte* data() const noexcept { return data_; }
    std::size_t size_bytes() const noexcept { return checked_.size_bytes(); }
    std::span<std::byte> bytes() const noexcept { return {data_, size_bytes()}; }
    const detail::registration* registration() const noexcept { return checked_.registration(); }
    ///@}

    ///@{
    /// As const_region_view: past the end is a broken contract.
    region_view first(std::size_t n) const noexcept { return subview(0, n); }
    region_view subview(std::size_t offset, std::size_t n) const noexcept {
        region_view part = *this;
        part.checked_ = checked_.subview(offset, n);
        part.data_ += offset;
        return part;
    }
    ///@}

private:
    std::byte* data_ = nullptr;
    const_region_view checked_;
};

/// Memory of the program's own, made known for transfers: tcp needs no more. Files gain from fixed buffers only through
/// executor::register_memory(), with `*view().registration()`. Move-only.
///
/// Lifetime: the memory must outlive the region, the region every operation and share that uses it. Thread rule:
/// distinct objects safe.
class SLUICE_EXPORT memory_region {
public:
    memory_region() noexcept = default;
    /// Registers it with every RDMA device in use, which takes about 16 µs and 60 µs per MiB for each; what a device
    /// refuses, operations on it report. Errors: `condition::invalid` for an empty range.
    static result<memory_region> create(std::span<std::byte> memory, memory_kind kind = memory_kind::host);

    /// All of it; empty when default-made or moved from.
    region_view view() const noexcept;
    operator region_view() const noexcept { return view(); }
    operator const_region_view() const noexcept { return view(); }
    /// 0 when default-made or moved from.
    std::size_t size_bytes() const noexcept { return registration_ == nullptr ? 0 : registration_->size_bytes; }

private:
    std::unique_ptr<detail::registration, detail::registration_deleter> registration_;
};

class remote_view;

/// A description of memory that a peer shared: what one-sided operations aim at. Trivially copyable, so it can be sent
/// in a message, stored, or written into an HTTP header. It is a capability: whoever holds it can use the memory until
/// it is revoked, over the connection that it was shared on.
///
/// Encoding, little-endian, version 1, 40 bytes:
/// | offset | bytes | field                              |
/// |--------|-------|------------------------------------|
/// | 0      | 1     | version = 1                        |
/// | 1      | 1     | provider (0 tcp, 1 rdma)           |
/// | 2      | 2     | access bits                        |
/// | 4      | 4     | generation                         |
/// | 8      | 8     | address in the peer's process      |
/// | 16     | 8     | size in bytes                      |
/// | 24     | 8     | remote key                         |
/// | 32     | 8     | owner: random number of the sharer |
struct SLUICE_EXPORT remote_region {
    /// Length of the encoding above.
    static constexpr std::size_t encoded_bytes = 40;
    /// The kind of connection that it was shared on; others refuse it. Numbers are part of the encoding.
    enum class provider_kind : std::uint8_t { tcp = 0, rdma = 1 };

    std::uint64_t address = 0;    ///< the peer's virtual address; not a pointer here
    std::uint64_t size_bytes = 0; ///< bytes that may be reached from `address`
    std::uint64_t key = 0;        ///< of one registration; over tcp unguessable, over RDMA 32 bits of the device's choice
    std::uint64_t owner = 0;      ///< which runtime shared it, so that a description for another peer is refused
    std::uint32_t generation = 0; ///< counts re-use of the key's slot
    access granted = access::none; ///< for information: the sharer, or its device, checks its own record
    provider_kind provider = provider_kind::tcp; ///< see provider_kind

    /// The 40 bytes of the table. decode(encode()) gives the same description on any machine.
    std::array<std::byte, encoded_bytes> encode() const noexcept;
    /// Errors: `condition::protocol_error` (length, version, provider, access bits, or a range that wraps), with the
    /// offending value.
    static result<remote_region> decode(std::span<const std::byte> bytes);
    /// 80 lower-case hexadecimal digits: the encoding, fit for an HTTP header.
    std::string to_string() const;
    /// Exactly what to_string() gives, no upper case. Errors: as decode(), with the offending character.
    static result<remote_region> from_string(std::string_view text);

    /// The first `n` bytes; more than there are is a broken contract.
    remote_view first(std::uint64_t n) const noexcept;
    /// `n` bytes from `offset`; a range that leaves the region is a broken contract.
    remote_view subview(std::uint64_t offset, std::uint64_t n) const noexcept;

    friend bool operator==(const remote_region&, const remote_region&) noexcept = default;
};
static_assert(std::is_trivially_copyable_v<remote_region>);

/// A range inside a peer's shared memory. Bounds were checked when it was made; the peer checks them again.
class remote_view {
public:
    constexpr remote_view() noexcept = default;
    /// All of it; a copy of the description, so nothing need outlive the view.
    remote_view(const remote_region& region) noexcept : region_(region), size_bytes_(region.size_bytes) {}

    ///@{
    /// The range is `size_bytes()` from `offset()` bytes into region(); address() is its start at the peer.
    const remote_region& region() const noexcept { return region_; }
    std::uint64_t offset() const noexcept { return offset_; }
    std::uint64_t address() const noexcept { return region_.address + offset_; }
    std::uint64_t size_bytes() const noexcept { return size_bytes_; }
    ///@}

    ///@{
    /// A range that leaves this view is a broken contract.
    remote_view first(std::uint64_t n) const noexcept { return subview(0, n); }
    remote_view subview(std::uint64_t offset, std::uint64_t n) const noexcept {
        SLUICE_EXPECTS(offset <= size_bytes_ && n <= size_bytes_ - offset, "remote view: subview past the end");
        remote_view part = *this;
        part.offset_ += offset;
        part.size_bytes_ = n;
        return part;
    }
    ///@}

private:
    remote_region region_;
    std::uint64_t offset_ = 0;
    std::uint64_t size_bytes_ = 0;
};

inline remote_view remote_region::first(std::uint64_t n) const noexcept { return remote_view(*this).first(n); }
inline remote_view remote_region::subview(std::uint64_t offset, std::uint64_t n) const noexcept {
    return remote_view(*this).subview(offset, n);
}

} // namespace sluice
