/* net_join.h -- the cpu backend between hosts: net_join.c connects the hosts, and net_run.c runs collectives. Each host
 * runs the turns of host_collectives.c in shared memory. The hosts exchange values in each turn between two barriers,
 * because all ranks of a host read and write this memory. */
#ifndef WORKER_CPU_NET_JOIN_H
#define WORKER_CPU_NET_JOIN_H

#include "cpu/host_collectives.h"
#include "cpu/net_link.h"
#include "cpu/net_plan.h"

/* The reason why a job on several hosts ends. One key in the store has the reason for all hosts:
 *
 *     ddp/<job>/<attempt>/over/<nonce>      "-5 rank 3 (pid 77 on node2) has ended while ..."
 *
 * The first host that gives up writes the key and then closes its connections. A rank that loses a connection reads
 * the key, so all hosts report the same reason. */
struct net_end {
    char key[BOOTSTRAP_KEY];
    ddp_status (*reconnect)(void *user, uint32_t timeout_ms, struct ddp_store **out, struct ddp_err *err);
    void *user;
};

void net_end_open(struct net_end *end, const struct bootstrap *bootstrap, const uint8_t nonce[SHM_NONCE]);

/* Publish `err` as the reason why this host gives up. If another host was first, set `err` to that host's reason.
 * If the store does not answer, leave `err` unchanged. */
void net_end_set(const struct net_end *end, struct ddp_err *err);

/* The state of one rank for calls across hosts. A rank's communicator (struct cpu_comm) owns the struct net, or has
 * none if all ranks are on one host. net_plan.h explains plans and lanes, net_wire.h explains the messages, and
 * net_link.h explains the transfer of values. */
struct net {
    struct cpu_comm *cpu; /* borrowed */
    struct net_layout layout;
    int host, rank;
    int served;             /* how many lanes this rank serves; see net_lane() */
    struct net_links links; /* for each lane and host: the link to that host; links to this host stay empty */
    struct net_end end;
    struct barrier_abroad abroad;  /* functions by which the barrier of this host checks the other hosts */
    bool leaving;                  /* true during start and finalize: closed connections are ignored */
    size_t slot_bytes, area_bytes; /* size of a slot in shared memory, and size of `area` */
    uint8_t *area;                 /* owned: for each lane, its received pieces, then its pieces to send */
    uint8_t *finished[2];  /* owned: results of the even and of the odd steps; sent in the second phase */
    const void **partials; /* owned: one pointer for each piece, for reduce_join */
    uint8_t **pieces_in;   /* owned: for each lane and host, address in `area` of the next piece to combine */
};

/* Connect the hosts. All ranks must call this function. The caller owns *out. The ranks of each host must have opened
 * their shared page. */
ddp_status net_open(struct net **out, struct cpu_comm *cpu, const struct comm_setup *setup,
                    struct ddp_err *err);
void net_close(struct net *net);

/* Run `call` across the hosts. The caller must first pass the same `call` to cpu_begin. */
ddp_status net_run(struct net *net, const struct call *call, struct ddp_err *err);

/* Return the i-th lane that this rank serves. */
static inline int net_lane(const struct net *net, int i)
{
    return net->cpu->rank + i * net->cpu->world;
}

/* Return the link that connects the i-th lane of this rank with `host`. */
static inline struct net_link *net_link_to(const struct net *net, int i, int host)
{
    return &net->links.list[i * net->layout.hosts + host];
}

#endif
