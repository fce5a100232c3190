#!/usr/bin/env bash
# test_timeline.sh -- make a trace and a page from the event logs of a real job. A headless Chromium opens the page
# and prints what it shows. The job fails once and starts again. In its second attempt, rank 0 waits in a barrier for
# rank 1.
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

# Check the page in the browser: the bars must be in their places, and no text of a log may become markup.
cat >"$tmp/look.py" <<'END'
import html.parser, sys
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.inside, self.count, self.titles, self.rects, self.cells, self.text = '', {}, [], [], [], {}
    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        assert not {'src', 'href', 'onclick', 'onload'} & attrs.keys(), (tag, attrs)
        self.count[tag] = self.count.get(tag, 0) + 1
        self.inside = attrs.get('id', tag)
        if tag == 'title':
            self.titles.append('')
        elif tag == 'rect':
            self.rects.append((attrs['class'], self.titles[-1]))
    def handle_endtag(self, tag):
        self.inside = ''
    def handle_data(self, data):
        if self.inside == 'title' and self.titles:
            self.titles[-1] += data
        self.text[self.inside] = self.text.get(self.inside, '') + data
page = Page()
page.feed(open(sys.argv[1], encoding='utf-8').read())
page.close()
assert page.count['script'] == 2, page.count
assert page.text['summary'].startswith('1 node, 2 ranks, 2 attempts, '), page.text['summary']
bars = [title for kind, title in page.rects if kind == 'barrier']
assert any(b.startswith("rank 0: ") and "rank 1; barrier '" in b
           and ("'meet <script>alert(1)</script>'" in b or "'ddp/" in b) for b in bars), bars
waits = [b for b in bars if 'that is 0.' in b and 'attempt 1' in b and float(b.split('that is ')[1].split(' s')[0]) > 0.2]
assert len(waits) == 1, bars
assert sum(kind == 'band' for kind, _ in page.rects) == 2, page.rects
assert any(kind == 'backoff' for kind, _ in page.rects), page.rects
assert any('rank 1: exit 7' in t for t in page.titles), page.titles
assert 'exit 7' in page.text['td'], page.text['td']
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

check "a job with --events exits with code 0" job
log=$(echo "$tmp"/*-0.jsonl)
check "a page is drawn" "$BUILD/ddpctl" timeline "$log" -o "$tmp/out.html"
check "the page needs no network" fails grep -nE 'https?://(www\.)?[^w]' "$tmp/out.html"
check "a trace is drawn" "$BUILD/ddpctl" timeline "$log" --output "$tmp/out.json"
check "a parser reads the trace" python3 "$tmp/trace.py" "$tmp/out.json"

# The page's script draws before the document is complete, so --dump-dom prints the complete drawing.
browser=$(command -v chromium chromium-browser google-chrome chromium-headless-shell | head -n 1) || true
opens() {
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --virtual-time-budget=1000 --user-data-dir="$tmp/browser" --dump-dom "$1" >"$tmp/dom" 2>"$tmp/browser.log" ||
        { cat "$tmp/browser.log"; return 1; }
}
if [ -n "$browser" ]; then
    check "a browser draws the page" opens "file://$tmp/out.html"
    check "the page shows which rank others waited for" python3 "$tmp/look.py" "$tmp/dom"
    many() {
        for rank in $(seq 0 199); do
            for event in worker_started worker_ended; do
                ms=$([ $event = worker_started ] && echo 0 || echo $((rank == 77 ? 1500 : 1000)))
                echo "{\"event\":\"$event\",\"ms\":$ms,\"store_ms\":$ms,\"job\":\"a\",\"instance\":\"i\",\"agent_host\":\"n\"," \
                    "\"agent_pid\":1,\"rank\":$rank,\"verdict\":\"ok\",\"ending\":\"exit 0\"}"
            done
        done >"$tmp/many.jsonl"
        "$BUILD/ddpctl" timeline "$tmp/many.jsonl" -o "$tmp/many.html" && opens "file://$tmp/many.html" &&
            grep -q '>rank 0 and 198 like it<' "$tmp/dom" && grep -q '>rank 77<' "$tmp/dom"
    }
    check "of two hundred ranks, similar ranks are drawn as one row" many
    live() {
        cp rendezvous/ctl/timeline.html "$tmp/live.html"
        cp "$tmp/out.json" "$tmp/trace.json"
        python3 -u -m http.server --bind 127.0.0.1 --directory "$tmp" 0 >"$tmp/server" 2>/dev/null &
        local server=$! ok=1
        until grep -q 'port [0-9]' "$tmp/server"; do sleep 0.05; done
        opens "http://127.0.0.1:$(sed 's/.*port \([0-9]*\).*/\1/' "$tmp/server")/live.html" && ok=0
        kill "$server"
        [ $ok = 0 ] && python3 "$tmp/look.py" "$tmp/dom"
    }
    check "a page without a trace fetches one from its own origin" live
else
    for what in "a browser draws the page" "it shows who was waited for" "of two hundred ranks it draws those alike as one row" \
        "without a trace in it the page fetches one from its own origin"; do
        skip "$what" "there is no Chromium"
    done
fi

head -c -20 "$log" >"$tmp/cut"
reports_the_incomplete_line() {
    "$BUILD/ddpctl" timeline "$tmp/cut" "$log" -o "$tmp/again.html" 2>&1 | grep -F "$tmp/cut:$(wc -l <"$log"): not a "
}
check "an incomplete line is reported, and the other lines are drawn once" reports_the_incomplete_line
check "the page is the same as before" cmp "$tmp/out.html" "$tmp/again.html"
names_job() {
    ! "$BUILD/ddpctl" timeline --job=typo "$log" -o "$tmp/x.html" 2>"$tmp/typo" && grep -q typo "$tmp/typo"
}
check "the error names a job that is not in the files" names_job
check "a missing file is an error" fails "$BUILD/ddpctl" timeline "$tmp/none" -o "$tmp/x.html"
check "another file suffix is rejected" fails "$BUILD/ddpctl" timeline "$log" -o "$tmp/x.svg"
finish
