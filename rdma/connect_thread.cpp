#include "rdma/connect_thread.hpp"

#include <sluice/contract.hpp>

#include "net/background.hpp"

#include <cerrno>

#include <pthread.h>
#include <signal.h>

namespace sluice::rdma {

namespace {

/// What the thread and the task share.
struct connect_call : detail::posted_node {
    executor& home;
    rdma_cm_id* id;
    rdma_conn_param with;
    net::parking_spot over{};
    int failed = ECANCELED; // unless the call returns
};

/// Cancels the thread when the task is to stop.
struct canceler : detail::stop_callback_node {
    pthread_t thread{};
};

void tell(void* shared) {
    auto& call = *static_cast<connect_call*>(shared);
    call.home.post(call);
}

void* connect(void* shared) {
    auto& call = *static_cast<connect_call*>(shared);
    pthread_setname_np(pthread_self(), "sluice-connect");
    pthread_cleanup_push(tell, shared);
    const int failed = api().connect(call.id, &call.with) == 0 ? 0 : errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); // too late: post() is nothing to be canceled
    call.failed = failed;
    pthread_cleanup_pop(1);
    return nullptr;
}

/// With all signals blocked: those are for the program's own threads. 0, or why there is none.
int start(pthread_t& thread, connect_call& call) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&thread, nullptr, connect, &call);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return failed;
}

} // namespace

task<int> connect_on_thread(executor& home, rdma_cm_id* id, rdma_conn_param with) {
    SLUICE_EXPECTS(executor::current() == &home, "rdma: connect_on_thread on another thread than its executor's");
    const stop_token token = co_await this_stop_token();
    if (token.stop_requested()) co_return ECANCELED;
    connect_call call{{}, home, id, with};
    call.run = [](detail::posted_node& node) noexcept { static_cast<connect_call&>(node).over.nudge(); };
    canceler at_stop;
    at_stop.invoke = [](detail::stop_callback_node& node) noexcept {
        pthread_cancel(static_cast<canceler&>(node).thread);
    };
    if (const int failed = start(at_stop.thread, call); failed != 0) co_return failed;
    if (token.stop_possible()) token.state()->link(at_stop);
    co_await call.over.wait();
    detail::stop_state::unlink(at_stop);
    pthread_join(at_stop.thread, nullptr); // it may not have left post() yet
    co_return call.failed;
}

} // namespace sluice::rdma
