# Sourced by samples/run and tests/run, from the root: install the packages, configure, build, saying at each step
# what is done. What cannot be done here is said with the exact command, and the script goes on as far as it can.
build_dir=${SHEAF_BUILD_DIR:-build}
jobs=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

say() { echo "== $*" >&2; }
stop() { echo "== stopped: $*" >&2; exit 1; }

# packages_of KIND...: the names in cmake/packages.txt under these kinds.
packages_of() {
  local kind name
  while read -r kind name; do
    case " $* " in *" $kind "*) [ "$kind" = "#" ] || echo "$name" ;; esac
  done < cmake/packages.txt
}

# install_packages KIND...: installs what is missing, as root or through sudo; otherwise says what to type.
install_packages() {
  local package missing=() apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q)
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is not Debian, so nothing is installed; Sheaf needs what Debian 12 calls:" $(packages_of build data)
    return 0
  fi
  for package in $(packages_of "$@"); do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  local install=(apt-get install -y --no-install-recommends "${missing[@]}")
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      say "missing packages, and this is not root; to install them:  sudo ${install[*]}"
      return 0
    fi
    apt=(sudo "${apt[@]}")
  fi
  say "installing ${missing[*]}"
  "${apt[@]}" update >/dev/null || say "apt-get update failed (no network?); going on with the lists there are"
  "${apt[@]}" "${install[@]:1}" ||
    say "the packages could not be installed; going on without. When the network is back:  ${install[*]}"
}

# configure: once; ninja sees changed CMake files by itself. A first try that failed is tried again.
configure() {
  command -v cmake >/dev/null || stop "cmake is missing:  apt-get install $(packages_of build | tr '\n' ' ')"
  local generator=()
  if [ ! -f "$build_dir/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
  say "configuring $build_dir"
  mkdir -p "$build_dir"
  # shellcheck disable=SC2086  # SHEAF_CMAKE_ARGS is a list of words
  if ! cmake -S . -B "$build_dir" "${generator[@]}" ${SHEAF_CMAKE_ARGS:-} > "$build_dir/configure.log" 2>&1; then
    cat "$build_dir/configure.log" >&2
    stop "cmake could not configure; if a package is missing:  apt-get install $(packages_of build | tr '\n' ' ')"
  fi
}

build_target() {
  say "building $1 with $jobs jobs (the first build takes a few minutes)"
  cmake --build "$build_dir" --target "$1" --parallel "$jobs" >&2 || stop "the build of $1 failed; its messages are above"
}
