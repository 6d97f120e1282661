#pragma once

#include <sluice/contract.hpp>
#include <sluice/region.hpp>

#include <atomic>
#include <memory>

/// Which memory there is, and which devices: whoever comes later meets all of the others. The pool and every
/// memory_region announce themselves; a device that must know memory before it can use it is a registrar.
namespace sluice::detail {

class registrar;

/// What one registrar knows of one registration, such as its keys. Made by the registrar, owned by the list.
///
/// Lifetime: until the memory goes, even when its registrar leaves before, so that nobody trips over it who looks for
/// another one meanwhile.
class attachment {
public:
    explicit attachment(const registrar& owner) noexcept : owner_(&owner) {}
    virtual ~attachment() = default;
    attachment(const attachment&) = delete;
    attachment& operator=(const attachment&) = delete;

private:
    friend class registration_list;
    friend attachment* find_attachment(const registration& memory, const registrar& owner) noexcept;
    std::atomic<const registrar*> owner_; // null once it was detached
    attachment* next_ = nullptr;          // constant once it is in the list
};

/// Meets every registration. Both functions are called on whichever thread the memory or the registrar comes or goes,
/// for different memory at the same time; they may take their time but must not make or destroy registered memory.
class registrar {
public:
    /// Null: it has nothing to do with this memory.
    virtual std::unique_ptr<attachment> attach(const registration& memory) noexcept = 0;
    /// No operation uses the memory any more. `what` is destroyed later.
    virtual void detach(attachment& what) noexcept = 0;

protected:
    ~registrar() = default;
};

/// Attaches all memory that there is, and from now on all that comes; returns when what there was is attached. A
/// registrar that is known already is a broken contract. Thread-safe.
void add_registrar(registrar& r);
/// Detaches everything; after it returns `r` is not called any more. Thread-safe.
void remove_registrar(registrar& r) noexcept;

///@{
/// The memory is there from now on, or goes: every registrar attaches it, or detaches it, before these return. Must be
/// paired, with the registration in the same place. Thread-safe.
void announce(registration& memory);
void withdraw(registration& memory) noexcept;
///@}

/// What `owner` made of this memory, or null. Wait-free: as many steps as there are devices. Any thread.
inline attachment* find_attachment(const registration& memory, const registrar& owner) noexcept {
    for (attachment* each = memory.attachments.load(std::memory_order_acquire); each != nullptr; each = each->next_)
        if (each->owner_.load(std::memory_order_relaxed) == &owner) return each;
    return nullptr;
}

} // namespace sluice::detail
