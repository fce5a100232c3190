/* net_join.c -- connects and disconnects hosts; see net_join.h. Each rank that serves a lane (net_plan.h) listens,
 * publishes its address in the store, and makes and accepts all its connections at the same time. Meanwhile the rank
 * checks whether another rank has given up, because otherwise it would wait for the failed rank until the deadline. */
#include "cpu/net_join.h"

#include "base/clock.h"
#include "base/text.h"
#include "cpu/net_connect.h"
#include "cpu/net_wire.h"

#include <cjson/cJSON.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The key of struct net_end keeps only the reason of the first rank that fails, so all ranks report the original cause.
 * net_end_set opens another connection, because any thread may call it, and a request on the usual connection may never
 * end. */

/* Timeout in ms of one request to the store. The timeout is short, because all ranks must report a failure within a
 * second. */
enum { STORE_MS = 500 };

/* Format the key under which a rank stores why this run ended. The nonce separates runs that have the same prefix. */
void net_end_open(struct net_end *end, const struct bootstrap *bootstrap, const uint8_t nonce[SHM_NONCE])
{
    const int n = snprintf(end->key, BOOTSTRAP_KEY - 2 * SHM_NONCE - 1, "%s/over/", bootstrap->prefix);
    text_hex(end->key + n, nonce, SHM_NONCE);
    end->reconnect = bootstrap->reconnect;
    end->user = bootstrap->user;
}

void net_end_set(const struct net_end *end, struct ddp_err *err)
{
    struct ddp_store *store;
    struct ddp_err ignored;
    char reason[CALL_REASON];
    void *first = NULL;
    size_t len = call_encode_reason(reason, err), found;

    if (end->reconnect(end->user, STORE_MS, &store, &ignored) != DDP_OK)
        return;
    if (ddp_store_compare_set(store, end->key, "", 0, reason, len, &first, &found, &ignored) == DDP_OK)
        call_decode_reason(first, err);
    free(first);
    ddp_store_close(store);
}

static ddp_status net_end_read(const struct net_end *end, struct ddp_store *store, struct ddp_err *err)
{
    const char *const keys[] = { end->key };
    void *reason = NULL;
    size_t len;
    int there = 0;

    if (ddp_store_check(store, keys, 1, &there, NULL) != DDP_OK || !there)
        return DDP_OK;
    ddp_status status = ddp_store_get(store, end->key, STORE_MS, &reason, &len, err);
    if (status == DDP_OK)
        call_decode_reason(reason, err);
    free(reason);
    return err->code;
}

/* --- all links ---------------------------------------------------------------------------------------- */

/* SLICE_MS: longest wait for sockets before check_joining. ASK_MS: shortest time between two checks of the store. */
enum { SLICE_MS = 50, ASK_MS = 300 };

struct joining {
    struct net *net;
    const struct bootstrap *bootstrap;
    struct net_hello hello;
    struct net_door door;
    struct net_dial *dials; /* owned */
    int dial_count;
    int left;                                       /* number of links without a connection */
    struct pollfd *polls;                           /* owned */
    char address[NET_ADDRESS], source[NET_ADDRESS]; /* see struct net_dial */
    uint64_t asked_ms;                              /* when the store was checked last */
};

/* Format the key of a rank's card. bootstrap.c adds the prefix of the attempt, so no rank reads cards of an earlier
 * attempt. */
static void card_key(char key[32], int rank)
{
    snprintf(key, 32, "net/%d", rank);
}

/* --- own identity ------------------------------------------------------------------------------------- */

/* Fill in this rank's hello. If the run's name is too long, keep its end, which has the attempt number. */
static void make_hello(struct joining *j, const struct comm_setup *setup)
{
    const struct net *net = j->net;
    const char *run = setup->bootstrap->prefix;
    size_t len = strlen(run);

    j->hello =
        (struct net_hello){ .pid = getpid(), .from = net->rank, .to = net->rank, .world = net->layout.world };
    memcpy(j->hello.nonce, net->cpu->meeting.nonce, NET_NONCE);
    snprintf(j->hello.run, NET_RUN, "%s", run + (len < NET_RUN ? 0 : len - NET_RUN + 1));
    snprintf(j->hello.host, NET_HOST, "%.63s", net->cpu->control->host);
}

static ddp_status open_door(struct joining *j, const struct comm_setup *setup, struct ddp_err *err)
{
    struct net_card card = { .pid = getpid() };
    char key[32];
    int fd = -1;

    ddp_status status = net_address_choose(setup->iface, j->bootstrap->store, j->address, err);
    if (status == DDP_OK)
        status = net_listen(j->address, setup->port_range, j->net->cpu->rank, &fd, &card.port, err);
    net_door_open(&j->door, fd, &j->hello);
    if (status != DDP_OK)
        return status;
    if (setup->iface[0] != '\0')
        memcpy(j->source, j->address, NET_ADDRESS);
    memcpy(card.address, j->address, NET_ADDRESS);
    memcpy(card.host, j->hello.host, NET_HOST);
    card_key(key, j->net->rank);
    return bootstrap_publish(j->bootstrap, key, &card, sizeof(card), err);
}

/* --- missing and failed ranks ------------------------------------------------------------------------- */

/* Report the ranks without a connection. Mark the ranks that had to connect to this rank, because a firewall may block
 * the port of this rank. */
static ddp_status links_missing(const struct joining *j, struct ddp_err *err)
{
    const struct net_links *links = &j->net->links;
    char list[400] = "";

    for (int i = 0; i < links->count; i++) {
        const struct net_link *link = &links->list[i];
        size_t used = strlen(list);
        if (link->rank >= 0 && link->fd < 0 && used + 64 < sizeof(list))
            snprintf(list + used, sizeof(list) - used, "%s%d%s", used ? ", " : "", link->rank,
                     link->host > j->net->host ? " (which must connect to this rank)" : "");
    }
    return ddp_fail(
        err, DDP_ERR_TIMEOUT,
        "no connection with rank %s within %g s (this rank listens on %s); set DDP_PORT_RANGE to ports "
        "that are open, or DDP_IFACE to an interface or address of another network",
        list, j->bootstrap->timeout_ms / 1000.0, j->address);
}

/* Fail if a rank has given up or the deadline has passed. A rank of this host writes the reason to the control page. A
 * rank of another host writes the reason to the store. Check the store only every ASK_MS, because each check is a round
 * trip and a job may have 1000 ranks. A failure is still reported within a second. */
static ddp_status check_joining(struct joining *j, struct ddp_err *err)
{
    uint64_t now = clock_ms();
    ddp_status status = barrier_check(&j->net->cpu->barrier, true, err);

    if (status == DDP_OK && now - j->asked_ms >= ASK_MS) {
        j->asked_ms = now;
        status = net_end_read(&j->net->end, j->bootstrap->store, err);
    }
    if (status == DDP_OK && now >= j->bootstrap->deadline_ms)
        status = links_missing(j, err);
    return status;
}

/* --- serving ------------------------------------------------------------------------------------------ */

/* Accept connections from other ranks, and continue all connection attempts to other ranks. */
static ddp_status serve_all(struct joining *j, struct ddp_err *err)
{
    ddp_status status = DDP_OK;

    j->left -= net_door_serve(&j->door, &j->net->links);
    for (int i = 0; i < j->dial_count && status == DDP_OK; i++) {
        bool before = net_dial_done(&j->dials[i]);
        status = net_dial_serve(&j->dials[i], err);
        j->left -= !before && net_dial_done(&j->dials[i]);
    }
    return status;
}

/* --- ranks to connect to ------------------------------------------------------------------------------ */

/* Wait until another rank has published its card. Meanwhile serve the other connections, which need this rank's
 * hello within HELLO_MS. */
static ddp_status wait_for_card(struct joining *j, const char *key, struct ddp_err *err)
{
    struct timespec pause = { .tv_nsec = 1000000 };
    while (!bootstrap_is_published(j->bootstrap, key)) {
        ddp_status status = check_joining(j, err);
        if (status == DDP_OK)
            status = serve_all(j, err);
        if (status != DDP_OK)
            return status;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 20000000)
            pause.tv_nsec *= 2;
    }
    return DDP_OK;
}

/* Read the card of the link's peer and begin to connect. The card comes from another process, so terminate its
 * strings. */
static ddp_status find_peer(struct joining *j, struct net_link *link, struct ddp_err *err)
{
    char key[32];
    struct net_dial *dial = &j->dials[j->dial_count];

    *dial = (struct net_dial){
        .link = link, .hello = &j->hello, .address = j->address, .source = j->source, .fd = -1
    };
    card_key(key, link->rank);
    ddp_status status = wait_for_card(j, key, err);
    if (status == DDP_OK)
        status = bootstrap_fetch(j->bootstrap, key, &dial->card, sizeof(dial->card), err);
    if (status != DDP_OK)
        return status;
    dial->card.address[NET_ADDRESS - 1] = dial->card.host[NET_HOST - 1] = '\0';
    j->dial_count++;
    net_dial_begin(dial);
    return serve_all(j, err);
}

/* Begin to connect to all hosts with lower numbers. Hosts with higher numbers connect to this host. So each lane
 * has exactly one connection for each pair of hosts. */
static ddp_status begin_all(struct joining *j, struct ddp_err *err)
{
    struct net *net = j->net;
    ddp_status status = DDP_OK;

    j->left = net->served * (net->layout.hosts - 1);
    for (int i = 0; i < net->served; i++)
        for (int h = 0; h < net->host && status == DDP_OK; h++)
            status = find_peer(j, net_link_to(net, i, h), err);
    return status;
}

/* --- the loop ----------------------------------------------------------------------------------------- */

static int list_polls(struct joining *j)
{
    int n = net_door_polls(&j->door, j->polls);
    for (int i = 0; i < j->dial_count; i++)
        j->polls[n++] = net_dial_poll(&j->dials[i]);
    return n;
}

/* Report a closed port through the store. ddprun's store prints the report on all nodes, even if the program
 * prints no error. Other stores ignore the report. Ignore errors of this request. */
static void report_closed(const struct joining *j, const char *closed)
{
    enum { REPORT_MS = 500 };
    char *reply = NULL;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "op", "trouble");
    cJSON_AddStringToObject(o, "code", "PORTS_CLOSED");
    cJSON_AddStringToObject(o, "words", closed);
    char *text = cJSON_PrintUnformatted(o);
    if (text != NULL)
        ddp_store_control(j->bootstrap->store, text, REPORT_MS, &reply, NULL);
    free(reply);
    cJSON_free(text);
    cJSON_Delete(o);
}

static void report_closed_ports(const struct joining *j)
{
    for (int i = 0; i < j->dial_count; i++)
        if (j->dials[i].closed[0] != '\0')
            report_closed(j, j->dials[i].closed);
}

/* Connect all links. Call check_joining every SLICE_MS, because a rank that has ended cannot wake the loop. The timeout
 * of poll is not enough: while clients send data, poll returns early each time. */
static ddp_status connect_all(struct joining *j, struct ddp_err *err)
{
    uint64_t checked_ms = clock_ms();
    ddp_status status = begin_all(j, err);
    while (status == DDP_OK && j->left > 0) {
        const int ready = poll(j->polls, (nfds_t)list_polls(j), SLICE_MS);
        if (ready <= 0 || clock_ms() - checked_ms >= SLICE_MS) {
            status = check_joining(j, err);
            checked_ms = clock_ms();
        }
        if (status == DDP_OK)
            status = serve_all(j, err);
    }
    if (status != DDP_OK)
        report_closed_ports(j);
    return status;
}

static void close_joining(struct joining *j)
{
    char key[32];
    for (int i = 0; i < j->dial_count; i++)
        net_dial_close(&j->dials[i]);
    net_door_close(&j->door);
    card_key(key, j->net->rank);
    bootstrap_clear(j->bootstrap, key, &(struct ddp_err){ 0 });
    free(j->dials);
    free(j->polls);
}

/* Connect to the other hosts. A rank that serves no lane needs no links. Remove this rank's card at the end, because
 * no rank reads the card later. */
static ddp_status net_join(struct net *net, const struct comm_setup *setup, struct ddp_err *err)
{
    struct joining j = { .net = net, .bootstrap = setup->bootstrap, .door = { .fd = -1 } };
    size_t links = (size_t)net->links.count;

    if (net->served == 0)
        return DDP_OK;
    make_hello(&j, setup);
    net_door_open(&j.door, -1, &j.hello);
    j.dials = calloc(links, sizeof(*j.dials));
    j.polls = calloc(links + 1 + NET_GUESTS, sizeof(*j.polls));
    ddp_status status = j.dials != NULL && j.polls != NULL
                            ? open_door(&j, setup, err)
                            : ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %zu connections", links);
    if (status == DDP_OK)
        status = connect_all(&j, err);
    close_joining(&j);
    return status;
}

/* --- functions for the barrier ------------------------------------------------------------------------ */

static ddp_status check_abroad(void *user, struct ddp_err *err)
{
    struct net *net = user;
    return net->leaving ? DDP_OK : net_links_check(&net->links, err);
}

static void publish_abroad(void *user, struct ddp_err *err)
{
    struct net *net = user;
    net_end_set(&net->end, err);
    net_links_shut(&net->links);
}

/* --- open and close ----------------------------------------------------------------------------------- */

enum {
    LANES = 4,          /* maximum number of connections between two hosts (measured: worker/README.md) */
    AREA = 4 << 20,     /* minimum size of net->area in bytes; unused pages take no memory */
    LARGEST_ELEMENT = 8 /* bytes of an f64 or i64 */
};

static ddp_status no_net_memory(const struct net *net, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d ranks on %d hosts", net->layout.world,
                    net->layout.hosts);
}

/* Allocate all memory now, because a collective must not fail for lack of memory on one rank. The area may be
 * large, because unused pages take no memory. */
static ddp_status make_buffers(struct net *net, struct ddp_err *err)
{
    const struct net_layout *l = &net->layout;
    size_t least = net_area_least(l), links = (size_t)(net->served > 0 ? net->served : 1) * (size_t)l->hosts;

    net->slot_bytes = shm_slot_bytes(l->most);
    net->area_bytes = least > AREA ? least : AREA;
    if ((size_t)l->world * LARGEST_ELEMENT > net->slot_bytes)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "too many ranks: the job has %d ranks, but the limit is %zu, because one host has %d "
                        "ranks; use fewer ranks in total, or fewer ranks per host",
                        l->world, net->slot_bytes / LARGEST_ELEMENT, l->most);
    net->area = malloc(net->area_bytes);
    net->finished[0] = malloc(2 * net->slot_bytes);
    net->partials = calloc((size_t)l->piece_count, sizeof(*net->partials));
    net->pieces_in = calloc(links, sizeof(*net->pieces_in));
    if (!net->area || !net->finished[0] || !net->partials || !net->pieces_in)
        return no_net_memory(net, err);
    net->finished[1] = net->finished[0] + net->slot_bytes;
    return net_links_open(&net->links, net->served * l->hosts, 2 * (size_t)l->most + 4, net->rank, err);
}

static void address_links(struct net *net)
{
    for (int i = 0; i < net->served; i++) {
        for (int h = 0; h < net->layout.hosts; h++) {
            struct net_link *link = net_link_to(net, i, h);
            link->host = h;
            link->lane = net_lane(net, i);
            link->rank = h == net->host ? -1 : net_server(&net->layout, h, link->lane);
        }
    }
}

static ddp_status net_prepare(struct net *net, struct ddp_err *err)
{
    const struct meeting *m = &net->cpu->meeting;

    if (!net_layout_open(&net->layout, m->host_of, net->cpu->group_size, m->hosts, LANES))
        return no_net_memory(net, err);
    while (net_lane(net, net->served) < net->layout.lanes)
        net->served++;
    ddp_status status = make_buffers(net, err);
    if (status == DDP_OK)
        address_links(net);
    return status;
}

ddp_status net_open(struct net **out, struct cpu_comm *cpu, const struct comm_setup *setup,
                    struct ddp_err *err)
{
    struct net *net = calloc(1, sizeof(*net));

    *out = net;
    if (net == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for connections to other hosts");
    net->cpu = cpu;
    net->rank = setup->rank;
    net->host = cpu->meeting.host;
    net->abroad = (struct barrier_abroad){ net, check_abroad, publish_abroad };
    net_end_open(&net->end, setup->bootstrap, cpu->meeting.nonce);
    cpu->barrier.abroad = &net->abroad;
    net->leaving = true; /* during the start, ignore closed connections: failures are read from the store */
    ddp_status status = net_prepare(net, err);
    if (status == DDP_OK)
        status = net_join(net, setup, err);
    return status;
}

void net_close(struct net *net)
{
    if (net == NULL)
        return;
    net_links_close(&net->links);
    net_layout_close(&net->layout);
    free(net->area);
    free(net->finished[0]);
    free(net->partials);
    free(net->pieces_in);
    free(net);
}
