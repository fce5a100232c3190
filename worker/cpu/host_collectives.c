/* host_collectives.c -- see host_collectives.h.
 *
 * A call in place uses the ranks' buffers directly, and each rank finds the buffers of its peers through marks (shm.h).
 * A barrier ends the call, because no rank may change its input while a peer still reads that input. */
#include "cpu/host_collectives.h"

#include "core/call.h"
#include "reducer/reduce.h"

#include <string.h>

/* Write this rank's mark for the call. The mark describes where this rank's buffers are. A slow peer may still read the
 * mark for the previous call, so each rank has two marks. No peer reads an older mark. */
void cpu_begin(struct cpu_comm *cpu, const struct call *call)
{
    int rank = cpu->control->ranks[cpu->rank].rank;
    const struct shm_mark mark = {
        .seq = ++cpu->comm.seq,
        .call = *call,
        .in = regions_find(&cpu->regions, call->in, call_in_bytes(call, rank, cpu->group_size)),
        .out = regions_find(&cpu->regions, call->out, call_out_bytes(call, rank, cpu->group_size)),
    };
    barrier_begin(&cpu->barrier, &mark, call->timeout_ms ? call->timeout_ms : cpu->step_timeout_ms);
}

size_t cpu_in_bytes(const struct cpu_comm *cpu, const struct call *call, int rank)
{
    return call_in_bytes(call, cpu->control->ranks[rank].rank, cpu->group_size);
}

static size_t out_bytes(const struct cpu_comm *cpu, const struct call *call, int rank)
{
    return call_out_bytes(call, cpu->control->ranks[rank].rank, cpu->group_size);
}

void *cpu_input_of(const struct cpu_comm *cpu, const struct call *call, int rank)
{
    return regions_at(&cpu->regions, rank, shm_mark_of(cpu->control, rank, cpu->comm.seq)->in,
                      cpu_in_bytes(cpu, call, rank));
}

static void *output_of(const struct cpu_comm *cpu, const struct call *call, int rank)
{
    return regions_at(&cpu->regions, rank, shm_mark_of(cpu->control, rank, cpu->comm.seq)->out,
                      out_bytes(cpu, call, rank));
}

/* Return true if the buffer has bytes but no address that peers can use. */
static bool out_of_reach(const void *found, size_t bytes)
{
    return found == NULL && bytes > 0;
}

bool cpu_in_reach(const struct cpu_comm *cpu, const struct call *call, int rank)
{
    /* On one host, all_reduce and reduce also write into the outputs of other ranks. In all other calls a rank writes
     * only its own output, which may be private. */
    bool writes_outputs = cpu->net == NULL && (call->kind == CALL_ALL_REDUCE || call->kind == CALL_REDUCE);

    if (out_of_reach(cpu_input_of(cpu, call, rank), cpu_in_bytes(cpu, call, rank)))
        return false;
    return !writes_outputs || !out_of_reach(output_of(cpu, call, rank), out_bytes(cpu, call, rank));
}

/* Collectives in place. Before the first barrier, each rank writes its mark (cpu_begin). After this barrier, each rank
 * finds the buffers of its peers through their marks. In a reduction each rank combines its part of the elements from
 * all inputs. The rank writes the result to all outputs (all_reduce), to the root's output (reduce), or to its own
 * output (reduce_scatter). Other collectives copy from a peer's input. A second barrier ends the call. */

static void collect_inputs(struct cpu_comm *cpu, const struct call *call)
{
    for (int r = 0; r < cpu->world; r++)
        cpu->in[r] = cpu_input_of(cpu, call, r);
}

/* Combine this rank's part of the elements and write the result to all outputs. An output may also be an input, because
 * only this rank reads and writes this part between the two barriers. */
static void direct_all_reduce(struct cpu_comm *cpu, const struct call *call)
{
    size_t at, n;
    collect_inputs(cpu, call);
    for (int r = 0; r < cpu->world; r++)
        cpu->out[r] = output_of(cpu, call, r);
    part_of(call->n, ddp_dtype_size(call->dtype), cpu->rank, cpu->world, &at, &n);
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, at, n, cpu->out, (size_t)cpu->world);
}

/* Combine this rank's part of the elements, and write the result only to the root's output. */
static void direct_reduce(struct cpu_comm *cpu, const struct call *call)
{
    size_t at, n;
    collect_inputs(cpu, call);
    cpu->out[0] = output_of(cpu, call, call->root);
    part_of(call->n, ddp_dtype_size(call->dtype), cpu->rank, cpu->world, &at, &n);
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, at, n, cpu->out, 1);
}

/* Reduce this rank's part of every input into this rank's output. */
static void direct_reduce_scatter(struct cpu_comm *cpu, const struct call *call)
{
    size_t skip = (size_t)cpu->rank * call->n * ddp_dtype_size(call->dtype);
    for (int r = 0; r < cpu->world; r++)
        cpu->in[r] = (char *)cpu_input_of(cpu, call, r) + skip;
    cpu->out[0] = call->out;
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, 0, call->n, cpu->out, 1);
}

/* Copy, unless `to` and `from` are equal. The two pointers are equal in a call in place. */
static void copy_unless_same(void *to, const void *from, size_t bytes)
{
    if (to != from)
        memcpy(to, from, bytes);
}

static void direct_broadcast(struct cpu_comm *cpu, const struct call *call)
{
    copy_unless_same(call->out, cpu_input_of(cpu, call, call->root),
                     call_out_bytes(call, cpu->rank, cpu->world));
}

static void direct_all_gather(struct cpu_comm *cpu, const struct call *call)
{
    size_t part = call->n * ddp_dtype_size(call->dtype);
    for (int r = 0; r < cpu->world; r++)
        copy_unless_same((char *)call->out + (size_t)r * part, cpu_input_of(cpu, call, r), part);
}

static void direct_gather(struct cpu_comm *cpu, const struct call *call)
{
    if (cpu->rank == call->root)
        direct_all_gather(cpu, call);
}

static void direct_scatter(struct cpu_comm *cpu, const struct call *call)
{
    size_t part = call->n * ddp_dtype_size(call->dtype);
    copy_unless_same(call->out, (char *)cpu_input_of(cpu, call, call->root) + (size_t)cpu->rank * part, part);
}

static void (*const direct[CALL_KINDS])(struct cpu_comm *, const struct call *) = {
    [CALL_ALL_REDUCE] = direct_all_reduce,
    [CALL_REDUCE] = direct_reduce,
    [CALL_BROADCAST] = direct_broadcast,
    [CALL_ALL_GATHER] = direct_all_gather,
    [CALL_GATHER] = direct_gather,
    [CALL_SCATTER] = direct_scatter,
    [CALL_REDUCE_SCATTER] = direct_reduce_scatter,
};

static void run_in_place(struct cpu_comm *cpu, const struct call *call)
{
    direct[call->kind](cpu, call);
}

/* --- through slots ---------------------------------------------------------------------------------------- */

/* Collectives on private memory. Values are copied through slots in steps of a slot's size. Each rank has two give
 * slots and two take slots, one of each for even steps and one for odd steps:
 *
 *     give      copy this rank's values into its give slot (scatter: into the give slots of all ranks)
 *     combine   reduce this rank's part of the values of all ranks into its take slot
 *     take      copy the other ranks' parts of the result out of their take slots
 *
 * The stages overlap. A turn is the work between two barriers:
 *
 *     turn                0        1        2        3        4
 *     give             step 0   step 1   step 2
 *     combine                   step 0   step 1   step 2
 *     take                               step 0   step 1   step 2
 *
 * Step 2 fills the slots of step 0 again. A barrier separates this write from the last read.
 *
 * Steps are numbered from call to call without a gap, so no barrier is needed after the last turn of a call.
 *
 * Without a combine stage, ranks take the values from the give slots. A small call has one step and one barrier; each
 * rank combines all values when it takes them. */

/* One step: elements [at, at + n) of the call, in the slots GIVE + `pair` and TAKE + `pair`. */
struct step {
    size_t at, n;
    unsigned pair; /* 0 in even steps, 1 in odd steps */
};

enum { GIVE = 0, TAKE = 2 };

typedef void (*stage_fn)(struct cpu_comm *cpu, const struct call *call, const struct step *step);

struct plan {
    stage_fn give, combine /* `combine` may be NULL */, take;
    /* gives_at_root: true if only the root runs the stage `give`; takes_at_root: the same for the stage `take` */
    bool gives_at_root, takes_at_root;
    bool slot_holds_world; /* true if each slot holds one block of n elements for every rank */
};

static char *give_slot(const struct cpu_comm *cpu, int rank, const struct step *step)
{
    return shm_slot(cpu->control, cpu->world, rank, GIVE + step->pair);
}

static char *slot_to_read(const struct cpu_comm *cpu, int rank, const struct step *step)
{
    return shm_slot(cpu->control, cpu->world, rank, TAKE + step->pair);
}

static const char *in_at(const struct call *call, size_t element)
{
    return (const char *)call->in + element * ddp_dtype_size(call->dtype);
}

static char *out_at(const struct call *call, size_t element)
{
    return (char *)call->out + element * ddp_dtype_size(call->dtype);
}

/* Copy in pieces of 2 KiB. The C library copies larger blocks with `rep movsb`, which is four times slower if the data
 * is in another core's cache (AMD Zen 3). The C library copies pieces of 2 KiB with vector loops. */
void cpu_copy(void *to, const void *from, size_t bytes)
{
    enum { PIECE = 2048 };
    for (size_t at = 0; at < bytes; at += PIECE)
        memcpy((char *)to + at, (const char *)from + at, bytes - at < PIECE ? bytes - at : PIECE);
}

/* --- give ----------------------------------------------------------------------------------------------- */

static void give_own(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    cpu_copy(give_slot(cpu, cpu->rank, step), in_at(call, step->at), step->n * ddp_dtype_size(call->dtype));
}

/* Copy this rank's values into its slot. Skip this rank's own part, because combine_part reads that part from the
 * input. */
static void give_others(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    size_t size = ddp_dtype_size(call->dtype), at, n;
    char *slot = give_slot(cpu, cpu->rank, step);
    part_of(step->n, size, cpu->rank, cpu->world, &at, &n);
    size_t behind = at + n;
    cpu_copy(slot, in_at(call, step->at), at * size);
    cpu_copy(slot + behind * size, in_at(call, step->at + behind), (step->n - behind) * size);
}

/* Fill the slots of all ranks; called only on the root. */
static void give_each(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    for (int r = 0; r < cpu->world; r++)
        cpu_copy(give_slot(cpu, r, step), in_at(call, (size_t)r * call->n + step->at),
                 step->n * ddp_dtype_size(call->dtype));
}

static void give_world(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    size_t bytes = step->n * ddp_dtype_size(call->dtype);
    for (int r = 0; r < cpu->world; r++)
        cpu_copy(give_slot(cpu, cpu->rank, step) + (size_t)r * bytes,
                 in_at(call, (size_t)r * call->n + step->at), bytes);
}

/* --- combine -------------------------------------------------------------------------------------------- */

/* Set each cpu->in[r] to the address of rank r's values in its give slot, plus skip_bytes. */
static void collect_slots(struct cpu_comm *cpu, const struct step *step, size_t skip_bytes)
{
    for (int r = 0; r < cpu->world; r++)
        cpu->in[r] = give_slot(cpu, r, step) + skip_bytes;
}

/* Reduce this rank's part of the step, from this rank's input and the other ranks' give slots. Write the result to this
 * rank's take slot for the other ranks. If this rank has an output, write the result there, too. */
static void combine_part(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    size_t at, n, outs = call_out_bytes(call, cpu->rank, cpu->world) > 0 ? 2 : 1;
    collect_slots(cpu, step, 0);
    cpu->in[cpu->rank] = in_at(call, step->at);
    cpu->out[0] = slot_to_read(cpu, cpu->rank, step);
    cpu->out[1] = out_at(call, step->at);
    part_of(step->n, ddp_dtype_size(call->dtype), cpu->rank, cpu->world, &at, &n);
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, at, n, cpu->out, outs);
}

/* --- take ----------------------------------------------------------------------------------------------- */

/* Copy the other ranks' parts of the result from their take slots. */
static void copy_parts(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    size_t size = ddp_dtype_size(call->dtype), at, n;
    for (int r = 0; r < cpu->world; r++) {
        if (r == cpu->rank)
            continue;
        part_of(step->n, size, r, cpu->world, &at, &n);
        cpu_copy(out_at(call, step->at + at), slot_to_read(cpu, r, step) + at * size, n * size);
    }
}

/* Carry out the stage `take` of a small call: reduce the values from the `give` slots of all ranks into the output. */
static void combine_slots(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    collect_slots(cpu, step, 0);
    cpu->out[0] = out_at(call, step->at);
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, 0, step->n, cpu->out, 1);
}

/* Carry out the stage `take` of reduce_scatter. The `give` slot of each rank has a part for every rank: reduce the
 * parts for this rank into the output. */
static void combine_own(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    collect_slots(cpu, step, (size_t)cpu->rank * step->n * ddp_dtype_size(call->dtype));
    cpu->out[0] = out_at(call, step->at);
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, 0, step->n, cpu->out, 1);
}

static void copy_from(struct cpu_comm *cpu, const struct call *call, const struct step *step, int rank,
                      size_t to)
{
    cpu_copy(out_at(call, to), give_slot(cpu, rank, step), step->n * ddp_dtype_size(call->dtype));
}

/* Copy a broadcast's values from the root's slot. The root copies nothing if its input is also its output. */
static void copy_root(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    if (cpu->rank != call->root || call->in != call->out)
        copy_from(cpu, call, step, call->root, step->at);
}

static void copy_own(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    copy_from(cpu, call, step, cpu->rank, step->at);
}

static void copy_all(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    for (int r = 0; r < cpu->world; r++)
        copy_from(cpu, call, step, r, (size_t)r * call->n + step->at);
}

/* --- the pipeline --------------------------------------------------------------------------------------- */

/* Return true if each rank combines all values itself. */
static bool is_small(const struct cpu_comm *cpu, const struct call *call)
{
    enum { SMALL_TOGETHER = 128 << 10 }; /* maximum number of bytes that each rank reads in a small call */
    return call->n * ddp_dtype_size(call->dtype) * (size_t)cpu->world <= SMALL_TOGETHER;
}

static const struct plan plans[CALL_KINDS] = {
    /* give        combine       take               gives_at_root, takes_at_root, slot_holds_world */
    [CALL_ALL_REDUCE] = { give_others, combine_part, copy_parts, false, false, false },
    [CALL_REDUCE] = { give_others, combine_part, copy_parts, false, true, false },
    [CALL_BROADCAST] = { give_own, NULL, copy_root, true, false, false },
    [CALL_ALL_GATHER] = { give_own, NULL, copy_all, false, false, false },
    [CALL_GATHER] = { give_own, NULL, copy_all, false, true, false },
    [CALL_SCATTER] = { give_each, NULL, copy_own, true, false, false },
    [CALL_REDUCE_SCATTER] = { give_world, NULL, combine_own, false, false, true },
};

/* Choose the stages of a call. Use only values that are equal on all ranks, because every rank must make the same
 * choice. */
static struct plan choose_plan(const struct cpu_comm *cpu, const struct call *call)
{
    struct plan plan = plans[call->kind];
    if (plan.combine != NULL && is_small(cpu, call)) {
        plan.give = give_own;
        plan.combine = NULL;
        plan.take = combine_slots;
    }
    return plan;
}

struct pipeline {
    struct cpu_comm *cpu;
    const struct call *call;
    struct plan plan;
    size_t per_step, steps;
    size_t depth; /* number of barriers between the give stage and the take stage of a step */
};

static struct pipeline make_pipeline(struct cpu_comm *cpu, const struct call *call)
{
    struct pipeline p = { .cpu = cpu, .call = call, .plan = choose_plan(cpu, call) };
    p.per_step = shm_slot_bytes(cpu->world) / ddp_dtype_size(call->dtype);
    if (p.plan.slot_holds_world)
        p.per_step /= (size_t)cpu->world;
    p.steps = ((size_t)call->n + p.per_step - 1) / p.per_step;
    p.depth = p.plan.combine != NULL ? 2 : 1;
    return p;
}

/* Run a stage for step `number` of this call. Even and odd steps use different slots. Steps are counted over all
 * calls, so add cpu->turn, the number of steps in earlier calls. */
static void run_stage(const struct pipeline *p, stage_fn stage, size_t number)
{
    size_t at = number * p->per_step, left = (size_t)p->call->n - at;
    const struct step step = { at, left < p->per_step ? left : p->per_step,
                               (unsigned)((p->cpu->turn + number) & 1) };
    stage(p->cpu, p->call, &step);
}

static void run_pipeline_turn(const struct pipeline *p, size_t turn)
{
    const struct plan *plan = &p->plan;
    bool at_root = p->cpu->rank == p->call->root;

    if (turn < p->steps && (at_root || !plan->gives_at_root))
        run_stage(p, plan->give, turn);
    if (plan->combine != NULL && turn >= 1 && turn <= p->steps)
        run_stage(p, plan->combine, turn - 1);
    if (turn >= p->depth && (at_root || !plan->takes_at_root))
        run_stage(p, plan->take, turn - p->depth);
}

static void fill_first_step(struct cpu_comm *cpu, const struct call *call)
{
    const struct pipeline p = make_pipeline(cpu, call);
    run_pipeline_turn(&p, 0);
}

static ddp_status run_through_slots(struct cpu_comm *cpu, const struct call *call, bool given,
                                    struct ddp_err *err)
{
    const struct pipeline p = make_pipeline(cpu, call);
    size_t last = p.steps + p.depth - 1;

    for (size_t turn = given ? 1 : 0; turn <= last; turn++) {
        run_pipeline_turn(&p, turn);
        ddp_status status = turn < last ? barrier_pass(&cpu->barrier, false, err) : DDP_OK;
        if (status != DDP_OK)
            return status;
    }
    cpu->turn += p.steps;
    return DDP_OK;
}

/* --- in place, or through slots -------------------------------------------------------------------------- */

/* Return the number of ranks whose buffers every rank can reach. Set *with_input to the number of these ranks that have
 * an input. */
static int count_in_reach(const struct cpu_comm *cpu, const struct call *call, int *with_input)
{
    int count = 0;
    *with_input = 0;
    for (int r = 0; r < cpu->world; r++) {
        if (!cpu_in_reach(cpu, call, r))
            continue;
        count++;
        *with_input += call_in_bytes(call, r, cpu->world) > 0;
    }
    return count;
}

/* Run the call: in place if the buffers of all ranks are in reach (cpu_in_reach), otherwise through slots. Before the
 * first barrier, each rank whose buffers are out of reach does turn 0: it copies its values of step 0 into its slot.
 * After the barrier every rank reads the marks of all ranks (shm.h), so all ranks choose the same path.
 *
 * A rank whose buffers are in reach skips turn 0 before the barrier. If the call runs through slots and such a rank has
 * an input, all ranks do turn 0 after the barrier. The ranks whose buffers are out of reach then do turn 0 a second
 * time. */
ddp_status host_run(struct cpu_comm *cpu, const struct call *call, struct ddp_err *err)
{
    int with_input;
    if (!cpu_in_reach(cpu, call, cpu->rank))
        fill_first_step(cpu, call);
    ddp_status status = barrier_pass(&cpu->barrier, true, err);
    if (status != DDP_OK)
        return status;
    if (count_in_reach(cpu, call, &with_input) < cpu->world)
        return run_through_slots(cpu, call, with_input == 0, err);
    run_in_place(cpu, call);
    return barrier_pass(&cpu->barrier, false, err);
}
