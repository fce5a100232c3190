#!/usr/bin/env bash
# circles.sh [OBJECT.o...] -- checks that no file comes back to itself: what it calls, and what that calls, never calls it.
#
# Looks into the objects of all sources (and the given ones), so a function in a table counts like a call.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}

# Objects are left over from sources that are gone.
objects=("$@")
while IFS= read -r source; do
    object=$BUILD/obj/${source%.c}.o
    [ ! -f "$object" ] || objects+=("$object")
done < <(find rendezvous launcher worker -name '*.c')

# Lines "USER DEFINER" for tsort. What has several homes, as main, is nobody's.
uses() {
    nm -A "${objects[@]}" | awk -v build="$BUILD/obj/" '
        {
            file = $1
            sub(/:[^:]*$/, "", file)
            sub("^" build, "", file)
            sub(/\.o$/, "", file)
            if ($(NF - 1) == "U")
                user[++n] = file SUBSEP $NF
            else if ($(NF - 1) ~ /^[BCDGRSTVW]$/ && seen[$NF]++)
                home[$NF] = ""
            else if ($(NF - 1) ~ /^[BCDGRSTVW]$/)
                home[$NF] = file
        }
        END {
            for (i = 1; i <= n; i++) {
                split(user[i], part, SUBSEP)
                if (home[part[2]] != "" && home[part[2]] != part[1])
                    print part[1], home[part[2]]
            }
        }' | sort -u
}

found=$(uses | tsort 2>&1 >/dev/null) || true
if [ -n "$found" ]; then
    sed -E 's/^tsort: //; s/^-: input contains a loop:/  circle:/; s/^([^ ].*)/      \1/' <<<"$found"
    exit 1
fi
echo "circles: ${#objects[@]} files, none of which comes back to itself"
