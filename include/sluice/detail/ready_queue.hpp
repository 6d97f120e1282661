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
    ready_queue() = default;
    ready_queue(const ready_queue&) = delete;
    ready_queue& operator=(const ready_queue&) = delete;

    bool empty() const noexcept { return head_ == nullptr; }

    void push(ready_node& node) noexcept {
        node.next = nullptr;
        *end_ = &node;
        end_ = &node.next;
    }

    /// The oldest node, or null.
    ready_node* pop() noexcept {
        ready_node* node = head_;
        if (node != nullptr) {
            head_ = node->next;
            if (head_ == nullptr) end_ = &head_;
        }
        return node;
    }

    /// The oldest node, from which the others are reached by `next`; null when empty.
    ready_node* first() const noexcept { return head_; }
    /// Takes out everything before `node`, which is in the queue; all of it for null.
    void advance_to(ready_node* node) noexcept {
        head_ = node;
        if (node == nullptr) end_ = &head_;
    }

    /// Moves all of `other` behind what is here.
    void append(ready_queue& other) noexcept {
        if (other.empty()) return;
        *end_ = other.head_;
        end_ = other.end_;
        other.head_ = nullptr;
        other.end_ = &other.head_;
    }

    /// Takes `node` out wherever it is; false when it isn't here. Linear: for rare paths such as cancellation.
    bool remove(ready_node& node) noexcept {
        for (ready_node** at = &head_; *at != nullptr; at = &(*at)->next) {
            if (*at != &node) continue;
            *at = node.next;
            if (end_ == &node.next) end_ = at;
            return true;
        }
        return false;
    }

private:
    ready_node* head_ = nullptr;
    ready_node** end_ = &head_; // where the next node's address goes
};

} // namespace sluice::detail
