# shellcheck shell=bash
# Gets libllama: a system package of a supported version, or llama.cpp as the pinned Python package
# carries it, built here from its source. Sourced by ./dev after tools/lib.sh.
#
# Builds are kept in $CACHE/engine/<key> and copied to .deps/engine. The key covers everything that
# the binary depends on, the processor's features included: a build never runs elsewhere. An
# interrupted build goes on where it stopped: sources and objects stay in $CACHE/engine-work/<key>
# until it is complete.
#
#   KVGRAFT_ENGINE=auto|system|bundled   which one (default auto: system if its version is supported)
#   CMAKE_ARGS="-DGGML_CUDA=on"          more options for the engine; implies bundled. Kept for later
#                                        runs in this folder; CMAKE_ARGS= (empty) goes back

ENGINE_FLAGS='-DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_OPENSSL=OFF'
ENGINE_DIR=$ROOT/.deps/engine
ENGINE_ARGS_FILE=$ROOT/.deps/engine-args
ENGINE_REQUIREMENT=$ROOT/tools/engine-requirements.txt
ENGINE_BACKEND=$ROOT/tools/engine-build-requirements.txt

processor_features() {
  if [ -r /proc/cpuinfo ]; then
    grep -m 1 -iE '^(flags|features|isa)[[:space:]]*:' /proc/cpuinfo | cut -d: -f2 | tr -s ' ' '\n' | sort -u
  else
    sysctl -n machdep.cpu.brand_string hw.optional 2>/dev/null || true
  fi
}

engine_key() {
  {
    echo "layout 1"
    cat "$ENGINE_REQUIREMENT" "$ENGINE_BACKEND" "$ROOT/cmake/engine_options.cmake"
    echo "$ENGINE_FLAGS ${CMAKE_ARGS:-} CFLAGS=${CFLAGS:-} CXXFLAGS=${CXXFLAGS:-}"
    "${CXX:-c++}" --version | head -n 1
    "${CC:-cc}" --version | head -n 1
    uname -sm
    getconf GNU_LIBC_VERSION 2>/dev/null || true
    processor_features
  } | sha256_stdin | cut -c1-32
}

# ---- a system package ------------------------------------------------------------------------

# Folders above which CMake would look, as far as they hold a llama package at all: a probe with
# CMake takes a second and is worth it only then.
system_engine_candidates() {
  local prefix
  {
    printf '%s\n' /usr /usr/local /opt/homebrew "${HOMEBREW_PREFIX:-}" "${CONDA_PREFIX:-}" \
      "${llama_DIR:-}" "${llama_ROOT:-}"
    tr ':' '\n' <<<"${CMAKE_PREFIX_PATH:-}"
    tr ':' '\n' <<<"$PATH" | sed -n 's|/s\{0,1\}bin/*$||p'
  } | sort -u | while read -r prefix; do
    [ -n "$prefix" ] || continue
    compgen -G "$prefix/llama-config.cmake" || compgen -G "$prefix/lib*/cmake/llama/llama-config.cmake" ||
      compgen -G "$prefix/lib/*/cmake/llama/llama-config.cmake" || true
  done
}

# Prints the version of a usable system libllama; fails when there is none.
system_engine() {
  local scratch said
  [ -n "$(system_engine_candidates)" ] || return 1
  scratch=$(mktemp -d)
  said=$(cmake -S "$ROOT/cmake/probe" -B "$scratch" 2>/dev/null | sed -n 's/.*kvgraft-probe: //p')
  rm -rf "$scratch"
  case $said in
    *" supported") echo "${said% *}" ;;
    *" unsupported")
      say "the system's libllama ${said% *} is outside the supported range" \
        "(cmake/llama_version.cmake); not used"
      return 1
      ;;
    *) return 1 ;;
  esac
}

# ---- the bundled build -----------------------------------------------------------------------

# pip without the settings of the user's that would break an install into a folder.
engine_pip() {
  env -u PIP_TARGET -u PIP_PREFIX -u PIP_NO_BINARY -u PIP_ONLY_BINARY -u PIP_USER -u PIP_DRY_RUN \
    -u PIP_CONSTRAINT -u PIP_BUILD_CONSTRAINT \
    PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 \
    PIP_ROOT_USER_ACTION=ignore \
    python3 -m pip "$@"
}

# (These functions run under `logged`, where errexit is off: each step says `|| return`.)
# The pinned build tools in a folder, then the pinned source, unpacked: pip downloads both and holds
# them against the pinned hashes. Without build isolation, whose downloads cannot be pinned by hash.
engine_source() {
  local work=$1
  mkdir -p "$work/tmp" || return
  if [ ! -d "$work/backend" ]; then
    rm -rf "$work/backend.new"
    TMPDIR=$work/tmp retry 3 engine_pip install --no-deps --only-binary :all: --require-hashes \
      --target "$work/backend.new" --requirement "$ENGINE_BACKEND" || return
    mv "$work/backend.new" "$work/backend" || return
  fi
  if [ ! -d "$work/source" ]; then
    rm -rf "$work/download" "$work/unpack"
    mkdir -p "$work/download" "$work/unpack" || return
    TMPDIR=$work/tmp PYTHONPATH=$work/backend retry 3 engine_pip download --no-deps \
      --no-build-isolation --no-binary llama-cpp-python --require-hashes \
      --dest "$work/download" --requirement "$ENGINE_REQUIREMENT" || return
    tar -C "$work/unpack" -xzf "$work"/download/*.tar.gz --strip-components 1 || return
    mv "$work/unpack" "$work/source" || return
    rm -rf "$work/download"
  fi
}

engine_compile() {
  local work=$1 flags
  flags=$(tr '\n' ' ' <<<"$ENGINE_FLAGS")
  mkdir -p "$work/tmp"
  rm -rf "$work/target"
  CMAKE_ARGS="$flags '-DCMAKE_PROJECT_llama.cpp_INCLUDE=$ROOT/cmake/engine_options.cmake' $CMAKE_ARGS" \
    SKBUILD_BUILD_DIR="$work/build" TMPDIR="$work/tmp" PYTHONPATH="$work/backend" \
    engine_pip install -v --no-deps --no-build-isolation --target "$work/target" "$work/source" || return
  python3 "$ROOT/tools/tidy_engine.py" "$work/target"
}

# Two runs at once take turns; the lock goes when the last process that holds it ends.
engine_lock() {
  command -v flock >/dev/null || return 0
  exec 9>"$CACHE/engine-work/$1.lock"
  flock -n 9 && return
  say "another build of the same engine is running, waiting for it"
  flock 9
}

engine_build() {
  local key=$1 work=$CACHE/engine-work/$1
  mkdir -p "$work" "$CACHE/engine"
  # Unfinished builds of other keys: of an older version or another processor.
  find "$CACHE/engine-work" -mindepth 1 -maxdepth 1 -type d ! -name "$key" -mtime +2 \
    -exec rm -rf {} + 2>/dev/null || true
  engine_lock "$key"
  if [ ! -f "$CACHE/engine/$key/kvgraft-engine-key" ]; then
    say "building the engine (llama.cpp) once for this processor: 3 to 10 minutes on two cores"
    logged "engine source" engine-source engine_source "$work" ||
      fail "the engine's source could not be fetched; run the same command again to go on"
    logged "engine build" engine engine_compile "$work" ||
      fail "the engine could not be built; run the same command again to go on"
    echo "$key" >"$work/target/kvgraft-engine-key"
    rm -rf "${CACHE:?}/engine/$key"
    mv "$work/target" "$CACHE/engine/$key"
    rm -rf "$work"
  fi
  if command -v flock >/dev/null; then exec 9>&-; fi
}

# A copy, so that a project works on when the cache is emptied; new times make what links it rebuild.
engine_deploy() {
  local key=$1
  mkdir -p "$ROOT/.deps"
  rm -rf "$ENGINE_DIR.new" "$ENGINE_DIR.old"
  cp -RP "$CACHE/engine/$key" "$ENGINE_DIR.new"
  if [ -e "$ENGINE_DIR" ] || [ -L "$ENGINE_DIR" ]; then mv "$ENGINE_DIR" "$ENGINE_DIR.old"; fi
  mv "$ENGINE_DIR.new" "$ENGINE_DIR"
  rm -rf "$ENGINE_DIR.old"
}

# CMAKE_ARGS as given, else as in the last run that gave them: a GPU build stays one.
engine_args() {
  if [ -n "${CMAKE_ARGS+given}" ]; then
    mkdir -p "$ROOT/.deps"
    printf '%s' "$CMAKE_ARGS" >"$ENGINE_ARGS_FILE"
  elif [ -s "$ENGINE_ARGS_FILE" ]; then
    CMAKE_ARGS=$(cat "$ENGINE_ARGS_FILE")
    say "engine options of an earlier run: $CMAKE_ARGS"
  fi
  export CMAKE_ARGS=${CMAKE_ARGS:-}
}

# Makes find_package(llama) work for this project: the entry point.
engine_ensure() {
  local wish=${KVGRAFT_ENGINE:-auto} key version
  case $wish in
    auto | system | bundled) ;;
    *) fail "KVGRAFT_ENGINE=$wish: it is auto, system or bundled" ;;
  esac
  engine_args
  if [ "$wish" = system ] || { [ "$wish" = auto ] && [ -z "$CMAKE_ARGS" ]; }; then
    if version=$(system_engine); then
      say "engine: the system's libllama $version"
      rm -rf "$ENGINE_DIR"
      return
    fi
    [ "$wish" = auto ] || fail "KVGRAFT_ENGINE=system, but CMake finds no supported libllama"
  fi
  key=$(engine_key)
  if [ "$(cat "$ENGINE_DIR/kvgraft-engine-key" 2>/dev/null)" = "$key" ]; then return; fi
  [ -f "$CACHE/engine/$key/kvgraft-engine-key" ] || engine_build "$key"
  engine_deploy "$key"
}
