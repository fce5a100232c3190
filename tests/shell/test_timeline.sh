#!/usr/bin/env bash
# test_timeline.sh -- event logs of a real job become a page that a real parser reads, with the bars that must be there.
# The job fails once and starts again; in its second attempt rank 0 waits in a barrier for rank 1.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"

if ! command -v python3 >/dev/null; then
    echo "1..0 # skipped, because there is no python3 to read the page"
    exit 0
fi

cat >"$tmp/worker" <<END
[ "\$RANK\$TORCHELASTIC_RESTART_COUNT" = 10 ] && exit 7
[ "\$RANK" = 1 ] && sleep 0.4
exec "$(realpath "$BUILD")/tests/prog/worker_probe" barrier 'meet <script>alert(1)</script>'
END

# Every tag is closed, nothing is asked of the network, one script (ours); the bars are where they should be.
cat >"$tmp/look.py" <<'END'
import html.parser, sys
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.count, self.titles, self.rects = [], {}, [], []
    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        assert not {'src', 'href', 'onclick', 'onload'} & attrs.keys(), (tag, attrs)
        self.count[tag] = self.count.get(tag, 0) + 1
        if tag not in ('meta', 'rect', 'path'):
            self.open.append(tag)
        if tag == 'rect':
            self.rects.append((attrs['class'], self.titles[-1] if 'title' in self.count else ''))
    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
    def handle_data(self, data):
        if self.open and self.open[-1] == 'title':
            self.titles.append(data)
text = open(sys.argv[1], encoding='utf-8').read()
page = Page()
page.feed(text)
page.close()
assert page.open == [], page.open
assert page.count['script'] == 1, page.count
assert 'http:' not in text and 'https:' not in text
bars = [title for kind, title in page.rects if kind == 'barrier']
assert any("rank 0: waits in a barrier, the last was rank 1; barrier 'meet <script>alert(1)</script>', released" in b
           or "rank 0: waits in a barrier, the last was rank 1; barrier 'ddp/" in b for b in bars), bars
waits = [b for b in bars if 'that is 0.' in b and 'attempt 1' in b and float(b.split('that is ')[1].split(' s')[0]) > 0.2]
assert len(waits) == 1, bars
assert sum(kind == 'band' for kind, _ in page.rects) == 2, page.rects
assert any(kind == 'backoff' for kind, _ in page.rects), page.rects
assert any('rank 1: exit 7' in t for t in page.titles), page.titles
END

cat >"$tmp/trace.py" <<'END'
import json, sys
events = json.load(open(sys.argv[1]))['traceEvents']
waits = [e for e in events if e['ph'] == 'X' and e['cat'] == 'barrier' and e['dur'] > 200000]
assert len(waits) == 1 and waits[0]['args']['waited_for'] == 'rank 1', waits
assert len([e for e in events if e['ph'] == 'X' and e['cat'] == 'attempt']) == 2
assert {e['ph'] for e in events} == {'X', 'i', 'M'}
END

job() {
    "$BUILD/ddprun" --standalone --nproc_per_node=2 --max_restarts=1 --restart_backoff=100ms \
        --events="$tmp/%h-%n.jsonl" --no_python sh "$tmp/worker"
}

check "a job with --events ends well" job
log=$(echo "$tmp"/*-0.jsonl)
check "a page is drawn" "$BUILD/ddpctl" timeline "$log" -o "$tmp/out.html"
check "a parser reads it, and finds who was waited for" python3 "$tmp/look.py" "$tmp/out.html"
check "a trace is drawn" "$BUILD/ddpctl" timeline "$log" --output "$tmp/out.json"
check "a parser reads it, too" python3 "$tmp/trace.py" "$tmp/out.json"

head -c -20 "$log" >"$tmp/cut"
says() {
    "$BUILD/ddpctl" timeline "$tmp/cut" "$log" -o "$tmp/again.html" 2>&1 | grep -F "$tmp/cut:$(wc -l <"$log"): this is no JSON object"
}
check "a line that is cut off is named, and the rest is drawn once" says
check "the same page comes of it" cmp "$tmp/out.html" "$tmp/again.html"
check "a file that is not there is an error" fails "$BUILD/ddpctl" timeline "$tmp/none" -o "$tmp/x.html"
check "another ending is refused" fails "$BUILD/ddpctl" timeline "$log" -o "$tmp/x.svg"
finish
