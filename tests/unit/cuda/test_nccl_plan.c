/* Tests of the pure part of the NCCL backend: the NCCL function for each call, the states of a communicator, the
 * environment of NCCL, and error texts. This file also tests how the staged backend cuts a call into pieces that pass
 * through host memory. */
#include "base/clock.h"

static uint64_t test_ms(void);
#define clock_ms test_ms
#include "cuda/staged.c"
#undef clock_ms
#include "cuda/nccl_plan.c"
#include "cuda/gpu_comm.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* --- choice of the function --------------------------------------------------------------------------------------- */

Test(nccl_plan, each_type_and_operation_has_nccls_number)
{
    const struct call call = { .kind = CALL_REDUCE_SCATTER, .n = 5, .dtype = DDP_BF16, .op = DDP_AVG };
    struct nccl_plan plan = nccl_plan(&call);
    cr_assert_eq(plan.way, NCCL_WAY_REDUCE_SCATTER);
    cr_assert_eq(plan.type, 9);
    cr_assert_eq(plan.op, 4);
    const struct call other = { .kind = CALL_ALL_REDUCE, .n = 1, .dtype = DDP_U8, .op = DDP_PROD };
    plan = nccl_plan(&other);
    cr_assert_eq(plan.way, NCCL_WAY_ALL_REDUCE);
    cr_assert_eq(plan.type, 1);
    cr_assert_eq(plan.op, 1);
}

Test(nccl_plan, nothing_is_asked_of_nccl_where_there_is_nothing_to_move)
{
    cr_assert_eq(nccl_plan(&(struct call){ .kind = CALL_ALL_REDUCE }).way, NCCL_WAY_NOTHING);
    cr_assert_eq(nccl_plan(&(struct call){ .kind = CALL_BARRIER, .n = 1 }).way, NCCL_WAY_NOTHING);
}

/* Format the moves of a call. "s0:4 r1:8 " means a send to rank 0 from byte 4 of the buffer, and a receive from rank 1
 * to byte 8. */
static const char *moves(char text[256], const struct call *call, int rank, int world)
{
    struct nccl_move move;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; nccl_move(call, rank, world, i, &move); i++) {
        const char *at = move.send ? move.from : move.to;
        used += (size_t)snprintf(text + used, 256 - used, "%c%d:%d ", move.send ? 's' : 'r', move.peer,
                                 (int)((uintptr_t)at & 0xfff));
    }
    return text;
}

static const struct call gather = {
    .kind = CALL_GATHER, .in = (void *)0x1000, .out = (void *)0x2000, .n = 4, .dtype = DDP_F32, .root = 1
};

Test(nccl_plan, a_root_gathers_by_receives_and_the_others_send)
{
    char text[256];
    cr_assert_str_eq(moves(text, &gather, 0, 3), "s1:0 ");
    cr_assert_str_eq(moves(text, &gather, 1, 3), "s1:0 r0:0 r1:16 r2:32 ");
}

Test(nccl_plan, a_root_that_gathers_in_place_sends_itself_nothing)
{
    char text[256];
    struct call call = gather;
    call.in = (void *)0x2010;
    cr_assert_str_eq(moves(text, &call, 1, 3), "r0:0 r2:32 ");
}

Test(nccl_plan, scattering_is_gathering_with_the_arrows_turned)
{
    char text[256];
    struct call call = gather;
    call.kind = CALL_SCATTER;
    call.in = (void *)0x2000;
    call.out = (void *)0x1000;
    cr_assert_str_eq(moves(text, &call, 2, 3), "r1:0 ");
    cr_assert_str_eq(moves(text, &call, 1, 3), "r1:0 s0:0 s1:16 s2:32 ");
    call.out = (void *)0x2010;
    cr_assert_str_eq(moves(text, &call, 1, 3), "s0:0 s2:32 ");
}

/* --- the life of a communicator ----------------------------------------------------------------------------------- */

Test(nccl_state, it_is_born_works_and_is_destroyed_once)
{
    enum nccl_state state = nccl_step(NCCL_CREATING, NCCL_MET).next;
    cr_assert_eq(state, NCCL_READY);
    state = nccl_step(state, NCCL_LEFT).next;
    cr_assert_eq(state, NCCL_LEAVING);
    struct nccl_step step = nccl_step(state, NCCL_CLOSE);
    cr_assert(step.next == NCCL_CLOSED && step.effect == NCCL_EFFECT_DESTROY);
    cr_assert_eq(nccl_step(step.next, NCCL_CLOSE).effect, NCCL_EFFECT_NONE);
}

Test(nccl_state, whoever_brings_the_first_fault_aborts_and_nobody_else)
{
    for (int from = NCCL_CREATING; from <= NCCL_LEAVING; from++) {
        struct nccl_step step = nccl_step((enum nccl_state)from, NCCL_FAULT);
        cr_assert(step.next == NCCL_FAILING && step.effect == NCCL_EFFECT_ABORT, "from state %d", (int)from);
    }
    cr_assert_eq(nccl_step(NCCL_FAILING, NCCL_FAULT).effect, NCCL_EFFECT_NONE);
    cr_assert_eq(nccl_step(NCCL_FAILING, NCCL_CLOSE).effect, NCCL_EFFECT_WAIT);
    cr_assert_eq(nccl_step(NCCL_FAILING, NCCL_GONE).next, NCCL_ABORTED);
}

Test(nccl_state, what_has_failed_never_works_again)
{
    for (int event = 0; event < NCCL_EVENTS; event++) {
        enum nccl_state next = nccl_step(NCCL_ABORTED, (enum nccl_event)event).next;
        cr_assert(next == NCCL_ABORTED || next == NCCL_CLOSED);
        next = nccl_step(NCCL_FAILING, (enum nccl_event)event).next;
        cr_assert(next == NCCL_FAILING || next == NCCL_ABORTED);
    }
}

/* NCCL_CLOSE may start an abort, or wait for the end of an abort. When the abort has ended, another NCCL_CLOSE closes
 * the communicator. Check that at most four NCCL_CLOSE events lead from each state to NCCL_CLOSED. */
Test(nccl_state, everything_can_be_closed)
{
    for (int from = 0; from < NCCL_STATES; from++) {
        enum nccl_state state = (enum nccl_state)from;
        for (int i = 0; i < 4 && state != NCCL_CLOSED; i++) {
            struct nccl_step step = nccl_step(state, NCCL_CLOSE);
            bool aborts = step.effect == NCCL_EFFECT_ABORT || step.effect == NCCL_EFFECT_WAIT;
            state = aborts ? nccl_step(step.next, NCCL_GONE).next : step.next;
        }
        cr_assert_eq(state, NCCL_CLOSED, "from state %d", from);
    }
}

/* --- the environment ---------------------------------------------------------------------------------------------- */

static const char *setting(const struct nccl_setting *settings, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(settings[i].name, name) == 0)
            return settings[i].value;
    return "-";
}

Test(nccl_settings, the_interface_to_the_store_is_nccls)
{
    struct nccl_setting s[NCCL_SETTINGS_MAX];
    int n = nccl_settings(&(struct nccl_facts){ "ddp/7/0", "eth1", false, 3 }, s);
    cr_assert_eq(n, 1);
    cr_assert_str_eq(setting(s, n, "NCCL_SOCKET_IFNAME"), "=eth1");
    cr_assert_eq(nccl_settings(&(struct nccl_facts){ "ddp/7/0", "", false, 3 }, s), 0);
}

Test(nccl_settings, ranks_on_one_gpu_look_like_hosts_of_their_own)
{
    struct nccl_setting s[NCCL_SETTINGS_MAX];
    int n = nccl_settings(&(struct nccl_facts){ "ddp/7/0", "eth1", true, 3 }, s);
    cr_assert_str_eq(setting(s, n, "NCCL_HOSTID"), "ddprun-ddp/7/0-3");
    cr_assert_str_eq(setting(s, n, "NCCL_SOCKET_IFNAME"), "=lo");
    cr_assert_str_eq(setting(s, n, "NCCL_MAX_CTAS"), "1");
    cr_assert_str_eq(setting(s, n, "NCCL_NVLS_ENABLE"), "0");
    cr_assert_str_eq(setting(s, n, "NCCL_MNNVL_ENABLE"), "0");
}

Test(nccl_settings, one_rank_in_128_makes_an_id_where_nccl_takes_several)
{
    char key[NCCL_KEY];
    cr_assert_eq(nccl_id_count(128, 22809), 1);
    cr_assert_eq(nccl_id_count(129, 22809), 2);
    cr_assert_eq(nccl_id_count(4096, 22809), 32);
    cr_assert_eq(nccl_id_count(4096, 22203), 1);
    cr_assert_eq(nccl_id_maker(0, 32, 4096), 0);
    cr_assert_eq(nccl_id_maker(31, 32, 4096), 3968);
    cr_assert_str_eq(nccl_id_key(key, 31), "nccl_id/31");
}

/* --- error texts -------------------------------------------------------------------------------------------------- */

Test(nccl_words, versions_are_read_as_nccl_writes_them)
{
    char text[NCCL_VERSION_TEXT];
    struct ddp_err err = { 0 };
    cr_assert_str_eq(nccl_version_text(text, 22809), "2.28.9");
    cr_assert_str_eq(nccl_version_text(text, 2804), "2.8.4");
    cr_assert_eq(nccl_check_version(21400, &err), DDP_OK);
    cr_assert_eq(nccl_check_version(2804, &err), DDP_ERR_UNSUPPORTED);
    cr_assert(strstr(err.msg, "NCCL 2.8.4 is"), "%s", err.msg);
}

Test(nccl_words, a_failure_names_rank_call_and_reason)
{
    struct ddp_err err = { 0 };
    cr_assert_eq(nccl_fail(&err, 3, "all_reduce #17 (f32 x 1024, sum)", 2, "Connect to 10.0.0.2 failed"),
                 DDP_ERR_NCCL);
    cr_assert_not_null(strstr(err.msg, "rank 3: all_reduce #17 (f32 x 1024, sum): ncclSystemError ("), "%s",
                       err.msg);
    cr_assert_not_null(strstr(err.msg, ": Connect to 10.0.0.2 failed"), "%s", err.msg);
    cr_assert_eq(nccl_fail(&err, 3, "x", 77, NULL), DDP_ERR_NCCL);
    cr_assert(strstr(err.msg, "NCCL_DEBUG=WARN"), "%s", err.msg);
    cr_assert_eq(nccl_status_of(NCCL_INVALID_ARGUMENT), DDP_ERR_NCCL);
}

static void card(struct nccl_card *card, int host, const char *gpu, bool share)
{
    *card = (struct nccl_card){ .version = 22809, .host = host, .share = share };
    snprintf(card->bus_id, sizeof(card->bus_id), "%s", gpu);
}

Test(nccl_words, cards_tell_of_shared_gpus_and_versions)
{
    struct nccl_card cards[3];
    struct ddp_err err = { 0 };
    card(&cards[0], 1, "0000:01:00.0", false);
    card(&cards[1], 1, "0000:02:00.0", false);
    card(&cards[2], 2, "0000:01:00.0", false); /* a card of another host */
    cr_assert_eq(nccl_check_cards(cards, 3, &err), DDP_OK);
    card(&cards[2], 1, "0000:01:00.0", true);
    cr_assert_eq(nccl_check_cards(cards, 3, &err), DDP_ERR_ARG);
    cr_assert(strstr(err.msg, "ranks 0 and 2 "), "%s", err.msg);
    card(&cards[0], 1, "0000:01:00.0", true);
    cr_assert_eq(nccl_check_cards(cards, 3, &err), DDP_OK);
    cards[1].version = 23203;
    cr_assert_eq(nccl_check_cards(cards, 3, &err), DDP_ERR_MISMATCH);
    cr_assert(strstr(err.msg, "NCCL 2.32.3"), "%s", err.msg);
}

/* --- chunks ------------------------------------------------------------------------------------------------------- */

Test(staged_plan, a_call_is_cut_alike_on_all_ranks)
{
    char in[64], out[64];
    const struct call call = {
        .kind = CALL_GATHER, .in = in, .out = out, .n = 10, .dtype = DDP_F32, .root = 1
    };
    struct staged_chunk c;
    cr_assert(staged_chunk(&call, 1, 2, 32, 2, &c)); /* 4 elements of each of 2 rows fit */
    cr_assert(c.count == 2 && c.width == 8 && c.pitch == 40 && c.in_rows == 1 && c.out_rows == 2);
    cr_assert(c.in == in + 32 && c.out == out + 32);
    cr_assert(!staged_chunk(&call, 1, 2, 32, 3, &c));
    cr_assert(staged_chunk(&call, 0, 2, 32, 2, &c));
    cr_assert(c.count == 2 && c.in_rows == 1 && c.out_rows == 0);
}

Test(staged_plan, the_root_of_a_broadcast_gets_nothing_back)
{
    char buf[1];
    const struct call call = {
        .kind = CALL_BROADCAST, .in = buf, .out = buf, .n = 10, .dtype = DDP_U8, .root = 0
    };
    struct staged_chunk c;
    cr_assert(staged_chunk(&call, 0, 2, 32, 0, &c) && c.in_rows == 1 && c.out_rows == 0);
    cr_assert(staged_chunk(&call, 1, 2, 32, 0, &c) && c.in_rows == 0 && c.out_rows == 1 && c.count == 10);
}

/* --- the time limit of a call, with a GPU and a cpu communicator that only advance the clock ---------------------- */

enum { LIMIT_MS = 1000 };

static uint64_t now_ms;
static uint64_t gpu_ms;     /* ms that each query of an event lasts */
static uint64_t peers_ms;   /* ms that the cpu communicator waits for other ranks in each chunk */
static int queries, period; /* number of queries; every period-th query finds that the event has occurred */

static uint64_t test_ms(void)
{
    return now_ms;
}

static cuda_error select_device(int device)
{
    (void)device;
    return CUDA_SUCCESS_;
}

static cuda_error no_error(void)
{
    return CUDA_SUCCESS_;
}

static cuda_error record(struct CUevent_st *event, struct CUstream_st *stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS_;
}

static cuda_error query(struct CUevent_st *event)
{
    (void)event;
    now_ms += gpu_ms;
    return ++queries % period == 0 ? CUDA_SUCCESS_ : CUDA_NOT_READY;
}

static cuda_error follow(struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags)
{
    (void)stream, (void)event, (void)flags;
    return CUDA_SUCCESS_;
}

static cuda_error copy(void *to, const void *from, size_t bytes, cuda_copy_kind kind,
                       struct CUstream_st *stream)
{
    (void)to, (void)from, (void)bytes, (void)kind, (void)stream;
    return CUDA_SUCCESS_;
}

static ddp_status run_slowly(struct comm *comm, const struct call *call, struct ddp_err *err)
{
    (void)comm, (void)call, (void)err;
    now_ms += peers_ms;
    return DDP_OK;
}

static ddp_status peers_are_well(struct comm *comm, struct ddp_err *err)
{
    (void)comm, (void)err;
    return DDP_OK;
}

static void give_up(struct comm *comm, struct ddp_err *err)
{
    (void)comm, (void)err;
}

/* Run an all-reduce of three chunks. */
static ddp_status reduce_three_chunks(void)
{
    static char slots[SLOTS * 2 * SLOT];
    const struct comm_ops cpu_ops = { .run = run_slowly, .check = peers_are_well, .give_up = give_up };
    struct comm cpu = { .ops = &cpu_ops };
    struct staged s = { .base = { .cpu = &cpu, .world = 2, .step_timeout_ms = LIMIT_MS }, .slots = slots };
    s.base.gpu.call = (struct cudart){ .set_device = select_device,
                                       .last_error = no_error,
                                       .event_record = record,
                                       .event_query = query,
                                       .stream_follow = follow,
                                       .copy_async = copy };
    const struct call call = {
        .kind = CALL_ALL_REDUCE, .in = slots, .out = slots, .n = 3 * SLOT / 4, .dtype = DDP_F32
    };
    struct ddp_err err = { 0 };
    return run_device(&s, &call, &err);
}

Test(staged_limit, the_time_of_the_other_ranks_is_not_the_gpus)
{
    peers_ms = LIMIT_MS - 1;
    period = 2;
    cr_assert_eq(reduce_three_chunks(), DDP_OK);
    cr_assert_eq(now_ms, 3 * peers_ms);
}

Test(staged_limit, a_gpu_that_does_not_reach_the_call_is_late)
{
    gpu_ms = 1;
    period = 2 * LIMIT_MS;
    cr_assert_eq(reduce_three_chunks(), DDP_ERR_TIMEOUT);
}
