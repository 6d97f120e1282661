# shellcheck shell=bash
# What runs in the guest, as its first process: makes the networks and devices, runs the commands of the job in order,
# and tells the host through the third port what happens. Never returns: the host ends the guest.
job=/run/rdma-guest
token=$(<"$job/token")

port() { # NUMBER: its file; the kernel numbers the device that has it
    local files=(/dev/vport*p"$1")
    echo "${files[0]}"
}
exec 0</dev/null
exec 3>"$(port 3)"

# The ports take one opener each, and programs may open /dev/stdout again: give them pipes. What this shell itself has to
# say goes to the console.
exec 1> >(exec cat >"$(port 1)" 3>&-)
relay_out=$!
exec 4> >(exec cat >"$(port 2)" 3>&-)
relay_err=$!

say() { printf '%s\n' "$*" >&3; }

# No program outlives its turn: what one left behind is ended before the next one starts.
sweep() {
    local process tries left
    for ((tries = 0; tries < 100; tries++)); do
        left=0
        for process in /proc/[0-9]*; do
            process=${process#/proc/}
            case $process in 1 | "$relay_out" | "$relay_err") continue ;; esac
            [ -e "/proc/$process/exe" ] || continue # a thread of the kernel
            kill -KILL "$process" 2>/dev/null && left=1
        done
        [ $left = 1 ] || return 0
        read -r -t 0.05 <>"$job_pause"
    done
}

# program NUMBER SECONDS FOLDER COMMAND...: SECONDS 0 is no limit but the host's.
program() {
    local number=$1 seconds=$2 folder=$3 status=0 limit=()
    shift 3
    [ "$seconds" = 0 ] || limit=(timeout --kill-after=5 "$seconds")
    say "start $number"
    if [ -n "${CAPTURE:-}" ]; then
        (cd "$folder" && exec "${limit[@]}" "$@" >"$OUT/$number.stdout" 2>"$OUT/$number.stderr") 3>&- 4>&- || status=$?
    else
        (cd "$folder" && exec "${limit[@]}" "$@") 3>&- 2>&4 4>&- || status=$?
    fi
    sweep
    say "end $number $status"
}

hostname host1 2>/dev/null || echo host1 >/proc/sys/kernel/hostname
job_pause=/run/pause
mkfifo "$job_pause"
ulimit -c 0 -l unlimited
# More random bits than the sanitizers of older compilers know make them fail at random.
echo 28 >/proc/sys/vm/mmap_rnd_bits 2>/dev/null

export PATH=$job:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin OUT=$job/out HOME=/root LANG=C.UTF-8
say up
rdma-guest-net make "$(<"$job/wanted")" 2>&4 >/run/rdma-environment || say "trouble the network of the guest is incomplete"
set -a
. /run/rdma-environment
. "$job/environment"
set +a
. "$job/commands"
printf '%s' "$token"
printf '%s' "$token" >&4
say finished
while :; do read -r -t 3600 <>"$job_pause"; done
