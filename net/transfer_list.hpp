#pragma once

#include <sluice/contract.hpp>
#include <sluice/transfer_operation.hpp>

#include <cstddef>

namespace sluice::net {

/// Transfers in the order in which they came, linked through themselves.
class transfer_list {
public:
    bool empty() const noexcept { return head_ == nullptr; }
    detail::transfer& front() const noexcept { return *head_; }
    void push(detail::transfer& t) noexcept {
        t.next = nullptr;
        t.previous = tail_;
        (tail_ == nullptr ? head_ : tail_->next) = &t;
        tail_ = &t;
    }
    void push_front(detail::transfer& t) noexcept {
        t.previous = nullptr;
        t.next = head_;
        (head_ == nullptr ? tail_ : head_->previous) = &t;
        head_ = &t;
    }
    void remove(detail::transfer& t) noexcept {
        (t.previous == nullptr ? head_ : t.previous->next) = t.next;
        (t.next == nullptr ? tail_ : t.next->previous) = t.previous;
        t.next = t.previous = nullptr;
    }
    detail::transfer& pop() noexcept {
        SLUICE_EXPECTS(head_ != nullptr, "net: took from an empty list of transfers");
        detail::transfer& t = *head_;
        remove(t);
        return t;
    }

private:
    detail::transfer* head_ = nullptr;
    detail::transfer* tail_ = nullptr;
};

} // namespace sluice::net
