#!/usr/bin/env bash
# What perftest measures on an RDMA device of this machine, its client and its server on it: another baseline, to be run
# in the same boot as sluice-bench rdma-*.
set -euo pipefail

if [ $# -lt 1 ]; then
    echo "usage: ${0##*/} ADDRESS [ITERATIONS]" >&2
    echo "such as: ${0##*/} 10.0.0.2 1000; ADDRESS is an IPv4 address of the device" >&2
    exit 1
fi
address=$1
iterations=${2:-1000}
for program in ib_read_lat ib_read_bw ib_write_lat ib_write_bw ib_send_lat ib_send_bw; do
    command -v $program >/dev/null || { echo "${0##*/}: $program is not installed; install the package perftest" >&2; exit 1; }
done
device=
for folder in /sys/class/infiniband/*; do
    [ -e "$folder" ] || { echo "${0##*/}: no RDMA device here" >&2; exit 1; }
    netdev=$(cat "$folder"/ports/1/gid_attrs/ndevs/0 2>/dev/null || true)
    [ -n "$netdev" ] || continue
    if ip -brief address show dev "$netdev" | grep -qF " $address/"; then device=${folder##*/}; fi
done
[ -n "$device" ] || { echo "${0##*/}: no RDMA device here has the address $address" >&2; exit 1; }

port=18600
# measure PROGRAM SIZE OPTION...: the client's figures. The server is there once it listens for the client's TCP connection,
# so the client tries until it gets through.
measure() {
    local program=$1 size=$2 output tries status
    shift 2
    port=$((port + 1))
    "$program" -d "$device" -R -F -p "$port" -s "$size" -n "$iterations" "$@" >/dev/null 2>&1 &
    local server=$!
    for ((tries = 0; tries < 50; tries++)); do
        status=0
        output=$(timeout 60 "$program" -d "$device" -R -F -p "$port" -s "$size" -n "$iterations" "$@" "$address" 2>/dev/null) ||
            status=$?
        [ $status != 0 ] || break
        output=
        [ $status != 124 ] || break # it got through and stands still
    done
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    # The last line with figures: of the latency programs "bytes iterations min max typical average ...", in us; of the
    # others "bytes iterations peak average rate", in MB/s and million messages a second.
    awk -v program="$program" -v options="$*" -v size="$size" '
        $1 == size && NF >= 5 { line = $0 }
        END {
            split(line, f)
            if (line == "") printf "%-13s %6d B %-10s no figures\n", program, size, options
            else if (program ~ /_lat$/) printf "%-13s %6d B %-10s %10.2f us typical, %.2f us average\n", program, size, options, f[5], f[6]
            else printf "%-13s %6d B %-10s %10.2f MB/s, %.0f op/s\n", program, size, options, f[4], f[5] * 1e6
        }' <<<"$output"
}

for size in 64 4096 65536; do
    measure ib_read_lat $size
    measure ib_read_lat $size -e
    measure ib_read_bw $size -t 16
    measure ib_write_lat $size
    measure ib_write_bw $size -t 16
    measure ib_send_lat $size
    measure ib_send_lat $size -e
    measure ib_send_bw $size -t 16
done
