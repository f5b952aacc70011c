# shellcheck shell=bash
# What has to be installed before a command can run. Sourced by ./dev after tools/lib.sh.

# One line an item: name, then how to see that it is there (cmd:PROGRAM, hdr:HEADER, mod:PYTHON
# MODULE), then the package on Debian, Fedora, Arch and Homebrew ("-": comes with the system).
requirements() {
  cat <<'EOF'
python3      cmd:python3             python3           python3           python          python
pip          mod:pip                 python3-pip       python3-pip       python-pip      -
c++          cmd:c++                 g++               gcc-c++           gcc             -
cmake        cmd:cmake               cmake             cmake             cmake           cmake
ninja        cmd:ninja               ninja-build       ninja-build       ninja           ninja
make         cmd:make                make              make              make            -
pkg-config   cmd:pkg-config          pkg-config        pkgconf           pkgconf         pkgconf
cli11        hdr:CLI/CLI.hpp         libcli11-dev      cli11-devel       cli11           cli11
json         hdr:nlohmann/json.hpp   nlohmann-json3-dev json-devel       nlohmann-json   nlohmann-json
fmt          hdr:fmt/core.h          libfmt-dev        fmt-devel         fmt             fmt
sqlite       hdr:sqlite3.h           libsqlite3-dev    sqlite-devel      sqlite          sqlite
xxhash       hdr:xxhash.h            libxxhash-dev     xxhash-devel      xxhash          xxhash
openssl      hdr:openssl/evp.h       libssl-dev        openssl-devel     openssl         openssl
eigen        hdr:eigen3/Eigen/Core   libeigen3-dev     eigen3-devel      eigen           eigen
openblas     hdr:cblas.h             libopenblas-serial-dev openblas-devel  openblas        -
certificates -                       ca-certificates   ca-certificates   ca-certificates -
EOF
  case $1 in
    test) cat <<'EOF'
gtest        hdr:gtest/gtest.h       libgtest-dev      gtest-devel       gtest           googletest
gmock        hdr:gmock/gmock.h       libgmock-dev      gmock-devel       gtest           googletest
EOF
      ;;
    bench) cat <<'EOF'
benchmark    hdr:benchmark/benchmark.h libbenchmark-dev google-benchmark-devel benchmark google-benchmark
EOF
      ;;
  esac
}

# Tools of ./dev format and lint, by name.
tool_requirements() {
  local tools='clang-format cmd:clang-format        clang-format      clang-tools-extra clang           clang-format
clang-tidy   cmd:clang-tidy          clang-tidy        clang-tools-extra clang           llvm
shellcheck   cmd:shellcheck          shellcheck        ShellCheck        shellcheck      shellcheck'
  local name
  for name in "$@"; do grep "^$name " <<<"$tools"; done
}

is_debian() { command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; }

package_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Whether an item is there, by its check.
item_present() {
  local check=$1 package=$2
  case $check in
    cmd:*) command -v "${check#cmd:}" >/dev/null ;;
    mod:*) python3 -c "import ${check#mod:}" >/dev/null 2>&1 ;;
    hdr:*)
      # On Debian the package also carries what CMake needs, so the header alone is not enough.
      if is_debian; then package_installed "$package"; else header_present "${check#hdr:}"; fi
      ;;
    *) if is_debian; then package_installed "$package"; fi ;;
  esac
}

header_present() {
  local include=(-I/usr/include/openblas) prefix  # where Fedora has cblas.h
  command -v c++ >/dev/null || return 1
  for prefix in /usr/local /opt/homebrew "${HOMEBREW_PREFIX:-}" "${CONDA_PREFIX:-}"; do
    [ -n "$prefix" ] && include+=("-I$prefix/include" "-I$prefix/opt/openssl/include")
  done
  printf '#include <%s>\n' "$1" | c++ -x c++ -std=c++20 -E "${include[@]}" - >/dev/null 2>&1
}

# Packages of the listed requirements (standard input) that are missing; column 3: Debian,
# 4: Fedora, 5: Arch, 6: Homebrew.
missing_packages() {
  local column=$1 _name check debian fedora arch brew names
  while read -r _name check debian fedora arch brew; do
    item_present "$check" "$debian" && continue
    names=("" "" "" "$debian" "$fedora" "$arch" "$brew")
    [ "${names[$column]}" = - ] || printf '%s\n' "${names[$column]}"
  done | sort -u | tr '\n' ' '
}

print_by_hand() {
  local list=$1
  say "these have to be installed by hand, then run the same command again:"
  if is_debian; then
    printf '  apt-get install %s\n' "$(missing_packages 3 <<<"$list")" >&2
    return
  fi
  printf '  Debian, Ubuntu:  apt-get install %s\n' "$(missing_packages 3 <<<"$list")" >&2
  printf '  Fedora:          dnf install %s\n' "$(missing_packages 4 <<<"$list")" >&2
  printf '  Arch:            pacman -S %s\n' "$(missing_packages 5 <<<"$list")" >&2
  printf '  macOS:           xcode-select --install; brew install %s\n' \
    "$(missing_packages 6 <<<"$list")" >&2
}

# Runs a command as root: directly, or by sudo with what apt needs of the environment.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo env DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} \
      ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} "$@"
  fi
}

can_be_root() {
  [ "$(id -u)" = 0 ] && return 0
  command -v sudo >/dev/null || return 1
  sudo -n true 2>/dev/null && return 0
  [ -t 0 ] && on_terminal || return 1
  say "installing packages needs your password (sudo)"
  sudo -v
}

apt_lists_present() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }

apt_update() { as_root apt-get -q update; }

# An earlier run may have been stopped in the middle of dpkg; lists may be too old to download from.
apt_install_once() {
  as_root dpkg --configure -a &&
    as_root apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
}

apt_install() {
  apt_lists_present || apt_update || true
  apt_install_once "$@" && return
  apt_update || true
  retry 2 apt_install_once "$@"
}

# Installs what is missing of the requirements on standard input, or says what to install.
install_missing() {
  local list missing
  list=$(cat)
  missing=$(missing_packages 3 <<<"$list")
  [ -n "${missing// /}" ] || return 0
  if ! is_debian || ! can_be_root; then
    is_debian || [ -n "$(missing_packages 6 <<<"$list")$(missing_packages 4 <<<"$list")" ] ||
      return 0
    print_by_hand "$list"
    exit 1
  fi
  say "installing Debian packages: $missing"
  # shellcheck disable=SC2086  # a list of words
  if ! logged "package installation" packages apt_install $missing ||
    [ -n "$(missing_packages 3 <<<"$list")" ]; then
    print_by_hand "$list"
    exit 1
  fi
}

check_versions() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  if [ "$(printf '%s\n3.25\n' "$version" | sort -V | head -n 1)" != 3.25 ]; then
    fail "cmake $version is too old, 3.25 or newer is needed"
  fi
}
