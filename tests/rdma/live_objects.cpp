#include "tests/rdma/live_objects.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>

namespace sluice::rdma::testing {

namespace {

struct tally {
    std::atomic<long> ids{0};
    std::atomic<long> event_channels{0};
    std::atomic<long> receive_queues{0};
    std::atomic<long> completion_queues{0};
    std::atomic<long> completion_channels{0};
    std::atomic<long> memory_regions{0};
    std::mutex mutex;
    std::vector<ibv_qp*> queue_pairs;
};

tally& all() {
    static tally the_one;
    return the_one;
}

void forget(ibv_qp* qp) {
    const std::lock_guard lock(all().mutex);
    std::erase(all().queue_pairs, qp);
}

/// What made it counts one up if there is something, what destroyed it one down if that went well.
template <class T>
T* made(T* object, std::atomic<long>& count) {
    if (object != nullptr) ++count;
    return object;
}
int gone(int rc, std::atomic<long>& count) {
    if (rc == 0) --count;
    return rc;
}

void count_memory_and_completions(verbs& t) {
    t.reg_mr = [](ibv_pd* pd, void* address, std::size_t bytes, int access) {
        return made(real_verbs().reg_mr(pd, address, bytes, access), all().memory_regions);
    };
    t.dereg_mr = [](ibv_mr* mr) { return gone(real_verbs().dereg_mr(mr), all().memory_regions); };
    t.create_comp_channel = [](ibv_context* context) {
        return made(real_verbs().create_comp_channel(context), all().completion_channels);
    };
    t.destroy_comp_channel = [](ibv_comp_channel* c) {
        return gone(real_verbs().destroy_comp_channel(c), all().completion_channels);
    };
    t.create_cq = [](ibv_context* context, int entries, void* cookie, ibv_comp_channel* channel, int vector) {
        return made(real_verbs().create_cq(context, entries, cookie, channel, vector), all().completion_queues);
    };
    t.destroy_cq = [](ibv_cq* cq) { return gone(real_verbs().destroy_cq(cq), all().completion_queues); };
}

void count_queues(verbs& t) {
    t.create_srq = [](ibv_pd* pd, ibv_srq_init_attr* a) {
        return made(real_verbs().create_srq(pd, a), all().receive_queues);
    };
    t.destroy_srq = [](ibv_srq* srq) { return gone(real_verbs().destroy_srq(srq), all().receive_queues); };
    t.create_qp = [](rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* a) {
        const int rc = real_verbs().create_qp(id, pd, a);
        if (rc == 0) {
            const std::lock_guard lock(all().mutex);
            all().queue_pairs.push_back(id->qp);
        }
        return rc;
    };
    t.destroy_qp = [](rdma_cm_id* id) {
        forget(id->qp);
        real_verbs().destroy_qp(id);
    };
}

void count_connection_manager(verbs& t) {
    t.create_event_channel = [] { return made(real_verbs().create_event_channel(), all().event_channels); };
    t.destroy_event_channel = [](rdma_event_channel* channel) {
        --all().event_channels;
        real_verbs().destroy_event_channel(channel);
    };
    t.create_id = [](rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) {
        const int rc = real_verbs().create_id(channel, id, context, space);
        if (rc == 0) ++all().ids;
        return rc;
    };
    t.get_cm_event = [](rdma_event_channel* channel, rdma_cm_event** event) {
        const int rc = real_verbs().get_cm_event(channel, event);
        if (rc == 0 && (*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST) ++all().ids; // a new one comes with it
        return rc;
    };
    t.destroy_id = [](rdma_cm_id* id) { return gone(real_verbs().destroy_id(id), all().ids); };
}

verbs counting_table() {
    verbs t = real_verbs();
    count_memory_and_completions(t);
    count_queues(t);
    count_connection_manager(t);
    return t;
}

// Before any test, and for good: the library keeps devices until the process ends.
[[maybe_unused]] const bool in_use = [] {
    static const verbs table = counting_table();
    use_verbs(&table);
    return true;
}();

} // namespace

live_objects count_live() {
    const tally& t = all();
    const std::lock_guard lock(all().mutex);
    return {.ids = t.ids,
            .event_channels = t.event_channels,
            .queue_pairs = static_cast<long>(t.queue_pairs.size()),
            .receive_queues = t.receive_queues,
            .completion_queues = t.completion_queues,
            .completion_channels = t.completion_channels,
            .memory_regions = t.memory_regions};
}

std::string live_objects::to_string() const {
    const auto item = [](const char* name, long count) {
        return std::string(name) + " " + std::to_string(count) + ", ";
    };
    return item("ids", ids) + item("event channels", event_channels) + item("queue pairs", queue_pairs) +
           item("receive queues", receive_queues) + item("completion queues", completion_queues) +
           item("completion channels", completion_channels) + "memory regions " + std::to_string(memory_regions);
}

std::vector<ibv_qp*> live_queue_pairs() {
    const std::lock_guard lock(all().mutex);
    return all().queue_pairs;
}

} // namespace sluice::rdma::testing
