# pages.sh -- functions that read the commands of a page, and the output that the page shows below each. Sourced after
# tap.sh.
# shellcheck shell=bash disable=SC2154,SC2016  # tap.sh sets $tmp; the patterns contain backquotes

# needs_installation COMMAND -- succeeds if tests/shell/test_install.sh runs the command.
needs_installation() {
    case $1 in "make install PREFIX="* | "export PATH="* | "cc "* | *./worker | *./fit) ;; *) return 1 ;; esac
}

# shape -- replaces each number, time, job id, host, user and kernel function by a fixed word, and joins blanks.
shape() {
    sed -E "s/'[0-9a-z]{8}'|job +[0-9a-z]{8}\\b/JOB/g; s/^( *[0-9]+ +)[A-Za-z][^ ]*( +[0-9]+ )/\\1HOST\\2/
        s/ on [a-z0-9_-]+ (failed|could)/ on HOST \\1/; s/\([a-z0-9_-]+\) is/HOST is/; s/sleeps in [a-z0-9_]+/sleeps in FUNCTION/; s/user [a-z0-9_-]+/USER/g
        s/host [^ ,]+|\\([a-z0-9_-]+, pid/HOST/g; s/[0-9]+(\\.[0-9]+)?( ?(ms|s|min))?\\b/N/g; s/ +/ /g; s/^ //; s/ \$//"
}

# A command has a prompt. Calls of the Python module have no prompt.
prompt='^    ([$>]+ |node[01][$] |ddprun[.][a-z]+[(])'

# commands PAGE -- prints "LINE NUMBER<tab>COMMAND" of each command, without a comment that follows two blanks.
commands() {
    awk -v prompt="$prompt" '$0 ~ prompt { sub(/^    ([$>]+ |node[01][$] )?/, ""); sub(/  +# .*$/, ""); print NR "\t" $0 }' "$1"
}

# inline_commands PAGE -- prints "LINE NUMBER<tab>CODE" of each code in a sentence or table cell that may be a
# command. Such code is a word in lower case with arguments, or a variable with its value.
inline_commands() {
    grep -noE '`(([a-z][a-z0-9_./-]*|[A-Z_]+=[^ `]*) [^`]+|[A-Z_]+=[^`]*)`' "$1" | sed -E 's/:`/\t/; s/`$//'
}

# output PAGE LINE -- prints the lines that the page shows below the command, up to the next command or the end of the
# block. A block may contain empty lines.
output() {
    tail -n "+$(($2 + 1))" "$1" | awk -v prompt="$prompt" '$0 ~ prompt || NF && !/^    / { exit } !NF { empty++; next }
        { while (empty) { empty--; print "" } } $0 != "    ..." { print substr($0, 5) }'
}

# shows PAGE LINE FILE [FILTER] -- succeeds if FILE has every line that the page shows. The order may differ, because
# workers print at random times. The filter removes what differs between runs (default: shape). `...` in a line stands
# for any text.
shows() {
    local filter=${4:-shape} line missing=0
    "$filter" <"$3" >"$tmp/shapes"
    while IFS= read -r line; do
        grep -qxE -e "$(sed 's/[][\.*^$(){}?+|]/\\&/g; s/\\\.\\\.\\\./.*/g' <<<"$line")" "$tmp/shapes" || { echo "$1:$2: no line like this: $line"; missing=1; }
    done < <(output "$1" "$2" | "$filter")
    [ "$missing" = 0 ] || { echo "the command printed:"; cat "$3"; return 1; }
}
