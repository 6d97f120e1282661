#pragma once

#include <coroutine>

namespace sluice::detail {

/// Something that can be resumed by its executor: every promise and every operation is one, so that making it ready
/// never allocates. A node is in at most one list at a time.
struct ready_node {
    ready_node* next = nullptr;
    std::coroutine_handle<> handle;
};

/// Intrusive first-in first-out list. Executor thread only.
class ready_queue {
public:
    bool empty() const noexcept { return head_ == nullptr; }

    void push(ready_node& node) noexcept {
        node.next = nullptr;
        if (tail_ == nullptr) head_ = &node;
        else tail_->next = &node;
        tail_ = &node;
    }

    /// The oldest node, or null.
    ready_node* pop() noexcept {
        ready_node* node = head_;
        if (node != nullptr) {
            head_ = node->next;
            if (head_ == nullptr) tail_ = nullptr;
            node->next = nullptr;
        }
        return node;
    }

    /// Takes `node` out wherever it is; false when it isn't here. Linear: for rare paths such as cancellation.
    bool remove(ready_node& node) noexcept {
        ready_node* before = nullptr;
        for (ready_node* at = head_; at != nullptr; before = at, at = at->next) {
            if (at != &node) continue;
            (before == nullptr ? head_ : before->next) = node.next;
            if (tail_ == &node) tail_ = before;
            node.next = nullptr;
            return true;
        }
        return false;
    }

private:
    ready_node* head_ = nullptr;
    ready_node* tail_ = nullptr;
};

} // namespace sluice::detail
