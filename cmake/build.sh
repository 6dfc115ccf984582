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

# missing_packages KIND...: those of these kinds that dpkg does not know as installed.
missing_packages() {
  local package
  for package in $(packages_of "$@"); do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

# how_to_install PACKAGE...: the line to type. It begins with update, because a fresh image has no package lists.
how_to_install() {
  local prefix=
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null; then prefix='sudo '; else printf '(as root, since there is no sudo)  '; fi
  fi
  echo "${prefix}apt-get update && ${prefix}apt-get install -y --no-install-recommends $*"
}

# install_packages KIND...: installs what is missing, as root or through sudo; otherwise says what to type.
install_packages() {
  local missing=() apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q)
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is not Debian, so nothing is installed; Sheaf needs what Debian 12 calls:" $(packages_of build data)
    return 0
  fi
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0

  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      say "missing packages, and this is not root; to install them:  $(how_to_install "${missing[@]}")"
      return 0
    fi
    apt=(sudo "${apt[@]}")
  fi
  say "installing ${missing[*]}"
  "${apt[@]}" update >/dev/null || say "apt-get update failed (no network?); going on with the lists there are"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" ||
    say "the packages could not be installed; going on without. To try again:  $(how_to_install "${missing[@]}")"
}

# stop_without_packages REASON: the last line of a run that lacks something names the line to type, and only that.
stop_without_packages() {
  local missing=()
  if command -v dpkg-query >/dev/null; then mapfile -t missing < <(missing_packages build data speed); fi
  [ ${#missing[@]} -gt 0 ] || stop "$1"
  stop "$1; to install what is missing:  $(how_to_install "${missing[@]}")"
}

# configure: once; ninja sees changed CMake files by itself. A first try that failed is tried again.
configure() {
  command -v cmake >/dev/null || stop_without_packages "there is no cmake"
  local generator=()
  if [ ! -f "$build_dir/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
  say "configuring $build_dir"
  mkdir -p "$build_dir" 2>/dev/null && [ -w "$build_dir" ] ||
    stop "$build_dir cannot be written; SHEAF_BUILD_DIR names another folder"
  # shellcheck disable=SC2086  # SHEAF_CMAKE_ARGS is a list of words
  if ! cmake -S . -B "$build_dir" "${generator[@]}" ${SHEAF_CMAKE_ARGS:-} > "$build_dir/configure.log" 2>&1; then
    cat "$build_dir/configure.log" >&2
    stop_without_packages "cmake could not configure; its messages are above"
  fi
}

build_target() {
  say "building $1 with $jobs jobs (the first build takes about $((35 / jobs + 1)) minutes)"
  cmake --build "$build_dir" --target "$1" --parallel "$jobs" >&2 || stop "the build of $1 failed; its messages are above"
}
