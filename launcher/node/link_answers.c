/* link_answers.c -- see link_core.h: what the store says, and who is told of it.
 *
 * Answers come in the order of the requests, so counting is enough: the first is IDENTIFY's, and of those that follow
 * the link remembers the number of the latest join. The store may push objects of its own between them, they carry
 * "push". A message about a round that is over meanwhile is refused (STALE_ROUND): it crossed the store's own word
 * about that, and nobody has to know. A refused claim to a connection (VOUCH_REFUSED) is passed over, too: a worker that
 * introduces itself while its agent still answers for it causes one. */
#include "node/link_core.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

/* IDENTIFY's answer, the only one with a status byte in front. */
void link_take_welcome(struct store_link *link, uint8_t status, struct slice text)
{
    char why[512];
    if (status == 0) {
        link->welcome = true;
        return;
    }
    snprintf(why, sizeof(why), "the store refused this agent: %.*s", (int)text.len, (const char *)text.data);
    link_lose(link, why);
}

/* The instance names this life of the job: with it we join again, and a store that was started anew meanwhile sees
 * that we belong to another. */
static void take_join(struct store_link *link, const cJSON *answer)
{
    const char *instance = hear_text(answer, "instance");
    if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(answer, "ok"))) {
        link->options.calls.refused(link->options.user, hear_text(answer, "code"), hear_text(answer, "error"),
                                    hear_text(answer, "advice"));
        return;
    }
    snprintf(link->instance, sizeof(link->instance), "%.*s", LINK_INSTANCE_MAX - 1, instance);
    const double ms = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(answer, "ms"));
    link->options.calls.joined(link->options.user, strcmp(hear_text(answer, "state"), "spare") == 0,
                               link->instance, ms >= 0 && ms < 1e15 ? (uint64_t)ms : 0);
}

/* Any other "no" is a message that the store does not understand or does not believe. To go on would mean a
 * job whose store knows less than we think. */
static void take_no(struct store_link *link, const cJSON *answer)
{
    char why[512];
    const char *error = hear_text(answer, "error"), *code = hear_text(answer, "code");
    if (strcmp(code, "STALE_ROUND") == 0 || strcmp(code, "NO_MEMBER") == 0 ||
        strcmp(code, "VOUCH_REFUSED") == 0)
        return;
    snprintf(why, sizeof(why), "the store said no: %s", error[0] != '\0' ? error : "(no reason)");
    link_lose(link, why);
}

/* Most answers only matter when they say no. */
static void take_reply(struct store_link *link, const cJSON *json)
{
    link->answered++;
    if (link->answered == link->asked_join && cJSON_IsObject(json))
        take_join(link, json);
    else if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "ok")))
        take_no(link, json);
    else if (cJSON_GetObjectItemCaseSensitive(json, "members") != NULL) /* only the status has them */
        link->options.calls.status(link->options.user, json);
}

/* --- pushes --------------------------------------------------------------------------------------------- */

/* Only who has joined since the last one is in a round, their numbers rise, and a given node rank stays. */
static bool is_sane_round(const struct store_link *link, const cJSON *push, struct heard_round *round)
{
    const struct plan *plan = link->options.plan;
    const bool keeps_rank = !plan->meeting.elastic && plan->meeting.node_rank >= 0;
    return hear_round(push, plan->nproc, round) && link->asked_join != link->begun_join &&
           round->round > link->round && (!keeps_rank || round->node_rank == plan->meeting.node_rank);
}

static void push_round(struct store_link *link, const cJSON *push)
{
    struct heard_round *round = malloc(sizeof(*round)); /* too large for a stack */
    if (round == NULL || !is_sane_round(link, push, round)) {
        link_lose(link, round == NULL ? "out of memory" : "it announces a round that makes no sense");
    } else {
        link->round = round->round;
        link->begun_join = link->asked_join;
        link->options.calls.round(link->options.user, round);
    }
    free(round);
}

/* Missing fields are 0 here: it is for a line on the screen, and no decision hangs on it. */
static void push_waiting(struct store_link *link, const cJSON *push)
{
    struct heard_waiting waiting;
    hear_waiting(push, &waiting);
    link->options.calls.waiting(link->options.user, &waiting);
}

/* About another round than ours it says nothing to us: it crossed our own word about that one. */
static void push_stop(struct store_link *link, const cJSON *push)
{
    struct cause cause;
    if (hear_whose_round(push) != link->round)
        return;
    hear_stop(push, &cause);
    link->options.calls.stop(link->options.user, &cause);
}

/* One about a later round ends the wait of a node that is in none. */
static void push_verdict(struct store_link *link, const cJSON *push)
{
    struct heard_verdict verdict;
    if (hear_whose_round(push) < link->round)
        return;
    if (hear_verdict(push, &verdict))
        link->options.calls.verdict(link->options.user, &verdict);
    else
        link_lose(link, "its verdict makes no sense");
}

/* Handed on as it is, and valid during the call only. */
static void push_findings(struct store_link *link, const cJSON *push)
{
    link->options.calls.findings(link->options.user, push);
}

static void push_who(struct store_link *link, const cJSON *push)
{
    const cJSON *conn = cJSON_GetObjectItemCaseSensitive(push, "conn");
    if (cJSON_IsNumber(conn) && conn->valuedouble >= 1 && conn->valuedouble < 1e15)
        link->options.calls.who(link->options.user, (int64_t)conn->valuedouble, hear_text(push, "peer"),
                                hear_text(push, "store"),
                                cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(push, "owner")));
}

/* Handed on as it is: the event log of this node holds the store's events beside its own. */
static void push_event(struct store_link *link, const cJSON *push)
{
    const cJSON *event = cJSON_GetObjectItemCaseSensitive(push, "event");
    if (cJSON_IsObject(event))
        link->options.calls.event(link->options.user, event);
}

/* Its last word to this node. */
static void push_dropped(struct store_link *link, const cJSON *push)
{
    snprintf(link->fate.dropped, sizeof(link->fate.dropped), "%.*s", LINK_DROPPED_MAX - 1,
             hear_text(push, "why"));
    link_lose(link, "the store has given this node up");
}

/* As findings, and for the report as well. */
static void push_left_waiting(struct store_link *link, const cJSON *push)
{
    link->options.calls.left_waiting(link->options.user, push);
}

/* What the store tells unasked. Kinds that we do not know are of a newer store and passed over. */
static void take_push(struct store_link *link, const cJSON *push)
{
    static const struct {
        const char *kind;
        void (*take)(struct store_link *link, const cJSON *push);
    } kinds[] = {
        { "round", push_round },     { "waiting", push_waiting },           { "stop", push_stop },
        { "verdict", push_verdict }, { "findings", push_findings },         { "who", push_who },
        { "event", push_event },     { "left_waiting", push_left_waiting }, { "dropped", push_dropped },
    };
    const char *kind = hear_text(push, "push");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kind, kinds[i].kind) == 0)
            kinds[i].take(link, push);
}

/* Pushed objects are no answers and must not be counted as such. */
void link_take_answer(struct store_link *link, struct slice text)
{
    cJSON *json = cJSON_ParseWithLength(text.data, text.len);
    if (cJSON_GetObjectItemCaseSensitive(json, "push") != NULL)
        take_push(link, json);
    else
        take_reply(link, json);
    cJSON_Delete(json);
}
