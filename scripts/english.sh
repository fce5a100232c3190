#!/usr/bin/env bash
# english.sh [--list] -- checks that comments, string literals and Markdown are plain English (CONTRIBUTING.md has the
# rules). It counts phrases that a reader has to read twice, per 1,000 words of each kind of text, and fails above 0.5.
# A phrase is a reason to write another sentence, not to avoid the pattern.

# --list prints each phrase as file:line: phrase.
#
# A finding code in a string of the product must be a row of findings.h, so that `ddprun explain` explains it. The codes
# of the control protocol, which no program prints, are listed in hub/messages.h.
#
# The comment of a function must begin with an imperative. A comment that ends with a colon, or is followed by an empty
# line, is the heading of a group and is not checked.
set -eu
cd "$(dirname "$0")/.."

find . \( -name build -o -name .git -o -name deps \) -prune -o -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.md' \) -print |
    LIST=${1:-} perl -e '
use strict;
use warnings;

my $bad = join "|", (
    # a question word as the subject of a statement
    q{(?:^|(?<=[.;:,] ))(?:Who|Whoever|Whose|What|Whatever) (?!(?:is|are|does|do|did|was|were|happens|if|about|to)\b[^.?]*\?)[a-z]+[^.?!]{3,90}[.;,]},
    # no named subject
    q{\b(?:[Ss]ome|[Nn]o|[Ee]very)body\b}, q{\b[Ww]hoever\b}, q{\bwhom\b},
    # vague verbs
    q{\b(?:is|are|was|were|be|been|being) (?:told|said|heard)\b}, q{\btells? of\b}, q{\bsays? so\b}, q{\bhears?\b}, q{\blast words\b},
    q{\b(?:has|have|had) (?:not |never )?come\b}, q{\bmend(?:s|ed|ing)?\b}, q{\bknows? (?:no|of|nothing)\b},
    # old-fashioned forms
    q{\b(?:is|are|was|were) to (?:be|go|come|have|do|stay|end|join)\b}, q{\b(?:can|could|cannot) be had\b}, q{\b(?:can|cannot) be[.;,]},
    q{\bin vain\b}, q{\blikewise\b}, q{\bthereby\b}, q{\bfor ever\b}, q{\band the like\b},
    q{\bof (?:ours|theirs|its own|their own|his own)\b}, q{\b[Tt]here (?:is|are|was) none\b},
    q{\bbehind (?:it|them|that|the|each|a|which|this)\b}, q{\b(?:of|for|with|by|in|from|to|and|that) what (?:is|was|has|it|they|we|the)\b},
);
# First words that are no imperative: names, plurals and verbs with -s, articles and similar words.
my $no_verb = qr/[a-z]|[A-Z]{2}|[A-Z][a-z]*(?:\x27|[a-rtv-z]s\b)|(?:Called|An?|The|This|That|These|It|If|When|Where|With|Without|In|At|For|No|Each|All|How|Like|Only|Rank)\b/;
my $function = qr/\G\n[A-Za-z_][\w \t*]*[ *]\w+\([^;{}]*\)[^;{}]*[;{]/;
my (%words, %hits, $failed);

# The codes in the tables of findings.h, and the places of codes in strings.
my (%rows, @codes);
my $code = qr/[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+/;

sub look {
    my ($kind, $place, $text) = @_;
    $words{$kind}++ while $text =~ /[A-Za-z\x27]+/g;
    while ($text =~ /($bad)/g) {
        $hits{$kind}++;
        print "$place: $1\n" if $ENV{LIST} eq "--list";
    }
}

while (my $path = <STDIN>) {
    chomp $path;
    $path =~ s{^\./}{};
    open my $in, "<", $path or die "$path: $!\n";
    my $text = do { local $/; <$in> } // "";
    if ($path =~ /\.md$/) {
        my ($fenced, $line) = (0, 0);
        for (split /\n/, $text) {
            $line++;
            if (/^```/) { $fenced = !$fenced }
            elsif (!$fenced && !/^    /) { look("Markdown", "$path:$line", $_) }
        }
        next;
    }
    $rows{$1} = 1 while $path =~ /findings\.h$/ && $text =~ /\bX\(($code), (?:NOTE|WARNING|ERROR),/g;
    if ($path =~ m{hub/messages\.h$} && $text =~ /"([^"]*), or a code of `ddprun explain`"/) {
        $rows{$_} = 1 for split /, /, $1;
    }
    while ($text =~ m{(/\*.*?\*/|//[^\n]*)|"((?:[^"\\\n]|\\.)*)"|\x27(?:[^\x27\\\n]|\\.)*\x27}gs) {
        my ($comment, $string, $start) = ($1, $2, $-[0]);
        next if !defined $comment && !defined $string;
        my $place = $path . ":" . (1 + (substr($text, 0, $start) =~ tr/\n//));
        if (defined $comment) {
            my $end = pos $text;
            $comment =~ s/\n\s*\*?/ /g;
            $comment =~ s{^/[*/] ?|\*/$}{}g;
            look("comments", $place, $comment);
            my ($word) = $comment =~ /^($no_verb\S*)/;
            if (defined $word && $comment !~ /: ?$/ && $comment !~ /^[\w.]+ -- / && substr($text, $start - 1, 1) eq "\n" && $text =~ /$function/g) {
                print "$place: a comment of a function begins with a verb, not with \"$word\"\n";
                $failed = 1;
            }
            pos $text = $end;
        }
        elsif ($path =~ m{^(?:rendezvous|launcher|worker)/} && $string =~ /(?:^| )\[($code)\]|^($code)$/ &&
            (defined $1 || substr($text, 0, $start) =~ /(?:\bcode\b|code_name\(|_fail\(|refuse|give_up)[^;{}\n]*$/)) {
            push @codes, [$place, $string =~ /($code)/];
        }
        elsif ($string !~ m{^[\w./-]+\.[hc]$}) { $string =~ s/\\./ /g; look("strings", $place, $string) }
    }
}
for (grep { !$rows{$_->[1]} } @codes) {
    print "$_->[0]: the finding code $_->[1] has no row in rendezvous/diagnosis/findings.h\n";
    $failed = 1;
}
for my $kind (sort keys %words) {
    my $rate = 1000 * ($hits{$kind} // 0) / $words{$kind};
    printf "english: %s: %.2f phrases per 1,000 words (%d in %d words)\n", $kind, $rate, $hits{$kind} // 0, $words{$kind};
    $failed = 1 if $rate > 0.5;
}
print "english: failed; scripts/english.sh --list shows the phrases, CONTRIBUTING.md the rules\n" if $failed;
exit($failed // 0);
'
