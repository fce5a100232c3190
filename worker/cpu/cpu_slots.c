/* cpu_slots.c -- collectives on private memory, in steps through slots that all ranks can see.
 *
 * A collective is three stages: give (copy my values into a slot), combine (reduce one part of all slots,
 * for those who need it), take (copy the result out). They run as a pipeline with a barrier after each
 * turn:
 *
 *     turn                1        2        3        4        5
 *     give             step 0   step 1   step 2
 *     combine                   step 0   step 1   step 2
 *     take                               step 0   step 1   step 2
 *     pair of slots       a        b        a                       (odd and even steps)
 *
 * Why two slots are enough: in turn 3 the fastest rank gives step 2 into slot a, which was last read in
 * turn 2, by combine of step 0, and the barrier after turn 2 is behind everybody. The same holds for the
 * take slots one turn later, and across the end of a call, because the parity runs on from call to call:
 * no barrier is needed after the last turn either.
 *
 * Calls without anything to combine have two stages. A small call is one step and one barrier: everybody
 * combines everything for himself.
 *
 * The first turn lies before the first barrier of the call, the one that compares marks: a rank with
 * private buffers knows without the others that the call goes through the slots. */
#include "cpu/cpu.h"

#include "cpu/part.h"
#include "reducer/reduce.h"

#include <string.h>

/* Elements [at, at + n) of the call, through slot `pair` of each pair. */
struct step {
    size_t at, n;
    unsigned pair;
};

enum { GIVE = 0, TAKE = 2 }; /* slot = GIVE + pair or TAKE + pair */

typedef void (*stage_fn)(struct cpu_comm *cpu, const struct call *call, const struct step *step);

struct plan {
    stage_fn give, combine /* may be NULL */, take;
    bool gives_at_root, takes_at_root; /* only the root has this stage */
    bool slot_holds_world;             /* a slot holds the step's elements for every rank */
};

static char *give_slot(const struct cpu_comm *cpu, int rank, const struct step *step)
{
    return shm_slot(cpu->control, cpu->world, rank, GIVE + step->pair);
}

static char *take_slot(const struct cpu_comm *cpu, int rank, const struct step *step)
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

/* Between cores in pieces: the C library copies these with vector loops, and more than a few KiB at once by
 * `rep movsb`, which takes four times as long where the lines are in another core's cache (AMD Zen 3). */
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

/* All but the part that I combine myself: that one I read where it is. */
static void give_others(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    size_t size = ddp_dtype_size(call->dtype), at, n;
    char *slot = give_slot(cpu, cpu->rank, step);
    part_of(step->n, size, cpu->rank, cpu->world, &at, &n);
    size_t behind = at + n;
    cpu_copy(slot, in_at(call, step->at), at * size);
    cpu_copy(slot + behind * size, in_at(call, step->at + behind), (step->n - behind) * size);
}

/* The root fills everybody's slot. */
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

/* The inputs of reduce_range: all ranks' give slots of this step. */
static void collect_slots(struct cpu_comm *cpu, const struct step *step, size_t skip_bytes)
{
    for (int r = 0; r < cpu->world; r++)
        cpu->in[r] = give_slot(cpu, r, step) + skip_bytes;
}

/* My part of the step's elements, from all ranks into my take slot, from where the others fetch it, and
 * into my own output when I have one. */
static void combine_part(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    size_t at, n, outs = call_out_bytes(call, cpu->rank, cpu->world) > 0 ? 2 : 1;
    collect_slots(cpu, step, 0);
    cpu->in[cpu->rank] = in_at(call, step->at);
    cpu->out[0] = take_slot(cpu, cpu->rank, step);
    cpu->out[1] = out_at(call, step->at);
    part_of(step->n, ddp_dtype_size(call->dtype), cpu->rank, cpu->world, &at, &n);
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, at, n, cpu->out, outs);
}

/* --- take ----------------------------------------------------------------------------------------------- */

/* Fetch the other ranks' parts of the result from their take slots. */
static void take_parts(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    size_t size = ddp_dtype_size(call->dtype), at, n;
    for (int r = 0; r < cpu->world; r++) {
        if (r == cpu->rank)
            continue;
        part_of(step->n, size, r, cpu->world, &at, &n);
        cpu_copy(out_at(call, step->at + at), take_slot(cpu, r, step) + at * size, n * size);
    }
}

/* Combine and take at once. */
static void take_combined(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    collect_slots(cpu, step, 0);
    cpu->out[0] = out_at(call, step->at);
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, 0, step->n, cpu->out, 1);
}

/* The same for my part of slots that hold one part for every rank. */
static void take_combined_own(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    collect_slots(cpu, step, (size_t)cpu->rank * step->n * ddp_dtype_size(call->dtype));
    cpu->out[0] = out_at(call, step->at);
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, 0, step->n, cpu->out, 1);
}

static void take_from(struct cpu_comm *cpu, const struct call *call, const struct step *step, int rank,
                      size_t to)
{
    cpu_copy(out_at(call, to), give_slot(cpu, rank, step), step->n * ddp_dtype_size(call->dtype));
}

/* The root of a broadcast has the values already. */
static void take_root(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    if (cpu->rank != call->root || call->in != call->out)
        take_from(cpu, call, step, call->root, step->at);
}

static void take_own(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    take_from(cpu, call, step, cpu->rank, step->at);
}

static void take_all(struct cpu_comm *cpu, const struct call *call, const struct step *step)
{
    for (int r = 0; r < cpu->world; r++)
        take_from(cpu, call, step, r, (size_t)r * call->n + step->at);
}

/* --- the pipeline --------------------------------------------------------------------------------------- */

/* So small that each rank combines all values for himself. */
static bool is_small(const struct cpu_comm *cpu, const struct call *call)
{
    enum { SMALL_TOGETHER = 128 << 10 }; /* bytes that every rank then reads */
    return call->n * ddp_dtype_size(call->dtype) * (size_t)cpu->world <= SMALL_TOGETHER;
}

static const struct plan plans[CALL_KINDS] = {
    /*                       give        combine       take               give at root, take at root, world */
    [CALL_ALL_REDUCE] = { give_others, combine_part, take_parts, false, false, false },
    [CALL_REDUCE] = { give_others, combine_part, take_parts, false, true, false },
    [CALL_BROADCAST] = { give_own, NULL, take_root, true, false, false },
    [CALL_ALL_GATHER] = { give_own, NULL, take_all, false, false, false },
    [CALL_GATHER] = { give_own, NULL, take_all, false, true, false },
    [CALL_SCATTER] = { give_each, NULL, take_own, true, false, false },
    [CALL_REDUCE_SCATTER] = { give_world, NULL, take_combined_own, false, false, true },
};

/* Every rank must choose the same plan, so it may only look at what all calls have in common. */
static struct plan choose(const struct cpu_comm *cpu, const struct call *call)
{
    struct plan plan = plans[call->kind];
    if (plan.combine != NULL && is_small(cpu, call)) {
        plan.give = give_own;
        plan.combine = NULL;
        plan.take = take_combined;
    }
    return plan;
}

struct pipeline {
    struct cpu_comm *cpu;
    const struct call *call;
    struct plan plan;
    size_t per_step, steps;
    size_t depth; /* turns from giving a step to taking it */
};

static struct pipeline make_pipeline(struct cpu_comm *cpu, const struct call *call)
{
    struct pipeline p = { .cpu = cpu, .call = call, .plan = choose(cpu, call) };
    p.per_step = shm_slot_bytes(cpu->world) / ddp_dtype_size(call->dtype);
    if (p.plan.slot_holds_world)
        p.per_step /= (size_t)cpu->world;
    p.steps = ((size_t)call->n + p.per_step - 1) / p.per_step;
    p.depth = p.plan.combine != NULL ? 2 : 1;
    return p;
}

/* Which slot of a pair: the parity of the steps done since the start of the job, so it runs on over
 * calls. */
static void run_stage(const struct pipeline *p, stage_fn stage, size_t number)
{
    size_t at = number * p->per_step, left = (size_t)p->call->n - at;
    const struct step step = { at, left < p->per_step ? left : p->per_step,
                               (unsigned)((p->cpu->turn + number) & 1) };
    stage(p->cpu, p->call, &step);
}

static void run_turn(const struct pipeline *p, size_t turn)
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

void cpu_slots_give(struct cpu_comm *cpu, const struct call *call)
{
    const struct pipeline p = make_pipeline(cpu, call);
    run_turn(&p, 0);
}

ddp_status cpu_slots_run(struct cpu_comm *cpu, const struct call *call, bool given, struct ddp_err *err)
{
    const struct pipeline p = make_pipeline(cpu, call);
    size_t last = p.steps + p.depth - 1;

    for (size_t turn = given ? 1 : 0; turn <= last; turn++) {
        run_turn(&p, turn);
        ddp_status status = turn < last ? barrier_pass(&cpu->barrier, false, err) : DDP_OK;
        if (status != DDP_OK)
            return status;
    }
    cpu->turn += p.steps;
    return DDP_OK;
}
