/* net_values.c -- what a turn of a collective sends, receives and computes. See net_plan.h for what goes where.
 *
 * A rank that serves lane k does all of lane k on its host: it reads the lane's part of every column from all ranks
 * of the host (out of their slots, or where their buffers lie), combines pieces, exchanges, joins, and puts the
 * finished part into its take slot, from where all ranks of the host copy it. So within a host there are the same
 * three stages as in cpu_slots.c, and no rank waits for another one in the middle of a turn. */
#include "cpu/net.h"

#include <string.h>

static bool serves(const struct net_call *c, int i)
{
    return i < c->net->served && net_lane(c->net, i) < c->way.lanes;
}

/* Element `at` of a rank's give or take slot. */
static char *slot_at(const struct net_call *c, int local, unsigned which, size_t at)
{
    struct cpu_comm *cpu = c->net->cpu;
    return (char *)shm_slot(cpu->control, cpu->world, local, which) + at * c->way.element;
}

static char *take_slot_at(const struct net_call *c, int local, const struct net_step *step, size_t at)
{
    return slot_at(c, local, 2 + step->pair, at);
}

/* Where the part of column number `number` lies that rank `local` of this host has to give. */
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

/* The rank of this host that has a column to give, in calls where only one has. */
static int giver_of(const struct net_call *c, int number)
{
    return c->net->layout.local_of[c->way.gathers ? number : c->way.root];
}

/* --- giving and taking ---------------------------------------------------------------------------------- */

void net_give(const struct net_call *c, const struct net_step *step)
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

static void take_column(const struct net_call *c, const struct net_step *step, int number)
{
    struct net_column column = net_column_at(&c->way, step->n, number);
    size_t place = net_out_place(&c->way, &column, number, step->at);

    for (int lane = 0; lane < c->way.lanes; lane++) {
        struct net_range part = net_lane_part(&c->way, &column, lane);
        cpu_copy((char *)c->call->out + (place + part.at - column.range.at) * c->way.element,
                 take_slot_at(c, lane % c->net->cpu->world, step, part.at), part.n * c->way.element);
    }
}

/* The root of a broadcast in place has the values already. */
void net_take(const struct net_call *c, const struct net_step *step)
{
    const struct net_way *way = &c->way;
    bool is_root = c->net->rank == way->root;

    if (way->only_root_takes && !is_root)
        return;
    if (c->call->kind == CALL_BROADCAST && is_root && c->call->in == c->call->out)
        return;
    if (way->scatters) {
        take_column(c, step, c->net->rank);
        return;
    }
    for (int k = 0; k < net_column_count(way); k++)
        take_column(c, step, k);
}

/* --- the first phase: pieces ---------------------------------------------------------------------------- */

/* Our host's pieces of one part, one behind the other. Returns where they end. */
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

/* The pieces of all columns that `host` owns, for one lane. */
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

/* Elements of one lane that this host owns. */
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

/* Others' pieces of what we own come behind our own in the area. */
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

/* Each host begins with its neighbour, so that not all send to the same one. Where every host owns everything, all get
 * the same pieces. */
static uint8_t *send_pieces(const struct net_call *c, const struct net_step *step, int i, uint8_t *to)
{
    struct net *net = c->net;
    int hosts = net->layout.hosts, lane = net_lane(net, i);
    uint8_t *from = to, *end = to;

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

/* The finished values of what we own: on to the second phase, or into the take slot. */
static char *finished_at(const struct net_call *c, const struct net_step *step, size_t at)
{
    if (c->way.second == NET_NO_SECOND)
        return take_slot_at(c, c->net->cpu->rank, step, at);
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

/* One column of one lane, at the root's host: to its owner, and to ourselves what we keep. */
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

/* Receiving first: what has come meanwhile is moved while we combine. */
void net_queue_first(const struct net_call *c, const struct net_step *step)
{
    uint8_t *to = c->net->area;
    for (int i = 0; serves(c, i); i++) {
        if (c->way.first == NET_SPREAD)
            queue_spread(c, step, i);
        else
            to = send_pieces(c, step, i, receive_pieces(c, step, i, to));
    }
}

void net_end_first(const struct net_call *c, const struct net_step *step)
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

/* A finished part: to those who want it. */
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
        cpu_copy(take_slot_at(c, net->cpu->rank, step, part->at), from, bytes);
}

void net_queue_second(const struct net_call *c, const struct net_step *step)
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
                                 take_slot_at(c, net->cpu->rank, step, part.at), part.n * c->way.element);
        }
    }
}
