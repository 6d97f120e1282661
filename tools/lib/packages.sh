# shellcheck shell=bash
# Finds out what the build needs and this machine lacks, and installs it on Debian 12, Debian 13 and Ubuntu 24.04.
# Sourced by tools/check and tools/demo. Every failure is one line that names what is wrong and the remedy.

die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# Builds lie beside the sources.
need_writable_folder() {
    [ -w . ] || die "$(id -un) may not write to $PWD, where the build goes; clone it into a folder of your own"
}

# need PACKAGE TEST...: appends PACKAGE to `missing` unless the command TEST succeeds.
missing=()
need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

has_command() { command -v "$1"; }
has_library() { pkg-config --exists "$1"; }
has_meson() { [ "$(printf '%s\n' 1.0.1 "$(meson --version)" | sort -V | head -n 1)" = 1.0.1 ]; }

# A compiler can be there without the C++ library that it needs.
can_compile() { echo '#include <coroutine>' | "$1" -std=c++20 -x c++ -fsyntax-only -; }

# The clang to use: 19 where there is one, else the newest of those that are new enough.
clang_versions="19 20 21 18 17"
find_clang() {
    local version
    for version in $clang_versions; do
        if can_compile "clang++-$version" >/dev/null 2>&1; then
            echo "clang++-$version"
            return
        fi
    done
    return 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

apt_log=
apt_get() {
    [ -n "$apt_log" ] || apt_log=$(mktemp -t sluice-apt.XXXXXX)
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q -y "$@" >"$apt_log" 2>&1
}

apt_failed() { die "$1: $(grep -E '^(E|W):' "$apt_log" | head -n 1) (all of it: $apt_log)"; }

# Debian 12 has Catch2 3 only in its backports. Adds them from the mirror that this machine already uses.
add_backports() {
    local file=/etc/apt/sources.list.d/sluice-backports.sources mirror keyring
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk '$2 == "bookworm" { print $1; exit }')
    [ -n "$mirror" ] || die "Catch2 3 is in bookworm-backports, but apt has no source for bookworm to take the mirror from; add one"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    {
        printf 'Types: deb\nURIs: %s\nSuites: bookworm-backports\nComponents: main\n' "$mirror"
        [ ! -e "$keyring" ] || printf 'Signed-By: %s\n' "$keyring"
    } | as_root tee "$file" >/dev/null || die "cannot write $file; check its permissions"
    if ! apt_get update; then
        as_root rm -f "$file"
        apt_failed "the mirror of this machine has no bookworm-backports, which hold Catch2 3; add a source that has them"
    fi
}

has_new_catch2() { apt-cache madison catch2 | awk '{ print $3 }' | grep -qE '^[3-9]'; }

# shellcheck source=/dev/null
is_bookworm() { [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = bookworm ]; }

install_catch2() {
    local from=()
    if is_bookworm; then
        has_new_catch2 || add_backports
        from=(-t bookworm-backports)
    fi
    apt_get install --no-install-recommends "${from[@]}" catch2 || apt_failed "cannot install catch2"
}

# Installs what `need` found missing, or says what is missing and how to get it.
install_missing() {
    [ ${#missing[@]} -gt 0 ] || return 0
    local note=
    if is_bookworm && [[ " ${missing[*]} " == *" catch2 "* ]]; then note=" (catch2 from bookworm-backports)"; fi
    [ "${may_install:-yes}" = yes ] ||
        die "missing: ${missing[*]}; install with: apt-get install ${missing[*]}$note, or run without --no-install"
    command -v apt-get >/dev/null ||
        die "missing: ${missing[*]}; packages are installed on Debian and Ubuntu only, install these by hand"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        die "missing: ${missing[*]}; installing needs root or sudo; run as root: apt-get install ${missing[*]}$note"
    echo "installing: ${missing[*]}"
    apt_get update || apt_failed "cannot update the package lists"
    local package plain=()
    for package in "${missing[@]}"; do
        case $package in
        catch2) install_catch2 ;;
        clang-*) plain+=("$(available_clang)") ;;
        *) plain+=("$package") ;;
        esac
    done
    [ ${#plain[@]} = 0 ] || apt_get install --no-install-recommends "${plain[@]}" ||
        apt_failed "cannot install ${plain[*]}"
    rm -f "$apt_log"
}

available_clang() {
    local version
    for version in $clang_versions; do
        if apt-cache show "clang-$version" >/dev/null 2>&1; then
            echo "clang-$version"
            return
        fi
    done
    die "no clang from 17 on in the package lists; install clang 19"
}

need_build_tools() {
    need g++ can_compile g++
    need meson has_meson
    need ninja-build has_command ninja
    need pkgconf has_command pkg-config
    need liburing-dev pkg-config --exists 'liburing >= 2.3'
    need libibverbs-dev pkg-config --exists 'libibverbs >= 1.14'
    need librdmacm-dev pkg-config --exists 'librdmacm >= 1.3'
}

need_program_libraries() {
    need libcli11-dev has_library CLI11
    need libfmt-dev has_library fmt
    need nlohmann-json3-dev has_library nlohmann_json
    need libisal-dev has_library libisal
}

# What tools/rdma-guest needs, and the tools that programs in the guest find there: they are this machine's.
need_rdma_guest() {
    [ "$(uname -m)" = x86_64 ] || return 0
    local PATH=$PATH:/usr/sbin:/sbin
    need qemu-system-x86 has_command qemu-system-x86_64
    need cpio has_command cpio
    need zstd has_command zstd
    need xz-utils has_command xz
    need kmod has_command modprobe
    need make has_command make
    need iproute2 has_command rdma
    need ibverbs-providers test -e /etc/libibverbs.d/rxe.driver
    need ibverbs-utils has_command ibv_devinfo
    need rdmacm-utils has_command rping
    need perftest has_command ib_read_lat
}
