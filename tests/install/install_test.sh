#!/usr/bin/env bash
# Installs to a prefix, moves the prefix, and uses it with nothing else in the environment.
#
# Guards against: programs that find their libraries only through LD_LIBRARY_PATH (llama.cpp#23494),
# a wrong or missing RUNPATH after install (llama.cpp#17950), a pkg-config file with an empty
# Version (llama.cpp#16089).
set -euo pipefail

source_dir=${KVGRAFT_SOURCE_DIR:?}
build=${KVGRAFT_BINARY_DIR:?}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset LD_LIBRARY_PATH DYLD_LIBRARY_PATH CMAKE_PREFIX_PATH PKG_CONFIG_PATH

fail() {
  echo "install_test: $*" >&2
  exit 1
}

expect() { [ "$1" = "$2" ] || fail "expected '$1', got '$2'"; }

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

# Sanitised libraries need a sanitised consumer.
flags=()
if [ "$(cached KVGRAFT_SANITIZE)" = ON ]; then flags=(-fsanitize=address -fsanitize=undefined); fi

cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
mv "$scratch/first" "$scratch/moved"
prefix=$scratch/moved
lib=$(dirname "$(find "$prefix" -name 'libkvgraft.*' | head -n 1)")

# ---- every file that was promised
for file in share/kvgraft/models.py share/kvgraft/models.lock include/kvgraft/core/status.h \
  include/kvgraft/engine/engine.h; do
  [ -f "$prefix/$file" ] || fail "$file is missing"
done
if find "$prefix/include" -name '*_test*' -o -name '*.cc' | grep .; then fail "sources in include/"; fi

# ---- nothing installed points outside the prefix and the system's folders
check_libraries() {
  local found
  if ! command -v ldd >/dev/null; then return; fi
  found=$(ldd "$1")
  ! grep 'not found' <<<"$found" || fail "$1: libraries not found"
  ! grep -F "$source_dir" <<<"$found" || fail "$1: uses libraries of the source folder"
  ! grep -F "$build" <<<"$found" || fail "$1: uses libraries of the build folder"
  if [ "$(cached KVGRAFT_BUNDLE_ENGINE)" = ON ]; then
    grep -q "libllama.*=> $lib/" <<<"$found" || grep -q "libllama.*=> $prefix/" <<<"$found" ||
      fail "$1: libllama is not the installed one: $(grep libllama <<<"$found")"
  fi
}
check_libraries "$lib"/libkvgraft.so
if [ -x "$prefix/bin/kvgraft" ]; then
  check_libraries "$prefix/bin/kvgraft"
  env -i HOME="$scratch" PATH=/usr/bin:/bin "$prefix/bin/kvgraft" version | grep -q '[0-9]\.[0-9]' ||
    fail "kvgraft version printed no version"
fi
python3 "$prefix/share/kvgraft/models.py" list --json | grep -q smollm2-135m ||
  fail "the installed models.py does not find its models.lock"

# ---- a consumer through the CMake package
if ! { cmake -S "$source_dir/tests/consumer" -B "$scratch/consumer" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_FLAGS="${flags[*]-}" &&
  cmake --build "$scratch/consumer"; } >"$scratch/consumer.log" 2>&1; then
  cat "$scratch/consumer.log" >&2
  fail "the consumer does not build through CMake"
fi
expect "3 tokens" "$("$scratch/consumer/consumer")"

# A version that is not there is refused.
sed -e 's/kvgraft 0.1/kvgraft 99.0/' "$source_dir/tests/consumer/CMakeLists.txt" >"$scratch/CMakeLists.txt"
cp "$source_dir/tests/consumer/main.cc" "$scratch/"
if cmake -S "$scratch" -B "$scratch/newer" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null 2>&1; then
  fail "find_package(kvgraft 99.0) succeeded"
fi

# ---- a consumer through pkg-config
export PKG_CONFIG_PATH=$lib/pkgconfig
expect "$(cached CMAKE_PROJECT_VERSION)" "$(pkg-config --modversion kvgraft)"
read -ra cflags <<<"$(pkg-config --cflags kvgraft)"
read -ra libs <<<"$(pkg-config --libs kvgraft)"
"${CXX:-c++}" -std=c++20 ${flags[@]+"${flags[@]}"} "${cflags[@]}" "$source_dir/tests/consumer/main.cc" \
  -o "$scratch/by-pkg-config" "${libs[@]}" \
  -Wl,-rpath,"$(pkg-config --variable=libdir kvgraft)" || fail "no build through pkg-config"
expect "3 tokens" "$("$scratch/by-pkg-config")"

# ---- every installed header stands alone, with nothing but the standard library
find "$prefix/include" -name '*.h' | while read -r header; do
  printf '#include "%s"\n' "${header#"$prefix/include/"}"
done >"$scratch/all.cc"
[ -s "$scratch/all.cc" ] || fail "no headers installed"
"${CXX:-c++}" -std=c++20 -fsyntax-only -Wall -Werror "${cflags[@]}" "$scratch/all.cc" ||
  fail "the installed headers do not compile on their own"

echo "install_test: installed, moved, run and linked twice"
