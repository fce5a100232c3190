/* cpu_call.c -- what every call begins with, and the call that is nothing but a meeting. */
#include "cpu/net.h"

/* The mark says what we are about to do and where our buffers lie. Peers may still read the one of the
 * previous call, which need not end with a barrier; that of the call before it lies behind a barrier for
 * everybody, so two places are enough. */
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

/* A call without values goes the way of all calls. */
ddp_status cpu_meet(struct cpu_comm *cpu, const struct call *call, struct ddp_err *err)
{
    return cpu->net != NULL ? net_run(cpu->net, call, err) : barrier_pass(&cpu->barrier, true, err);
}
