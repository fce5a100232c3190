/* lines.c -- see lines.h. A stream consists of segments, each ended by \n or \r. `text` contains the unfinished
 * segment, and `update` contains the last segment that ended with \r. A carriage return only moves the cursor, so the
 * update stays visible until other text overwrites the update. */
#include "output/lines.h"

#include "tables/text.h"

#include <stdio.h>
#include <stdlib.h>

/* A larger buffer is freed after use, because only a huge line needs so much memory. */
enum { KEEP_CAPACITY = 64 * 1024 };

void lines_init(struct lines *l, line_fn line, void *user, size_t limit)
{
    *l = (struct lines){ .line = line, .user = user, .limit = limit };
}

/* Clear the buffer. If its memory is larger than KEEP_CAPACITY, free the memory. */
static void empty(struct buf *b)
{
    b->len = 0;
    if (b->cap > KEEP_CAPACITY)
        buf_free(b);
}

void lines_free(struct lines *l)
{
    buf_free(&l->text);
    buf_free(&l->update);
}

static void deliver(struct lines *l, struct slice text, enum line_kind kind)
{
    l->line(l->user, text, kind);
}

/* Deliver the unfinished text with the kind LINE_CUT. The rest of the line follows later. */
void lines_cut(struct lines *l)
{
    if (l->text.len > 0)
        deliver(l, buf_slice(&l->text), LINE_CUT);
    empty(&l->text);
}

/* Append to the unfinished segment. When memory is short, deliver the bytes as LINE_CUT, so that no byte is lost. */
static void lines_add(struct lines *l, const char *p, size_t len)
{
    while (len > 0) {
        if (l->text.len == l->limit)
            lines_cut(l);
        size_t room = l->limit - l->text.len;
        size_t part = len < room ? len : room;
        if (!buf_append(&l->text, p, part)) {
            lines_cut(l);
            deliver(l, slice_of(p, part), LINE_CUT);
        }
        p += part;
        len -= part;
    }
}

/* Clear `update`, because the line has ended or the terminal row was erased. */
static void forget_update(struct lines *l)
{
    empty(&l->update);
    l->update_shown = false;
}

/* End the unfinished segment at a \r. The segment becomes the new `update`. An empty segment changes nothing. A segment
 * that only erases the terminal row clears `update`. */
static void end_update(struct lines *l)
{
    if (slice_equal(buf_slice(&l->text), slice_str(ERASE_ROW))) {
        empty(&l->text);
        forget_update(l);
    }
    if (l->text.len == 0)
        return;
    struct buf old = l->update;
    l->update = l->text;
    l->text = old;
    l->update_shown = false;
    empty(&l->text);
}

/* Deliver the line that ends here: the text after its last \r. If that text is empty, deliver the latest update of the
 * progress bar, if this update was not delivered before. Examples:
 *
 *     bytes                    line
 *     "a\r\n"                  "a"      a text file from Windows
 *     "\r10%\r20%\rdone\n"     "done"   a bar that writes \r before each update
 *     "10%\r20%\r\n"           "20%"    a bar that writes \r after each update
 *     "a\r\r\n"                "a"      a text file from Windows with two \r */
static void end_line(struct lines *l, enum line_kind kind)
{
    if (l->text.len > 0 || l->update.len == 0)
        deliver(l, buf_slice(&l->text), kind);
    else if (!l->update_shown)
        deliver(l, buf_slice(&l->update), kind);
    empty(&l->text);
    forget_update(l);
}

/* Add bytes of a line without its \n. The bytes may contain \r. */
static void add_segments(struct lines *l, const char *p, size_t len)
{
    const char *cr;
    while (len > 0 && (cr = memchr(p, '\r', len)) != NULL) {
        size_t part = (size_t)(cr - p);
        lines_add(l, p, part);
        end_update(l);
        p += part + 1;
        len -= part + 1;
    }
    lines_add(l, p, len);
}

/* Return true for the usual case: the bytes are a complete line without \r. Such a line is delivered without a
 * copy. */
static bool is_plain(const struct lines *l, const char *p, size_t len)
{
    return l->text.len == 0 && l->update.len == 0 && len <= l->limit && memchr(p, '\r', len) == NULL;
}

void lines_append(struct lines *l, struct slice bytes)
{
    const char *p = bytes.data, *end = p + bytes.len;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((newline != NULL ? newline : end) - p);
        if (newline != NULL && is_plain(l, p, len)) {
            deliver(l, slice_of(p, len), LINE_WHOLE);
        } else {
            add_segments(l, p, len);
            if (newline != NULL)
                end_line(l, LINE_WHOLE);
        }
        p += len + (newline != NULL ? 1 : 0);
    }
}

bool lines_show_update(struct lines *l)
{
    if (l->update.len == 0 || l->update_shown)
        return false;
    l->update_shown = true;
    deliver(l, buf_slice(&l->update), LINE_UPDATE);
    return true;
}

void lines_finish(struct lines *l)
{
    if (l->text.len > 0 || l->update.len > 0)
        end_line(l, LINE_LAST);
}

/* --- tail ------------------------------------------------------------------------------------------------- */

/* The ring grows up to TAIL_BYTES, so that silent streams need no memory. Only a full ring wraps around.
 *
 *     growing:   ring [abcd....]  start 0, len 4         free space at the end, no byte is moved
 *     full:      ring [ijkdefgh]  start 3, len 8         new bytes overwrite the oldest */

enum { TAIL_MIN = 1024 };

/* Grow the ring to `need` bytes, at most to TAIL_BYTES. `start` must be 0. */
static bool tail_grow(struct tail *t, size_t need)
{
    size_t cap = t->cap > 0 ? t->cap : TAIL_MIN;
    while (cap < need && cap < TAIL_BYTES)
        cap *= 2;
    uint8_t *ring = realloc(t->ring, cap);
    if (ring == NULL)
        return false;
    t->ring = ring;
    t->cap = cap;
    return true;
}

/* Append bytes. When the ring is full, overwrite the oldest bytes. If `bytes` is longer than the ring, copy only the
 * last bytes. */
void tail_add(struct tail *t, struct slice bytes)
{
    const uint8_t *p = bytes.data;
    size_t len = bytes.len;
    if (t->cap < TAIL_BYTES && t->len + len > t->cap && !tail_grow(t, t->len + len))
        return;
    if (len > t->cap) {
        p += len - t->cap;
        len = t->cap;
    }
    while (len > 0) {
        size_t at = (t->start + t->len) % t->cap;
        size_t part = t->cap - at < len ? t->cap - at : len;
        memcpy(t->ring + at, p, part);
        size_t over = t->len + part > t->cap ? t->len + part - t->cap : 0;
        t->start = (t->start + over) % t->cap;
        t->len += part - over;
        p += part;
        len -= part;
    }
}

/* Return the i-th oldest byte. */
static uint8_t byte_at(const struct tail *t, size_t i)
{
    return t->ring[(t->start + i) % t->cap];
}

/* Return the length of the tail without blank lines at its end. */
static size_t text_end(const struct tail *t)
{
    size_t end = t->len;
    while (end > 0 && (byte_at(t, end - 1) == '\n' || byte_at(t, end - 1) == '\r'))
        end--;
    return end;
}

/* Count the lines backwards from the end, because only the last `max` lines are copied. A full ring may begin in the
 * middle of a line; the rest of this line counts as a line. */
size_t tail_lines(const struct tail *t, size_t max, struct buf *out)
{
    size_t end = text_end(t);
    size_t begin = end, lines = 0;
    if (end == 0 || max == 0)
        return 0;
    while (begin > 0 && lines < max)
        lines += byte_at(t, --begin) == '\n';
    if (lines == max)
        begin++; /* skip the newline that ends the previous line */
    else
        lines++;
    uint8_t *to = buf_reserve(out, end - begin + 1);
    if (to == NULL)
        return 0;
    for (size_t i = begin; i < end; i++)
        *to++ = byte_at(t, i);
    *to = '\n';
    out->len += end - begin + 1;
    return lines;
}

void tail_free(struct tail *t)
{
    free(t->ring);
    *t = (struct tail){ 0 };
}

/* --- merge ------------------------------------------------------------------------------------------------ */

/* Append a piece of a line, and the prefix at the start of a line. */
static bool merge_append(struct merge *m, const void *data, size_t len, struct buf *out)
{
    const bool begins = !m->midline && m->rest.len == 0;
    return (!begins || buf_append(out, m->prefix, strlen(m->prefix))) && buf_append(out, data, len);
}

/* Append the stored beginning of the unfinished line. */
static bool merge_append_rest(struct merge *m, struct buf *out)
{
    struct buf rest = m->rest;
    if (rest.len == 0)
        return true;
    m->rest = (struct buf){ 0 };
    bool ok = merge_append(m, rest.data, rest.len, out);
    buf_free(&rest);
    m->midline = true;
    return ok;
}

bool merge_add(struct merge *m, struct slice bytes, struct buf *out)
{
    const char *p = bytes.data, *end = p + bytes.len, *newline;
    bool ok = true;
    while (p < end && (newline = memchr(p, '\n', (size_t)(end - p))) != NULL) {
        ok = merge_append_rest(m, out) && merge_append(m, p, (size_t)(newline + 1 - p), out) && ok;
        m->midline = false;
        p = newline + 1;
    }
    ok = buf_append(&m->rest, p, (size_t)(end - p)) && ok;
    if (m->rest.len > MERGE_LINE_MAX)
        ok = merge_append_rest(m, out) && ok;
    return ok;
}

bool merge_finish(struct merge *m, struct buf *out)
{
    const bool open = m->midline || m->rest.len > 0;
    bool ok = merge_append_rest(m, out);
    m->midline = false;
    return !open || (buf_append(out, "\n", 1) && ok);
}

void merge_free(struct merge *m)
{
    buf_free(&m->rest);
}

/* --- the prefix of a line ---------------------------------------------------------------------------------- */

enum { RANKS_MAX = 200, NUMBER_MAX = 12, SEVERAL_COLOUR = 1 /* bold */ };

/* The workers that printed a line. `base` is the rank or local rank of the node's first worker. */
struct numbered {
    const struct rank_set *workers;
    int base;
};

static int rank_at(const void *user, int i)
{
    const struct numbered *n = user;
    return rank_set_has(n->workers, i) ? n->base + i : -1;
}

/* Append "3" for a single rank or "0,2-5" for a set, and a NUL. */
static bool append_ranks(const struct line_origin *from, int base, struct buf *out)
{
    const struct numbered n = { from->ranks, base };
    bool ok = from->ranks != NULL ? rank_set_print_each(rank_at, &n, from->ranks->limit, RANKS_MAX, out)
                                  : buf_printf(out, "%d", base + from->local_rank);
    return ok && buf_append(out, "", 1);
}

/* Append the prefix. The caller has set the ranks in `values`; this function sets the other values. */
static bool append_prefix(const struct plan *plan, const struct line_origin *from,
                          struct prefix_values *values, int colour, struct buf *out)
{
    char pid[NUMBER_MAX], attempt[NUMBER_MAX], time[PREFIX_TIME_MAX], elapsed[PREFIX_TIME_MAX];
    snprintf(pid, sizeof(pid), "%d", from->pid);
    snprintf(attempt, sizeof(attempt), "%d", plan->attempt);
    prefix_time(time, from->at.unix_us);
    prefix_elapsed(elapsed, from->at.since_us);
    values->of[PREFIX_HOST] = values->of[PREFIX_HOSTNAME] = plan->facts->host;
    values->of[PREFIX_ROLE_NAME] = plan->cli->role;
    values->of[PREFIX_PID] = from->pid != 0 && from->ranks == NULL ? pid : NULL;
    values->of[PREFIX_STREAM] = from->which == STD_OUT ? "stdout" : "stderr";
    values->of[PREFIX_JOB] = plan->job;
    values->of[PREFIX_ATTEMPT] = attempt;
    values->of[PREFIX_TIME] = time;
    values->of[PREFIX_ELAPSED] = elapsed;
    return prefix_render(&plan->line_prefix, values, colour, out);
}

static int colour_of(const struct plan *plan, const struct line_origin *from)
{
    return from->ranks != NULL ? SEVERAL_COLOUR : prefix_colour(plan->workers[from->local_rank].rank);
}

bool line_prefix(const struct plan *plan, const struct line_origin *from, bool colour, struct buf *out)
{
    struct buf rank = { 0 }, local_rank = { 0 };
    bool ok = append_ranks(from, plan->workers[0].rank, &rank) &&
              append_ranks(from, plan->workers[0].local_rank, &local_rank);
    struct prefix_values values = { 0 };
    const bool prefix =
        from->ranks != NULL ? plan->prefix : plan_stream_has_prefix(plan, from->local_rank, from->which);
    if (ok) {
        values.of[PREFIX_RANK] = (const char *)rank.data;
        values.of[PREFIX_LOCAL_RANK] = (const char *)local_rank.data;
        if (from->ranks != NULL && !(plan->prefix && plan->line_prefix.ranked))
            ok = buf_printf(out, "[%s] ", values.of[PREFIX_RANK]);
        if (prefix)
            ok = ok &&
                 append_prefix(plan, from, &values, colour ? colour_of(plan, from) : PREFIX_NO_COLOUR, out);
    }
    buf_free(&rank);
    buf_free(&local_rank);
    return ok;
}

/* --- equal lines of several ranks ------------------------------------------------------------------------ */

/* Two ranks print the lines A and B in different orders. Braces show which ranks have printed a waiting line:
 *
 *     rank 0 prints A, B        waiting lines: A{0} B{0}
 *     rank 1 prints B, A        waiting lines: A{0} B{0,1} A{1}
 *
 * Rank 1 must not join the waiting A, because this A is printed before B.
 *
 * Waiting lines are numbered and written in this order. A rank joins only lines after its own last line. When a
 * line is due, all earlier lines are written first.
 *
 * Equal lines are found by their hash, from the newest line back to the rank's last line. No rank joins an update
 * of a progress bar or a piece of a longer line. */

/* Append a line. Even an empty line gets the prefix, so that no worker can imitate a line of ddprun. */

static bool fold_append_line(struct buf *out, const struct line_row *row, struct slice prefix,
                             struct slice text, enum line_kind kind)
{
    static const char cut_mark[] = " [line continues]";
    size_t mark = kind == LINE_CUT ? sizeof(cut_mark) - 1 : 0;
    return buf_append(out, prefix.data, prefix.len) &&
           (row->escape ? escape_append(out, text) : buf_append(out, text.data, text.len)) &&
           buf_append(out, cut_mark, mark) && buf_append(out, "\n", 1);
}

const char *line_row_wipe(struct line_row *row)
{
    const char *wipe = row->drawn ? "\r" ERASE_ROW : "";
    row->drawn = false;
    return wipe;
}

bool line_show(struct buf *out, struct line_row *row, struct slice prefix, struct slice text,
               enum line_kind kind)
{
    size_t before = out->len;
    bool drawn = row->drawn;
    const char *wipe = line_row_wipe(row);
    if (!buf_append(out, wipe, strlen(wipe)) || !fold_append_line(out, row, prefix, text, kind)) {
        out->len = before;
        row->drawn = drawn;
        return false;
    }
    if (row->terminal && kind == LINE_UPDATE) {
        out->len--; /* no newline, so that the next line can overwrite this line */
        row->drawn = true;
    }
    return true;
}

enum { BUCKETS = 4096 };

struct waiting {
    struct fold_line line;         /* `line.text` and `line.prefix` point into `text` below */
    struct waiting *next;          /* next waiting line, in the order of `number` */
    struct waiting *older, *newer; /* neighbours in the same hash bucket */
    uint64_t number;               /* number of this line in the order of output: 1, 2, 3, ... */
    uint64_t hash;                 /* hash of the text */
    uint64_t joined_us;            /* when a rank last printed the line: us since the start of ddprun */
    struct rank_set ranks;         /* ranks that have printed the line; empty as long as `count` is 1 */
    int count;                     /* number of ranks that have printed the line */
    char text[];                   /* the text, then the prefix */
};

struct fold {
    fold_fn line;
    void *user;
    int ranks;
    uint64_t *last; /* `number` of each rank's last line; 0 before the rank's first line */
    uint64_t number;
    struct waiting *first, **end;
    struct waiting *newest[BUCKETS];
    size_t lines, bytes;
};

struct fold *fold_new(int ranks, fold_fn line, void *user)
{
    struct fold *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return NULL;
    *f = (struct fold){ .line = line, .user = user, .ranks = ranks };
    f->end = &f->first;
    f->last = calloc((size_t)ranks, sizeof(*f->last));
    if (f->last != NULL)
        return f;
    free(f);
    return NULL;
}

/* --- waiting lines -------------------------------------------------------------------------------------- */

static void free_waiting(struct waiting *w)
{
    rank_set_free(&w->ranks);
    free(w);
}

static void add_newest(struct fold *f, struct waiting *w)
{
    struct waiting **newest = &f->newest[w->hash % BUCKETS];
    w->older = *newest;
    if (w->older != NULL)
        w->older->newer = w;
    *newest = w;
    *f->end = w;
    f->end = &w->next;
    f->lines++;
    f->bytes += w->line.text.len;
}

/* Append a line to the waiting lines. Return false when memory is short. */
static bool append(struct fold *f, const struct fold_line *line, uint64_t hash)
{
    const size_t len = line->text.len, prefix_len = line->prefix.len;
    struct waiting *w = malloc(sizeof(*w) + len + prefix_len);
    if (w == NULL)
        return false;
    *w = (struct waiting){
        .line = *line, .number = ++f->number, .hash = hash, .joined_us = line->at.since_us, .count = 1
    };
    if (len > 0)
        memcpy(w->text, line->text.data, len);
    if (prefix_len > 0)
        memcpy(w->text + len, line->prefix.data, prefix_len);
    w->line.text = slice_of(w->text, len);
    w->line.prefix = slice_of(w->text + len, prefix_len);
    add_newest(f, w);
    f->last[line->rank] = w->number;
    return true;
}

/* Remove and return the first waiting line, which is also the oldest of its bucket. */
static struct waiting *remove_first(struct fold *f)
{
    struct waiting *w = f->first;
    f->first = w->next;
    if (f->first == NULL)
        f->end = &f->first;
    if (w->newer != NULL)
        w->newer->older = NULL;
    else
        f->newest[w->hash % BUCKETS] = NULL;
    f->lines--;
    f->bytes -= w->line.text.len;
    return w;
}

static void deliver_first(struct fold *f)
{
    struct waiting *w = remove_first(f);
    w->line.ranks = w->count > 1 ? &w->ranks : NULL;
    f->line(f->user, &w->line);
    free_waiting(w);
}

/* Deliver all waiting lines whose number is at most `number`. */
static void deliver_through(struct fold *f, uint64_t number)
{
    while (f->first != NULL && f->first->number <= number)
        deliver_first(f);
}

void fold_free(struct fold *f)
{
    if (f == NULL)
        return;
    while (f->first != NULL)
        free_waiting(remove_first(f));
    free(f->last);
    free(f);
}

/* --- joining -------------------------------------------------------------------------------------------- */

static bool may_fold(enum line_kind kind)
{
    return kind == LINE_WHOLE || kind == LINE_LAST;
}

/* Return the oldest waiting line that has this text and is newer than the rank's previous line. Return NULL if there is
 * no such line. */
static struct waiting *fold_find(const struct fold *f, const struct fold_line *line, uint64_t hash)
{
    struct waiting *found = NULL, *w = f->newest[hash % BUCKETS];
    for (; w != NULL && w->number > f->last[line->rank]; w = w->older)
        if (w->hash == hash && may_fold(w->line.kind) && slice_equal(w->line.text, line->text))
            found = w;
    return found;
}

/* Record that another rank has printed the waiting line `w`. If all ranks have now printed `w`, deliver `w` at once.
 * Return false when memory is short. */
static bool fold_join(struct fold *f, struct waiting *w, const struct fold_line *line)
{
    if (w->count == 1) {
        if (!rank_set_init(&w->ranks, f->ranks))
            return false;
        rank_set_add(&w->ranks, w->line.rank);
    }
    rank_set_add(&w->ranks, line->rank);
    w->count++;
    w->joined_us = line->at.since_us;
    f->last[line->rank] = w->number;
    if (w->count == f->ranks)
        deliver_through(f, w->number);
    return true;
}

bool fold_add(struct fold *f, const struct fold_line *line)
{
    const bool was_empty = f->first == NULL;
    const size_t len = line->text.len;
    /* The hash needs no secret, because a worker that causes collisions slows down only the console of its job. */
    uint64_t hash = hash_bytes(HASH_START, line->text.data, line->text.len);
    struct waiting *same = may_fold(line->kind) ? fold_find(f, line, hash) : NULL;
    if (same != NULL && fold_join(f, same, line))
        return false;
    while (f->first != NULL && (f->lines >= FOLD_LINES_MAX || f->bytes + len > FOLD_BYTES_MAX))
        deliver_first(f);
    if (len <= FOLD_BYTES_MAX && append(f, line, hash))
        return was_empty;
    fold_finish(f);
    f->line(f->user, line);
    return false;
}

/* --- due lines ------------------------------------------------------------------------------------------ */

static uint64_t due_us(const struct waiting *w)
{
    uint64_t quiet = w->joined_us + FOLD_QUIET_US, longest = w->line.at.since_us + FOLD_LONGEST_US;
    return quiet < longest ? quiet : longest;
}

uint64_t fold_flush(struct fold *f, uint64_t now_us)
{
    uint64_t last_due = 0, next = FOLD_NOTHING;
    for (const struct waiting *w = f->first; w != NULL; w = w->next)
        if (due_us(w) <= now_us)
            last_due = w->number;
    deliver_through(f, last_due);
    for (const struct waiting *w = f->first; w != NULL; w = w->next)
        if (due_us(w) < next)
            next = due_us(w);
    return next;
}

void fold_finish(struct fold *f)
{
    while (f->first != NULL)
        deliver_first(f);
}

bool fold_print_ranks(const struct rank_set *ranks, struct buf *out)
{
    const struct numbered n = { ranks, 0 };
    return rank_set_print_each(rank_at, &n, ranks->limit, RANKS_MAX, out);
}

/* --- lines of several nodes -------------------------------------------------------------------------------- */

/* A marked line is "\035RANK WORLD LENGTH\035", the prefix of LENGTH bytes, and the text. */
enum { MARK = '\035', LINE_MARK_MAX = 48 };

bool line_mark(struct buf *out, int rank, int world_size, struct slice prefix)
{
    return buf_printf(out, "%c%d %d %zu%c", MARK, rank, world_size, prefix.len, MARK) &&
           (prefix.len == 0 || buf_append(out, prefix.data, prefix.len));
}

bool line_unmark(struct slice line, struct marked_line *out)
{
    const char *at = line.data, *end = line.len > 1 ? memchr(at + 1, MARK, line.len - 1) : NULL;
    char text[LINE_MARK_MAX];
    int used = 0;
    size_t prefix;
    if (end == NULL || at[0] != MARK || (size_t)(end - at) >= sizeof(text))
        return false;
    snprintf(text, sizeof(text), "%.*s", (int)(end - at - 1), at + 1);
    if (sscanf(text, "%d %d %zu%n", &out->rank, &out->world_size, &prefix, &used) != 3 || text[used] != '\0')
        return false;
    const size_t left = line.len - (size_t)(end + 1 - at);
    if (out->rank < 0 || out->rank >= out->world_size || prefix > left)
        return false;
    out->prefix = slice_of(end + 1, prefix);
    out->text = slice_of(end + 1 + prefix, left - prefix);
    return true;
}
