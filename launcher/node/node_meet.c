/* node_meet.c -- see node_core.h. The store is started here or looked for elsewhere, and the job joined.
 *
 * The agent is a client of its own store, over TCP like everybody: with the store on another host nothing changes but
 * the way there. A store in this process dies with it, so its silence is never judged. */
#include "node/host_look.h"
#include "node/node_core.h"

#include "contain/procfs.h"
#include "tables/exit_codes.h"

#include "base/endpoint.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ASK_MS: time for a store that is there to answer; shorter than the first word about waiting. */
enum { BEATS_TO_LOSS = 3, BEAT_MIN_MS = 100, ASK_MS = 1500, TELL_OTHERS_MS = 2000 };

/* The process as other nodes' users may find it. The boot's id tells two machines from two containers of one; without
 * /proc it stays empty and is not compared. An address with a scope ("fe80::1%eth0") reads different elsewhere. */
static struct link_who who_am_i(const char *own)
{
    struct link_who who = { .pid = getpid(), .pid_start = procfs_own_start(), .boot_id = procfs_boot_id() };
    if (strpbrk(own, "%?") == NULL)
        snprintf(who.own, sizeof(who.own), "%.63s", own);
    return who;
}

/* Three beats within the time after which a node counts as lost, so that one that is late, or two, cost
 * nothing. */
static ddp_status open_link(struct node *n, const struct join_dial_found *at, struct ddp_err *err)
{
    const uint64_t timeout_ms = n->plan->meeting.node_timeout_ms, beat_ms = timeout_ms / BEATS_TO_LOSS;
    const struct store_link_options options = { .loop = &n->loop,
                                                .fd = at->fd,
                                                .address = at->address,
                                                .port = at->port,
                                                .plan = n->plan,
                                                .who = who_am_i(at->source),
                                                .beat_ms = beat_ms > BEAT_MIN_MS ? beat_ms : BEAT_MIN_MS,
                                                .silent_ms = n->store != NULL ? 0 : timeout_ms,
                                                .calls = node_store_calls,
                                                .user = n };
    node_expect_answer(n);
    node_offer_port(n);
    return store_link_open(&options, &n->link, err);
}

/* A store of this process: connected to at once, everything goes out with the first bytes. */
static ddp_status join_own(struct node *n, const char *host, int port, struct ddp_err *err)
{
    n->plan->master_port = port;
    if (n->plan->meeting.elsewhere)
        snprintf(n->plan->master_addr, sizeof(n->plan->master_addr), "%s", host);
    struct join_dial_found at = { .fd = -1, .port = port };
    contain_name_store(n->contain, host, port);
    snprintf(at.address, sizeof(at.address), "%s", host);
    return open_link(n, &at, err);
}

/* The address is asked of the server: a port that was in use may have been exchanged for a free one. */
static ddp_status have_store(struct node *n, struct ddp_err *err)
{
    struct endpoint store;
    ddp_status status = store_host_start(n->plan, &n->store, n->port_note, err);
    if (status == DDP_OK)
        status = endpoint_parse(store_server_address(n->store), 0, &store, err);
    return status == DDP_OK ? join_own(n, store.host, store.port, err) : status;
}

/* --- several nodes -------------------------------------------------------------------------------------- */

/* Several lines: the first is the error, the rest its explanation. A report has a line for its code; a sentence gets it
 * behind. */
static void give_up_with(struct node *n, const char *code, const char *words)
{
    size_t len = strcspn(words, "\n");
    if (code == NULL || strstr(words, code) != NULL)
        log_error("%.*s", (int)len, words);
    else
        log_error("%.*s [%s]", (int)len, words, code);
    while (words[len] != '\0') {
        words += len + 1;
        len = strcspn(words, "\n");
        log_info("%.*s", (int)len, words);
    }
    node_finish(n, EXIT_CODE_DDPRUN);
}

static void give_up(struct node *n, const char *words)
{
    give_up_with(n, NULL, words);
}

/* The workers get the address that has just answered, and not the name: it may mean several, of which
 * others are dead, and a thousand workers would ask the name server at the same moment. */
static void on_found(void *user, const struct join_dial_found *found)
{
    struct node *n = user;
    struct ddp_err err;
    snprintf(n->plan->master_addr, sizeof(n->plan->master_addr), "%s", found->address);
    n->plan->master_port = found->port;
    join_dial_close(n->dial);
    n->dial = NULL;
    if (open_link(n, found, &err) != DDP_OK)
        give_up(n, err.msg);
}

static void on_failed(void *user, const char *code, const char *words)
{
    give_up_with(user, code, words);
}

/* Line by line, since each gets a prefix of its own. */
static void on_say(void *user, const char *words)
{
    struct node *n = user;
    while (!n->plan->cli->quiet && *words != '\0') {
        const size_t len = strcspn(words, "\n");
        output_note(n->output, "%.*s", (int)len, words);
        words += len + (words[len] != '\0');
    }
}

/* With a `code` it is only asked whether a store is there at all: then a moment must do, and its sentence
 * is ready. */
static ddp_status dial(struct node *n, const struct store_place *place, struct ddp_err *err)
{
    const struct plan_meeting *m = &n->plan->meeting;
    const struct join_dial_options options = { .loop = &n->loop,
                                               .host = place->host,
                                               .port = place->port,
                                               .master = place->here,
                                               .budget_ms = place->code != NULL ? ASK_MS : m->join_ms,
                                               .knob = m->join_knob,
                                               .who = m->elastic ? "the store" : "node 0's store",
                                               .this_host = n->plan->facts->host,
                                               .note = place->code != NULL ? place->note : place->report_note,
                                               .local_only = m->local_only,
                                               .code = place->code,
                                               .found = on_found,
                                               .failed = on_failed,
                                               .say = on_say,
                                               .user = n };
    contain_name_store(n->contain, place->host, place->port);
    return join_dial_start(&options, &n->dial, err);
}

/* The server is ours as soon as it is named, also when what follows fails: it is stopped with the node. */
static void on_place(void *user, const struct store_place *place)
{
    struct node *n = user;
    struct ddp_err err;
    n->store = place->server;
    if (place->code == NULL)
        on_say(n, place->note); /* now: the others may never come */
    const ddp_status status =
        n->store != NULL ? join_own(n, place->host, place->port, &err) : dial(n, place, &err);
    if (status != DDP_OK)
        give_up(n, err.msg);
}

/* --- a program that is not here ------------------------------------------------------------------------- */

static int missing_code(const struct node *n)
{
    return n->missing == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_RUN;
}

static void give_up_missing(struct node *n)
{
    node_say_not_started(n, n->missing);
    node_finish(n, missing_code(n));
}

/* With a round the attempt reports it, on every node. */
static void on_missing_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    if (n->round == NULL)
        give_up_missing(n);
}

/* A node that the others need joins when it can do so within TELL_OTHERS_MS: then the attempt fails on all nodes with this
 * reason. A job that may begin without this node is not disturbed. */
void node_check_program(struct node *n)
{
    const struct plan_meeting *m = &n->plan->meeting;
    n->missing = m->elsewhere ? spawner_find(&n->spawner) : 0;
    if (n->missing != ENOENT && n->missing != EACCES)
        return;
    if (m->nnodes_max > 1 && m->nnodes_min == m->nnodes_max)
        uv_timer_start(&n->missing_timer, on_missing_timer, TELL_OTHERS_MS, 0);
    else
        give_up_missing(n);
}

/* A single node looks for nothing and waits for nobody: its store listens before the first worker is made. */
ddp_status node_meet(struct node *n, struct ddp_err *err)
{
    const struct store_host_options options = {
        .loop = &n->loop, .plan = n->plan, .found = on_place, .failed = on_failed, .say = on_say, .user = n
    };
    return n->plan->meeting.elsewhere ? store_host_find(&options, &n->host, err) : have_store(n, err);
}
