#!/usr/bin/env bash
# check-deps.sh GROUP... -- fails if packages of the groups are missing. One message names all missing packages and the
# command that installs them.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

rows=$(ddp_missing "$@")
[ -n "$rows" ] || exit 0
{
    echo "missing (for: $*):"
    awk '{ p = $1; what = $2; $1 = $2 = ""; sub(/^ +/, ""); sub(/^[a-z]*:/, "", what)
           printf "  %-18s looked for %s: %s\n", p, what, $0 }' <<<"$rows"
    echo "Install: $(ddp_install_command "$(awk '{ print $1 }' <<<"$rows" | sort -u | xargs)")"
} >&2
exit 1
