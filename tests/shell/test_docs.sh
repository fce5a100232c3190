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

# bench_docs.py copies a number to the row and column with the same name, even if versions differ. It copies methods and
# versions to headings. Other rows and lines stay unchanged.
bench_numbers_are_copied() {
    cat >"$tmp/bench.md" <<'END'
Measured on 2026-12-01 by `make bench`: a CPU, 4 cores.

| torn lines (2 runs) | ddprun | srun -l | mpirun.openmpi --tag-output |
|---|---|---|---|
| 16 workers × 2000 lines, each written in three pieces | 1 of 64000 torn | skipped, because not installed | 2 of 64000 torn |

| init_process_group("gloo") (median of 3) | ddp-rendezvous | TCPStore (libuv, torch 2.99.0) | theirs is |
|---|---:|---:|---:|
| 2 ranks | 1.5 ms | 1.6 ms | 1.07 |
| 8 ranks | 1.7 ms | 1.8 ms | 1.06 |
| 32 ranks | 9.5 ms | 9.6 ms | 1.01 |

| what happens (4 workers) | right | torchrun 9.9 | ddprun 0.2.0 |
|---|---|---|---|
| program not found | 127 | 1 | 128 |

Stacks of 64 workers take 0.01 to 0.02 s.
END
    cp docs/benchmarks.md "$tmp/page.md"
    scripts/bench_docs.py "$tmp/bench.md" "$tmp/page.md"
    diff - <(diff docs/benchmarks.md "$tmp/page.md" | sed -n 's/^> //p') <<'END'
|init_process_group("gloo") (median of 3)|ddp-rendezvous|TCPStore (libuv, torch 2.99.0)|
|2 ranks|1.5 ms|1.6 ms|
|32 ranks|9.5 ms|9.6 ms|
Stacks of 64 workers take 0.01 to 0.02 s.
|program not found|127|128|255|132|1|
END
}

# Without measurements, bench_docs.py must write the same page again, so each line of the page is from that script or
# was measured.
bench_page_is_written() {
    cp docs/benchmarks.md "$tmp/page.md"
    scripts/bench_docs.py /dev/null "$tmp/page.md" && diff docs/benchmarks.md "$tmp/page.md"
}

# Print the text of the page in bench_docs.py, where `@table N` and `@line` mark what is measured.
bench_text() {
    sed -n '/^PAGE = /,/^"""$/p' scripts/bench_docs.py | sed '1d; $d'
}

# Check that a program or script prints each table of the page: its source contains the first heading.
bench_tables_are_printed() {
    local head lost=0 tables=0
    while IFS= read -r head; do
        head=${head%%[,(]*} tables=$((tables + 1))
        grep -qF -e "| $head" -e "'$head" tests/bench/*.c tests/bench/torch/*.py scripts/bench*.sh ||
            { echo "no program prints '$head'"; lost=1; }
    done < <(bench_text | grep -A1 '^@table' | sed -n 's/^| *\([^|]*[^| ]\) *|.*/\1/p')
    [ "$tables" = "$(bench_text | grep -c '^@table')" ] || { echo "only $tables tables have a heading"; lost=1; }
    return "$lost"
}

# Check the same for each line, with its text up to the first number.
bench_lines_are_printed() {
    local start lost=0
    while IFS= read -r start; do
        if [ -z "$start" ] || ! grep -qF -e "$start" tests/bench/torch/*.py tests/survivors/launches.c scripts/*.sh scripts/hangs.py; then
            echo "no program prints '$start'"
            lost=1
        fi
    done < <(bench_text | perl -ne 'print s/\b\d.*//sr =~ s/\s+$//r, "\n" if $marked; $marked = /^\@line$/')
    return "$lost"
}

# Outside of tables and lines that are measured, the text must have numbers only in commands.
bench_numbers_are_marked() {
    bench_text | awk '/^@line$/ { getline; next } /^@table [0-9]+$/ { table = 1; next } table && /^[|]/ { next }
        { table = 0; gsub(/`[^`]*`/, ""); if (/[0-9]/) { print NR ": " $0; lost = 1 } } END { exit lost }'
}

# Compare the figures of README.md with docs/benchmarks.md. Each row below has the section of a figure, the start of its
# row there, and the columns of ddprun and the others. A figure must be a rounded number of its cell.
readme_has_the_figures_of_the_page() {
    perl -CSD -e '
use strict;
use warnings;
my @rows = (
    ["launch", "4 workers from C", ddprun => "ddprun", MPICH => "mpiexec.hydra"],
    ["reaction-to-a-failure", "", "the first, p50 / p99"],
    ["other-launchers", "left 3 s after SIGKILL", ddprun => "ddprun", MPICH => "mpiexec.hydra", "Open MPI" => "mpirun.openmpi", torchrun => "torchrun"],
    ["output", "16 workers", ddprun => "ddprun", MPICH => "mpiexec.hydra", "Open MPI" => "mpirun.openmpi", torchrun => "torchrun", srun => "srun"],
    ["other-launchers", "rank 2 exits 9", ddprun => "ddprun", MPICH => "mpiexec.hydra", "Open MPI" => "mpirun.openmpi", torchrun => "torchrun"],
    ["collectives", "4|16 MiB", ddprun => "private", "Open MPI" => "Open MPI"],
);
sub cells { return split /\|/, $_[0] =~ s/^\|//r }
sub lines { open my $in, "<", $_[0] or die "$_[0]: $!"; return map { chomp; $_ } <$in> }

# Return the cell of a table in a section. The column begins with a name. Without a row, the name of the peer begins it.
sub cell {
    my ($section, $row, $column) = @_;
    my ($here, @head) = (0);
    for (lines("docs/benchmarks.md")) {
        if (/^## (.*)/) { $here = lc($1) =~ s/ /-/gr eq $section; next }
        if (!$here || !/^\|/) { @head = (); next }
        if (!@head) { @head = cells($_); next }
        my ($i) = grep { index($head[$_], $column) == 0 } 0 .. $#head;
        return (cells($_))[$i] if index($_, "|$row") == 0 && defined $i;
    }
    return "";
}
my %launcher = (ddprun => "ddprun", MPICH => "mpiexec.hydra", "Open MPI" => "mpirun.openmpi", torchrun => "torchrun");
my ($bad, $checked) = (0, 0);
for my $line (grep { /^\|\[.*\]\(docs\/benchmarks\.md#/ } lines("README.md")) {
    my ($what, $ours, $others) = cells($line);
    my ($section) = $what =~ /#([a-z-]+)\)/;
    my ($want, $row, @columns) = @{ $rows[$checked++] // ["no row of this test"] };
    if ($want ne $section) { print "README.md links to $section, expected $want\n"; $bad = 1; next }
    for my $figure ("ddprun $ours", split /, (?=[A-Za-z])/, $others) {
        my ($peer, $number, $unit) = $figure =~ /^(\D+?)(?: \d+\.\d+)? ([\d,.]+)(?: (ms))?$/ or die "no figure: $figure";
        $number =~ tr/,//d;
        my $cell = @columns == 1 ? cell($section, $launcher{$peer}, $columns[0]) : cell($section, $row, { @columns }->{$peer} // "no column");
        my ($measured) = $cell =~ /(?<![\w.])\**(\d[\d.]*)/;
        $measured /= 1000 if defined $measured && $section eq "collectives";
        my $digits = $number =~ /\.(\d+)/ ? length $1 : 0;
        next if defined $measured && sprintf("%.${digits}f", $measured) == $number;
        print "$section: README.md has \"$figure\", the page \"$cell\"\n";
        $bad = 1;
    }
}
print "README.md has $checked rows\n" if $checked != @rows;
exit($bad || $checked != @rows);
'
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
        [ "$(wc -w <README.md)" -le 1400 ] && [ "$(cat "${pages[@]}" | wc -w)" -le 14000 ] && sed '/^## /q' README.md | grep -q 'scripts/demo.sh'
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
check "bench_docs.py copies numbers into the page of benchmarks" bench_numbers_are_copied
check "bench_docs.py writes the whole page" bench_page_is_written
check "programs print the tables of that page" bench_tables_are_printed
check "programs print the lines of that page" bench_lines_are_printed
check "other lines of that page have no number" bench_numbers_are_marked
check "README.md has the figures of that page" readme_has_the_figures_of_the_page
finish
