/* net.h -- the cpu backend between hosts: net_join.c connects the hosts, net_run.c carries out collectives. See
 * net_plan.h for the plan, net_wire.h for messages, net_link.h for the transfer of values. */
#ifndef WORKER_CPU_NET_H
#define WORKER_CPU_NET_H

#include "cpu/host.h"
#include "cpu/net_link.h"
#include "cpu/net_plan.h"

/* The end of a job on several hosts: one reason for all of them, kept in the store.
 *
 *     ddp/<job>/<attempt>/over/<nonce>      "-5 rank 3 (pid 77 on node2) has ended while ..."
 *
 * The first host that gives up sets the key, all others copy its text. Then it closes its connections, and a
 * rank that sees the end of a connection reads the reason in the store. */
struct net_end {
    char key[BOOTSTRAP_KEY];
    ddp_status (*reconnect)(void *user, uint32_t timeout_ms, struct ddp_store **out, struct ddp_err *err);
    void *user;
};

void net_end_open(struct net_end *end, const struct bootstrap *bootstrap, const uint8_t nonce[SHM_NONCE]);

/* This host gives up because of `err`, which gets the reason of the first host. Without a store it stays unchanged. */
void net_end_set(const struct net_end *end, struct ddp_err *err);

struct net {
    struct cpu_comm *cpu; /* borrowed */
    struct net_layout layout;
    int host, rank;
    int served;             /* our lanes: our local rank, and every `locals`-th after it */
    struct net_links links; /* served x hosts; those to our own host stay empty */
    struct net_end end;
    struct barrier_abroad abroad;
    bool leaving; /* in finalize: the end of a connection is not a failure */
    size_t slot_bytes, area_bytes;
    uint8_t *area;         /* pieces: ours to send, others' to join */
    uint8_t *finished[2];  /* values that we own of the steps with even and odd numbers, between the phases */
    const void **partials; /* one for each piece, for reduce_join */
    uint8_t **pieces_in;   /* for each link: offset of its next piece in the area; also for our own host */
};

/* Collective. Call it after the ranks of each host have opened their shared page. */
ddp_status net_open(struct net **out, struct cpu_comm *cpu, const struct comm_setup *setup,
                    struct ddp_err *err);
void net_close(struct net *net);

/* Carry out one call, already begun. */
ddp_status net_run(struct net *net, const struct call *call, struct ddp_err *err);

/* Return our i-th lane. */
static inline int net_lane(const struct net *net, int i)
{
    return net->cpu->rank + i * net->cpu->world;
}

/* Return the link of our i-th lane. */
static inline struct net_link *net_link_to(const struct net *net, int i, int host)
{
    return &net->links.list[i * net->layout.hosts + host];
}

#endif
