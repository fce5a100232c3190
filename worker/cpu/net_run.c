/* net_run.c -- a collective between hosts, in steps.
 *
 * Each host has the turns of cpu_slots.c, a barrier of its own ranks after each; in between the hosts exchange. With two
 * phases and private buffers:
 *
 *     turn              1        2        3        4        5        6
 *     give           step 0   step 1   step 2
 *     first phase             step 0   step 1   step 2
 *     second phase                     step 0   step 1   step 2
 *     take                                      step 0   step 1   step 2
 *
 * The values of a turn's two phases travel together, so a turn waits for the network once, and never for an answer
 * to what it has sent itself. A stage that a call does not need has no turn: no give where all buffers of the host are in
 * reach. Hosts may differ in that: what passes between them has the same order anyway.
 *
 * Why two slots of a kind are enough is said in cpu_slots.c: the parity of steps runs on from call to call. What a rank has
 * finished between the phases lies in memory of its own, for the take slot of its step is still being read. */
#include "cpu/net.h"

/* How long the waits of a call for other hosts, and then for ranks that wait for those, go beyond its time. */
enum { GRACE_MS = 300 };

static struct net_step step_at(const struct net_call *c, size_t number)
{
    size_t at = number * c->way.per_step, left = c->way.n - at;
    return (struct net_step){ at, left < c->way.per_step ? left : c->way.per_step,
                              (unsigned)((c->net->cpu->turn + number) & 1) };
}

/* Does a stage whose step 0 is in turn `from` have something to do in this turn? */
static bool is_on(const struct net_call *c, size_t from, size_t turn, struct net_step *step)
{
    if (turn < from || turn - from >= c->steps)
        return false;
    *step = step_at(c, turn - from);
    return true;
}

/* The head of `call` on the first `lanes` lanes. */
static void begin(struct net *net, const struct call *call, int lanes)
{
    uint8_t head[NET_HEAD];
    net_put_head(head, call, net->cpu->comm.seq, net->rank);
    for (int i = 0; i < net->served && net_lane(net, i) < lanes; i++)
        for (int h = 0; h < net->layout.hosts; h++)
            if (h != net->host)
                net_link_begin(net_link_to(net, i, h), head);
}

/* A rank of this host that is missing is found by the barrier; so a wait for another host lets the barriers over
 * there speak first. */
static ddp_status wait_for_hosts(struct net *net, struct ddp_err *err)
{
    net->cpu->barrier.slack_ms = GRACE_MS;
    return net_finish(&net->links, &net->cpu->barrier, err);
}

/* Values are on their way while we compute, and while we copy what is finished. */
static ddp_status exchange(const struct net_call *c, size_t turn, struct ddp_err *err)
{
    struct net_step first, second, take;
    bool has_first = c->way.first != NET_NO_FIRST && is_on(c, c->first, turn, &first);

    if (c->way.second != NET_NO_SECOND && is_on(c, c->second, turn, &second))
        net_queue_second(c, &second);
    ddp_status status = net_pump(&c->net->links, err);
    if (status == DDP_OK && has_first) {
        net_queue_first(c, &first);
        status = net_pump(&c->net->links, err);
    }
    if (is_on(c, c->take, turn, &take))
        net_take(c, &take);
    if (status == DDP_OK)
        status = wait_for_hosts(c->net, err);
    if (status == DDP_OK && has_first)
        net_end_first(c, &first);
    return status;
}

static ddp_status run_turn(const struct net_call *c, size_t turn, struct ddp_err *err)
{
    struct net_step give;
    if (!c->direct && is_on(c, 0, turn, &give))
        net_give(c, &give);
    if (turn == c->first)
        begin(c->net, c->call, c->way.lanes);
    ddp_status status = exchange(c, turn, err);
    if (status != DDP_OK || turn == c->last)
        return status;
    c->net->cpu->barrier.slack_ms = 2 * GRACE_MS;
    return barrier_pass(&c->net->cpu->barrier, false, err);
}

/* Turns are numbered from the one in which private buffers are given. */
static void set_turns(struct net_call *c, bool direct)
{
    c->direct = direct;
    c->first = direct ? 0 : 1;
    c->second = c->first + (c->way.first != NET_NO_FIRST);
    c->take = c->second + (c->way.second != NET_NO_SECOND);
    c->last = c->take + c->steps - 1;
}

/* How many ranks of this host have buffers in everybody's reach, and how many of those have something to give. A
 * rank that is alone on its host reaches what it has. */
static int count_in_reach(const struct net_call *c, int *with_input)
{
    struct cpu_comm *cpu = c->net->cpu;
    int count = 0;

    *with_input = 0;
    for (int r = 0; r < cpu->world; r++) {
        if (cpu->world > 1 && !cpu_in_reach(cpu, c->call, r))
            continue;
        count++;
        *with_input += cpu_in_bytes(cpu, c->call, r) > 0;
    }
    return count;
}

/* As in cpu_comm.c: who has private buffers gives the first step before the first barrier; where some have and some
 * have not, all begin again. */
static ddp_status run_steps(struct net_call *c, struct ddp_err *err)
{
    struct cpu_comm *cpu = c->net->cpu;
    struct net_step step = step_at(c, 0);
    int with_input;

    set_turns(c, false);
    if (cpu->world > 1 && !cpu_in_reach(cpu, c->call, cpu->rank))
        net_give(c, &step);
    ddp_status status = barrier_pass(&cpu->barrier, true, err);
    if (status != DDP_OK)
        return status;
    bool all = count_in_reach(c, &with_input) == cpu->world;
    set_turns(c, all);
    for (size_t turn = !all && with_input == 0; turn <= c->last && status == DDP_OK; turn++)
        status = run_turn(c, turn, err);
    cpu->turn += c->steps;
    return status;
}

/* A failure between hosts is everybody's: whichever rank of whichever host was first has the words. */
static ddp_status settle(struct net *net, ddp_status status, struct ddp_err *err)
{
    if (status == DDP_OK)
        return DDP_OK;
    barrier_give_up(&net->cpu->barrier, err);
    net_links_shut(&net->links);
    return err->code;
}

/* Wait for all hosts, between two barriers of this one. */
static ddp_status meet(struct net *net, const struct call *call, struct ddp_err *err)
{
    begin(net, call, 1);
    ddp_status status = wait_for_hosts(net, err);
    if (status != DDP_OK)
        return status;
    net->cpu->barrier.slack_ms = 2 * GRACE_MS;
    return barrier_pass(&net->cpu->barrier, false, err);
}

ddp_status net_run(struct net *net, const struct call *call, struct ddp_err *err)
{
    struct net_call c = { .net = net, .call = call };

    net->leaving = call->kind == CALL_FINALIZE;
    net->links.call = *call;
    net->links.seq = net->cpu->comm.seq;
    c.way = net_way_of(&net->layout, call, net->slot_bytes, net->area_bytes);
    c.steps = net_steps(&c.way);
    if (c.steps > 0)
        return settle(net, run_steps(&c, err), err);
    ddp_status status = barrier_pass(&net->cpu->barrier, true, err);
    if (status == DDP_OK)
        status = meet(net, call, err);
    return settle(net, status, err);
}
