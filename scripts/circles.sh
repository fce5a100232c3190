#!/usr/bin/env bash
# circles.sh [OBJECT.o...] -- checks that no file and no concept calls what calls it, directly or through others.
#
# A concept is a folder and the first word of a file's name: hub/session.c and hub/session_list.c are one, so splitting a
# file does not remove a circle. It reads the objects of all sources (and the given ones); a function in a table counts as
# called.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}

# Skip objects of deleted sources.
objects=("$@")
while IFS= read -r source; do
    object=$BUILD/obj/${source%.c}.o
    [ ! -f "$object" ] || objects+=("$object")
done < <(find rendezvous launcher worker -name '*.c')

# Print lines "USER DEFINER" for tsort. A function with several definitions, such as main, is left out.
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

# Print the circles among the lines "USER DEFINER" of standard input; false if there is one. $1: their name.
acyclic() {
    local found
    found=$(awk '$1 != $2' | sort -u | tsort 2>&1 >/dev/null) || true
    [ -n "$found" ] || return 0
    sed -E "s/^tsort: //; s/^-: input contains a loop:/  circle of $1:/; s/^([^ ].*)/      \1/" <<<"$found"
    return 1
}

calls=$(uses) bad=0
acyclic files <<<"$calls" || bad=1
sed -E 's,([^ /_]+)_[^ /]*,\1,g' <<<"$calls" | acyclic concepts || bad=1
[ "$bad" -eq 0 ] || exit 1
echo "circles: none among ${#objects[@]} files and their concepts"
