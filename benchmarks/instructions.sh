#!/usr/bin/env bash
# Instructions per operation in user space, ours and the baseline's, counted by valgrind: the same on every run and on a
# busy machine. What starts and ends a program is the same for both counts of operations, so the difference is the loop.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: ${0##*/} SLUICE_BENCH {switch|spawn|nop|rdma-post|rdma-read|rdma-write|rdma-send} [OPTION...]" >&2
    echo "such as: ${0##*/} build/benchmarks/sluice-bench nop --depth 32" >&2
    exit 1
fi
command -v valgrind >/dev/null || { echo "${0##*/}: valgrind is not installed; install the package valgrind" >&2; exit 1; }
program=$1
subcommand=$2
shift 2
few=${FEW:-6400}
many=${MANY:-32000}

# count WHO OPERATIONS OPTION...: of a whole run
count() {
    local who=$1 operations=$2
    shift 2
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$subcommand" --repeat 1 --only "$who" \
        --iterations "$operations" "$@" 2>&1 | awk '$2 == "Collected" { print $4 }'
}

for who in ours baseline; do
    # A run is a warm-up and one measured run; with ours one more counts allocations, except where each run does.
    runs=2
    [ "$who" = baseline ] || [[ $subcommand == rdma-* ]] || runs=3
    a=$(count "$who" "$few" "$@")
    b=$(count "$who" "$many" "$@")
    echo "$who: $(((b - a) / ((many - few) * runs))) instructions per operation"
done
