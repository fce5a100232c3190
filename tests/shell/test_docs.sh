#!/usr/bin/env bash
# Check that the pages are short, and that the files, make targets and options of ddprun that they name exist.
# shellcheck source=tests/shell/tap.sh disable=SC2317,SC2016  # `check` calls the functions; patterns contain backticks
. "$(dirname "$0")/tap.sh"

pages=(*.md docs/*.md launcher/README.md rendezvous/README.md worker/README.md)

# Check file names. A name may end in a placeholder: `tests/unit/test_<module>.c`.
named_files_exist() {
    local name lost=0
    while IFS= read -r name; do
        compgen -G "${name%%<*}*" >/dev/null || { echo "$name is nowhere"; lost=1; }
    done < <(grep -ohE '`(include|launcher|rendezvous|worker|tests|scripts)/[A-Za-z0-9_./<>*-]+`' "${pages[@]}" | tr -d '`')
    return "$lost"
}

named_targets_exist() {
    local name lost=0
    while IFS= read -r name; do
        grep -q "^$name:" Makefile scripts/package/package.mk || { echo "make $name is nowhere"; lost=1; }
    done < <(grep -ohE '`make [a-z-]+' "${pages[@]}" | sed 's/.* //' | sort -u)
    return "$lost"
}

named_options_exist() {
    local name lost=0
    "$BUILD/ddprun" --print_man | sed 's:[\]::g' >"$tmp/page"
    while IFS= read -r name; do
        grep -q -e "$name" "$tmp/page" || { echo "no $name in ddprun"; lost=1; }
    done < <(sed -n '/^| *option/,/^$/p' docs/options.md | grep -oE -e '--[a-z_]+' | sort -u)
    return "$lost"
}

# Check the links to files of the project, without their anchors.
linked_files_exist() {
    local page link lost=0
    for page in "${pages[@]}"; do
        while IFS= read -r link; do
            [ -e "$(dirname "$page")/${link%%#*}" ] || { echo "$page: the link to $link is broken"; lost=1; }
        done < <(grep -oE '\]\([^)#][^)]*\)' "$page" | sed 's/^](//; s/)$//' | grep -vE '^https?:')
    done
    return "$lost"
}

# Check the anchors. An anchor is a heading in lower case, with dashes for blanks and without punctuation.
linked_headings_exist() {
    local page link file anchor lost=0
    for page in "${pages[@]}"; do
        while IFS= read -r link; do
            file=${link%%#*} anchor=${link#*#}
            [ -n "$file" ] && file=$(dirname "$page")/$file || file=$page
            grep -E '^#+ ' "$file" | sed -E 's/^#+ //; s/.*/\L&/; s/[^a-z0-9_ -]//g; s/ /-/g' | grep -qx -e "$anchor" ||
                { echo "$page: no heading for $link"; lost=1; }
        done < <(grep -oE '\]\([^)]*#[^)]+\)' "$page" | sed 's/^](//; s/)$//' | grep -vE '^https?:')
    done
    return "$lost"
}

# Compare the names in the table of folders with the C files of each folder. A row without names lists no files.
folders_have_the_files_of_the_table() {
    local row folder file wrong=0
    for folder in {launcher,rendezvous,worker}/*/; do
        row=$(grep -F "\`$folder\`" CONTRIBUTING.md) || { echo "$folder has no row"; wrong=1; continue; }
        row=${row#*|*|*|}
        for file in $(grep -oE '`[a-z0-9_.]+`' <<<"$row" | tr -d '`'); do
            compgen -G "$folder$file*" >/dev/null || { echo "$folder has no $file"; wrong=1; }
        done
        for file in "$folder"*.c; do
            file=$(basename "$file" .c)
            [ "$row" = '|' ] || [[ "$row" =~ \`$file(\.h)?\` ]] || [ ! -e "$folder$file.c" ] ||
                { echo "$folder: the row has no $file"; wrong=1; }
        done
    done
    return "$wrong"
}

# bench_docs.py copies a number to the row and column with the same name, even if versions differ. It copies versions
# to headings. Other rows, lines and tables stay unchanged.
bench_numbers_are_copied() {
    cat >"$tmp/bench.md" <<'END'
Measured on 2026-12-01 by `make bench`: a CPU, 4 cores.

| tool | trials | time (median) | aim |
|---|---|---|---|
| ddprun 0.2.0 | 20 | 1.5 ms | 3 |
| mpirun 5.0.1 | skipped, because not installed | | |

| ranks | bytes | arena (torch 2.15.0) |
|---:|---:|---:|
| 2 | 64 KiB | 3.1 |
| 4 | 64 KiB | 9.9 |
END
    cat >"$tmp/page.md" <<'END'
<!-- bench: line -->
Measured on 2026-11-30: a CPU, 2 cores.

<!-- bench: line -->
The ratio is 0.93 to 1.20.

<!-- bench: 1 -->
|tool|time|trials|
|-|-|-|
|ddprun 0.1.0|9.9 ms|5|
|mpirun 4.1.4|7.7 ms|5|

<!-- bench: 2 -->
|ranks|bytes|arena|
|-:|-:|-:|
|4|64 KiB|1.1|

|ranks|bytes|arena|
|-:|-:|-:|
|2|64 KiB|1.1|
END
    scripts/bench_docs.py "$tmp/bench.md" "$tmp/page.md"
    diff - <(grep '^|[trdm24]\|^[MT]' "$tmp/page.md") <<'END'
Measured on 2026-11-30: a CPU, 2 cores.
The ratio is 0.93 to 1.20.
|tool|time|trials|
|ddprun 0.2.0|1.5 ms|20|
|mpirun 4.1.4|7.7 ms|5|
|ranks|bytes|arena (torch 2.15.0)|
|4|64 KiB|9.9|
|ranks|bytes|arena|
|2|64 KiB|1.1|
END
}

# Check that a program or script prints each marked table of the page: its source contains the first heading.
bench_tables_are_printed() {
    local head lost=0 tables=0
    while IFS= read -r head; do
        head=${head%%[,(]*} tables=$((tables + 1))
        grep -qF -e "| $head" -e "'$head" tests/bench/*.c tests/bench/torch/*.py scripts/bench*.sh ||
            { echo "no program prints '$head'"; lost=1; }
    done < <(grep -A1 '^<!-- bench: [0-9]' docs/benchmarks.md | sed -n 's/^| *\([^|]*[^| ]\) *|.*/\1/p')
    [ "$tables" = "$(grep -c '^<!-- bench: [0-9]' docs/benchmarks.md)" ] || { echo "only $tables marked tables have a heading"; lost=1; }
    return "$lost"
}

# Check the same for each marked line, with its text up to the first number.
bench_lines_are_printed() {
    local start lost=0
    while IFS= read -r start; do
        if [ -z "$start" ] || ! grep -qF -e "$start" tests/bench/torch/*.py tests/survivors/launches.c scripts/*.sh scripts/hangs.py; then
            echo "no program prints '$start'"
            lost=1
        fi
    done < <(perl -ne 'print s/\b\d.*//sr, "\n" if $marked; $marked = /^<!-- bench: line -->$/' docs/benchmarks.md)
    return "$lost"
}

# Outside of marked tables and lines, the page must have numbers only in commands.
bench_numbers_are_marked() {
    awk '/^<!-- bench: line -->$/ { getline; next } /^<!-- bench: [0-9]+ -->$/ { table = 1; next } table && /^[|]/ { next }
        { table = 0; gsub(/`[^`]*`/, ""); if (/[0-9]/) { print FILENAME ":" FNR ": " $0; lost = 1 } } END { exit lost }' docs/benchmarks.md
}

# build-essential contains make, a compiler and the C library. The page's commands for cc use pkg-config. A sentence
# names the packages for the wheel.
readme_names_the_packages() {
    local package
    # shellcheck source=scripts/packages.sh
    . scripts/packages.sh
    for package in $(ddp_rows package | sed 's/ .*//'); do
        grep -q "\`$package\`" README.md || { echo "no $package"; return 1; }
    done
    diff <(sed -n 's/^    \$ sudo apt-get install //p' README.md | tr ' ' '\n' | sort) \
        <({ ddp_rows build | sed 's/ .*//' | sed -E 's/^(make|gcc|libc6-dev)$/build-essential/'; echo pkg-config; } | sort -u)
}

# at_most N FILE... -- succeeds if each file has at most N lines.
at_most() {
    local most=$1 page lost=0
    shift
    for page; do
        [ "$(wc -l <"$page")" -le "$most" ] || { echo "$page has more than $most lines"; lost=1; }
    done
    return "$lost"
}

pages_are_short() {
    at_most 150 README.md && at_most 250 docs/*.md && at_most 60 launcher/README.md rendezvous/README.md worker/README.md &&
        [ "$(wc -w <README.md)" -le 1400 ] && sed '/^## /q' README.md | grep -q 'scripts/demo.sh'
}

check "README.md, pages and folder READMEs keep their limits" pages_are_short
check "every file that a page names exists" named_files_exist
check "README.md installs the packages that scripts/packages.sh lists for the build and the wheel" readme_names_the_packages
check "the table of folders has the files of each folder" folders_have_the_files_of_the_table
check "every link leads to a file" linked_files_exist
check "every anchor is a heading" linked_headings_exist
check "every make target that a page names exists" named_targets_exist
check "ddprun has every option that docs/options.md names" named_options_exist
check "every case of tests/nodes/cases has a test" scripts/cases.sh
check "bench_docs.py copies numbers into marked tables and lines" bench_numbers_are_copied
check "programs print the marked tables of the page of benchmarks" bench_tables_are_printed
check "programs print the marked lines of that page" bench_lines_are_printed
check "other lines of that page have no number" bench_numbers_are_marked
finish
