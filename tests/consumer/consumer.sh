#!/usr/bin/env bash
# Builds a program against sluice the way another project would, and runs it.
# usage: consumer.sh subproject|pkgconfig|cmake PROGRAM.cpp SOURCE_ROOT BUILD_ROOT     (compiler in $CXX)
set -euo pipefail

way=$1 program=$2 source_root=$3 build_root=$4
here=$source_root/tests/consumer
unset LD_LIBRARY_PATH   # or the program would find the library of the build folder
work=$build_root/consumers/$way   # kept, so that only what changed is compiled again
mkdir -p "$work"

need() { command -v "$1" >/dev/null || { echo "$1 is not installed"; exit 77; }; }

# Installs the library that is already built, and lets pkg-config find it there.
install_library() {
    need pkg-config
    local root=$work/root
    rm -rf "$root"
    meson install -C "$build_root" --no-rebuild --destdir "$root" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
    mkdir -p "$root/usr/include"   # liburing's, under the same sysroot: CMake refuses a folder that does not exist
    local pc
    pc=$(find "$root" -name sluice.pc) && [ -n "$pc" ] || { echo "no sluice.pc was installed"; exit 1; }
    export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$root
    LD_LIBRARY_PATH=$root$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=libdir sluice)
    export LD_LIBRARY_PATH
    [ "$(pkg-config --variable=has_rdma sluice)" = 0 ] || [ "$(pkg-config --variable=has_rdma sluice)" = 1 ] ||
        { echo "sluice.pc says nothing about RDMA"; exit 1; }
}

case $way in
subproject)
    cp "$here/subproject/meson.build" "$program" "$work"
    mkdir -p "$work/subprojects"
    ln -sfn "$source_root" "$work/subprojects/sluice"
    [ -e "$work/build/build.ninja" ] || meson setup --buildtype=plain "$work/build" "$work"
    ninja -C "$work/build"
    meson introspect --targets "$work/build" >"$work/targets.json"
    ! grep -q test-support "$work/targets.json" || { echo "a subproject must not build its tests"; exit 1; }
    "$work/build/consumer"
    ;;
pkgconfig)
    install_library
    # shellcheck disable=SC2046,SC2086  # flags and a compiler with a launcher are lists of words
    $CXX -std=c++20 "$program" $(pkg-config --cflags --libs sluice) -o "$work/consumer"
    "$work/consumer"
    ;;
cmake)
    need cmake
    install_library
    cp "$here/cmake/CMakeLists.txt" "$program" "$work"
    CXX=${CXX##* } cmake -G Ninja -S "$work" -B "$work/build" -DCMAKE_BUILD_TYPE=Release
    cmake --build "$work/build"
    "$work/build/consumer"
    ;;
*)
    echo "unknown way \"$way\"; known are subproject, pkgconfig and cmake"
    exit 2
    ;;
esac
