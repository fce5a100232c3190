#!/usr/bin/env bash
# wording.sh [--list] -- checks that tests compare meaning, and that exact sentences of the product are in the golden
# files only. Otherwise a better sentence would need changes in many tests.

# A literal of a test counts if three successive plain words of it are also in a string of the product. Between the words
# may be values, such as numbers and names, where the product has a conversion. These literals do not count: messages of
# assertions, the tests' own output, errors of other software, and scripts that a test runs.
# --list prints each literal that counts.
set -eu
cd "$(dirname "$0")/.."

# Each area, and its golden file in tests/.
golden='
options                 unit/cli/test_cli
plan                    unit/plan/test_plan
schedulers              unit/plan/test_scheduler
findings of jobs        unit/diagnosis/test_diagnosis
hangs                   unit/diagnosis/test_hang
PyTorch                 unit/diagnosis/test_torch_keys
ddpctl why              unit/diagnosis/test_diagnosis_text
report                  unit/report/test_report
hints                   unit/report/test_words
unstartable programs    unit/report/test_spawn_error
hosts                   unit/report/test_host_checks
state on SIGQUIT        unit/report/test_user_messages
connections             unit/hub/test_gate
control calls           unit/hub/test_control
rendezvous              unit/job/test_rendezvous
traces of rendezvous    sim/test_rdzv_sim
barriers                sim/test_barrier_sim
dialing                 unit/net/test_dial_plan
--hosts                 unit/remote/test_start
secrets                 unit/auth/test_secret
flight records          unit/record/test_flight_dump
ddpctl                  unit/ctl/test_ctl_tables
train                   unit/train/test_train_options
data                    unit/train/test_tokens
make-data               e2e/test_make_formats
ddp-bench               e2e/test_ddp_bench
checkpoints             unit/checkpoint/test_ckpts
reducer                 unit/reducer/test_step
libddp                  socket/test_collectives
'

GOLDEN=$golden LIST=${1:-} perl -e '
use strict;
use warnings;

my $limit = 0;
my ($q, $list) = ("\x27", $ENV{LIST} eq "--list");

# For each function that a test calls, the number of the argument at which the message begins.
my %message = (cr_assert_arr_eq => 3, cr_expect_arr_eq => 3, cr_assert_float_eq => 3, cr_expect_float_eq => 3, fprintf => 1);
$message{$_} = 0 for qw(cr_fail cr_skip_test cr_fatal cr_log_info printf puts fputs perror cr_assert_fail complain must no_fault);
sub message {
    my ($callee) = @_;
    return $message{$callee} // ($callee =~ /^cr_(?:assert|expect)(?:_not|_null|_not_null|_none)?$/ ? 1 : $callee =~ /^cr_/ ? 2 : 99);
}

# Errors of other software, which tests let workers print.
my $errors = join "|", "Connection closed by", "No module named", "most recent call last", "cgroup out of memory", "CUDA out of memory",
    "devices are busy or unavailable",
    map { $! = $_; quotemeta "$!" } 1 .. 133;

# Return all runs of three words in a literal, with the punctuation marks between the words. Between two words, "*"
# stands for the conversions of the product, or for up to $longest parts of a test: numbers, names or other words.
my ($longest, $conversion, $word) = (6, "\0", qr/^[A-Za-z]+(?:${q}s?)?(?:-[a-z]+)*$/);
sub runs {
    my ($text, $of_product) = @_;
    $text =~ s/\\[ntr]|\|/ | /g;
    $text =~ s/\\(.)/$1/g;
    $text =~ s/\$\{\w+\}|%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh?|ll?|z|j)?[a-zA-Z]/$conversion/go;
    $text =~ s/(?i:$errors)/ | /go;
    my @parts = map { [/^(["$q(\[]*)(.*?)([.,:;)\]"$q]*)$/s] } split " ", $text;
    my (@next, @runs);
    for my $i (0 .. $#parts) {
        for my $j ($i + 1 .. $#parts) {
            my $between = $j == $i + 1 ? " " : " $parts[$i + 1][0]*$parts[$j - 1][2] ";
            push @{$next[$i]}, [$j, "$parts[$i][2]$between$parts[$j][0]$parts[$j][1]"] if $parts[$j][1] =~ $word;
            last if $parts[$j][1] eq "|" || ($of_product ? $parts[$j][1] !~ $conversion : $j - $i > $longest);
        }
    }
    for my $i (grep { $parts[$_][1] =~ $word } 0 .. $#parts) {
        for my $second (@{$next[$i]}) {
            push @runs, map { "$parts[$i][1]$second->[1]$_->[1]" } @{$next[$second->[0]]};
        }
    }
    return grep { /\b[a-z]/ } @runs;
}

# Return a string of the product without its plurals, and with them: "%d node%s" becomes "%d node" and "%d nodes".
sub plurals { my ($text) = @_; return $text =~ /[a-z]%s/ ? map { $text =~ s{(?<=[a-z])%s}{$_}gr } "", "s" : $text }

# For each literal of a C file, call $visit with the line, the literal, the called function and the number of the
# argument.
sub scan_c {
    my ($text, $visit) = @_;
    my ($name, $callee, $argument, $line, $at, $literal, @outer) = ("", "", 0, 1);
    my $end = sub { $visit->($at, $literal, $callee, $argument) if defined $literal; undef $literal };
    while ($text =~ m{\G(?:(\s+|/\*.*?\*/|//[^\n]*|\\\n)|"((?:[^"\\]|\\.)*)"|([A-Za-z_]\w*)|($q(?:[^$q\\]|\\.)*$q|.))}gs) {
        my ($blank, $string, $word, $other) = ($1, $2, $3, $4);
        if (defined $string) {
            $at = $line if !defined $literal;
            $literal .= $string;
        }
        elsif (defined $word) {
            if ($word =~ /^PRI/ && defined $literal) { $literal .= "d" }
            else { $end->() }
            $name = $word;
        }
        elsif (defined $other) {
            $end->();
            if ($other =~ /^[({[]$/) {
                push @outer, [$callee, $argument];
                ($callee, $argument) = ($other eq "(" ? $name : "", 0);
            }
            elsif ($other =~ /^[)}\]]$/) { ($callee, $argument) = @{pop @outer // ["", 0]} }
            elsif ($other eq ",") { $argument++ }
            $name = "";
        }
        $line += ($blank // $string // "") =~ tr/\n//;
    }
    $end->();
}

# Call $visit for each quoted text in a script, on the lines that search for a text.
sub scan_script {
    my ($text, $visit) = @_;
    my $line = 0;
    for (split /\n/, $text) {
        $line++;
        next unless /\bgrep\b|^    "\w+": r"| not? in /;
        s/^check (?:"[^"]*"|\S+)//;
        $visit->($line, $1 // $2, "", 0) while /$q([^$q]*)$q|"((?:[^"\\]|\\.)*)"/g;
    }
}

sub content { my ($path) = @_; open my $in, "<", $path or die "$path: $!\n"; local $/; return <$in> }
sub files { my ($names, @folders) = @_; return grep { /$names/ } split /\n/, `find @folders -type f | sort` }

my (%product, %golden, $count);
for my $path (files(qr/\.(?:[ch]|cuh?)$/, qw(rendezvous launcher worker include))) {
    scan_c(content($path), sub { $product{$_} = 1 for map { runs($_, 1) } plurals($_[1]) });
}
for my $name ($ENV{GOLDEN} =~ m{([\w/]+/test_\w+)$}gm) {
    my $path = "tests/$name.c";
    -f $path or die "wording: $path: no such file\n";
    $golden{$path} = 1;
}

for my $path (files(qr/\.(?:[ch]|sh|py)$/, qw(tests/e2e tests/lib tests/nodes tests/shell tests/sim tests/socket tests/survivors tests/unit scripts/hangs.py))) {
    next if $golden{$path};
    ($path =~ /[ch]$/ && $path !~ /sh$/ ? \&scan_c : \&scan_script)->(content($path), sub {
        my ($line, $literal, $callee, $argument) = @_;
        return if $argument >= message($callee) || $literal =~ /^#!|\bimport [a-z]+,|>&2/;
        my ($run) = grep { $product{$_} } runs($literal, 0) or return;
        $count++;
        print "$path:$line: \"$run\" in: $literal\n" if $list;
    });
}
$count //= 0;
print "wording: $count sentences of the product are asserted outside of the golden files\n";
if ($count > $limit) {
    print "wording: failed, the limit is $limit; scripts/wording.sh --list shows them, CONTRIBUTING.md what to compare instead\n";
    exit 1;
}
'
