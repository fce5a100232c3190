/* net.h -- the cpu backend between hosts, shared by its files, from the top down:
 *
 *     net_comm.c     made and closed with the backend; what a barrier asks about other hosts
 *     net_run.c      a collective in steps: the same turns as cpu_slots.c, with hosts in between
 *     net_values.c   what a turn sends, receives and computes
 *     net_join.c     every connection is made
 *     net_dial.c     ... by whom connects        net_door.c     ... by whom is connected to
 *     net_link.c     values on connections       net_tell.c     one reason for all hosts
 *     net_address.c  sockets and addresses
 *
 * and pure: net_layout.c (who is where), net_plan.c (what goes where), net_wire.c (how it is said), net_ports.c. */
#ifndef WORKER_NET_H
#define WORKER_NET_H

#include "core/backend.h"
#include "cpu/cpu.h"
#include "cpu/net_link.h"
#include "cpu/net_plan.h"
#include "cpu/net_tell.h"

struct net {
    struct cpu_comm *cpu; /* borrowed */
    struct net_layout layout;
    int host, rank;
    int served;             /* lanes of ours: our local rank, and every `locals` on */
    struct net_links links; /* served x hosts; those to our own host stay empty */
    struct net_tell tell;
    struct barrier_abroad abroad;
    bool leaving; /* in finalize: an end of a connection is no death */
    size_t slot_bytes, area_bytes;
    uint8_t *area;         /* pieces: ours to send, others' to join */
    uint8_t *finished[2];  /* what we own of the steps with even and odd numbers, between the phases */
    const void **partials; /* one for each piece, for reduce_join */
    uint8_t **pieces_in;   /* for each link: where its next piece lies in the area; our own host's too */
};

/* Collective, when the ranks of each host have their page. */
ddp_status net_open(struct net **out, struct cpu_comm *cpu, const struct comm_setup *setup,
                    struct ddp_err *err);
void net_close(struct net *net);

/* One call, already begun. */
ddp_status net_run(struct net *net, const struct call *call, struct ddp_err *err);

/* --- between the files of net --- */

/* Our i-th lane. */
static inline int net_lane(const struct net *net, int i)
{
    return net->cpu->rank + i * net->cpu->world;
}

/* The link of our i-th lane. */
static inline struct net_link *net_link_to(const struct net *net, int i, int host)
{
    return &net->links.list[i * net->layout.hosts + host];
}

/* Connect all links. */
ddp_status net_join(struct net *net, const struct comm_setup *setup, struct ddp_err *err);

/* A call under way, and one step of it. */
struct net_call {
    struct net *net;
    const struct call *call;
    struct net_way way;
    bool direct; /* inputs are read where they lie */
    size_t steps;
    size_t first, second, take, last; /* turns: of step 0's phases, its taking, and the last one of all */
};

struct net_step {
    size_t at, n;
    unsigned pair;
};

/* Stages of a step. `queue`: compute what is ours to give, and let the links have what goes out and comes in. */
void net_give(const struct net_call *c, const struct net_step *step);
void net_queue_first(const struct net_call *c, const struct net_step *step);
void net_end_first(const struct net_call *c, const struct net_step *step);
void net_queue_second(const struct net_call *c, const struct net_step *step);
void net_take(const struct net_call *c, const struct net_step *step);

#endif
