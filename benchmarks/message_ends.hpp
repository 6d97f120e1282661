#pragma once

#include "benchmarks/transfer_ends.hpp"

#include <sluice/connection.hpp>
#include <sluice/runtime.hpp>

#include <cstdint>
#include <string>
#include <thread>

namespace sluice::bench {

/// Receives messages of one size, on executor 0 of `rt`. At depth 1 it sends each back; beyond that it receives with
/// `depth` tasks and answers a whole run, which the client announces, with one message.
class message_server {
public:
    message_server(runtime& rt, const work& w, std::string listen_on);
    ~message_server() { thread_.join(); }
    message_server(const message_server&) = delete;
    message_server& operator=(const message_server&) = delete;
    std::string address() const { return listener_.address().to_string(); }

private:
    static task<listener> start(runtime& rt, std::string on);
    static task<void> serve(message_server& self);
    static task<void> receive_some(message_server& self, unsigned index, std::uint64_t messages);

    runtime& runtime_;
    work work_;
    listener listener_;
    connection peer_;
    pooled_buffer memory_;
    std::thread thread_;
};

/// The other end, which is measured, on executor 0 of `rt`.
class message_client {
public:
    message_client(runtime& rt, const work& w, std::string to);
    ~message_client();
    message_client(const message_client&) = delete;
    message_client& operator=(const message_client&) = delete;

    /// At depth 1, round trips one after another.
    /// Beyond that, `depth` tasks that send, and the answer to all of it. Ends the program unless the counters of
    /// `carried` tell that exactly these bytes went that way.
    run_figures run(path carried, std::uint64_t operations);

private:
    static task<void> connect(message_client& self, std::string to);
    static task<void> leave(message_client& self);
    static task<void> send_some(message_client& self, unsigned index, std::uint64_t messages);
    static task<run_figures> run_all(message_client& self, path carried, std::uint64_t operations);
    static task<void> go_and_come(message_client& self, std::uint64_t operations);
    static task<void> stream(message_client& self, std::uint64_t operations);

    runtime& runtime_;
    work work_;
    connection connection_;
    pooled_buffer memory_;
};

} // namespace sluice::bench
