/* node.c -- see guardian.h and node.h: the agent process from start to end. This file has the timer, the steps to
 * join the job, and the order of opening and freeing. The order matters: errors of the user are reported before a
 * port is bound, and no callback may run after its data was freed. */

#include "auth/secret.h"
#include "auth/tls.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/timed_call.h"
#include "contain/descendants.h"
#include "contain/procfs.h"
#include "node/guardian.h"
#include "node/node.h"
#include "output/log_files.h"
#include "report/host_checks.h"
#include "base/exit_codes.h"
#include "node/effects.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Return true if the timer is much too late, which means that this process was paused. The caller then checks no
 * deadline, so that the loop first handles the events that arrived during the pause. The timer fires again after
 * CLOCK_CATCH_UP_MS. */
static bool stood_still(struct node *n)
{
    n->caught_up = !n->caught_up && clock_ms() > n->due_ms + STOOD_STILL_MS;
    if (n->caught_up)
        uv_timer_start(&n->timer, n->on_timer, CLOCK_CATCH_UP_MS, 0);
    return n->caught_up;
}

/* Return the local rank of a worker that the kernel is still cleaning up after its end. Return -1 if no such worker
 * exists. */
static int find_dying(const struct node *n)
{
    struct proc_stat stat;
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->run.pids[i] != 0 && procfs_stat(n->run.pids[i], &stat) && proc_stat_is_dying(&stat))
            return i;
    return -1;
}

/* Pass AGENT_TICK to the agent. find_dying() reads /proc, so call it only in AGENT_SETTLING. In other states the agent
 * does not use `dying`. */
static void tick(struct node *n)
{
    const int dying = agent_state(n->agent) == AGENT_SETTLING ? find_dying(n) : -1;
    node_handle_event(n, (struct agent_event){
                             .type = AGENT_TICK, .local_rank = dying >= 0 ? dying : 0, .dying = dying >= 0 });
}

/* Handle a deadline that has passed. First check the deadline of the store's answer and the deadline for a slow reader
 * of the output, because their handlers may end the node. node_run_effects() sets the timer for the next deadline. */
static void node_on_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    if (stood_still(n))
        return;
    if (clock_ms() >= n->meet.store_deadline_ms) {
        node_on_lost(n, "the store did not answer in time (--timeout)");
        return;
    }
    if (clock_ms() >= n->out.unread_deadline_ms) {
        node_leave_output(n);
        return;
    }
    tick(n);
    node_run_effects(n);
}

/* --- joining the job ------------------------------------------------------------------------------------ */

/* Start the store here or find it on another host, and join the job. The agent connects by TCP even to a store in its
 * own process. */

enum {
    /* How long a node waits for a store in another process, if the node should host the store but cannot. This time is
     * shorter than the time until the first message about waiting, so that no such message is printed. */
    ASK_MS = 1500,
    /* How long to wait for a round if the program cannot be started here, and the job cannot begin without this node.
     * If a round begins in this time, all nodes report why this node cannot start the program. */
    MISSING_MS = 2000,
    /* warn the user if more connections than this have ended without the store's answer to IDENTIFY */
    QUIET_JOINS = 5,
    /* A node that cannot host the store exits when all other nodes have received the reason. After REFUSE_MS, it also
     * exits if nnodes_min nodes know the reason, or if the other nodes probably do not dial this host. In any case it
     * exits at the end of --timeout. */
    REFUSE_MS = 10000,
    REFUSE_CHECK_MS = 50 /* time between checks whether the other nodes have received this node's failure */
};

/* Return the identity of this process, for the join message. The boot id identifies the machine; without /proc the boot
 * id is empty. An address with a scope ("fe80::1%eth0") is left out, because the name of the interface has no meaning
 * on other hosts. */
static struct link_who who_am_i(const char *own)
{
    struct link_who who = { .pid = getpid(), .pid_start = procfs_own_start(), .boot_id = procfs_boot_id() };
    if (strpbrk(own, "%?") == NULL)
        snprintf(who.own, sizeof(who.own), "%.63s", own);
    return who;
}

/* Print each line separately, because output_note() prefixes only one line. Print nothing with --quiet. */
static void print_lines(const struct node *n, const char *words)
{
    for (const char *at = words; !n->plan->cli->quiet && *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        output_note(n->out.output, "%.*s", (int)len, at);
        at += len + (at[len] != '\0');
    }
    if (!n->plan->cli->quiet)
        announce_hint(&n->out.announce, finding_named_in(words));
}

static void print_warning(struct node *n, const struct finding *f)
{
    const char *code = finding_code_name(f->code);
    output_note(n->out.output, "warning: %s; %s  [%s]", f->sentence, f->advice, code);
    announce_hint(&n->out.announce, code);
}

/* Print a message about waiting, and send it to the other hosts. */
static void on_print(void *user, const char *words)
{
    struct node *n = user;
    node_send_wait(n, words);
    print_lines(n, words);
}

/* --- a broken connection ---------------------------------------------------------------------------------- */

/* End the running attempt to connect (the dial), if any. A callback of the dial may call this function. */
static void end_dial(struct node *n)
{
    join_dial_close(n->meet.dial);
    n->meet.dial = NULL;
}

static void on_found(void *user, const struct join_dial_found *found);
static void on_dial_failed(void *user, const char *code, const char *words);

/* Pass the new socket to the link. The link sends the token of the join, which proves that the connection belongs to
 * this node. The link then sends again the requests that the store has not confirmed. The local address may differ
 * from the address of the broken connection. */
static void on_found_again(void *user, const struct join_dial_found *found)
{
    struct node *n = user;
    const struct link_who who = who_am_i(found->source);
    end_dial(n);
    n->meet.n_resumes++;
    snprintf(n->meet.lookup.own, sizeof(n->meet.lookup.own), "%s", who.own);
    store_link_resume(n->meet.link, found->fd, found->tls, who.own);
}

/* End the dial without a message, because the link reports the lost connection at the same time. */
static void on_not_found_again(void *user, const char *code, const char *words)
{
    (void)code, (void)words;
    end_dial(user);
}

/* Every IPv4 path carries TCP segments of this size, in bytes (RFC 879). If a path loses large packets, a later
 * connection limits its segments to this size. */
enum { SMALL_SEGMENT = 536 };

/* Record the size of the segments that the silent connection could not deliver. Limit later connections to small
 * segments if the caller is sure that the path loses large segments, or if this is the second silent connection. One
 * silence may be only a short failure of the network. */
static void note_silence(struct node *n, bool is_sure)
{
    const struct link_fate *fate = store_link_fate(n->meet.link);
    if (fate->stuck_bytes <= SMALL_SEGMENT)
        return;
    n->meet.has_small_segments = n->meet.has_small_segments || is_sure || n->meet.stuck_bytes > 0;
    n->meet.stuck_bytes = fate->stuck_bytes;
    n->meet.stuck_times = fate->stuck_times;
}

/* Report to all nodes, only once, that the path from this node to the store's host loses large packets. The packets of
 * the workers on this path are large, too, so they would be lost. */
static void report_path(struct node *n)
{
    char path[FINDING_SUBJECT_MAX], large[16], times[16], small[16];
    struct finding f;
    if (!n->meet.has_small_segments || n->meet.path_reported)
        return;
    n->meet.path_reported = true;
    snprintf(path, sizeof(path), "the path from %.60s to %.60s", n->plan->facts->host, n->plan->master_addr);
    snprintf(large, sizeof(large), "%d", n->meet.stuck_bytes);
    snprintf(times, sizeof(times), "%d", n->meet.stuck_times);
    snprintf(small, sizeof(small), "%d", SMALL_SEGMENT);
    finding_make(&f, FINDING_PATH_LOSES_LARGE, path, "large", large, "times", times, "small", small,
                 "address", n->plan->master_addr, NULL);
    print_warning(n, &f);
    store_link_send(n->meet.link, encode_notice(&f));
}

/* Dial the store again. Use the store's numeric address, because the fault that broke the connection may affect the
 * name server, too. `budget_ms` is the timeout, and `knob` is the option that sets this timeout. */
static void dial_again(struct node *n, uint64_t budget_ms, const char *knob,
                       void (*found)(void *user, const struct join_dial_found *found))
{
    struct ddp_err err;
    const struct plan_meeting *m = &n->plan->meeting;
    const struct join_dial_options options = { .loop = &n->loop,
                                               .host = n->plan->master_addr,
                                               .port = n->plan->master_port,
                                               .budget_ms = budget_ms,
                                               .knob = knob,
                                               .n_failed = n->meet.n_resumes,
                                               .max_segment = n->meet.has_small_segments ? SMALL_SEGMENT : 0,
                                               .who = m->elastic ? "the store" : "node 0's store",
                                               .this_host = n->plan->facts->host,
                                               .tls = n->meet.tls,
                                               .found = found,
                                               .failed = found == on_found_again ? on_not_found_again
                                                                                 : on_dial_failed,
                                               .print = on_print,
                                               .user = n };
    end_dial(n);
    if (join_dial_start(&options, &n->meet.dial, &err) != DDP_OK)
        output_note(n->out.output, "warning: %s", err.msg);
}

/* Handle a broken or silent connection to the store. `why` is the reason of the break, or NULL if the connection is
 * only silent. Warn only about a broken connection, because a silent connection may recover. The store keeps this node
 * as a member for --node_timeout, so dial for the same time. */
static void on_broken(void *user, const char *why)
{
    struct node *n = user;
    char limit[TEXT_MS_MAX];
    if (n->meet.broken_ms == 0)
        n->meet.broken_ms = clock_ms();
    if (why != NULL) {
        n->meet.break_reported = true;
        output_note(n->out.output,
                    "warning: the connection to the store at %s:%d broke: %s; the job continues if the "
                    "connection is restored within %s (--node_timeout)",
                    n->plan->master_addr, n->plan->master_port, why,
                    text_ms(n->plan->meeting.node_timeout_ms, limit));
    }
    note_silence(n, false);
    dial_again(n, n->plan->meeting.node_timeout_ms, "--node_timeout", on_found_again);
}

/* Handle a connection that works again. Print a message only if a warning was printed before, or if ddprun had to open
 * a new connection. */
static void on_restored(void *user)
{
    struct node *n = user;
    char time[TEXT_MS_MAX];
    end_dial(n);
    if (n->meet.break_reported || n->meet.n_resumes > 0)
        output_note(n->out.output, "the connection to the store at %s:%d works again after %s",
                    n->plan->master_addr, n->plan->master_port,
                    text_ms(clock_ms() - n->meet.broken_ms, time));
    n->meet.broken_ms = n->meet.n_resumes = 0;
    n->meet.break_reported = false;
    node_send_no_wait(n);
    report_path(n);
}

/* Handle the loss of the link. Before the first round, dial again in two cases, until --timeout ends:
 *
 *   - The store is silent. The reason may be that the packets with the join are too large for the path.
 *   - The connection has ended without an answer to IDENTIFY. A store drops connections if hundreds of nodes arrive at
 *     once. */
static void on_link_lost(void *user, const char *why)
{
    struct node *n = user;
    const uint64_t now_ms = clock_ms();
    const bool is_joining = agent_state(n->agent) == AGENT_GATHERING && n->meet.round == NULL;
    const struct link_fate *fate = store_link_fate(n->meet.link);
    if (!is_joining || !(fate->is_silent || fate->is_unheard) || now_ms >= n->meet.join_until_ms) {
        node_on_lost(user, why);
        return;
    }
    if (fate->is_silent)
        note_silence(n, true);
    else
        n->meet.n_resumes++;
    if (fate->is_silent || n->meet.n_resumes > QUIET_JOINS)
        output_note(
            n->out.output,
            "warning: the store at %s:%d does not answer this node's request to join: %s; trying again",
            n->plan->master_addr, n->plan->master_port, why);
    node_expect_nothing(n);
    store_link_close(n->meet.link);
    n->meet.link = NULL;
    dial_again(n, n->meet.join_until_ms - now_ms, n->plan->meeting.join_knob, on_found);
}

/* Warn if this node has joined a store that has no secret, which is possible if ddprun was started as torchrun. The
 * node that hosts the store warns about its own store. */
static void report_open_store(struct node *n)
{
    char store[FINDING_SUBJECT_MAX];
    struct finding f;
    if (n->meet.link == NULL || !n->meet.link->is_open || n->meet.store != NULL || n->meet.round != NULL)
        return;
    snprintf(store, sizeof(store), "the store at %.64s:%d", n->meet.link->options.address,
             n->meet.link->options.port);
    finding_make(&f, FINDING_STORE_IS_OPEN, store, "why", "", NULL);
    print_warning(n, &f);
}

/* Handle the answer to a join. The store is reachable now, so withdraw earlier findings about an unreachable store.
 * Call report_path() only now, because the store accepts a finding only from a node that has joined. Call
 * report_open_store() only now, because a store without a secret may reject the join. */
static void on_joined(void *user, bool spare, const char *instance, uint64_t store_ms)
{
    struct node *n = user;
    n->meet.n_resumes = 0;
    node_store_calls.joined(user, spare, instance, store_ms);
    node_send_no_wait(user);
    report_path(user);
    report_open_store(user);
}

/* Open the link. For a store in this process silent_ms is 0 (no limit), because only a busy machine can make this
 * store silent. */
static ddp_status open_link(struct node *n, const struct join_dial_found *at, struct ddp_err *err)
{
    const uint64_t timeout_ms = n->plan->meeting.node_timeout_ms;
    struct store_link_options options = { .loop = &n->loop,
                                          .fd = at->fd,
                                          .tls = at->tls,
                                          .address = at->address,
                                          .port = at->port,
                                          .plan = n->plan,
                                          .who = who_am_i(at->source),
                                          .beat_ms = limit_beat_ms(timeout_ms),
                                          .silent_ms = n->meet.store != NULL ? 0 : timeout_ms,
                                          .calls = node_store_calls,
                                          .user = n };
    options.calls.broken = on_broken;
    options.calls.restored = on_restored;
    options.calls.joined = on_joined;
    options.calls.lost = on_link_lost;
    snprintf(n->meet.lookup.own, sizeof(n->meet.lookup.own), "%s", options.who.own);
    node_expect_answer(n);
    node_offer_port(n);
    return store_link_open(&options, &n->meet.link, err);
}

/* Join the store in this process. With several nodes, the address of the store becomes MASTER_ADDR here, as on all
 * other nodes. */
static ddp_status join_own(struct node *n, const char *host, int port, struct ddp_err *err)
{
    n->plan->master_port = port;
    if (n->plan->meeting.elsewhere)
        snprintf(n->plan->master_addr, sizeof(n->plan->master_addr), "%s", host);
    struct join_dial_found at = { .fd = -1, .port = port };
    contain_name_store(n->run.contain, host, port);
    snprintf(at.address, sizeof(at.address), "%s", host);
    return open_link(n, &at, err);
}

/* Start the store of a single node, and join it. The port is read from the server, because the store uses a free port
 * if the planned port is in use. */
static ddp_status have_store(struct node *n, struct ddp_err *err)
{
    struct endpoint store;
    ddp_status status = store_host_start(n->plan, &n->meet.store, n->meet.port_note, err);
    if (status == DDP_OK)
        status = endpoint_parse(store_server_address(n->meet.store), 0, &store, err);
    return status == DDP_OK ? join_own(n, store.host, store.port, err) : status;
}

/* --- several nodes -------------------------------------------------------------------------------------- */

/* Print why this node cannot join. The first line of `words` is the error. If `words` does not contain the code, print
 * the code at the end of this line. */
static void print_failure(const char *code, const char *words)
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
    log_explain(code);
}

/* Print why this node cannot join, send the reason to the other hosts of --hosts, and exit. */
static void give_up_joining(struct node *n, const char *code, const char *words)
{
    print_failure(code, words);
    node_send_end(n, code, words);
    node_finish(n, EXIT_CODE_DDPRUN);
}

/* Exit when every other node has received the failure of this node, or at refusing_until_ms. An elastic job may never
 * reach its maximum number of nodes. So after REFUSE_MS, exit when nnodes_min nodes, including this node, know the
 * failure. */
static void on_refusing_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    const struct plan_meeting *m = &n->plan->meeting;
    const int n_received = refusing_store_count(n->meet.refusing);
    const uint64_t now_ms = clock_ms();
    if (n_received >= m->nnodes_max - 1 || now_ms >= n->meet.refusing_until_ms ||
        (n_received + 1 >= m->nnodes_min && now_ms >= n->meet.refusing_since_ms + REFUSE_MS))
        node_finish(n, EXIT_CODE_DDPRUN);
}

/* Send the failure of this node to each other node that dials, until the end of --timeout, so that these nodes give up,
 * too. In two cases, the other nodes probably do not dial this host, so wait only for REFUSE_MS:
 *
 *   - The address of the endpoint is not on this host.
 *   - This node has no secret. Usually the other nodes have no secret, either, so they do not dial. */
static void begin_refusing(struct node *n, const struct host_failure *failure)
{
    const struct plan_meeting *m = &n->plan->meeting;
    const uint64_t now_ms = clock_ms(), end_ms = n->started_ms + m->join_ms;
    const uint64_t until_ms = end_ms > now_ms ? end_ms : now_ms;
    const bool is_short =
        until_ms > now_ms + REFUSE_MS &&
        (n->meet.should_host || strcmp(failure->code, finding_code_name(FINDING_NO_SECRET)) == 0);
    char limit[TEXT_MS_MAX];
    n->meet.refusing_since_ms = now_ms;
    n->meet.refusing_until_ms = is_short ? now_ms + REFUSE_MS : until_ms;
    if (!n->plan->cli->quiet && n->meet.refusing_until_ms > now_ms)
        log_info("this node waits at most %s%s%s%s for the other node%s to receive this error; Ctrl-C ends "
                 "the wait",
                 text_ms(n->meet.refusing_until_ms - now_ms, limit), is_short ? "" : " (the rest of ",
                 is_short ? "" : m->join_knob, is_short ? "" : ")", m->nnodes_max == 2 ? "" : "s");
    uv_timer_start(&n->meet.refusing_timer, on_refusing_timer, REFUSE_CHECK_MS, REFUSE_CHECK_MS);
}

/* Print why this node cannot host the store, and send the reason to the other nodes. With --hosts, the relay sends the
 * reason. Otherwise the other nodes dial the store's port, so this node answers there with the reason, if the port is
 * free. */
static void on_host_failed(void *user, const struct host_failure *failure)
{
    struct node *n = user;
    struct ddp_err err;
    print_failure(failure->code, failure->words);
    node_send_end(n, failure->code, failure->words);
    if (n->meet.has_news_socket || n->plan->meeting.nnodes_max < 2 || failure->at == NULL ||
        refusing_store_start(n->plan, failure, &n->meet.refusing, &err) != DDP_OK) {
        node_finish(n, EXIT_CODE_DDPRUN);
        return;
    }
    begin_refusing(n, failure);
}

/* Start the TLS relay for the workers, if the store encrypts. A store on this host needs no relay: connections to this
 * store do not use the network, and the store checks the uid of each client. */
static ddp_status open_relay(struct node *n, const struct join_dial_found *found, struct ddp_err *err)
{
    const struct tls_relay_options options = { .loop = &n->loop,
                                               .tls = n->meet.tls,
                                               .address = found->address,
                                               .port = found->port,
                                               .own = found->source };
    if (found->tls == NULL || n->meet.relay != NULL || strcmp(found->address, found->source) == 0)
        return DDP_OK;
    if (tls_relay_open(&options, &n->meet.relay, err) != DDP_OK)
        return err->code;
    n->plan->relay_addr = tls_relay_address(n->meet.relay);
    n->plan->relay_port = tls_relay_port(n->meet.relay);
    return DDP_OK;
}

/* Open the link to the store that was found. Give the workers the numeric address of the store, so that a thousand
 * workers do not query the name server at the same time. If MUNGE has delivered a secret, the node now owns the secret
 * and the TLS context. */
static void on_found(void *user, const struct join_dial_found *found)
{
    struct node *n = user;
    struct ddp_err err;
    snprintf(n->plan->master_addr, sizeof(n->plan->master_addr), "%s", found->address);
    n->plan->master_port = found->port;
    end_dial(n);
    n->meet.should_host = false;
    if (found->secret != NULL) {
        n->plan->secret = found->secret;
        n->meet.tls = found->context;
    }
    if (open_link(n, found, &err) != DDP_OK || open_relay(n, found, &err) != DDP_OK)
        give_up_joining(n, NULL, err.msg);
}

/* Exit, because no store answers. If this node should host the store, first send the reason to the other nodes. */
static void on_dial_failed(void *user, const char *code, const char *words)
{
    struct node *n = user;
    if (n->meet.should_host)
        on_host_failed(n, &(struct host_failure){ .code = code, .words = words, .at = "" });
    else
        give_up_joining(n, code, words);
}

/* Connect to the store. If place->code is not NULL, this node should host the store but cannot. In this case, wait only
 * ASK_MS for a store in another process, and fail with place->note if no store answers. */
static ddp_status dial(struct node *n, const struct store_place *place, struct ddp_err *err)
{
    const struct plan_meeting *m = &n->plan->meeting;
    const bool asks = place->code != NULL && m->join_ms > ASK_MS;
    const struct join_dial_options options = { .loop = &n->loop,
                                               .host = place->host,
                                               .port = place->port,
                                               .master = place->here,
                                               .budget_ms = asks ? ASK_MS : m->join_ms,
                                               .knob = asks ? NULL : m->join_knob,
                                               .who = m->elastic ? "the store" : "node 0's store",
                                               .this_host = n->plan->facts->host,
                                               .tls = n->meet.tls,
                                               .munge_job = plan_asks_for_key(n->plan) ? n->plan->job : NULL,
                                               .note = place->code != NULL ? place->note : place->report_note,
                                               .local_only = m->local_only,
                                               .code = place->code,
                                               .found = on_found,
                                               .failed = on_dial_failed,
                                               .print = on_print,
                                               .user = n };
    n->meet.should_host = place->code != NULL;
    n->meet.join_until_ms = clock_ms() + m->join_ms;
    contain_name_store(n->run.contain, place->host, place->port);
    return join_dial_start(&options, &n->meet.dial, err);
}

/* Join the store at the place that was found. From now on this node owns the server in place->server, if any, and
 * stops the server at the end. */
static void on_place(void *user, const struct store_place *place)
{
    struct node *n = user;
    struct ddp_err err;
    n->meet.store = place->server;
    if (place->code == NULL)
        print_lines(n, place->note); /* print this before the wait for other nodes, which may be long */
    const ddp_status status =
        n->meet.store != NULL ? join_own(n, place->host, place->port, &err) : dial(n, place, &err);
    if (status != DDP_OK)
        give_up_joining(n, NULL, err.msg);
}

/* --- a program that does not exist ---------------------------------------------------------------------- */

/* Return the exit code that a shell uses: 127 for a missing program, 126 for a program that cannot be executed. */
static int missing_code(const struct node *n)
{
    return n->meet.missing == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_RUN;
}

/* Exit before a round, because the program is missing. The other hosts of --hosts get the reason. */
static void give_up_missing(struct node *n)
{
    struct buf words = { 0 };
    if (node_print_not_started(n, n->meet.missing, &words))
        node_send_end(n, NULL, (const char *)words.data);
    buf_free(&words);
    node_finish(n, missing_code(n));
}

/* Handle the timeout of a node that cannot start the program. If no round has begun within MISSING_MS, exit. If a round
 * has begun, do nothing: its attempt fails on all nodes, because this node cannot start the program. */
static void on_missing_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    if (n->meet.round == NULL)
        give_up_missing(n);
}

/* Check that the program exists, before this node waits for others. If the program is missing, exit at once. But a job
 * with a fixed number of two or more nodes cannot begin without this node. In this case, join the job, so that the
 * attempt fails on all nodes with this reason. Exit if no round begins within MISSING_MS. */
static void check_program(struct node *n)
{
    const struct plan_meeting *m = &n->plan->meeting;
    n->meet.missing = m->elsewhere ? spawner_find(&n->run.spawner) : 0;
    if (n->meet.missing != ENOENT && n->meet.missing != EACCES)
        return;
    if (m->nnodes_max > 1 && m->nnodes_min == m->nnodes_max)
        uv_timer_start(&n->meet.missing_timer, on_missing_timer, MISSING_MS, 0);
    else
        give_up_missing(n);
}

/* Join the job. If the store cannot be on another host, start the store here first. */
static ddp_status join_job(struct node *n, struct ddp_err *err)
{
    const struct store_host_options options = { .loop = &n->loop,
                                                .plan = n->plan,
                                                .found = on_place,
                                                .failed = on_host_failed,
                                                .print = on_print,
                                                .user = n };
    return n->plan->meeting.elsewhere ? store_host_find(&options, &n->meet.host, err) : have_store(n, err);
}

/* --- the node itself ------------------------------------------------------------------------------------ */

/* The events and effects of a job without a failure: store and link -> a round -> AGENT_START -> EFFECT_SPAWN ... ->
 * SIGCHLD -> AGENT_EXITED ... -> AGENT_ALONE -> the verdict -> EFFECT_FINISH -> the output is drained -> report ->
 * exit code. */

enum {
    LOG_DIR_MS = 8000, /* time limit for creating the log directory, because its file server may hang */
    /* How long the store serves the other nodes after the end of the job, because they may still need the verdict:
     *
     *   - LINGER_STOPPED_MS: the user has stopped the job
     *   - LINGER_REFUSED_MS: this node was rejected, and the store may have to reject other nodes
     *   - LINGER_MS: in all other cases */
    LINGER_MS = 5000,
    LINGER_STOPPED_MS = 2000,
    LINGER_REFUSED_MS = 3000
};

/* Print a warning of the event log. If the output is not open, print the warning on stderr. */
static void on_event_log_trouble(void *user, const char *words)
{
    struct node *n = user;
    if (n->out.output != NULL && !n->ended)
        output_note(n->out.output, "%s", words);
    else
        log_info("%s", words);
}

/* Open the handles, signals first, so that no stop by the user is missed. node_finish() closes all these handles, so
 * all must be initialized before anything else can fail. */
static bool init_handles(struct node *n, int lifeline)
{
    if (!node_watch_signals(n, lifeline))
        return false;
    uv_timer_init(&n->loop, &n->timer);
    uv_timer_init(&n->loop, &n->meet.waiting_timer);
    uv_timer_init(&n->loop, &n->meet.lookup_timer);
    uv_timer_init(&n->loop, &n->meet.port_timer);
    uv_timer_init(&n->loop, &n->meet.missing_timer);
    uv_timer_init(&n->loop, &n->meet.refusing_timer);
    uv_idle_init(&n->loop, &n->more);
    n->timer.data = n->meet.waiting_timer.data = n->meet.lookup_timer.data = n->meet.port_timer.data =
        n->meet.missing_timer.data = n->meet.refusing_timer.data = n->more.data = n;
    return true;
}

/* Copy the options that the agent needs, because the agent does not read the command line. In a job of several nodes,
 * settle_ms is longer than the node timeout, because the node of a lost peer may be lost, too. The store reports a lost
 * node only after this timeout. With an event log, `alone` is false even if the job has one node. The agent then waits
 * for the store's verdict, which the log needs. */
static struct agent_options agent_options_of(const struct plan *plan)
{
    const struct cli *cli = plan->cli;
    const uint64_t loss_ms = plan->meeting.node_timeout_ms + AGENT_DOUBT_MS;
    return (struct agent_options){ .nproc = plan->nproc,
                                   .grace_ms = cli->grace_ms,
                                   .settle_ms = plan->meeting.nnodes_max > 1 ? loss_ms : 0,
                                   .wait_peers_ms = cli->exit_barrier_ms,
                                   .exit_policy = cli->exit_policy,
                                   .max_restarts = cli->max_restarts,
                                   .alone = !plan->meeting.elsewhere && cli->events == NULL };
}

/* Run the loop twice: the first pass connects, the second pass sends the greeting. The store's thread then answers
 * while this thread prepares the attempt. */
static void send_greeting(struct node *n)
{
    for (int turn = 0; turn < 2 && !n->ended; turn++)
        uv_run(&n->loop, UV_RUN_NOWAIT);
}

/* Prepare the first attempt without waiting for the store's answer, if the ranks are already known. If this fails, for
 * example because a log file exists already, end the store before the connection to the store is closed. Otherwise the
 * store could report the end of this connection as a second error. */
static ddp_status make_ready(struct node *n, struct ddp_err *err)
{
    const struct plan_round first = plan_same_round(n->plan, 0);
    if (!n->plan->settled)
        return DDP_OK;
    ddp_status status = node_begin_attempt(n, &first, err);
    if (status == DDP_OK)
        node_begin_prepared(n);
    else
        store_server_begin_stop(n->meet.store);
    return status;
}

/* The data of the thread that creates the log directory. The thread may outlive the node. */
struct log_dir_work {
    char *root;
    bool latest;
    struct ddp_err err;
    ddp_status status;
};

static void log_dir_run(void *user)
{
    struct log_dir_work *work = user;
    work->status = logdir_make(work->root, work->latest, &work->err);
}

static void log_dir_free(void *user)
{
    struct log_dir_work *work = user;
    free(work->root);
    free(work);
}

/* Create the log directory on a thread, because mkdir may block if the file system does not answer. */
static ddp_status make_log_dir(struct plan *plan, struct ddp_err *err)
{
    if (plan->log_root == NULL)
        return DDP_OK;
    struct log_dir_work *work = calloc(1, sizeof(*work));
    char *root = strdup(plan->log_root);
    if (work == NULL || root == NULL) {
        free(work);
        free(root);
        return ddp_fail(err, DDP_ERR_NOMEM, "log directory: cannot create: out of memory");
    }
    *work = (struct log_dir_work){ .root = root,
                                   .latest = plan->cli->log_dir != NULL && plan->cli->log_name == NULL };
    if (!timed_call_run(log_dir_run, log_dir_free, work, LOG_DIR_MS))
        return ddp_fail(
            err, DDP_ERR_IO,
            "%s: cannot create the log directory: the file system has not answered for %d s; check the "
            "file system, or set another --log_dir",
            plan->cli->log_dir != NULL ? plan->cli->log_dir : plan->log_root, LOG_DIR_MS / 1000);
    const ddp_status status = work->status;
    if (err != NULL && status != DDP_OK)
        *err = work->err;
    log_dir_free(work);
    return status;
}

/* Compile the regular expression of --progress, which cli/values.c has checked. Return false if memory is short. */
static bool open_progress(struct node *n)
{
    const char *text = n->plan->cli->progress;
    const bool has_regex =
        text != NULL && regcomp(&n->out.progress_regex, text, REG_EXTENDED | REG_NOSUB) == 0;
    n->out.progress.n = n->plan->nproc;
    n->out.progress.regex = has_regex ? &n->out.progress_regex : NULL;
    return has_regex == (text != NULL);
}

static void close_progress(struct node *n)
{
    if (n->out.progress.regex != NULL)
        regfree(&n->out.progress_regex);
    progress_reset(&n->out.progress);
}

/* Look for signs of progress in output that was just read. */
static void on_printed(void *user, int local_rank, int stream, struct slice bytes)
{
    struct node *n = user;
    progress_add(&n->out.progress, local_rank, stream == STD_ERR, bytes, clock_ms());
}

/* Open all parts of the node. Open the user's files first, so that an error in these files is reported before a port is
 * bound. node_finish() and close_node() close everything, also after a failure in a later step. */
static ddp_status open_node(struct node *n, struct ddp_err *err)
{
    const struct agent_options options = agent_options_of(n->plan);
    const struct output_options output = { .loop = &n->loop,
                                           .plan = n->plan,
                                           .started_ms = n->started_ms,
                                           .idle = node_on_output_idle,
                                           .printed = on_printed,
                                           .user = n };
    n->run.pids = calloc((size_t)n->plan->nproc, sizeof(*n->run.pids));
    n->run.asked = calloc((size_t)n->plan->nproc, sizeof(*n->run.asked));
    n->run.known = calloc((size_t)n->plan->nproc, sizeof(*n->run.known));
    n->run.steps = calloc((size_t)n->plan->nproc, sizeof(*n->run.steps));
    if (n->plan->cli->secret_file != NULL &&
        secret_read(n->plan->cli->secret_file, &n->plan->secret, err) != DDP_OK)
        return DDP_ERR_ARG;
    if (n->plan->encrypt && n->plan->secret != NULL &&
        tls_context_open(TLS_CLIENT, n->plan->secret, n->plan->job, &n->meet.tls, err) != DDP_OK)
        return err->code;
    n->agent = agent_new(&options);
    if (n->run.pids == NULL || n->run.asked == NULL || n->run.known == NULL || n->run.steps == NULL ||
        n->agent == NULL || !open_progress(n))
        return ddp_fail(err, DDP_ERR_NOMEM, "%d workers: cannot manage them: out of memory", n->plan->nproc);
    ddp_status status = spawner_init(&n->run.spawner, n->plan, err);
    if (status == DDP_OK)
        status = make_log_dir(n->plan, err);
    if (status == DDP_OK)
        status = output_new(&output, &n->out.output, err);
    if (status == DDP_OK)
        status = input_new(&n->loop, n->plan, n->guardian, &n->out.input, err);
    if (status == DDP_OK)
        status = node_open_timers(n, err);
    /* Set `announce` even after an error, because node_finish() needs it to print the end of the job. */
    n->out.announce =
        (struct announce){ .plan = n->plan, .output = n->out.output, .started_ms = n->started_ms };
    if (n->plan->cli->events != NULL)
        n->out.announce.events = event_log_new(n->plan, on_event_log_trouble, n);
    announce_launched(&n->out.announce);
    n->run.spawner.output = n->out.output;
    n->run.spawner.contain = n->run.contain;
    n->run.spawner.input = n->out.input;
    exits_open(&n->run.exits);
    if (status == DDP_OK)
        check_program(n);
    /* check_program() has set `ended` if this node must exit at once, because the program is missing. */
    if (status == DDP_OK && !n->ended)
        n->run.n_busy_gpus = gpu_warn(n->plan, n->run.busy_gpus);
    if (status == DDP_OK && !n->ended)
        status = join_job(n, err);
    /* Create the evidence before make_ready(), because make_ready() may begin an attempt, and an attempt uses the
     * evidence. */
    n->run.evidence = evidence_new(contain_mounts(n->run.contain), contain_groups(n->run.contain),
                                   n->run.spawner.nofile.rlim_cur);
    if (status == DDP_OK && !n->ended)
        send_greeting(n);
    return status == DDP_OK && !n->ended ? make_ready(n, err) : status;
}

/* Keep the store running for a short time, because other nodes may still need the verdict. After a stop by the user,
 * the time is shorter. */
static void wait_for_peers(struct node *n)
{
    /* this node was rejected, and its store may still have to send rejections to other nodes */
    if (n->meet.store != NULL && n->meet.refused)
        store_server_wait_nodes(n->meet.store, LINGER_REFUSED_MS);
    const bool others = n->meet.round != NULL && n->meet.round->nnodes > 1;
    if (n->meet.store != NULL && (others || n->meet.waiting.joined > 1))
        store_server_wait_nodes(n->meet.store,
                                agent_stop_signal(n->agent) != 0 ? LINGER_STOPPED_MS : LINGER_MS);
}

/* Free all parts of the node. Close the loop first, because callbacks of its handles use the other parts. Request the
 * end of the store before most parts are freed, so that the store's thread ends while this thread frees them.
 * Remove the agent's control group if this group is empty. */
static void close_node(struct node *n)
{
    uv_loop_close(&n->loop);
    if (n->meet.held_port >= 0)
        close(n->meet.held_port);
    input_free(n->out.input);
    refusing_store_stop(n->meet.refusing);
    wait_for_peers(n);
    store_server_begin_stop(n->meet.store);
    agent_free(n->agent);
    evidence_free(n->run.evidence);
    node_drop_gpu_call(n);
    event_log_close(n->out.announce.events);
    if (n->run.alone)
        contain_leave(n->run.contain);
    buf_free(&n->effects);
    buf_free(&n->run.failed);
    cJSON_Delete(n->run.sample.stacks);
    free(n->meet.round);
    free(n->run.pids);
    free(n->run.asked);
    free(n->run.known);
    free(n->run.steps);
    close_progress(n);
    flight_shm_close(&n->run.pages);
    peer_lookup_free(&n->meet.lookup);
    spawner_close(&n->run.spawner);
    exits_close(&n->run.exits);
    store_server_stop(n->meet.store);
    tls_context_close(n->meet.tls);
    secret_free(n->plan->secret);
    n->plan->secret = NULL;
}

/* Run the agent until its end, and return ddprun's exit code. If opening a part fails, the loop still runs, because
 * libuv frees a handle only in the loop. */
int node_run(void *arg, int lifeline)
{
    const struct node_job *job = arg;
    struct ddp_err err;
    /* `n` is static, because static memory is already zero. On the stack, this function would have to clear 48 KiB. */
    static struct node n;
    n.plan = job->plan;
    n.started_ms = clock_ms();
    n.on_timer = node_on_timer;
    n.meet.held_port = -1;
    n.meet.store_deadline_ms = UINT64_MAX;
    n.run.contain = job->contain;
    n.run.exits.epoll = -1;
    n.run.alone = true;
    n.run.step = n.run.best_step = -1;
    n.out.unread_deadline_ms = UINT64_MAX;
    list_init(&n.run.dumps);
    if (uv_loop_init(&n.loop) != 0 || !init_handles(&n, lifeline)) {
        char remedy[FILES_REMEDY_MAX];
        log_error("event loop: cannot create: no memory or no file descriptor is left%s",
                  files_remedy(EMFILE, remedy));
        return EXIT_CODE_DDPRUN;
    }
    node_open_news(&n);
    if (open_node(&n, &err) != DDP_OK) {
        log_error("%s", err.msg);
        node_send_end(&n, NULL, err.msg);
        node_finish(&n, EXIT_CODE_DDPRUN);
    }
    uv_run(&n.loop, UV_RUN_DEFAULT);
    close_node(&n);
    return n.exit_code;
}
