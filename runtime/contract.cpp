#include <sluice/contract.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <unistd.h>

namespace sluice::detail {

void contract_failed(const char* message, const char* expression, const char* file, unsigned line,
                     const char* function) noexcept {
    // A fixed buffer: the heap may be what is broken.
    std::array<char, 1024> buffer{};
    std::size_t used = 0;
    auto append = [&](std::string_view text) {
        const std::size_t n = std::min(text.size(), buffer.size() - 1 - used);
        std::memcpy(buffer.data() + used, text.data(), n);
        used += n;
    };
    std::array<char, 16> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), line).ptr;
    append("sluice: broken contract: ");
    append(message);
    append(" (");
    append(expression);
    append(") at ");
    append(file);
    append(":");
    append({digits.data(), static_cast<std::size_t>(end - digits.data())});
    append(" in ");
    append(function);
    buffer[used++] = '\n';
    if (write(STDERR_FILENO, buffer.data(), used) < 0) {
        // Nowhere left to say it; abort says the rest.
    }
    std::abort();
}

} // namespace sluice::detail
