#!/usr/bin/env bash
# check-deps.sh GROUP... -- fails with one message that names everything that is missing and the command that installs it.
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
