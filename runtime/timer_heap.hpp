#pragma once

#include <sluice/sleep.hpp>

namespace sluice::detail {

/// Pairing heap of timer_nodes: the earliest deadline on top. Executor thread only.
class timer_heap {
public:
    bool empty() const noexcept { return root_ == nullptr; }
    timer_node* top() const noexcept { return root_; }

    void push(timer_node& node) noexcept {
        SLUICE_EXPECTS(!node.linked, "timer: added twice");
        node.child = node.sibling = node.parent = nullptr;
        node.linked = true;
        root_ = root_ == nullptr ? &node : meld(root_, &node);
    }

    void remove(timer_node& node) noexcept {
        SLUICE_EXPECTS(node.linked, "timer: removed when it is not in the heap");
        if (&node == root_) {
            root_ = merge_pairs(node.child);
        } else {
            cut(node);
            if (timer_node* rest = merge_pairs(node.child); rest != nullptr) root_ = meld(root_, rest);
        }
        node.child = node.sibling = node.parent = nullptr;
        node.linked = false;
    }

private:
    static timer_node* meld(timer_node* a, timer_node* b) noexcept {
        if (b->deadline < a->deadline) std::swap(a, b);
        b->parent = a;
        b->sibling = a->child;
        if (a->child != nullptr) a->child->parent = b;
        a->child = b;
        a->sibling = nullptr;
        a->parent = nullptr;
        return a;
    }
    static void cut(timer_node& node) noexcept {
        if (node.parent->child == &node) node.parent->child = node.sibling;
        else node.parent->sibling = node.sibling;
        if (node.sibling != nullptr) node.sibling->parent = node.parent;
    }
    /// Two passes over the list of siblings, without recursion: it may be as long as the heap.
    static timer_node* merge_pairs(timer_node* first) noexcept {
        timer_node* merged = nullptr;
        while (first != nullptr) {
            timer_node* a = first;
            timer_node* b = a->sibling;
            first = b == nullptr ? nullptr : b->sibling;
            a->sibling = a->parent = nullptr;
            if (b != nullptr) {
                b->sibling = b->parent = nullptr;
                a = meld(a, b);
            }
            a->sibling = merged;
            merged = a;
        }
        timer_node* root = nullptr;
        while (merged != nullptr) {
            timer_node* next = merged->sibling;
            merged->sibling = nullptr;
            root = root == nullptr ? merged : meld(root, merged);
            merged = next;
        }
        return root;
    }

    timer_node* root_ = nullptr;
};

} // namespace sluice::detail
