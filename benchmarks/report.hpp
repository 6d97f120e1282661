#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sluice::bench {

/// One line of the result. Runs are compared in pairs, one of ours and one of the baseline right after each other.
struct row {
    std::string name;
    std::string unit;
    double ours = 0;     ///< median of the runs
    double baseline = 0; ///< median of the runs
    std::string baseline_name;
    double ratio = 0;     ///< ours divided by the baseline: the median of the pairs
    double ratio_low = 0; ///< quartiles of the pairs
    double ratio_high = 0;
    unsigned runs = 0;
    bool higher_is_better = false;
    std::optional<double> target{}; ///< the ratio to reach
    std::optional<double> allocations_per_operation{}; ///< heap allocations of ours, after the warm-up

    bool meets_target() const noexcept {
        return !target || (higher_is_better ? ratio >= *target : ratio <= *target);
    }
};

/// Prints rows as they come: a table for people, or one JSON object a line.
class report {
public:
    explicit report(bool json) : json_(json) {}
    void add(const row& r);

private:
    void print_text(const row& r);
    void print_json(const row& r) const;
    bool json_;
    bool headed_ = false;
};

} // namespace sluice::bench
