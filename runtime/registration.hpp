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
/// Lifetime: until the memory or the registrar goes.
class registrar_record {
public:
    registrar_record() = default;
    virtual ~registrar_record() = default;
    registrar_record(const registrar_record&) = delete;
    registrar_record& operator=(const registrar_record&) = delete;
};

/// A place in the list of a registration: for one registrar's record, or free for the next registrar that comes. It
/// stays until the memory goes, so that nobody trips over it who looks for another registrar meanwhile.
class attachment {
public:
    attachment(const registrar& owner, registrar_record& record) noexcept : owner_(&owner), record_(&record) {}
    attachment(const attachment&) = delete;
    attachment& operator=(const attachment&) = delete;
    const attachment* next() const noexcept { return next_; }

private:
    friend class registration_list;
    friend registrar_record* find_record(const registration& memory, const registrar& owner) noexcept;
    std::atomic<const registrar*> owner_;   // null: nobody's, or not yet
    std::atomic<registrar_record*> record_; // null: free
    attachment* next_ = nullptr;            // constant once it is in the list
};

/// Meets every registration. Both functions are called on whichever thread the memory or the registrar comes or goes,
/// for different memory at the same time; they may take their time but must not make or destroy registered memory.
class registrar {
public:
    /// Null: it has nothing to do with this memory.
    virtual std::unique_ptr<registrar_record> attach(const registration& memory) noexcept = 0;
    /// No operation uses the memory any more. `what` is destroyed afterwards.
    virtual void detach(registrar_record& what) noexcept = 0;

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

/// What `owner` made of this memory, or null. Wait-free: as many steps as there were devices at once. Any thread.
inline registrar_record* find_record(const registration& memory, const registrar& owner) noexcept {
    for (attachment* each = memory.attachments.load(std::memory_order_acquire); each != nullptr; each = each->next_)
        if (each->owner_.load(std::memory_order_acquire) == &owner)
            return each->record_.load(std::memory_order_relaxed);
    return nullptr;
}

} // namespace sluice::detail
