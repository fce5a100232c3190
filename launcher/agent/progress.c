/* progress.c -- see progress.h. For each stream, a table of fixed size contains hashes of lines instead of the lines,
 * because workers may print without limit. */
#include "agent/progress.h"

#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void progress_reset(struct progress *p)
{
    free(p->ranks);
    p->ranks = NULL;
    p->moved_ms = 0;
}

/* --- patterns --------------------------------------------------------------------------------------------- */

/* Return true for a character of a number or time, as in "1e-05", "12:30:01", "4.5it/s", "7/100". */
static bool is_of_number(unsigned char c)
{
    return isalnum(c) || strchr(".,:+-%/_", c) != NULL;
}

/* Return true if a character is a space or part of a progress bar. */
static bool is_filling(unsigned char c)
{
    return c <= ' ' || c >= 0x7f || strchr("+-#=>", c) != NULL;
}

/* Return the hash of a line's pattern, which is the line without numbers and progress bars. If two patterns have the
 * same hash, a line of a rare pattern may wrongly count as progress, which is harmless. */
static uint64_t hash_line(const char *line, size_t len)
{
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)line[i];
        if (isdigit(c))
            while (i + 1 < len && line[i + 1] != '\0' && is_of_number((unsigned char)line[i + 1]))
                i++;
        else if (!is_filling(c))
            hash = hash_bytes(hash, &c, 1);
    }
    return hash;
}

/* Count a line whose pattern has this hash. A line that equals the latest line of its pattern does not count, because a
 * repeated message shows no progress. Return true if the line counts and the pattern was seen PROGRESS_SEEN times.
 *
 * Each table entry counts one pattern. A line of another pattern with the same table index lowers this count. When
 * the count is 0, the other pattern takes over the entry. So a frequent pattern keeps its entry. */
static bool is_usual(struct progress_stream *s, uint64_t hash, uint64_t line)
{
    struct progress_pattern *p = &s->patterns[hash % PROGRESS_PATTERNS];
    if (p->hash == hash) {
        if (p->line == line)
            return false;
        p->line = line;
        p->seen += p->seen < 2 * PROGRESS_SEEN;
        return p->seen >= PROGRESS_SEEN;
    }
    if (p->seen > 0)
        p->seen--;
    else
        *p = (struct progress_pattern){ hash, line, 1 };
    return false;
}

/* --- tracebacks ------------------------------------------------------------------------------------------- */

static bool begins_trace(const char *line)
{
    return strncmp(line, "Traceback (most recent call last)", 33) == 0;
}

/* Skip "[rank1]: ", which PyTorch (2.x) prints before each line of a traceback. */
static const char *skip_prefix(const char *line)
{
    const char *end = strncmp(line, "[rank", 5) == 0 ? strstr(line, "]: ") : NULL;
    return end != NULL ? end + 3 : line;
}

/* Find the error at the end of a traceback. The frames of a traceback are indented. The error after the frames is not
 * indented. */
static void read_trace(struct progress_rank *r, struct progress_stream *s, const char *line)
{
    if (begins_trace(line)) {
        s->in_trace = true;
    } else if (s->in_trace && line[0] != ' ' && line[0] != '\0') {
        s->in_trace = false;
        text_copy(r->error, sizeof(r->error), line);
        text_disarm(r->error, strlen(r->error), '\0');
        r->has_news = true;
    }
}

/* --- lines ------------------------------------------------------------------------------------------------ */

/* Return true if a line shows progress. */
static bool is_sign(const struct progress *p, struct progress_stream *s, const char *line, size_t len)
{
    if (p->regex != NULL)
        return regexec(p->regex, line, 0, NULL, 0) == 0;
    return is_usual(s, hash_line(line, len), hash_bytes(HASH_START, line, len));
}

/* Process a complete line. If the line shows progress, delete the error of an earlier traceback, because the program
 * has handled this error. `s->line` has room for the NUL. */
static void end_line(struct progress *p, struct progress_rank *r, struct progress_stream *s, uint64_t now_ms)
{
    s->line[s->len] = '\0';
    read_trace(r, s, skip_prefix(s->line));
    if (s->len > 0 && !s->in_trace && is_sign(p, s, s->line, s->len)) {
        p->moved_ms = now_ms > 0 ? now_ms : 1;
        r->has_news = r->has_news || r->error[0] != '\0';
        r->error[0] = '\0';
    }
    s->len = 0;
}

/* Append bytes to the incomplete line. Bytes beyond PROGRESS_LINE_MAX are dropped. */
static void add_text(struct progress_stream *s, const char *text, size_t len)
{
    const size_t room = PROGRESS_LINE_MAX - 1 - s->len, n = len < room ? len : room;
    if (s->skips)
        return;
    memcpy(s->line + s->len, text, n);
    s->len += (uint32_t)n;
}

/* Return the end of the first line, or `end` if the line is not complete. */
static const char *find_end(const char *at, const char *end)
{
    while (at < end && *at != '\n' && *at != '\r')
        at++;
    return at;
}

void progress_add(struct progress *p, int local_rank, int which, struct slice bytes, uint64_t now_ms)
{
    if (local_rank < 0 || local_rank >= p->n || bytes.len == 0)
        return;
    if (p->ranks == NULL)
        p->ranks = calloc((size_t)p->n, sizeof(*p->ranks));
    if (p->ranks == NULL)
        return;
    struct progress_rank *r = &p->ranks[local_rank];
    struct progress_stream *s = &r->streams[which != 0];
    const char *at = (const char *)bytes.data, *end = at + bytes.len;
    const size_t most = which != 0 ? PROGRESS_ERRORS_MAX : PROGRESS_READ_MAX;
    if (bytes.len > most) {
        at = end - most;
        s->len = 0;
        s->skips = true; /* skip the rest of this line */
    }
    while (at < end) {
        const char *to = find_end(at, end);
        add_text(s, at, (size_t)(to - at));
        if (to == end)
            return;
        if (!s->skips)
            end_line(p, r, s, now_ms);
        s->skips = false;
        at = to + 1;
    }
}
