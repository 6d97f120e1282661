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
/// is pinned, and whoever wants it gone waits.
class registration_list {
public:
    static registration_list& instance() noexcept {
        static auto& only = *new registration_list; // memory may go after everything static has gone
        return only;
    }

    void add(registrar& r) {
        std::vector<registration*> there;
        {
            const std::lock_guard lock(mutex_);
            SLUICE_EXPECTS(pins_of(r) == nullptr, "registration: a registrar was added twice");
            registrars_.push_back({&r, 1});
            for (auto& [memory, pins] : live_) {
                ++pins;
                there.push_back(memory);
            }
        }
        for (registration* memory : there) {
            attach(*memory, r);
            unpin(*memory);
        }
        unpin(r);
    }

    void remove(registrar& r) noexcept {
        std::vector<registration*> there;
        {
            std::unique_lock lock(mutex_);
            const auto entry = std::ranges::find(registrars_, &r, &known::who);
            SLUICE_EXPECTS(entry != registrars_.end(), "registration: a registrar that is not known was removed");
            entry->leaving = true; // new memory passes it by
            changed_.wait(lock, [&] { return *pins_of(r) == 0; });
            for (auto& [memory, pins] : live_) {
                ++pins;
                there.push_back(memory);
            }
        }
        for (registration* memory : there) {
            for (attachment* each = memory->attachments.load(std::memory_order_acquire); each != nullptr;
                 each = each->next_)
                detach(*each, r);
            unpin(*memory);
        }
        std::unique_lock lock(mutex_); // memory that goes just now may be detaching from it
        changed_.wait(lock, [&] { return *pins_of(r) == 0; });
        std::erase_if(registrars_, [&](const known& each) { return each.who == &r; });
    }

    void announce(registration& memory) {
        std::vector<registrar*> there;
        {
            const std::lock_guard lock(mutex_);
            const bool fresh = live_.emplace(&memory, 1).second;
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
            const auto entry = live_.find(&memory);
            SLUICE_EXPECTS(entry != live_.end(), "registration: memory that was not announced was withdrawn");
            const std::size_t& pins = entry->second; // stays where it is, unlike an iterator, while others come and go
            changed_.wait(lock, [&] { return pins == 0; });
            live_.erase(&memory);
            pin_registrars(there, true); // also those that leave: each attachment is detached by whoever is first
        }
        attachment* each = memory.attachments.exchange(nullptr, std::memory_order_acq_rel);
        while (each != nullptr) {
            for (registrar* r : there) detach(*each, *r);
            delete std::exchange(each, each->next_);
        }
        for (registrar* r : there) unpin(*r);
    }

private:
    struct known {
        registrar* who;
        std::size_t pins; ///< calls of it that are going on, or about to
        bool leaving = false;
    };

    static void attach(registration& memory, registrar& r) noexcept {
        attachment* const made = r.attach(memory).release();
        if (made == nullptr) return;
        made->next_ = memory.attachments.load(std::memory_order_relaxed);
        while (!memory.attachments.compare_exchange_weak(made->next_, made, std::memory_order_release,
                                                         std::memory_order_relaxed)) {
        }
    }
    static void detach(attachment& each, registrar& r) noexcept {
        const registrar* expected = &r;
        if (each.owner_.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel)) r.detach(each);
    }

    std::size_t* pins_of(const registrar& r) noexcept {
        const auto entry = std::ranges::find(registrars_, &r, [](const known& each) { return each.who; });
        return entry == registrars_.end() ? nullptr : &entry->pins;
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
        if (--live_.find(&memory)->second == 0) changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;                     // a pin was taken out
    std::vector<known> registrars_;                       // in the order added
    std::unordered_map<registration*, std::size_t> live_; // with their pins
};

void add_registrar(registrar& r) { registration_list::instance().add(r); }
void remove_registrar(registrar& r) noexcept { registration_list::instance().remove(r); }
void announce(registration& memory) { registration_list::instance().announce(memory); }
void withdraw(registration& memory) noexcept { registration_list::instance().withdraw(memory); }

} // namespace sluice::detail
