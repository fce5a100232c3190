/* net_comm.c -- see net.h: the life of what a rank needs for other hosts. */
#include "cpu/net.h"

#include <stdlib.h>

enum {
    LANES = 4,      /* connections between two hosts at most, see worker/README.md */
    AREA = 4 << 20, /* bytes of pieces; pages that no call needs are never touched */
    LARGEST_ELEMENT = 8
};

/* --- what a barrier asks -------------------------------------------------------------------------------- */

static ddp_status check_abroad(void *user, struct ddp_err *err)
{
    struct net *net = user;
    return net->leaving ? DDP_OK : net_links_check(&net->links, err);
}

static void tell_abroad(void *user, struct ddp_err *err)
{
    struct net *net = user;
    net_tell(&net->tell, err);
    net_links_shut(&net->links);
}

/* --- open and close ------------------------------------------------------------------------------------- */

static ddp_status no_memory(const struct net *net, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d ranks on %d hosts", net->layout.world,
                    net->layout.hosts);
}

/* All memory is had at the beginning: a collective must not fail in its middle for want of it, on one rank
 * of a thousand. Untouched pages cost nothing, so the area may be generous. */
static ddp_status make_buffers(struct net *net, struct ddp_err *err)
{
    const struct net_layout *l = &net->layout;
    size_t least = net_area_least(l), links = (size_t)(net->served > 0 ? net->served : 1) * (size_t)l->hosts;

    net->slot_bytes = shm_slot_bytes(l->most);
    net->area_bytes = least > AREA ? least : AREA;
    if ((size_t)l->world * LARGEST_ELEMENT > net->slot_bytes)
        return ddp_fail(
            err, DDP_ERR_UNSUPPORTED,
            "%d ranks with %d on a host: an element for each does not fit into %zu bytes of shared memory",
            l->world, l->most, net->slot_bytes);
    net->area = malloc(net->area_bytes);
    net->finished[0] = malloc(2 * net->slot_bytes);
    net->partials = calloc((size_t)l->piece_count, sizeof(*net->partials));
    net->pieces_in = calloc(links, sizeof(*net->pieces_in));
    if (!net->area || !net->finished[0] || !net->partials || !net->pieces_in)
        return no_memory(net, err);
    net->finished[1] = net->finished[0] + net->slot_bytes;
    return net_links_open(&net->links, net->served * l->hosts, 2 * (size_t)l->most + 4, net->rank, err);
}

/* Who is at the other end of each link. */
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

static ddp_status prepare(struct net *net, struct ddp_err *err)
{
    const struct shm_meeting *m = &net->cpu->meeting;

    if (!net_layout_open(&net->layout, m->host_of, net->cpu->group_size, m->hosts, LANES))
        return no_memory(net, err);
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
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for other hosts");
    net->cpu = cpu;
    net->rank = setup->rank;
    net->host = cpu->meeting.host;
    net->abroad = (struct barrier_abroad){ net, check_abroad, tell_abroad };
    net_tell_open(&net->tell, setup->bootstrap, cpu->meeting.nonce);
    cpu->barrier.abroad = &net->abroad;
    net->leaving = true; /* connections are made one by one: the joining looks after them */
    ddp_status status = prepare(net, err);
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
