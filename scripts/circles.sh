#!/usr/bin/env bash
# circles.sh [OBJECT.o...] -- checks that there are no circles of calls: if a file or a concept A calls B, then B must
# not call A, neither directly nor through others. A concept is all files of a folder whose names begin with the same
# word, such as hub/session.c and hub/session_list.c. So splitting a file does not remove a circle.

# The script reads the objects of all sources, and each OBJECT. A function in a table counts as called.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}

# Skip objects of deleted sources.
objects=("$@")
while IFS= read -r source; do
    object=$BUILD/obj/${source%.c}.o
    [ ! -f "$object" ] || objects+=("$object")
done < <(find rendezvous launcher worker -name '*.c')

# Print the lines "USER DEFINER" for tsort: USER is a file that uses a function of the file DEFINER. Skip a function
# with several definitions, such as main.
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

# acyclic NAME -- prints the circles among the lines "USER DEFINER" of standard input. Returns false if there is a
# circle. NAME is "files" or "concepts", for the message.
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
