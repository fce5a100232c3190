/* barrier_report.c -- why a barrier did not open, for the program (JSON) and for a person (its
 * "message").
 *
 * Both lists are cut: a job of 100,000 ranks whose switch died needs its first ranks named, not 20 MB of
 * them sent to every rank that came. The counts are always whole. */
#include "diagnosis/barrier_report.h"

#include "hub/json.h"
#include "base/text.h"

#include <cjson/cJSON.h>
#include <inttypes.h>

enum { LINES_MAX = 16, RANKS_MAX = 256 };

/* Ranks that are members and have not come; start with from = 0. Returns world_size at the end. */
static uint32_t next_missing(const struct barrier *barrier, uint32_t from)
{
    while (from < barrier->world_size && (!barrier_needs(barrier, from) || barrier_has(barrier, from)))
        from++;
    return from;
}

/* "  rank 3: never connected", one line for each. What else is known of a rank is in the list of JSON. */
static bool put_lines(const struct barrier *barrier, barrier_facts facts_of, void *user, struct buf *out)
{
    uint32_t missing = barrier->members - barrier->arrived, lines = 0;
    bool ok =
        buf_printf(out, "; %" PRIu32 " of %" PRIu32 " ranks have come", barrier->arrived, barrier->members);
    for (uint32_t rank = next_missing(barrier, 0); ok && rank < barrier->world_size && lines < LINES_MAX;
         rank = next_missing(barrier, rank + 1), lines++) {
        struct rank_facts facts;
        struct finding finding;
        facts_of(user, rank, &facts);
        diagnose_rank(&facts, &finding);
        ok = buf_printf(out, "\n  %s", finding.sentence);
    }
    if (missing > lines)
        ok = ok && buf_printf(out, "\n  and %" PRIu32 " more", missing - lines);
    return ok;
}

static bool put_message(const struct barrier *barrier, struct slice name, barrier_facts facts_of, void *user,
                        const char *because, struct buf *out)
{
    return buf_printf(out, "barrier '") && text_put(out, name, 200) && buf_printf(out, "' %s", because) &&
           (barrier == NULL || put_lines(barrier, facts_of, user, out)) && buf_append(out, "", 1);
}

/* What is known of the rank, and which finding it is. */
static cJSON *missing_row(const struct rank_facts *facts)
{
    cJSON *row = diagnose_json(facts);
    cJSON_AddStringToObject(row, "code", finding_code_name(diagnose_rank_code(facts)));
    return row;
}

static void add_missing(cJSON *o, const struct barrier *barrier, barrier_facts facts_of, void *user)
{
    cJSON *array = cJSON_AddArrayToObject(o, "missing");
    uint32_t n = 0;
    for (uint32_t rank = next_missing(barrier, 0); rank < barrier->world_size && n < RANKS_MAX;
         rank = next_missing(barrier, rank + 1), n++) {
        struct rank_facts facts;
        facts_of(user, rank, &facts);
        json_append(array, missing_row(&facts));
    }
    cJSON_AddNumberToObject(o, "missing_count", barrier->members - barrier->arrived);
}

/* The name goes back as text that JSON can hold; a client compares the bytes it has sent, not this. */
static void add_name(cJSON *o, struct slice name)
{
    struct buf text = { 0 };
    if (text_put(&text, name, name.len) && buf_append(&text, "", 1))
        cJSON_AddStringToObject(o, "barrier", (const char *)text.data);
    buf_free(&text);
}

bool barrier_report(const struct barrier *barrier, struct slice name, barrier_facts facts_of, void *user,
                    enum barrier_outcome outcome, const char *because, struct buf *out)
{
    struct buf message = { 0 };
    cJSON *o = cJSON_CreateObject();
    add_name(o, name);
    if (put_message(barrier, name, facts_of, user, because, &message))
        cJSON_AddStringToObject(o, "message", (const char *)message.data);
    if (outcome != BARRIER_MISUSE)
        add_missing(o, barrier, facts_of, user);
    char *json = cJSON_PrintUnformatted(o);
    bool ok = json != NULL && buf_append(out, json, strlen(json));
    cJSON_free(json);
    cJSON_Delete(o);
    buf_free(&message);
    return ok;
}
