/* net_run.c -- see net_join.h: a collective between hosts, in steps. Each host runs the turns of host_collectives.c,
 * with a barrier of its ranks after each turn, and the hosts exchange values between the barriers. The values of both
 * phases of a turn travel together, so that each turn waits for the network only once. */
#include "cpu/net_join.h"

#include <string.h>

/* A call in progress on this rank. The section "turns" below shows its stages. */
struct net_call {
    struct net *net;
    const struct call *call;
    struct net_way way;
    bool direct; /* inputs are read in place, so the give stage is skipped */
    size_t steps;
    size_t first, second, take; /* turn in which the first phase, the second phase or the take stage begins */
    size_t last;                /* the last turn of the call */
};

/* One step: elements [at, at + n), give slot `pair` (0 or 1), take slot 2 + `pair`. host_collectives.c explains the
 * slots. */
struct net_step {
    size_t at, n;
    unsigned pair;
};

/* --- data of a turn -------------------------------------------------------------------------------------- */

/* The rank that serves lane k does all work of lane k on its host:
 *
 *   - read the lane's part of every column from all ranks of the host
 *   - combine it into pieces, exchange the pieces and join them
 *   - write the finished part into the take slot */

/* Return true if the call uses lane `i` of the lanes that this rank serves. */
static bool serves(const struct net_call *c, int i)
{
    return i < c->net->served && net_lane(c->net, i) < c->way.lanes;
}

/* Return the address of element `at` in slot `which` of local rank `local`. */
static char *slot_at(const struct net_call *c, int local, unsigned which, size_t at)
{
    struct cpu_comm *cpu = c->net->cpu;
    return (char *)shm_slot(cpu->control, cpu->world, local, which) + at * c->way.element;
}

static char *receive_slot_at(const struct net_call *c, int local, const struct net_step *step, size_t at)
{
    return slot_at(c, local, 2 + step->pair, at);
}

/* Return the address of `part` of column `number`, in the input or the give slot of local rank `local`. */
static const char *source(const struct net_call *c, const struct net_step *step, int local,
                          const struct net_column *column, int number, const struct net_range *part)
{
    struct cpu_comm *cpu = c->net->cpu;
    size_t within = part->at - column->range.at;

    if (!c->direct)
        return slot_at(c, local, step->pair, net_slot_place(&c->way, column) + within);
    const char *in = local == cpu->rank ? c->call->in : cpu_input_of(cpu, c->call, local);
    return in + (net_in_place(&c->way, column, number, step->at) + within) * c->way.element;
}

/* Return the local rank that has the values of column `number`, in a gather, broadcast or scatter. */
static int giver_of(const struct net_call *c, int number)
{
    return c->net->layout.local_of[c->way.gathers ? number : c->way.root];
}

/* --- giving and taking ---------------------------------------------------------------------------------- */

static void net_fill_slots(const struct net_call *c, const struct net_step *step)
{
    const struct net_way *way = &c->way;
    int columns = way->gathers ? 1 : net_column_count(way), local = c->net->cpu->rank;

    if (way->first == NET_SPREAD && c->net->rank != way->root)
        return;
    for (int k = 0; k < columns; k++) {
        struct net_column column = net_column_at(way, step->n, k);
        size_t n = way->gathers ? step->n : column.range.n;
        cpu_copy(slot_at(c, local, step->pair, net_slot_place(way, &column)),
                 (const char *)c->call->in + net_in_place(way, &column, k, step->at) * way->element,
                 n * way->element);
    }
}

static void receive_column(const struct net_call *c, const struct net_step *step, int number)
{
    struct net_column column = net_column_at(&c->way, step->n, number);
    size_t place = net_out_place(&c->way, &column, number, step->at);

    for (int lane = 0; lane < c->way.lanes; lane++) {
        struct net_range part = net_lane_part(&c->way, &column, lane);
        cpu_copy((char *)c->call->out + (place + part.at - column.range.at) * c->way.element,
                 receive_slot_at(c, lane % c->net->cpu->world, step, part.at), part.n * c->way.element);
    }
}

/* Copy the finished values from the take slots to this rank's output. In a broadcast in place, the root already has
 * the values. */
static void net_receive(const struct net_call *c, const struct net_step *step)
{
    const struct net_way *way = &c->way;
    bool is_root = c->net->rank == way->root;

    if (way->only_root_takes && !is_root)
        return;
    if (c->call->kind == CALL_BROADCAST && is_root && c->call->in == c->call->out)
        return;
    if (way->scatters) {
        receive_column(c, step, c->net->rank);
        return;
    }
    for (int k = 0; k < net_column_count(way); k++)
        receive_column(c, step, k);
}

/* --- the first phase: pieces ---------------------------------------------------------------------------- */

/* Reduce `part` over the ranks of each piece (net_plan.h) of this host. Write the results to `to`, one after
 * another, and return their end. */
static uint8_t *combine_pieces(const struct net_call *c, const struct net_step *step,
                               const struct net_column *column, int number, const struct net_range *part,
                               uint8_t *to)
{
    const struct net_layout *l = &c->net->layout;
    const void **in = c->net->cpu->in;

    for (int p = 0; p < l->piece_count; p++) {
        if (net_piece_host(l, p) != c->net->host)
            continue;
        for (uint32_t i = 0; i < l->pieces[p].count; i++)
            in[i] = source(c, step, l->local_of[l->pieces[p].first + i], column, number, part);
        reduce_piece(c->call->dtype, c->call->op, in, l->pieces[p].count, part->n, to);
        to += part->n * c->way.partial;
    }
    return to;
}

/* Write the pieces of one lane to `to`, for all columns that `host` owns. Return the end of the last piece. */
static uint8_t *combine_for(const struct net_call *c, const struct net_step *step, int lane, int host,
                            uint8_t *to)
{
    for (int k = 0; k < net_column_count(&c->way); k++) {
        struct net_column column = net_column_at(&c->way, step->n, k);
        struct net_range part = net_lane_part(&c->way, &column, lane);
        if (net_owns(&column, host))
            to = combine_pieces(c, step, &column, k, &part, to);
    }
    return to;
}

/* Return the number of elements that `lane` carries, in all columns that this host owns. */
static size_t owned_elements(const struct net_call *c, const struct net_step *step, int lane)
{
    size_t n = 0;
    for (int k = 0; k < net_column_count(&c->way); k++) {
        struct net_column column = net_column_at(&c->way, step->n, k);
        if (net_owns(&column, c->net->host))
            n += net_lane_part(&c->way, &column, lane).n;
    }
    return n;
}

/* Queue receive operations, which write the pieces of the other hosts to `to`. Return the end of the last piece. */
static uint8_t *receive_pieces(const struct net_call *c, const struct net_step *step, int i, uint8_t *to)
{
    struct net *net = c->net;
    size_t bytes = owned_elements(c, step, net_lane(net, i)) * c->way.partial;

    for (int h = 0; h < net->layout.hosts; h++) {
        if (h == net->host)
            continue;
        net->pieces_in[i * net->layout.hosts + h] = to;
        net_link_receive(net_link_to(net, i, h), to, bytes * (size_t)net->layout.pieces_of[h]);
        to += bytes * (size_t)net->layout.pieces_of[h];
    }
    return to;
}

/* Combine this host's pieces of each column, and send them to the host that owns the column. If every host owns all
 * columns, combine the pieces once and send them to all hosts. */
static uint8_t *send_pieces(const struct net_call *c, const struct net_step *step, int i, uint8_t *to)
{
    struct net *net = c->net;
    int hosts = net->layout.hosts, lane = net_lane(net, i);
    uint8_t *from = to, *end = to;

    /* Begin with the next host, so that not all hosts send to the same host first. */
    for (int h = (net->host + 1) % hosts, left = hosts - 1; left > 0; h = (h + 1) % hosts, left--) {
        if (c->way.columns != NET_FOR_ALL || end == to) {
            from = end;
            end = combine_for(c, step, lane, h, from);
        }
        net_link_send(net_link_to(net, i, h), from, (size_t)(end - from));
    }
    if (c->way.columns != NET_FOR_ALL) {
        from = end;
        end = combine_for(c, step, lane, net->host, from);
    }
    net->pieces_in[i * hosts + net->host] = from;
    return end;
}

/* Return the address to which the first phase writes finished values. Without a second phase, this address is in
 * the take slot. Otherwise it is in private memory, because other ranks may still read the take slot. */
static char *finished_at(const struct net_call *c, const struct net_step *step, size_t at)
{
    if (c->way.second == NET_NO_SECOND)
        return receive_slot_at(c, c->net->cpu->rank, step, at);
    return (char *)c->net->finished[step->pair] + at * c->way.element;
}

static void join_part(const struct net_call *c, const struct net_step *step, int i,
                      const struct net_range *part)
{
    struct net *net = c->net;
    const struct net_layout *l = &net->layout;

    for (int p = 0; p < l->piece_count; p++) {
        uint8_t **next = &net->pieces_in[i * l->hosts + net_piece_host(l, p)];
        net->partials[p] = *next;
        *next += part->n * c->way.partial;
    }
    reduce_join(c->call->dtype, c->call->op, l->pieces, (size_t)l->world, net->partials, part->n,
                finished_at(c, step, part->at));
}

/* --- the first phase: spreading ------------------------------------------------------------------------- */

/* Send one lane's part of a column from the root's host to the owner. Keep a copy if this host needs it later. */
static void spread_part(const struct net_call *c, const struct net_step *step, int i, int number,
                        const struct net_column *column, const struct net_range *part)
{
    struct net *net = c->net;
    size_t bytes = part->n * c->way.element;
    const char *from = source(c, step, giver_of(c, number), column, number, part);

    for (int h = 0; h < net->layout.hosts; h++)
        if (net_goes_first(&c->way, column, net->host, h))
            net_link_send(net_link_to(net, i, h), from, bytes);
    if (net_holds(&c->way, column, net->host))
        cpu_copy(finished_at(c, step, part->at), from, bytes);
}

static void queue_spread(const struct net_call *c, const struct net_step *step, int i)
{
    struct net *net = c->net;
    for (int k = 0; k < net_column_count(&c->way); k++) {
        struct net_column column = net_column_at(&c->way, step->n, k);
        struct net_range part = net_lane_part(&c->way, &column, net_lane(net, i));
        if (net->host == c->way.root_host)
            spread_part(c, step, i, k, &column, &part);
        else if (net_goes_first(&c->way, &column, c->way.root_host, net->host))
            net_link_receive(net_link_to(net, i, c->way.root_host), finished_at(c, step, part.at),
                             part.n * c->way.element);
    }
}

/* --- the phases ----------------------------------------------------------------------------------------- */

/* Queue the first phase, receives first, so that values arrive while this rank combines its pieces. */
static void net_queue_first(const struct net_call *c, const struct net_step *step)
{
    uint8_t *to = c->net->area;
    for (int i = 0; serves(c, i); i++) {
        if (c->way.first == NET_SPREAD)
            queue_spread(c, step, i);
        else
            to = send_pieces(c, step, i, receive_pieces(c, step, i, to));
    }
}

/* End the first phase. In REDUCE, combine the received pieces into finished values. In SPREAD, do nothing. */
static void net_end_first(const struct net_call *c, const struct net_step *step)
{
    for (int i = 0; c->way.first == NET_REDUCE && serves(c, i); i++) {
        for (int k = 0; k < net_column_count(&c->way); k++) {
            struct net_column column = net_column_at(&c->way, step->n, k);
            struct net_range part = net_lane_part(&c->way, &column, net_lane(c->net, i));
            if (net_owns(&column, c->net->host))
                join_part(c, step, i, &part);
        }
    }
}

/* Send a finished part to the other hosts that need it. If this host also needs the part, copy the part to the take
 * slot. */
static void pass_on(const struct net_call *c, const struct net_step *step, int i, int number,
                    const struct net_column *column, const struct net_range *part)
{
    struct net *net = c->net;
    size_t bytes = part->n * c->way.element;
    const char *from = c->way.first == NET_NO_FIRST
                           ? source(c, step, giver_of(c, number), column, number, part)
                           : finished_at(c, step, part->at);

    for (int h = 0; h < net->layout.hosts; h++)
        if (net_goes_second(&c->way, column, net->host, h))
            net_link_send(net_link_to(net, i, h), from, bytes);
    if (net_wants(&c->way, column, net->host))
        cpu_copy(receive_slot_at(c, net->cpu->rank, step, part->at), from, bytes);
}

static void net_queue_second(const struct net_call *c, const struct net_step *step)
{
    struct net *net = c->net;
    for (int i = 0; serves(c, i); i++) {
        for (int k = 0; k < net_column_count(&c->way); k++) {
            struct net_column column = net_column_at(&c->way, step->n, k);
            struct net_range part = net_lane_part(&c->way, &column, net_lane(net, i));
            if (net_holds(&c->way, &column, net->host))
                pass_on(c, step, i, k, &column, &part);
            else if (net_goes_second(&c->way, &column, column.owner, net->host))
                net_link_receive(net_link_to(net, i, column.owner),
                                 receive_slot_at(c, net->cpu->rank, step, part.at), part.n * c->way.element);
        }
    }
}

/* --- turns ------------------------------------------------------------------------------------------------ */

/* A call with two phases and private buffers has four stages:
 *
 *     turn              0        1        2        3        4        5
 *     give           step 0   step 1   step 2
 *     first phase             step 0   step 1   step 2
 *     second phase                     step 0   step 1   step 2
 *     take                                      step 0   step 1   step 2
 *
 * A call skips each stage that it does not need. A host whose buffers are all in reach skips the give stage; the order
 * of the messages is the same. */

/* Each wait of a call may last for the call's timeout and these extra ms:
 *
 *     the first barrier of the call, which reports a late rank   0
 *     a wait for other hosts                                     GRACE_MS
 *     a barrier after a wait for other hosts                     2 * GRACE_MS */
enum { GRACE_MS = 300 };

static struct net_step step_at(const struct net_call *c, size_t number)
{
    size_t at = number * c->way.per_step, left = c->way.n - at;
    return (struct net_step){ at, left < c->way.per_step ? left : c->way.per_step,
                              (unsigned)((c->net->cpu->turn + number) & 1) };
}

/* Return true if the stage that begins in turn `from` processes a step in turn `turn`. Set *step to that step. */
static bool is_on(const struct net_call *c, size_t from, size_t turn, struct net_step *step)
{
    if (turn < from || turn - from >= c->steps)
        return false;
    *step = step_at(c, turn - from);
    return true;
}

/* Queue the head of `call`, which describes the call to the other hosts, on the first `lanes` lanes. */
static void net_begin(struct net *net, const struct call *call, int lanes)
{
    uint8_t head[NET_HEAD];
    net_encode_head(head, call, net->cpu->comm.seq, net->rank);
    for (int i = 0; i < net->served && net_lane(net, i) < lanes; i++)
        for (int h = 0; h < net->layout.hosts; h++)
            if (h != net->host)
                net_link_begin(net_link_to(net, i, h), head);
}

/* Wait for the other hosts. The best report of a missing rank comes from the barrier on that rank's host. So this wait
 * has a longer timeout, and that barrier times out first. */
static ddp_status wait_for_hosts(struct net *net, struct ddp_err *err)
{
    net->cpu->barrier.slack_ms = GRACE_MS;
    return net_finish(&net->links, &net->cpu->barrier, err);
}

/* Run the phases and the take stage of a turn. Each of these stages works on a different step, so no stage needs a
 * result of this turn. Begin to send the values of the second phase. While these values travel, queue the first phase.
 * With NET_REDUCE, the queueing also combines the pieces of this host. Then take finished values, before the wait for
 * the other hosts. */
static ddp_status exchange(const struct net_call *c, size_t turn, struct ddp_err *err)
{
    struct net_step first, second, take;
    bool has_first = c->way.first != NET_NO_FIRST && is_on(c, c->first, turn, &first);

    if (c->way.second != NET_NO_SECOND && is_on(c, c->second, turn, &second))
        net_queue_second(c, &second);
    ddp_status status = net_transfer(&c->net->links, err);
    if (status == DDP_OK && has_first) {
        net_queue_first(c, &first);
        status = net_transfer(&c->net->links, err);
    }
    if (is_on(c, c->take, turn, &take))
        net_receive(c, &take);
    if (status == DDP_OK)
        status = wait_for_hosts(c->net, err);
    if (status == DDP_OK && has_first)
        net_end_first(c, &first);
    return status;
}

static ddp_status run_net_turn(const struct net_call *c, size_t turn, struct ddp_err *err)
{
    struct net_step give;
    if (!c->direct && is_on(c, 0, turn, &give))
        net_fill_slots(c, &give);
    if (turn == c->first)
        net_begin(c->net, c->call, c->way.lanes);
    ddp_status status = exchange(c, turn, err);
    if (status != DDP_OK || turn == c->last)
        return status;
    c->net->cpu->barrier.slack_ms = 2 * GRACE_MS;
    return barrier_pass(&c->net->cpu->barrier, false, err);
}

/* Compute the turn in which each stage begins. If inputs are not read in place, turn 0 has only the give stage. */
static void set_turns(struct net_call *c, bool direct)
{
    c->direct = direct;
    c->first = direct ? 0 : 1;
    c->second = c->first + (c->way.first != NET_NO_FIRST);
    c->take = c->second + (c->way.second != NET_NO_SECOND);
    c->last = c->take + c->steps - 1;
}

/* Count the ranks of this host whose buffers are accessible to every rank of the host. Set *with_input to the number of
 * these ranks that have an input. A rank that is alone on its host is counted too. */
static int count_net_reach(const struct net_call *c, int *with_input)
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

/* Run all turns. A rank with private buffers fills its slot for step 0 before the first barrier. After this barrier,
 * the first turn depends on the ranks of this host:
 * - If no rank has private buffers, begin with turn 0. The call skips the give stage, and its next stage begins in
 *   turn 0.
 * - If some ranks have private buffers, and a rank without private buffers has an input, begin with turn 0. In this
 *   turn the rank without private buffers fills its slot.
 * - In all other cases begin with turn 1, because all inputs of step 0 are already in the slots. */
static ddp_status run_steps(struct net_call *c, struct ddp_err *err)
{
    struct cpu_comm *cpu = c->net->cpu;
    struct net_step step = step_at(c, 0);
    int with_input;

    set_turns(c, false);
    if (cpu->world > 1 && !cpu_in_reach(cpu, c->call, cpu->rank))
        net_fill_slots(c, &step);
    ddp_status status = barrier_pass(&cpu->barrier, true, err);
    if (status != DDP_OK)
        return status;
    bool all = count_net_reach(c, &with_input) == cpu->world;
    set_turns(c, all);
    for (size_t turn = !all && with_input == 0; turn <= c->last && status == DDP_OK; turn++)
        status = run_net_turn(c, turn, err);
    cpu->turn += c->steps;
    return status;
}

/* Make all ranks of all hosts fail after a failure, with the reason of the first rank that failed. */
static ddp_status net_fail_all(struct net *net, ddp_status status, struct ddp_err *err)
{
    if (status == DDP_OK)
        return DDP_OK;
    barrier_give_up(&net->cpu->barrier, err);
    net_links_shut(&net->links);
    return err->code;
}

/* Wait for all hosts, then for all ranks of this host. */
static ddp_status meet_hosts(struct net *net, const struct call *call, struct ddp_err *err)
{
    net_begin(net, call, 1);
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
        return net_fail_all(net, run_steps(&c, err), err);
    ddp_status status = barrier_pass(&net->cpu->barrier, true, err);
    if (status == DDP_OK)
        status = meet_hosts(net, call, err);
    return net_fail_all(net, status, err);
}
