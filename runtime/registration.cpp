#include "runtime/registration.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sluice::detail {

/// The lock is held for the books alone, never while a registrar works: that takes milliseconds per gigabyte, and an
/// executor that makes a small region need not wait for a device that is being opened. Instead, whatever is worked on
/// is pinned, and whoever wants it gone waits; all other memory may go meanwhile.
class registration_list {
public:
    static registration_list& instance() noexcept {
        static auto& only = *new registration_list; // memory may go after everything static has gone
        return only;
    }

    void add(registrar& r) {
        std::vector<entry> there;
        {
            const std::lock_guard lock(mutex_);
            SLUICE_EXPECTS(pins_of(r) == nullptr, "registration: a registrar was added twice");
            registrars_.push_back({&r, 1});
            there = snapshot();
        }
        // What comes from now on announces itself.
        for (const entry& each : there) {
            if (!pin(each)) continue;
            attach(*each.memory, r);
            unpin(*each.memory);
        }
        unpin(r);
    }

    void remove(registrar& r) noexcept {
        std::vector<entry> there;
        {
            std::unique_lock lock(mutex_);
            const auto found = std::ranges::find(registrars_, &r, &known::who);
            SLUICE_EXPECTS(found != registrars_.end(), "registration: a registrar that is not known was removed");
            found->leaving = true; // new memory passes it by
            changed_.wait(lock, [&] { return *pins_of(r) == 0; });
            there = snapshot();
        }
        for (const entry& each : there) {
            if (!pin(each)) continue;
            detach(*each.memory, r);
            unpin(*each.memory);
        }
        std::unique_lock lock(mutex_); // memory that goes just now may be detaching from it
        changed_.wait(lock, [&] { return *pins_of(r) == 0; });
        std::erase_if(registrars_, [&](const known& each) { return each.who == &r; });
    }

    void announce(registration& memory) {
        std::vector<registrar*> there;
        {
            const std::lock_guard lock(mutex_);
            const bool fresh = live_.emplace(&memory, life{.pins = 1, .number = next_number_++}).second;
            SLUICE_EXPECTS(fresh, "registration: memory was announced twice");
            pin_registrars(there, false);
        }
        for (registrar* r : there) {
            attach(memory, *r);
            unpin(*r);
        }
        unpin(memory);
    }

    void withdraw(registration& memory) noexcept {
        std::vector<registrar*> there;
        {
            std::unique_lock lock(mutex_);
            const auto found = live_.find(&memory);
            SLUICE_EXPECTS(found != live_.end(), "registration: memory that was not announced was withdrawn");
            const std::size_t& pins =
                found->second.pins; // stays where it is, unlike an iterator, while others come and go
            changed_.wait(lock, [&] { return pins == 0; });
            live_.erase(&memory);
            pin_registrars(there, true); // also those that leave and have not come to it
        }
        for (registrar* r : there) {
            detach(memory, *r);
            unpin(*r);
        }
        attachment* each = memory.attachments.exchange(nullptr, std::memory_order_acq_rel);
        while (each != nullptr) delete std::exchange(each, each->next_);
    }

private:
    struct known {
        registrar* who;
        std::size_t pins; ///< calls of it that are going on, or about to
        bool leaving = false;
    };

    struct life {
        std::size_t pins;
        std::uint64_t number; ///< other memory may have its address later
    };
    struct entry {
        registration* memory;
        std::uint64_t number;
    };

    /// Both with the memory pinned, or out of the books: of one memory, different registrars only work at a time.
    static void attach(registration& memory, registrar& r) noexcept {
        registrar_record* const made = r.attach(memory).release();
        if (made == nullptr) return;
        for (attachment* each = memory.attachments.load(std::memory_order_acquire); each != nullptr;
             each = each->next_) {
            registrar_record* none = nullptr;
            if (!each->record_.compare_exchange_strong(none, made, std::memory_order_acq_rel)) continue;
            each->owner_.store(&r, std::memory_order_release);
            return;
        }
        auto* const place = new attachment(r, *made);
        place->next_ = memory.attachments.load(std::memory_order_relaxed);
        while (!memory.attachments.compare_exchange_weak(place->next_, place, std::memory_order_release,
                                                         std::memory_order_relaxed)) {
        }
    }
    static void detach(registration& memory, registrar& r) noexcept {
        for (attachment* each = memory.attachments.load(std::memory_order_acquire); each != nullptr;
             each = each->next_) {
            if (each->owner_.load(std::memory_order_acquire) != &r) continue;
            const std::unique_ptr<registrar_record> record(each->record_.load(std::memory_order_relaxed));
            r.detach(*record);
            each->owner_.store(nullptr, std::memory_order_relaxed);
            each->record_.store(nullptr, std::memory_order_release); // from now on another one's
            return;
        }
    }

    std::vector<entry> snapshot() const {
        std::vector<entry> there;
        there.reserve(live_.size());
        for (const auto& [memory, about] : live_) there.push_back({memory, about.number});
        return there;
    }
    /// False: it has gone.
    bool pin(const entry& wanted) noexcept {
        const std::lock_guard lock(mutex_);
        const auto found = live_.find(wanted.memory);
        if (found == live_.end() || found->second.number != wanted.number) return false;
        ++found->second.pins;
        return true;
    }
    std::size_t* pins_of(const registrar& r) noexcept {
        const auto found = std::ranges::find(registrars_, &r, [](const known& each) { return each.who; });
        return found == registrars_.end() ? nullptr : &found->pins;
    }
    void pin_registrars(std::vector<registrar*>& into, bool also_leaving) {
        for (known& each : registrars_) {
            if (each.leaving && !also_leaving) continue;
            ++each.pins;
            into.push_back(each.who);
        }
    }
    void unpin(const registrar& r) noexcept {
        const std::lock_guard lock(mutex_);
        if (--*pins_of(r) == 0) changed_.notify_all();
    }
    void unpin(registration& memory) noexcept {
        const std::lock_guard lock(mutex_);
        if (--live_.find(&memory)->second.pins == 0) changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_; // a pin was taken out
    std::vector<known> registrars_;   // in the order added
    std::unordered_map<registration*, life> live_;
    std::uint64_t next_number_ = 0;
};

void add_registrar(registrar& r) { registration_list::instance().add(r); }
void remove_registrar(registrar& r) noexcept { registration_list::instance().remove(r); }
void announce(registration& memory) { registration_list::instance().announce(memory); }
void withdraw(registration& memory) noexcept { registration_list::instance().withdraw(memory); }

} // namespace sluice::detail
