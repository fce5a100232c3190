/* rejected.c -- see rejected.h. Every known protocol begins with constant bytes, so the first eight bytes of a
 * connection show its protocol, and only these bytes are kept. A wrong guess only leads to a wrong word in a diagnosis,
 * because the store closes the connection in any case. */
#include "diagnosis/rejected.h"

#include "base/text.h"
#include "store/encode.h"
#include "store/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_EVERY_MS = 60000 }; /* minimum time between two log lines about one source */

/* --- protocol --------------------------------------------------------------------------------------------- */

/* The first bytes of each protocol. "PRI " begins HTTP/2. A TLS handshake of any version begins with 16 03. */
static const struct {
    const char *bytes;
    enum reject_kind kind;
} beginnings[] = {
    { "GET ", REJECT_HTTP },    { "POST", REJECT_HTTP }, { "HEAD", REJECT_HTTP }, { "PUT ", REJECT_HTTP },
    { "OPTI", REJECT_HTTP },    { "PRI ", REJECT_HTTP }, { "CONN", REJECT_HTTP }, { "DELE", REJECT_HTTP },
    { "\x16\x03", REJECT_TLS }, { "SSH-", REJECT_SSH },
};

/* Return the kind of a client that has sent the greeting. ddprun, and PyTorch from version 2.2 on, send the same
 * greeting. But the byte after the greeting is an opcode, which is 0x80 or above if the client is ddprun, and below
 * 0x80 if the client is PyTorch. */
static enum reject_kind greeted_kind(struct slice first)
{
    enum { GREETING = 5, DDPRUN_FROM = 0x80 };
    const uint8_t *bytes = first.data;
    return first.len > GREETING && bytes[GREETING] >= DDPRUN_FROM ? REJECT_DDPRUN : REJECT_C10D_2;
}

/* Return true for the store protocol of PyTorch before 2.2. The requests of this protocol begin with an opcode (below
 * 12) and the length of a key: 8 bytes, little-endian. Keys are shorter than 65,536 bytes, so the later bytes of the
 * length are 0. Text and TLS never have these zeros. */
static bool is_old_request(struct slice first)
{
    const uint8_t *bytes = first.data;
    for (size_t i = 3; i < first.len; i++)
        if (bytes[i] != 0)
            return false;
    return bytes[0] < 0x0c;
}

/* Find the protocol. Check for PyTorch's old protocol last, because a small number with zeros after it always matches
 * this protocol. */
enum reject_kind reject_kind_of(struct slice first)
{
    const uint8_t *bytes = first.data;
    if (first.len == 0)
        return REJECT_SILENT;
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        size_t len = strlen(beginnings[i].bytes);
        if (first.len >= len && memcmp(bytes, beginnings[i].bytes, len) == 0)
            return beginnings[i].kind;
    }
    if (bytes[0] == 0 && first.len >= 5 && get_u32(bytes + 1) == WIRE_MAGIC)
        return greeted_kind(first);
    return is_old_request(first) ? REJECT_C10D_1 : REJECT_OTHER;
}

/* Return true if the client may be a node. Return false for a SILENT client, because most silent clients are health
 * checks. This may be wrong if a firewall has dropped the bytes of a node. */
bool reject_may_be_a_node(enum reject_kind kind)
{
    return kind == REJECT_C10D_1 || kind == REJECT_C10D_2 || kind == REJECT_DDPRUN || kind == REJECT_TLS;
}

const char *reject_kind_word(enum reject_kind kind)
{
    static const char *const word[] = {
#define X(name, text, words) text,
        REJECT_KINDS(X)
#undef X
    };
    return word[kind];
}

const char *reject_kind_words(enum reject_kind kind)
{
    static const char *const words[] = {
#define X(name, word, text) text,
        REJECT_KINDS(X)
#undef X
    };
    return words[kind];
}

/* --- the rows --------------------------------------------------------------------------------------------- */

/* Format "10.0.0.2" from "10.0.0.2:41234", or "[fe80::1]" from "[fe80::1]:41234". A client that connects every
 * second must have only one row. */
static void format_source(const char *peer, char source[static REJECT_SOURCE_MAX])
{
    const char *colon = strrchr(peer, ':');
    snprintf(source, REJECT_SOURCE_MAX, "%.*s", (int)(colon != NULL ? colon - peer : (long)strlen(peer)),
             peer);
}

/* Return true if two rejections share a row. Their reasons may differ: the row shows the latest reason. */
static bool is_same(const struct reject *a, const struct reject *b)
{
    return a->kind == b->kind && strcmp(a->source, b->source) == 0 && strcmp(a->job, b->job) == 0;
}

/* Return the row of this client. If the client has no row, use a free row, or overwrite the row whose last rejection is
 * the oldest. */
static struct reject *row_for(struct rejects *r, const struct reject *wanted)
{
    struct reject *oldest = &r->row[0];
    for (uint32_t i = 0; i < r->count; i++) {
        if (is_same(&r->row[i], wanted))
            return &r->row[i];
        if (r->row[i].last_ms < oldest->last_ms)
            oldest = &r->row[i];
    }
    if (r->count < REJECTS_MAX)
        oldest = &r->row[r->count++];
    *oldest = *wanted;
    return oldest;
}

/* Return true if a log line is due for the source of `row`. All rows of a source share one line per minute, so that a
 * frequent health check does not fill the log. logged_ms is 1 + the time of the last line; 0 means "never". */
static bool is_worth_a_line(struct rejects *r, struct reject *row, uint64_t now_ms)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->row[i].logged_ms != 0 && now_ms + 1 - r->row[i].logged_ms < LOG_EVERY_MS &&
            strcmp(r->row[i].source, row->source) == 0)
            return false;
    if (now_ms - r->lines_since_ms >= LOG_EVERY_MS) {
        r->lines_since_ms = now_ms;
        r->lines = 0;
    }
    /* Limit the lines of all sources together, too. A client with many addresses overwrites rows, so the limit per
     * source does not stop such a client. */
    if (r->lines == REJECTS_MAX)
        return false;
    r->lines++;
    row->logged_ms = now_ms + 1;
    return true;
}

/* Update the row of a client. The texts of the row describe the latest rejection. The count of the row includes all
 * rejections. */
bool rejects_note(struct rejects *r, const struct reject_facts *what, uint64_t now_ms)
{
    struct reject wanted = { .kind = what->is_user     ? REJECT_USER
                                     : what->is_ddprun ? REJECT_DDPRUN
                                                       : reject_kind_of(what->first),
                             .first_ms = now_ms };
    format_source(what->peer, wanted.source);
    snprintf(wanted.job, sizeof(wanted.job), "%s", what->job != NULL ? what->job : "");
    struct reject *row = row_for(r, &wanted);
    snprintf(row->why, sizeof(row->why), "%s", what->why);
    row->n_first = (uint8_t)(what->first.len < REJECT_FIRST_MAX ? what->first.len : REJECT_FIRST_MAX);
    if (row->n_first > 0)
        memcpy(row->first, what->first.data, row->n_first);
    row->last_ms = now_ms;
    row->times++;
    r->total++;
    return is_worth_a_line(r, row, now_ms);
}

/* --- refusals --------------------------------------------------------------------------------------------- */

/* The searches below are linear, because REFUSALS_MAX is small and rejections are rare. */

/* Return true if the row is about this node and this code, so that an agent that retries every second has only one
 * row. */
static bool is_same_node(const struct refusal *row, const struct rdzv_join *join, enum rdzv_refused code)
{
    return row->code == code && row->node_rank == join->node_rank && row->pid == join->pid &&
           strcmp(row->host, join->host) == 0 && strcmp(row->job, join->job) == 0;
}

/* Return the row of this node and code. If no row matches, return a free row. If no row is free, reset the count of the
 * oldest row and return that row. */
static struct refusal *row_of_node(struct refusals *r, const struct rdzv_join *join, enum rdzv_refused code)
{
    struct refusal *oldest = &r->row[0];
    for (uint32_t i = 0; i < r->count; i++) {
        if (is_same_node(&r->row[i], join, code))
            return &r->row[i];
        if (r->row[i].last_ms < oldest->last_ms)
            oldest = &r->row[i];
    }
    if (r->count < REFUSALS_MAX)
        oldest = &r->row[r->count++];
    oldest->times = 0;
    return oldest;
}

/* Record a rejection. If the node already has a row for this code, overwrite the sentence of the row. The new sentence
 * may name other nodes. */
void refusals_note(struct refusals *r, const struct rdzv_join *join, const struct rdzv_refusal *why,
                   uint64_t now_ms)
{
    if (r->row == NULL)
        r->row = calloc(REFUSALS_MAX, sizeof(*r->row));
    if (r->row == NULL)
        return;
    struct refusal *row = row_of_node(r, join, why->code);
    if (row->times++ == 0)
        row->first_ms = now_ms;
    row->code = why->code;
    row->node_rank = join->node_rank;
    row->pid = join->pid;
    row->last_ms = now_ms;
    snprintf(row->job, sizeof(row->job), "%s", join->job);
    snprintf(row->host, sizeof(row->host), "%s", join->host);
    snprintf(row->addr, sizeof(row->addr), "%s", join->addr);
    snprintf(row->boot_id, sizeof(row->boot_id), "%s", join->boot_id);
    snprintf(row->sentence, sizeof(row->sentence), "%s", why->sentence);
}

void refusals_forget(struct refusals *r, const char *job)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->count; i++)
        if (strcmp(r->row[i].job, job) != 0)
            r->row[n++] = r->row[i];
    r->count = n;
}

void refusals_free(struct refusals *r)
{
    free(r->row);
    *r = (struct refusals){ 0 };
}

/* --- notices ---------------------------------------------------------------------------------------------- */

/* A finding that is sent again overwrites its earlier row. */

/* Return the finding with this code and subject, or NULL. If `subject` is NULL, any subject matches. */
static struct notice *find_notice(const struct notices *n, enum finding_code code, const char *subject)
{
    for (uint32_t i = 0; i < n->count; i++)
        if (n->list[i].finding.code == code &&
            (subject == NULL || strcmp(n->list[i].finding.subject, subject) == 0))
            return &n->list[i];
    return NULL;
}

bool notices_have(const struct notices *n, enum finding_code code, const char *subject)
{
    return find_notice(n, code, subject) != NULL;
}

/* Remove a row. The later rows move up, so that the list keeps its order. */
static void remove_notice(struct notices *n, struct notice *row)
{
    const size_t after = (size_t)(n->list + n->count - (row + 1));
    memmove(row, row + 1, after * sizeof(*row));
    n->count--;
}

/* Return the row that a new row of `sender` replaces in a full list: the oldest row of `sender`, or the oldest row of
 * the list if `sender` has no row. So one node cannot replace the findings of all other nodes. */
static struct notice *oldest_notice(const struct notices *n, uint64_t sender)
{
    for (uint32_t i = 0; i < n->count; i++)
        if (n->list[i].sender == sender)
            return &n->list[i];
    return n->list;
}

/* Return a new row, or NULL if memory is short. If the list is full, the new row replaces an old row. */
static struct notice *new_notice(struct notices *n, uint64_t sender)
{
    if (n->list == NULL)
        n->list = calloc(NOTICES_MAX, sizeof(*n->list));
    if (n->list == NULL)
        return NULL;
    if (n->count == NOTICES_MAX)
        remove_notice(n, oldest_notice(n, sender));
    n->list[n->count].sender = sender;
    return &n->list[n->count++];
}

/* Copy a text and escape control characters, because the copy is printed on terminals. */
static void copy_plain(char *to, size_t size, const char *text)
{
    struct buf out = { 0 };
    const bool ok = text_append(&out, slice_str(text), size);
    snprintf(to, size, "%.*s", ok ? (int)out.len : 0, ok && out.len > 0 ? (const char *)out.data : "");
    buf_free(&out);
}

/* Add a finding. If `sentence` is empty, remove the old finding with this code and subject instead. Ignore an unknown
 * code, because findings.h does not define where a finding with this code is printed. */
bool notices_add(struct notices *n, uint64_t sender, const char *code, const char *subject,
                 const char *sentence, const char *advice)
{
    const enum finding_code known = finding_by_name(code);
    struct notice *row = known != FINDING_NONE ? find_notice(n, known, subject) : NULL;
    if (row != NULL && sender != NOTICE_OF_STORE) {
        if (row->sender != NOTICE_OF_STORE && row->sender != sender)
            return false;
        row->sender = sender;
    }
    if (sentence[0] == '\0') {
        if (row != NULL)
            remove_notice(n, row);
    } else if (known != FINDING_NONE && (row != NULL || (row = new_notice(n, sender)) != NULL)) {
        struct finding *f = &row->finding;
        f->code = known;
        f->more = 0;
        copy_plain(f->subject, sizeof(f->subject), subject);
        copy_plain(f->sentence, sizeof(f->sentence), sentence);
        copy_plain(f->advice, sizeof(f->advice), advice);
    }
    return true;
}

void notices_moved(struct notices *n, uint64_t from, uint64_t to)
{
    for (uint32_t i = 0; i < n->count; i++)
        if (n->list[i].sender == from)
            n->list[i].sender = to;
}

void notices_free(struct notices *n)
{
    free(n->list);
    *n = (struct notices){ 0 };
}
