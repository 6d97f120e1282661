#include "net/provider.hpp"

#include <chrono>

namespace sluice::detail {

provider_connection::~provider_connection() {
    SLUICE_EXPECTS(in_flight_ == 0, "connection: destroyed while an operation on it is awaited; stop it and wait first");
}

provider_connection::counted provider_connection::counted_as(transfer_kind kind) noexcept {
    switch (kind) {
    case transfer_kind::read: return counted::read;
    case transfer_kind::write:
    case transfer_kind::write_with_immediate: return counted::write;
    case transfer_kind::fetch_add:
    case transfer_kind::compare_swap: return counted::atomic;
    case transfer_kind::send: return counted::send;
    case transfer_kind::receive: break;
    }
    return counted::receive;
}

void provider_connection::ended(const transfer& t, bool ok) noexcept {
    SLUICE_EXPECTS(in_flight_ > 0, "provider: more operations ended than began");
    --in_flight_;
    auto& kept = stats_[static_cast<std::size_t>(counted_as(t.kind))];
    if (kept == nullptr) kept = std::make_unique<operation_stats>();
    if (!ok) {
        ++kept->failures;
        return;
    }
    std::uint64_t bytes = 0;
    switch (t.kind) {
    case transfer_kind::read: bytes = t.target.size_bytes(); break;
    case transfer_kind::receive: bytes = t.has_immediate ? 0 : t.received_bytes; break;
    case transfer_kind::write:
    case transfer_kind::write_with_immediate:
    case transfer_kind::send: bytes = t.source.size_bytes(); break;
    case transfer_kind::fetch_add:
    case transfer_kind::compare_swap: bytes = sizeof(std::uint64_t); break;
    }
    ++kept->operations;
    kept->bytes_by_path[static_cast<std::size_t>(path())] += bytes;
    kept->latency.record(std::chrono::steady_clock::now() - t.started);
}

connection_stats provider_connection::stats() const {
    const auto of = [this](counted kind) {
        const auto& kept = stats_[static_cast<std::size_t>(kind)];
        return kept == nullptr ? operation_stats{} : *kept;
    };
    connection_stats s;
    s.read = of(counted::read);
    s.write = of(counted::write);
    s.atomic = of(counted::atomic);
    s.send = of(counted::send);
    s.receive = of(counted::receive);
    return s;
}

} // namespace sluice::detail
