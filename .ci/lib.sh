# Functions that the steps share. Sourced, not run.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# True if a checker is installed. If it is not, and CI is set, the step fails.
has() {
    command -v "$1" >/dev/null && return
    if [ -n "${CI:-}" ]; then
        echo "$1 is missing: .ci/install installs it" >&2
        exit 1
    fi
    echo "left out: $1 is missing, .ci/install installs it" >&2
    return 1
}

# Runs a program as root.
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Prints the last release, if there is one.
release() { git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true; }
