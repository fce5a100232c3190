#!/usr/bin/env bash
# picture.sh [OUT.svg] -- draws docs/hang.svg: the report that ddprun prints about a real job whose rank 3 stops. The
# picture shows the text in the window of a terminal, wrapped at 108 columns and otherwise unchanged.

# Build the programs and the test programs first. With PICTURE_TEXT=FILE, the script draws the text of FILE and runs no
# job.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
out=${1:-docs/hang.svg}

# Print the output up to the advice of the first finding, then end the job.
report() {
    local line pid
    exec {lines}< <(exec "$BUILD/ddprun" --standalone --nproc_per_node=4 --env OMP_NUM_THREADS=1 "$BUILD/tests/prog/still_worker" stop 3 2>&1)
    pid=$!
    while IFS= read -r -t 60 line <&"$lines"; do
        case $line in "["*) continue ;; esac
        printf '%s\n' "$line"
        case $line in *"  try "*) break ;; esac
    done
    kill "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null || true
}

{ echo '$ ddprun --nproc_per_node=4 ./train'; if [ -n "${PICTURE_TEXT:-}" ]; then cat "$PICTURE_TEXT"; else report; fi; } |
    perl -CSD -e '
use strict;
use warnings;

my @rows;
while (my $line = <STDIN>) {
    chomp $line;
    my ($indent) = $line =~ /^(ddprun: +(?:warning +|error +|try +)?|\s*)/;
    my $rest = $line;
    while (length $rest > 108) {
        my $cut = rindex($rest, " ", 108);
        last if $cut <= length $indent;
        push @rows, substr($rest, 0, $cut);
        $rest = " " x length($indent) . substr($rest, $cut + 1);
    }
    push @rows, $rest;
}
my ($width, $height) = (930, 34 + 18 * @rows + 14);
print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"$width\" height=\"$height\" viewBox=\"0 0 $width $height\" role=\"img\">\n",
    "<title>ddprun explains a job that hangs</title>\n<rect width=\"$width\" height=\"$height\" rx=\"8\" fill=\"#1b1f24\"/>\n",
    "<circle cx=\"18\" cy=\"16\" r=\"5\" fill=\"#ff5f57\"/><circle cx=\"36\" cy=\"16\" r=\"5\" fill=\"#febc2e\"/><circle cx=\"54\" cy=\"16\" r=\"5\" fill=\"#28c840\"/>\n",
    "<g font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"13.5\" fill=\"#d0d7de\" style=\"white-space: pre\">\n";
my $y = 46;
my $fill = "";
for my $row (@rows) {
    $fill = $row =~ /^\$ / ? "#7ee787" : $row =~ /^ddprun: +(?:warning|error)/ ? "#ffa657" : $row =~ /^ddprun: +try/ ? "#79c0ff" : $row =~ /^ddprun:/ ? "" : $fill;
    (my $text = $row) =~ s/&/&amp;/g;
    $text =~ s/</&lt;/g;
    $text =~ s/>/&gt;/g;
    print "<text xml:space=\"preserve\" x=\"16\" y=\"$y\"", ($fill ? " fill=\"$fill\"" : ""), ">$text</text>\n";
    $y += 18;
}
print "</g>\n</svg>\n";
' >"$out.part"
mv "$out.part" "$out"
