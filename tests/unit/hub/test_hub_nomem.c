/* For every n, a scenario runs in which the n-th allocation fails. Nothing may crash or leak. If a request fails for
 * lack of memory, its connection is closed with a reason.
 *
 * The linker redirects malloc and its family in all our objects to this file (--wrap, see the Makefile). cJSON gets the
 * same functions through cJSON_InitHooks. */
#include "store/encode.h"
#include "hub/hub.h"
#include "store/ops.h"
#include "ddp/context.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t n);
char *__real_strdup(const char *text);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t n);
char *__wrap_strdup(const char *text);
void __wrap_free(void *p);

static struct {
    bool armed;      /* a call into the hub is running */
    bool persistent; /* all allocations after the first failure fail, too */
    long left;       /* number of allocations that still succeed */
    long failed;
    long blocks; /* number of blocks allocated while armed and not freed yet */
} heap;

static bool fails(void)
{
    if (!heap.armed || heap.left-- > 0)
        return false;
    if (!heap.persistent && heap.failed > 0)
        return false;
    heap.failed++;
    return true;
}

static void *count(void *block)
{
    heap.blocks += heap.armed && block != NULL;
    return block;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : count(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : count(__real_calloc(n, size));
}

void *__wrap_realloc(void *old, size_t n)
{
    if (fails())
        return NULL;
    return old ? __real_realloc(old, n) : count(__real_malloc(n));
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : count(__real_strdup(text));
}

void __wrap_free(void *p)
{
    heap.blocks -= heap.armed && p != NULL;
    __real_free(p);
}

/* --- the scenario -------------------------------------------------------------------------------------------- */

enum { CONNS = 6, STEPS_MAX = 64 };

enum step_kind { CONNECT, FEED, LEAVE, TICK };

static struct step {
    enum step_kind kind;
    conn_id conn;
    struct buf bytes;
} script[STEPS_MAX];
static int steps;

static struct buf *add_step(enum step_kind kind, conn_id conn)
{
    cr_assert(steps < STEPS_MAX);
    script[steps] = (struct step){ .kind = kind, .conn = conn };
    return &script[steps++].bytes;
}

static struct buf *request(conn_id conn, enum op_id op)
{
    struct buf *bytes = add_step(FEED, conn);
    cr_assert(append_u8(bytes, (uint8_t)op_table[op].code[DIALECT_C]));
    return bytes;
}

static void client(conn_id conn)
{
    add_step(CONNECT, conn);
    struct buf *hello = request(conn, OP_VALIDATE);
    cr_assert(append_u32(hello, WIRE_MAGIC));
}

static void one_blob(conn_id conn, enum op_id op, const char *text)
{
    cr_assert(append_blob(request(conn, op), slice_str(text)));
}

static void two_blobs(conn_id conn, enum op_id op, const char *a, const char *b)
{
    struct buf *bytes = request(conn, op);
    cr_assert(append_blob(bytes, slice_str(a)) && append_blob(bytes, slice_str(b)));
}

static void two_keys(conn_id conn, enum op_id op, const char *a, const char *b)
{
    struct buf *bytes = request(conn, op);
    cr_assert(append_u64(bytes, 2) && append_blob(bytes, slice_str(a)) && append_blob(bytes, slice_str(b)));
}

static void barrier(conn_id conn, const char *name)
{
    struct buf *bytes = request(conn, OP_BARRIER_NAMED);
    cr_assert(append_blob(bytes, slice_str(name)) && append_i64(bytes, 100) && append_u64(bytes, 0));
}

static void write_keys_script(void)
{
    client(1);
    client(2);
    two_keys(1, OP_WAIT, "/a", "/b");
    two_blobs(2, OP_SET, "/a", "0123456789012345678901234567890123456789012345678");
    two_blobs(2, OP_APPEND, "/b", "x");
    cr_assert(append_i64(request(2, OP_ADD), 0));
    two_keys(1, OP_MULTI_GET, "/a", "/b");
    one_blob(1, OP_GET, "/a");
    one_blob(1, OP_WAIT, "");
    two_blobs(2, OP_QUEUE_PUSH, "/q", "item");
    one_blob(2, OP_QUEUE_POP, "/q");
    cr_assert(append_u8(request(2, OP_LIST_KEYS), 0x07));
}

static void write_job_script(void)
{
    for (conn_id conn = 3; conn <= 5; conn++)
        client(conn);
    one_blob(3, OP_IDENTIFY, "{\"role\":\"agent\"}");
    one_blob(3, OP_CONTROL, "{\"op\":\"job\",\"attempt\":0,\"world_size\":2}");
    one_blob(3, OP_CONTROL, "{\"op\":\"worker_started\",\"rank\":1,\"pid\":7,\"host\":\"n1\"}");
    one_blob(4, OP_IDENTIFY, "{\"role\":\"worker\",\"rank\":0,\"world_size\":2,\"host\":\"n1\",\"pid\":6}");
    one_blob(5, OP_IDENTIFY, "{\"role\":\"worker\",\"rank\":1,\"world_size\":2,\"host\":\"n2\",\"pid\":7}");
    barrier(4, "first");
    barrier(5, "first");
    barrier(4, "second");
    one_blob(3, OP_CONTROL, "{\"op\":\"status\"}");
    one_blob(3, OP_CONTROL, "{\"op\":\"keys\"}");
    one_blob(3, OP_CONTROL, "{\"op\":\"waiters\"}");
    one_blob(3, OP_CONTROL, "{\"op\":\"barriers\"}");
    add_step(TICK, 0);
    barrier(5, "third");
    one_blob(3, OP_CONTROL, "{\"op\":\"worker_exited\",\"rank\":0,\"exit_code\":1}");
    barrier(5, "");
    one_blob(3, OP_CONTROL, "{\"op\":\"job\",\"attempt\":1,\"world_size\":3}");
    add_step(LEAVE, 1);
}

static void say_join(conn_id conn, const char *job)
{
    char text[256];
    snprintf(text, sizeof(text),
             "{\"op\":\"join\",\"job\":\"%s\",\"version\":\"" DDP_VERSION
             "\",\"host\":\"n0\",\"pid\":7,\"nnodes_min\":1,"
             "\"nnodes_max\":1,\"nproc\":2,\"max_restarts\":2,\"join_timeout_ms\":60000}",
             job);
    one_blob(conn, OP_CONTROL, text);
}

static void join(conn_id conn, const char *job)
{
    client(conn);
    one_blob(conn, OP_IDENTIFY, "{\"role\":\"agent\"}");
    say_join(conn, job);
}

/* Write a script with two jobs and a plain client whose job is unknown at first. A failure, a restart and a stranger
 * follow. */
static void write_rendezvous_script(void)
{
    join(1, "a");
    join(2, "b");
    client(3);
    two_blobs(3, OP_SET, "/a", "x");
    one_blob(2, OP_CONTROL, "{\"op\":\"vouch\",\"conn\":3,\"rank\":1,\"pid\":9}");
    one_blob(3, OP_WAIT, "");
    one_blob(2, OP_CONTROL, "{\"op\":\"heartbeat\",\"round\":1,\"workers\":[[0,\"D\",1,\"nfs_wait\"]]}");
    one_blob(2, OP_CONTROL, "{\"op\":\"status\"}");
    one_blob(1, OP_CONTROL,
             "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":3,\"words\":\"x\",\"stderr\":[\"y\"]}");
    one_blob(1, OP_CONTROL, "{\"op\":\"stopped\",\"round\":1,\"max_code\":3}");
    join(4, "a");
    client(5);
    two_blobs(5, OP_SET, "/a", "x");
    add_step(TICK, 0);
    client(6);
    one_blob(6, OP_IDENTIFY, "{\"role\":\"king\"}");
    one_blob(2, OP_CONTROL, "{\"op\":\"rejects\"}");
    one_blob(2, OP_CONTROL,
             "{\"op\":\"notice\",\"code\":\"SHM_SMALL\",\"subject\":\"n0\",\"sentence\":\"small\"}");
    one_blob(2, OP_CONTROL, "{\"op\":\"why\"}");
    one_blob(2, OP_CONTROL, "{\"op\":\"jobs\"}");
    one_blob(2, OP_CONTROL, "{\"op\":\"done\",\"round\":1}");
    say_join(2, "b"); /* the next start of a job that is over */
    add_step(LEAVE, 1);
    add_step(LEAVE, 2);
}

static void send_nowhere(void *user, conn_id conn, struct slice bytes, struct shared *holder)
{
    (void)holder;
    (void)user, (void)conn, (void)bytes;
}

static void close_nowhere(void *user, conn_id conn, const char *why, bool is_news)
{
    (void)user, (void)conn, (void)is_news;
    cr_assert(why[0] != '\0');
}

/* Play a step. A request is fed in two pieces, so that the hub also keeps half requests. */
static void play_step(struct hub *hub, const struct step *step, uint64_t now_ms)
{
    size_t half = step->bytes.len / 2;
    if (step->kind == CONNECT)
        hub_connect(hub, step->conn, "peer", now_ms);
    else if (step->kind == LEAVE)
        hub_disconnect(hub, step->conn, "peer closed it", now_ms);
    else if (step->kind == TICK)
        hub_tick(hub, now_ms);
    if (step->kind != FEED)
        return;
    hub_receive(hub, step->conn, slice_of(step->bytes.data, half), now_ms);
    hub_receive(hub, step->conn, slice_of(step->bytes.data + half, step->bytes.len - half), now_ms);
}

static void play(void)
{
    const struct hub_sink sink = { .send = send_nowhere, .close = close_nowhere };
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.many_jobs = true;
    struct hub *hub = hub_new(&limits, &sink);
    for (int i = 0; hub != NULL && i < steps; i++)
        play_step(hub, &script[i], (uint64_t)i * 50);
    hub_free(hub);
}

/* Play the script, and let an allocation fail after `requests` successful allocations. If `persistent` is true, all
 * later allocations fail, too. Return true if an allocation failed. */
static bool play_with_memory_for(long requests, bool persistent)
{
    memset(&heap, 0, sizeof(heap));
    heap.left = requests;
    heap.persistent = persistent;
    heap.armed = true;
    play();
    heap.armed = false;
    cr_assert_eq(heap.blocks, 0, "%ld blocks leak after %ld requests", heap.blocks, requests);
    return heap.failed > 0;
}

static void set_up(void)
{
    cJSON_Hooks hooks = { __wrap_malloc, __wrap_free };
    cJSON_InitHooks(&hooks);
}

static void set_up_store(void)
{
    set_up();
    write_keys_script();
    write_job_script();
}

static void set_up_rendezvous(void)
{
    set_up();
    write_rendezvous_script();
}

static void tear_down(void)
{
    for (int i = 0; i < steps; i++)
        buf_free(&script[i].bytes);
}

TestSuite(hub_nomem, .init = set_up_store, .fini = tear_down);

static void fail_one_by_one(void)
{
    long n = 0;
    while (play_with_memory_for(n, false))
        n++;
    cr_assert_gt(n, 200, "only %ld requests for memory", n);
}

static void fail_from_each_on(void)
{
    for (long n = 0; play_with_memory_for(n, true); n++)
        ;
}

Test(hub_nomem, one_request_for_memory_fails)
{
    fail_one_by_one();
}

Test(hub_nomem, from_one_request_on_all_fail)
{
    fail_from_each_on();
}

TestSuite(rdzv_nomem, .init = set_up_rendezvous, .fini = tear_down);

Test(rdzv_nomem, one_request_for_memory_fails)
{
    fail_one_by_one();
}

Test(rdzv_nomem, from_one_request_on_all_fail)
{
    fail_from_each_on();
}
