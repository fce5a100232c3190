/* store_host.c -- see store_host.h.
 *
 * find -> literal --> decide -> listen -> found
 *          '-> name: look up the name -> known: decide ...
 *                    ^   '-> unknown: report the failure after 2 s, and every 30 s; wait 1 s
 *                    '-----------------------------------------------------'      until the timeout
 *
 * The name of a Kubernetes pod may become known only later, so the lookup is repeated until the timeout. If MUNGE
 * delivers the secret, a thread seals the secret between `decide` and `listen`, because munged may hang. */
#include "net/store_host.h"

#include "auth/secret.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/dial.h"
#include "net/dial_plan.h"
#include "server/listen.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Return the size of an address for getnameinfo, or 0 for an address that is not IP. base/connector.c uses
 * getnameinfo, too, so own addresses and resolved addresses can be compared as text. */
static socklen_t size_of(const struct sockaddr *addr)
{
    return addr->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
           : addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                         : 0;
}

/* List the addresses of interfaces that are up, and return their number. If the list is empty, hosting.c treats every
 * address as an address of another machine. */
int own_addresses(struct own_address own[OWN_ADDRESSES_MAX])
{
    struct ifaddrs *list = NULL;
    int n = 0;
    if (getifaddrs(&list) != 0)
        return 0;
    for (const struct ifaddrs *at = list; at != NULL && n < OWN_ADDRESSES_MAX; at = at->ifa_next) {
        const socklen_t size = at->ifa_addr != NULL ? size_of(at->ifa_addr) : 0;
        if (size == 0 || (at->ifa_flags & IFF_UP) == 0)
            continue;
        snprintf(own[n].interface, sizeof(own[n].interface), "%.15s", at->ifa_name);
        if (getnameinfo(at->ifa_addr, size, own[n].text, sizeof(own[n].text), NULL, 0, NI_NUMERICHOST) == 0)
            n++;
    }
    freeifaddrs(list);
    return n;
}

/* Reject --local_addr. The error lists all local addresses, so that the user can copy one of them. */
static ddp_status refuse(const char *address, const struct own_address *own, int n, struct ddp_err *err)
{
    char list[400] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s (%s)", i > 0 ? ", " : "",
                                 own[i].text, own[i].interface);
    return ddp_fail(err, DDP_ERR_ARG,
                    "--local_addr=%.64s: not an address of this machine; use one of its addresses, %s",
                    address, list);
}

/* Check --local_addr. All addresses of 127/8 are local, although only 127.0.0.1 is listed. */
ddp_status own_address_check(const char *address, struct ddp_err *err)
{
    struct own_address own[OWN_ADDRESSES_MAX];
    const int n = own_addresses(own);
    for (int i = 0; i < n; i++)
        if (strcmp(own[i].text, address) == 0)
            return DDP_OK;
    return strncmp(address, "127.", 4) == 0 ? DDP_OK : refuse(address, own, n, err);
}

/* --- a reserved port ---------------------------------------------------------------------------------------- */

/* Bind to every address, as PyTorch's server does: IPv6 and IPv4 together for AF_INET6, only IPv4 for AF_INET. */
static bool bind_any(int fd, int family, int port)
{
    const int yes = 1, no = 0;
    const struct sockaddr_in6 six = { .sin6_family = AF_INET6,
                                      .sin6_port = htons((uint16_t)port),
                                      .sin6_addr = IN6ADDR_ANY_INIT };
    const struct sockaddr_in four = { .sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)port),
                                      .sin_addr.s_addr = htonl(INADDR_ANY) };
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0)
        return false;
    if (family == AF_INET)
        return bind(fd, (const struct sockaddr *)&four, sizeof(four)) == 0;
    return setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) == 0 &&
           bind(fd, (const struct sockaddr *)&six, sizeof(six)) == 0;
}

/* Read the port of a socket. The port is at the same offset in sockaddr_in and sockaddr_in6. */
static bool port_of(int fd, int *port)
{
    struct sockaddr_in6 at;
    socklen_t len = sizeof(at);
    if (getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        return false;
    *port = ntohs(at.sin6_port);
    return true;
}

/* Return a socket that is bound to *port on every address, or -1 with errno set. */
static int hold(int family, int *port)
{
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (bind_any(fd, family, *port) && port_of(fd, port))
        return fd;
    close(fd);
    return -1;
}

int port_hold(int *port)
{
    const int fd = hold(AF_INET6, port);
    return fd >= 0 ? fd : hold(AF_INET, port);
}

enum { RETRY_MS = 1000, SEALING_MS = 1 };

struct store_host {
    struct store_host_options options;
    struct hosting decided;   /* result of decide(), kept until MUNGE has sealed the secret */
    struct secret_call *seal; /* owned; the call of MUNGE that seals the secret; NULL if no call runs */
    struct dial waiting;      /* decides when to look up the store's name, and which messages the user gets */
    struct loop_lookup *lookup; /* owned; NULL if no lookup is in progress */
    uv_timer_t timer;
    bool closing;
};

/* --- listening ------------------------------------------------------------------------------------------ */

/* Return true if the store may serve other hosts without a secret. The user permits this with --insecure, or by
 * starting ddprun as torchrun for several nodes. */
static bool is_open(const struct plan *plan)
{
    return plan->secret == NULL && !plan->encrypt &&
           (plan->cli->insecure || (plan->meeting.nnodes_max > 1 && plan->cli->torchrun));
}

static void drop_secret(struct plan *plan)
{
    secret_free(plan->secret);
    free(plan->credential);
    plan->secret = NULL;
    plan->credential = NULL;
}

/* Start the store and write its port to the plan. Port 0 means any free port, but the workers need the real
 * number. */
static ddp_status listen_on(struct plan *plan, const char *host, int port, struct store_server **out,
                            struct ddp_err *err)
{
    struct store_server_options options = {
        .host = host,
        .port = port,
        .port_option = cli_gives(plan->cli, OPT_RDZV_ENDPOINT) ? "--rdzv_endpoint" : "--master_port",
        .limits = HUB_LIMITS_DEFAULT,
        .insecure = plan->cli->insecure,
        .encrypt = plan->encrypt && plan->secret != NULL,
        .log_peers = plan->cli->verbose,
    };
    options.limits.secret = plan->secret;
    options.limits.credential = plan->credential;
    options.limits.guarded = !is_open(plan);
    ddp_status status = store_server_start(&options, out, err);
    if (status != DDP_OK)
        return status;
    plan->master_port = store_server_port(*out);
    if (plan->cli->insecure)
        log_warn("--insecure: every user of this host can read and change the store of this job");
    return DDP_OK;
}

/* Write a note that the free port `port` replaces the port `taken`, and which process uses `taken`. */
static void note_port(char note[NOTE_MAX], int taken, int port)
{
    struct port_holder holder = { 0 };
    char who[400];
    port_holder_find(taken, &holder);
    snprintf(note, NOTE_MAX, "using port %d, because port %d is in use by %s", port, taken,
             port_holder_words(&holder, who, sizeof(who)));
}

ddp_status store_host_start(struct plan *plan, struct store_server **out, char note[NOTE_MAX],
                            struct ddp_err *err)
{
    const int port = plan->master_port;
    note[0] = '\0';
    ddp_status status = listen_on(plan, plan->master_addr, port, out, err);
    if (status == DDP_ERR_IO && plan->meeting.port_may_change && port != 0) {
        struct ddp_err second;
        /* Try any free port. If this fails, too, the port is not the reason, and the caller gets the first error. */
        if (listen_on(plan, plan->master_addr, 0, out, &second) == DDP_OK) {
            status = DDP_OK;
            note_port(note, port, plan->master_port);
        }
    }
    return status;
}

/* --- decisions ------------------------------------------------------------------------------------------ */

/* Report a failure through `failed`. The callback may end the node, so the caller must return at once. */
static void store_host_fail(const struct store_host_options *o, const char *code, const char *words,
                            const char *at)
{
    o->failed(o->user, &(struct host_failure){ .code = code, .words = words, .at = at });
}

/* Return the code of a failure to listen: the port is in use, or the address is not local. */
static const char *listen_code(int port)
{
    struct port_holder holder;
    const bool held = port != 0 && (port_holder_find(port, &holder) || holder.leftover);
    return finding_code_name(held ? FINDING_PORT_IN_USE : FINDING_CANNOT_LISTEN);
}

/* Make the finding about a store that other hosts can reach without a secret. Return the code of the finding, or
 * FINDING_NONE if the store is safe. The finding is an error, or a warning if the user has allowed an open store. `why`
 * is the reason why MUNGE delivers no secret, in the form " (REASON)", or "". */
static enum finding_code openness(const struct store_host_options *o, const char *address, const char *why,
                                  struct finding *finding)
{
    char subject[FINDING_SUBJECT_MAX];
    if (o->plan->secret != NULL || o->plan->meeting.nnodes_max == 1 || endpoint_is_loopback(address))
        return FINDING_NONE;
    const enum finding_code code = is_open(o->plan) ? FINDING_STORE_IS_OPEN : FINDING_NO_SECRET;
    snprintf(subject, sizeof(subject), "the store at %.64s:%d", address, o->plan->meeting.port);
    finding_make(finding, code, subject, "why", why, NULL);
    return code;
}

/* Make the finding about a node that has no secret for the store of node 0. */
static void make_node_has_no_secret(const struct store_host_options *o, const char *address,
                                    struct finding *finding)
{
    char node[FINDING_SUBJECT_MAX], store[ENDPOINT_TEXT_MAX];
    snprintf(node, sizeof(node), "node %d (%.64s)", o->plan->meeting.node_rank, o->plan->facts->host);
    finding_make(finding, FINDING_NODE_HAS_NO_SECRET, node, "node", node, "address",
                 endpoint_print(address, o->plan->meeting.port, store), NULL);
}

/* Fail, because other hosts could reach the store without a secret. `at` is the address on which a refusing store may
 * listen (host_failure.at). */
static void refuse_to_open(const struct store_host_options *o, const struct finding *finding, const char *at)
{
    char words[HOSTING_WORDS_MAX];
    finding_format(finding, words, sizeof(words));
    store_host_fail(o, finding_code_name(finding->code), words, at);
}

/* Return the address for a refusing store (store_host.h) after a failure to listen, or NULL if no refusing store can
 * start. A store that listens on every address fails if the port is in use on one of these addresses. The port may
 * still be free on the address that other nodes dial. */
static const char *free_place(const struct hosting *decided)
{
    return decided->address[0] == '\0' && !endpoint_is_loopback(decided->dial) ? decided->dial : NULL;
}

/* Return the address at which other hosts reach the store: the address on which the store listens. If the store listens
 * on all addresses of this host, return the address that this node dials. */
static const char *address_of(const struct hosting *decided)
{
    return decided->address[0] != '\0' ? decided->address : decided->dial;
}

/* Host the store. If the store cannot listen and the choice is HOSTING_HOST, fail. If it cannot listen and the choice
 * is HOSTING_TRY, join the store that another node on this machine probably hosts. `why` is the argument of
 * openness(). */
static void host(const struct store_host_options *o, const struct hosting *decided, const char *why)
{
    struct ddp_err err;
    struct store_place place = { .here = true };
    struct finding finding;
    const bool has_made = o->plan->credential != NULL;
    const enum finding_code open = openness(o, address_of(decided), why, &finding);
    if (open == FINDING_NO_SECRET) {
        refuse_to_open(o, &finding, decided->address);
        return;
    }
    ddp_status status = listen_on(o->plan, decided->address, o->plan->meeting.port, &place.server, &err);
    if (status != DDP_OK && has_made)
        drop_secret(o->plan);
    if (status != DDP_OK && decided->choice == HOSTING_HOST) {
        char words[NOTE_MAX];
        snprintf(words, sizeof(words), "%.600s%s%s", err.msg,
                 o->plan->meeting.elsewhere
                     ? "; if a ddp-rendezvous uses this port, pass --host_store=no to use its store"
                     : "",
                 o->plan->meeting.nnodes_max > 1 && !o->plan->meeting.elastic &&
                         o->plan->meeting.host_store != HOST_STORE_YES
                     ? "; if another ddprun is node 0 of this job and uses this port, set another "
                       "--node_rank on this node"
                     : "");
        store_host_fail(o, listen_code(o->plan->meeting.port), words, free_place(decided));
        return;
    }
    place.port = status == DDP_OK ? o->plan->master_port : o->plan->meeting.port;
    snprintf(place.host, sizeof(place.host), "%s", decided->dial);
    /* Keep the error only for the report of a failed dial. Usually the error is harmless, because another node of this
     * job on this machine hosts the store. */
    if (status != DDP_OK)
        snprintf(place.report_note, sizeof(place.report_note), "%s", err.msg);
    if (decided->code != NULL && (status == DDP_OK || decided->local_only[0] != '\0'))
        snprintf(place.note, sizeof(place.note), "%s", decided->words);
    else if (status == DDP_OK && open == FINDING_STORE_IS_OPEN)
        finding_format(&finding, place.note, sizeof(place.note));
    o->found(o->user, &place);
}

/* Join a store that this node does not host. The meaning of decided->words depends on the choice and the code:
 *
 *   - HOSTING_ASK: the error if the dial fails. The text is not printed now.
 *   - HOSTING_JOIN with a code: a warning that is printed now.
 *   - HOSTING_JOIN without a code: a line of the report if the dial fails, or "". */
static void store_host_join_other(const struct store_host_options *o, const struct hosting *decided)
{
    struct store_place place = { .port = o->plan->meeting.port, .here = decided->here };
    if (decided->choice == HOSTING_ASK)
        place.code = decided->code;
    snprintf(place.host, sizeof(place.host), "%s", o->plan->meeting.host);
    snprintf(decided->code != NULL ? place.note : place.report_note, sizeof(place.note), "%s",
             decided->words);
    o->found(o->user, &place);
}

/* Return true if node 0 hosts the store that this node joins. Otherwise return false, for example if a ddp-rendezvous
 * may host this store.
 *
 * Node 0 opens its store to other hosts only if a secret exists, or if the user allows an open store. So a node without
 * a secret cannot join a store of node 0. The caller reports this error at once, without waiting for the store. */
static bool follows_node_0(const struct store_host_options *o, const struct hosting *decided)
{
    const struct cli *cli = o->plan->cli;
    return decided->choice == HOSTING_JOIN && !o->plan->meeting.elastic && cli->endpoint.host[0] == '\0' &&
           cli->host_store == HOST_STORE_AUTO;
}

/* Collect the facts and call hosting_decide. Then host the store, join a store, or fail, as decided. Return true if the
 * store is not started yet, because its secret must be sealed first. */
static bool decide(const struct store_host_options *o, const struct name_found *name, struct hosting *decided)
{
    struct own_address own[OWN_ADDRESSES_MAX];
    const char *resolved[RACE_ADDRESSES_MAX];
    struct finding finding;
    for (int i = 0; i < name->n; i++)
        resolved[i] = name->addresses[i];
    const struct hosting_facts facts = { .meeting = &o->plan->meeting,
                                         .here = o->plan->facts->host,
                                         .resolved = resolved,
                                         .n_resolved = name->n,
                                         .own = own,
                                         .n_own = own_addresses(own) };
    hosting_decide(&facts, decided);
    snprintf(o->plan->meeting.local_only, sizeof(o->plan->meeting.local_only), "%s", decided->local_only);
    if (decided->choice == HOSTING_ERROR)
        store_host_fail(o, decided->code, decided->words, "");
    else if (follows_node_0(o, decided) && name->n > 0 && !plan_uses_munge(o->plan, name->addresses[0]) &&
             openness(o, name->addresses[0], "", &finding) == FINDING_NO_SECRET) {
        make_node_has_no_secret(o, name->addresses[0], &finding);
        refuse_to_open(o, &finding, NULL);
    } else if (decided->choice == HOSTING_JOIN || decided->choice == HOSTING_ASK)
        store_host_join_other(o, decided);
    else if (plan_uses_munge(o->plan, address_of(decided)))
        return true;
    else
        host(o, decided, "");
    return false;
}

/* Host the store with the sealed secret. If MUNGE fails, the finding about the missing secret contains the reason.
 * The timer repeats until the thread that seals the secret has ended. */
static void on_sealing(uv_timer_t *timer)
{
    struct store_host *h = timer->data;
    struct plan *plan = h->options.plan;
    struct ddp_err err;
    char why[sizeof(err.msg) + 4] = "";
    if (!secret_call_is_over(h->seal))
        return;
    uv_timer_stop(timer);
    const ddp_status status = secret_seal_end(h->seal, plan->credential, &err);
    h->seal = NULL;
    if (status != DDP_OK) {
        snprintf(why, sizeof(why), " (%.*s)", (int)strcspn(err.msg, ";"), err.msg);
        drop_secret(plan);
    }
    host(&h->options, &h->decided, why);
}

/* Make the secret, and begin to seal it. */
static ddp_status begin_sealing(struct store_host *h, struct ddp_err *err)
{
    struct plan *plan = h->options.plan;
    plan->credential = malloc(SECRET_CREDENTIAL_MAX);
    if (plan->credential == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "secret: cannot make one: out of memory");
    if (secret_make(&plan->secret, err) != DDP_OK)
        return err->code;
    h->seal = secret_seal_begin(plan->secret);
    uv_timer_start(&h->timer, on_sealing, SEALING_MS, SEALING_MS);
    return DDP_OK;
}

/* --- one node ------------------------------------------------------------------------------------------- */

/* Host the store of a single node, on a free port if the default port is in use. */
static void find_alone(const struct store_host_options *o)
{
    struct ddp_err err;
    struct endpoint at;
    struct store_place place = { .here = true };
    if (store_host_start(o->plan, &place.server, place.note, &err) != DDP_OK) {
        store_host_fail(o, listen_code(o->plan->meeting.port), err.msg, NULL);
        return;
    }
    place.port = o->plan->master_port;
    if (endpoint_parse(store_server_address(place.server), 0, &at, &err) == DDP_OK)
        snprintf(place.host, sizeof(place.host), "%s", at.host);
    o->found(o->user, &place);
}

/* --- names ---------------------------------------------------------------------------------------------- */

static void store_host_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void store_host_close(struct store_host *h)
{
    if (h == NULL || h->closing)
        return;
    h->closing = true;
    loop_lookup_end(h->lookup);
    if (h->seal != NULL)
        secret_seal_end(h->seal, NULL, NULL);
    uv_close((uv_handle_t *)&h->timer, store_host_closed);
}

static void store_host_advance(struct store_host *h);

static void on_timer(uv_timer_t *timer)
{
    store_host_advance(timer->data);
}

/* Handle the result of a lookup. If the name is known, stop the timer, and decide whether to host or join the store. */
static void on_resolved(void *user, const struct name_found *name)
{
    struct store_host *h = user;
    loop_lookup_end(h->lookup);
    h->lookup = NULL;
    if (name->error != 0) {
        dial_unresolved(&h->waiting, name->error, clock_ms());
        store_host_advance(h);
        return;
    }
    struct ddp_err err;
    h->waiting.phase = DIAL_ARRIVED;
    uv_timer_stop(&h->timer);
    if (decide(&h->options, name, &h->decided) && begin_sealing(h, &err) != DDP_OK)
        store_host_fail(&h->options, NULL, err.msg, NULL);
}

static void store_host_give_up(struct store_host *h)
{
    struct buf report = { 0 };
    const bool ok = dial_report(&h->waiting, &report, clock_ms()) && buf_append(&report, "", 1);
    store_host_fail(&h->options, dial_code(h->waiting.finding),
                    ok ? (const char *)report.data
                       : "store: cannot resolve its host name (cannot print the reason: out of memory)",
                    "");
    buf_free(&report);
}

/* Run the steps that are due. As in dial.c, dial_plan.h determines the pauses and messages. Here the only step is the
 * lookup of the store's name, without a connection. */
static void store_host_advance(struct store_host *h)
{
    struct dial_step step = dial_next(&h->waiting, clock_ms());
    if (step.what == DIAL_RESOLVE) {
        h->lookup = loop_lookup_begin(h->options.loop, h->options.plan->meeting.host, on_resolved, h);
        if (h->lookup == NULL)
            dial_unresolved(&h->waiting, EAI_MEMORY, clock_ms());
        step = dial_next(&h->waiting, clock_ms());
    }
    if (step.what == DIAL_GIVE_UP) {
        store_host_give_up(h);
        return;
    }
    dial_print_status(&h->waiting, clock_ms(), h->options.print, h->options.user);
    if (!h->closing)
        uv_timer_start(&h->timer, on_timer, RETRY_MS, 0);
}

static struct store_host *host_new(const struct store_host_options *o)
{
    struct store_host *h = calloc(1, sizeof(*h));
    const struct plan_meeting *m = &o->plan->meeting;
    const struct dial_options name = { .host = m->host,
                                       .port = m->port,
                                       .who = "the store",
                                       .here = o->plan->facts->host,
                                       .knob = m->join_knob,
                                       .budget_ms = m->join_ms };
    if (h == NULL)
        return NULL;
    h->options = *o;
    uv_timer_init(o->loop, &h->timer);
    h->timer.data = h;
    dial_begin(&h->waiting, &name, clock_ms());
    return h;
}

/* Return true if this node never hosts the store, but only joins it. dial.c then looks up the store's name. */
static bool only_joins(const struct plan_meeting *m)
{
    return m->host_store == HOST_STORE_NO ||
           (!m->elastic && m->node_rank != 0 && m->host_store == HOST_STORE_AUTO);
}

ddp_status store_host_find(const struct store_host_options *o, struct store_host **out, struct ddp_err *err)
{
    const struct plan_meeting *m = &o->plan->meeting;
    struct name_found literal = { 0 };
    struct hosting decided = { .choice = HOSTING_ERROR };
    *out = NULL;
    if (!m->elsewhere) {
        find_alone(o);
        return DDP_OK;
    }
    const bool is_known = name_is_literal(m->host, &literal) || only_joins(m);
    if (is_known && !decide(o, &literal, &decided))
        return DDP_OK;
    *out = host_new(o);
    if (*out == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "store: cannot look up its host: out of memory");
    (*out)->decided = decided;
    if (is_known)
        return begin_sealing(*out, err);
    store_host_advance(*out);
    return DDP_OK;
}

/* --- the refusing store ------------------------------------------------------------------------------------- */

enum { REFUSING_BYTES_MAX = 1 << 20 };

struct refusing_store {
    struct store_server *server;
    struct hub_refusal refusal;
    atomic_int refused;
    char code[64], sentence[FINDING_TEXT_MAX], advice[FINDING_TEXT_MAX];
};

/* Count a refused host. The server calls this on its thread. */
static void on_refused(void *user)
{
    struct refusing_store *r = user;
    atomic_fetch_add(&r->refused, 1);
}

/* Copy the first line as the sentence, and the text after "  try      " as the advice. */
void failure_split(const char *words, char sentence[FINDING_TEXT_MAX], char advice[FINDING_TEXT_MAX])
{
    static const char mark[] = "\n  try      ";
    const char *at = strstr(words, mark);
    at = at != NULL ? at + strlen(mark) : "";
    snprintf(sentence, FINDING_TEXT_MAX, "%.*s", (int)strcspn(words, "\n"), words);
    snprintf(advice, FINDING_TEXT_MAX, "%.*s", (int)strcspn(at, "\n"), at);
}

/* Start a store that rejects every node and sends the text of `failure` to each node. The text contains no confidential
 * data, because without a secret every host can get the text. */
ddp_status refusing_store_start(const struct plan *plan, const struct host_failure *failure,
                                struct refusing_store **out, struct ddp_err *err)
{
    struct refusing_store *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "other nodes: cannot report the failure to them: out of memory");
    snprintf(r->code, sizeof(r->code), "%s", failure->code);
    failure_split(failure->words, r->sentence, r->advice);
    r->refusal = (struct hub_refusal){
        .code = r->code, .sentence = r->sentence, .advice = r->advice, .on_refused = on_refused, .user = r
    };
    struct store_server_options options = { .host = failure->at,
                                            .port = plan->meeting.port,
                                            .limits = HUB_LIMITS_DEFAULT,
                                            .encrypt = plan->encrypt && plan->secret != NULL,
                                            .insecure = plan->cli->insecure };
    options.limits.max_bytes = REFUSING_BYTES_MAX;
    options.limits.secret = plan->secret;
    options.limits.guarded = plan->secret != NULL;
    options.limits.refusal = &r->refusal;
    const ddp_status status = store_server_start(&options, &r->server, err);
    if (status == DDP_OK)
        *out = r;
    else
        free(r);
    return status;
}

int refusing_store_count(const struct refusing_store *store)
{
    return atomic_load(&store->refused);
}

void refusing_store_stop(struct refusing_store *store)
{
    if (store == NULL)
        return;
    store_server_stop(store->server);
    free(store);
}
