/* The store over real sockets. The tests send recorded bytes of PyTorch clients, let requests wait, and end
 * connections. tests/unit/hub/test_hub.c cuts the bytes at every position, and tests the limits. */
#include "ddp/ddp.h"
#include "ddp/store.h"
#include "sim_hub.h" /* hex_read */
#include "store/encode.h"
#include "store_peers.h"
#include "tests/unit/hub/vectors.h"
#include "ddp/context.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(store_server, .init = serve, .fini = serve_end, .timeout = 60);

static void play(const struct vector *vectors, int count)
{
    int fd = peer_connect(served_port());
    for (int i = 0; i < count; i++) {
        peer_send_hex(fd, vectors[i].client);
        peer_expect(fd, vectors[i].server);
    }
    close(fd);
}

Test(store_server, answers_torch_1_13)
{
    play(vectors_a, VECTORS_A);
}

Test(store_server, answers_torch_2)
{
    play(vectors_c, VECTORS_C);
}

Test(store_server, both_dialects_see_the_same_keys)
{
    int old = peer_connect(served_port()), young = peer_connect_c(served_port());
    peer_send_hex(old, "00 0200000000000000 2f61 0200000000000000 6869"); /* SET /a hi */
    peer_expect_silence(old, 'A');
    peer_send_hex(young, "03 0200000000000000 2f61"); /* GET /a */
    peer_expect(young, "0200000000000000 6869");
    close(old);
    close(young);
}

/* torch 1.13 opens a second connection and never sends a byte on this connection. */
Test(store_server, silent_connections_stay_and_disturb_nobody)
{
    enum { SILENT = 256 };
    int silent[SILENT], fd = peer_connect_c(served_port());
    for (int i = 0; i < SILENT; i++)
        silent[i] = peer_connect(served_port());
    for (int i = 1; i <= 1000; i++)
        cr_assert_eq(peer_add(fd, "/n", 1), i);
    for (int i = 0; i < SILENT; i++)
        peer_expect_silence(silent[i], 'A');
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    close(fd);
}

Test(store_server, one_set_wakes_everybody)
{
    enum { WAITERS = 64 };
    int waiter[WAITERS], fd = peer_connect_c(served_port());
    for (int i = 0; i < WAITERS; i++) {
        waiter[i] = peer_connect_c(served_port());
        peer_wait(waiter[i], "/go");
    }
    peer_set(fd, "/go", slice_str("1"));
    for (int i = 0; i < WAITERS; i++) {
        peer_expect(waiter[i], "00");
        close(waiter[i]);
    }
    close(fd);
}

/* The server sends a large reply at once, but collects small replies until the end of the event loop's iteration. */
Test(store_server, small_and_big_replies_keep_their_order)
{
    enum { BIG = 200 << 10, REPLY = 9 + 8 + BIG + 9 };
    char *value = malloc(BIG), *reply = malloc(REPLY);
    memset(value, 'b', BIG);
    int fd = peer_connect_c(served_port());
    peer_set(fd, "/1", slice_str("1"));
    peer_set(fd, "/2", slice_of(value, BIG));
    peer_set(fd, "/3", slice_str("3"));
    peer_send_hex(fd, "03 0200000000000000 2f31   03 0200000000000000 2f32   03 0200000000000000 2f33");
    cr_assert_eq(recv(fd, reply, REPLY, MSG_WAITALL), REPLY);
    cr_assert_eq(reply[8], '1');
    cr_assert_arr_eq(reply + 9 + 8, value, BIG);
    cr_assert_eq(reply[REPLY - 1], '3');
    free(value);
    free(reply);
    close(fd);
}

Test(store_server, replies_are_flushed_to_a_client_that_has_said_all_it_wanted)
{
    enum { BYTES = 6 << 20, REPLY = BYTES + 8 };
    char *value = calloc(1, REPLY);
    int fd = peer_connect_c(served_port());
    peer_set(fd, "/big", slice_of(value, BYTES));
    peer_send_hex(fd, "03 0400000000000000 2f626967"); /* GET /big */
    shutdown(fd, SHUT_WR);
    cr_assert_eq(recv(fd, value, REPLY, MSG_WAITALL), REPLY);
    peer_expect_end(fd);
    free(value);
}

Test(store_server, half_a_command_and_then_the_end_is_no_trouble)
{
    int fd = peer_connect_c(served_port());
    peer_send_hex(fd, "01 0200000000000000 2f61 0200");
    shutdown(fd, SHUT_WR);
    peer_expect_end(fd);
    peer_expect_service(served_port());
}

Test(store_server, what_came_before_nonsense_is_answered)
{
    int fd = peer_connect_c(served_port());
    peer_send_hex(fd, "04 0200000000000000 2f6e 0100000000000000   fe fe fe");
    peer_expect(fd, "0100000000000000");
    peer_expect_end(fd);
}

/* A reset would abort a whole torch 1.13 process. */
Test(store_server, a_rude_client_is_closed_without_a_reset)
{
    static const char more[100000];
    int fd = peer_connect_c(served_port());
    peer_send_hex(fd, "77");
    peer_send(fd, slice_of(more, sizeof(more)));
    peer_expect_end(fd);
    peer_expect_service(served_port());
}

static void no_end(void)
{
}

Test(store_server, stops_while_clients_are_connected, .fini = no_end)
{
    enum { CLIENTS = 20 };
    int waiter[CLIENTS], silent[CLIENTS], rude = peer_connect_c(served_port());
    for (int i = 0; i < CLIENTS; i++) {
        waiter[i] = peer_connect_c(served_port());
        peer_wait(waiter[i], "/never");
        silent[i] = peer_connect(served_port());
    }
    peer_send_hex(rude, "77");
    peer_expect_service(served_port());
    serve_end();
    for (int i = 0; i < CLIENTS; i++) {
        peer_expect_end(waiter[i]);
        peer_expect_end(silent[i]);
    }
    close(rude);
}

Test(store_server, stops_although_a_client_does_not_take_its_last_bytes, .fini = no_end)
{
    enum { BYTES = 8 << 20 };
    char *value = calloc(1, BYTES);
    int fd = peer_connect_c(served_port()), other = peer_connect_c(served_port());
    peer_set(fd, "/big", slice_of(value, BYTES));
    peer_send_hex(fd, "03 0400000000000000 2f626967");
    peer_send_hex(fd, "03 0400000000000000 2f626967");
    peer_expect_silence(other, 'C');
    serve_end();
    close(fd);
    close(other);
    free(value);
}

static void serve_everywhere(void)
{
    serve_with(&(struct store_server_options){ .limits = HUB_LIMITS_DEFAULT });
}

Test(store_server, without_a_host_it_listens_everywhere, .init = serve_everywhere)
{
    peer_expect_service(served_port());
}

/* A host name as long as Linux allows, or "" for the name of this host. */
static char long_name[HOST_NAME_MAX + 1];

int __real_gethostname(char *name, size_t size);
int __wrap_gethostname(char *name, size_t size);

int __wrap_gethostname(char *name, size_t size)
{
    if (long_name[0] == '\0')
        return __real_gethostname(name, size);
    if (size >= sizeof(long_name)) {
        memcpy(name, long_name, sizeof(long_name));
        return 0;
    }
    errno = ENAMETOOLONG;
    return -1;
}

static void ignore_refused(void *user)
{
    (void)user;
}

/* Serve as a host with the longest name. The store rejects all nodes, because each rejection contains the name of the
 * host. */
static void serve_with_long_name(void)
{
    static const struct hub_refusal refusal = { "NO_SECRET", "no secret", "", ignore_refused, NULL };
    struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    options.limits.refusal = &refusal;
    memset(long_name, 'h', sizeof(long_name) - 1);
    serve_with(&options);
}

Test(store_server, the_longest_host_name_is_used, .init = serve_with_long_name)
{
    char seen[4096];
    size_t len = 0;
    ssize_t got;
    int fd = peer_connect_c(served_port());
    peer_send_hex(fd, "83 0200000000000000 0204"); /* AUTH: a request for the credential */
    while ((got = recv(fd, seen + len, sizeof(seen) - len, 0)) > 0)
        len += (size_t)got;
    cr_expect_not_null(memmem(seen, len, "\nhhhh", 5));
    close(fd);
}

/* The tests of store_jobs run two jobs at once on one store, over real sockets. Clients of the store are agents,
 * workers and plain clients. */

static void serve_many(void)
{
    struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    options.limits.many_jobs = true;
    serve_with(&options);
}

TestSuite(store_jobs, .init = serve_many, .fini = serve_end, .timeout = 60);

static void read_all(int fd, void *to, size_t len)
{
    for (size_t n = 0; n < len;) {
        struct pollfd wait = { fd, POLLIN, 0 };
        cr_assert_eq(poll(&wait, 1, PEER_DEADLINE_MS), 1, "nothing comes");
        ssize_t got = recv(fd, (char *)to + n, len - n, 0);
        cr_assert_gt(got, 0, "the store has closed");
        n += (size_t)got;
    }
}

/* Return the text of the next JSON object from the store. The caller frees the text. */
static char *hear(int fd)
{
    uint8_t length[8];
    read_all(fd, length, sizeof(length));
    size_t len = get_u64(length);
    char *text = calloc(1, len + 1);
    read_all(fd, text, len);
    return text;
}

/* Read objects until one contains `words`. */
static void hear_of(int fd, const char *words)
{
    for (bool found = false; !found;) {
        char *text = hear(fd);
        found = strstr(text, words) != NULL;
        free(text);
    }
}

static void say(int fd, uint8_t opcode, const char *json)
{
    struct buf out = { 0 };
    cr_assert(append_u8(&out, opcode) && append_blob(&out, slice_str(json)));
    cr_assert(peer_send(fd, buf_slice(&out)));
    buf_free(&out);
}

static void join(int fd, const char *job, const char *instance)
{
    char json[512];
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"%s\",\"instance\":\"%s\",\"version\":\"" DDP_VERSION
             "\",\"host\":\"n0\","
             "\"pid\":%d,"
             "\"mode\":\"static\",\"nnodes_min\":1,\"nnodes_max\":1,\"node_rank\":0,\"nproc\":1,"
             "\"join_timeout_ms\":60000,\"max_restarts\":3}",
             job, instance, (int)getpid());
    say(fd, 0x82, json);
}

/* Connect as the agent of a running job with one node and one worker. */
static int agent_of(const char *job)
{
    int fd = peer_connect_c(served_port());
    say(fd, 0x80, "{\"role\":\"agent\"}");
    peer_expect(fd, "00 0000000000000000");
    join(fd, job, "");
    hear_of(fd, "\"push\":\"round\"");
    return fd;
}

Test(store_jobs, a_death_stays_in_its_job)
{
    int a = agent_of("a"), b = agent_of("b");
    close(a);
    say(b, 0x82, "{\"op\":\"heartbeat\",\"round\":1}");
    char *answer = hear(b);
    cr_assert_str_eq(answer, "{\"ok\":true}");
    free(answer);
    close(b);
}

/* Answer the question which process owns the next plain connection. The question contains both addresses of the
 * connection, as the kernel of the agent's machine shows them. */
static void vouch_for_next(int agent)
{
    char *who = hear(agent);
    cJSON *push = cJSON_Parse(who);
    char json[128], store[64];
    snprintf(store, sizeof(store), "127.0.0.1:%d", served_port());
    cr_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(push, "push")), "who");
    cr_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(push, "store")), store);
    snprintf(json, sizeof(json), "{\"op\":\"vouch\",\"conn\":%.0f,\"rank\":0,\"pid\":77}",
             cJSON_GetObjectItem(push, "conn")->valuedouble);
    cJSON_Delete(push);
    free(who);
    say(agent, 0x82, json);
}

Test(store_jobs, a_plain_client_is_served_when_its_agent_vouches)
{
    int a = agent_of("a"), b = agent_of("b"), plain = peer_connect_c(served_port());
    peer_send_hex(plain, "07");
    vouch_for_next(b);
    peer_expect(plain, "0000000000000000");
    hear_of(b, "{\"ok\":true}");
    close(plain);
    close(a);
    close(b);
}

/* The requests of the client first wait for the agent. Then the requests wait until the client reads, because the
 * replies exceed the limit for unread replies. */
Test(store_jobs, a_plain_client_that_asked_for_much_before_gets_all_of_it)
{
    enum { VALUE = 500000, ASKED = 30 };
    static char value[VALUE], reply[8 + VALUE];
    const struct timeval limit = { PEER_DEADLINE_MS / 1000, 0 };
    int a = agent_of("a"), b = agent_of("b"), plain = peer_connect_c(served_port());
    peer_set(plain, "/big", slice_of(value, VALUE));
    for (int i = 0; i < ASKED; i++)
        peer_send_hex(plain, "03 0400000000000000 2f626967");
    vouch_for_next(b);
    hear_of(b, "{\"ok\":true}"); /* the replies have now reached the limit for unread replies */
    setsockopt(plain, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    for (int i = 0; i < ASKED; i++)
        cr_assert_eq(recv(plain, reply, sizeof(reply), MSG_WAITALL), (ssize_t)sizeof(reply), "reply %d", i);
    close(plain);
    close(a);
    close(b);
}

Test(store_jobs, a_plain_client_that_nobody_knows_is_closed_in_time)
{
    int a = agent_of("a"), b = agent_of("b"), plain = peer_connect_c(served_port());
    peer_send_hex(plain, "07");
    peer_expect_end(plain);
    close(a);
    close(b);
}

/* The kernel closes the connection of a dead process. The store detects this before any heartbeat is missed. */
Test(store_jobs, a_reset_is_a_loss_at_once)
{
    int a = agent_of("a");
    struct linger now = { .l_onoff = 1 };
    ddp_store *ctl;
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.role = "ctl";
    cr_assert_eq(ddp_store_connect("127.0.0.1", served_port(), &options, &ctl, NULL), DDP_OK);
    setsockopt(a, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(a);
    for (char *reply = NULL;; free(reply)) {
        cr_assert_eq(ddp_store_control(ctl, "{\"op\":\"jobs\"}", 5000, &reply, NULL), DDP_OK);
        if (strstr(reply, "\"connections\":0") != NULL) {
            free(reply);
            break;
        }
    }
    ddp_store_close(ctl);
}

/* Return the server's end of the connection whose client's end is `fd`. Both ends are in this process. */
static int other_end(int fd)
{
    struct sockaddr_in ours = { 0 }, theirs;
    socklen_t len = sizeof(ours);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&ours, &len), 0);
    for (int other = 0; other < 256; other++) {
        len = sizeof(theirs);
        if (getpeername(other, (struct sockaddr *)&theirs, &len) == 0 && theirs.sin_family == AF_INET &&
            theirs.sin_port == ours.sin_port)
            return other;
    }
    return -1;
}

static int option_of(int fd, int level, int name)
{
    int value = 0;
    socklen_t len = sizeof(value);
    cr_assert_eq(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

/* If a host vanishes, keep-alive detects this on an idle connection, and TCP_USER_TIMEOUT on a connection with
 * unacknowledged data. */
Test(store_jobs, a_host_that_vanishes_gives_its_descriptor_back)
{
    int fd = peer_connect_c(served_port()), other = other_end(fd);
    cr_assert_geq(other, 0);
    cr_assert_eq(option_of(other, SOL_SOCKET, SO_KEEPALIVE), 1);
    cr_assert_gt(option_of(other, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    close(fd);
}

/* Named barriers and CONTROL through the client, against ddprun's own store in this process. */

static struct ddp_err err;

TestSuite(store_barrier, .init = serve, .fini = serve_end, .timeout = 120);

static ddp_status connect_rank(int rank, int world_size, ddp_store **store)
{
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.role = rank >= 0 ? "worker" : "ctl";
    options.job = "demo";
    options.rank = rank;
    options.world_size = world_size;
    return ddp_store_connect("127.0.0.1", served_port(), &options, store, &err);
}

static ddp_store *rank_of_2(int rank)
{
    ddp_store *store;
    cr_assert_eq(connect_rank(rank, 2, &store), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_dialect(store), 'D');
    return store;
}

/* One call on a separate thread, with its outcome. */
struct caller {
    pthread_t thread;
    ddp_store *store;
    const char *name;
    uint32_t timeout_ms;
    ddp_status status;
    struct ddp_err err;
};

static void *join_main(void *arg)
{
    struct caller *c = arg;
    c->status = ddp_store_barrier(c->store, c->name, NULL, 0, c->timeout_ms, &c->err);
    return NULL;
}

static void *wait_main(void *arg)
{
    struct caller *c = arg;
    c->status = ddp_store_wait(c->store, &c->name, 1, c->timeout_ms, &c->err);
    return NULL;
}

static void call(struct caller *c, void *(*main)(void *))
{
    pthread_create(&c->thread, NULL, main, c);
}

static void ended(struct caller *c, ddp_status expected)
{
    pthread_join(c->thread, NULL);
    cr_assert_eq(c->status, expected, "%s: %s", c->name, c->err.msg);
}

static void expect_words(const struct ddp_err *e, const char *words)
{
    cr_assert_not_null(strstr(e->msg, words), "expected \"%s\" in \"%s\"", words, e->msg);
}

static char *control(ddp_store *store, const char *request)
{
    char *reply;
    cr_assert_eq(ddp_store_control(store, request, 0, &reply, &err), DDP_OK, "%s", err.msg);
    return reply;
}

/* Repeat `request` until its answer contains `words`. Such an answer shows that the store has received the request of
 * another thread. */
static void until_answer(ddp_store *ctl, const char *request, const char *words)
{
    bool there = false;
    while (!there) {
        char *reply = control(ctl, request);
        there = strstr(reply, words) != NULL;
        free(reply);
    }
}

Test(store_barrier, opens_when_all_ranks_have_come)
{
    struct caller one = { .store = rank_of_2(1), .name = "start", .timeout_ms = 10000 };
    ddp_store *zero = rank_of_2(0);
    call(&one, join_main);
    cr_assert_eq(ddp_store_barrier(zero, "start", NULL, 0, 10000, &err), DDP_OK, "%s", err.msg);
    ended(&one, DDP_OK);
    ddp_store_close(zero);
    ddp_store_close(one.store);
}

Test(store_barrier, names_what_the_missing_rank_waits_for_instead)
{
    ddp_store *zero = rank_of_2(0), *ctl;
    struct caller one = { .store = rank_of_2(1), .name = "batch", .timeout_ms = 10000 };
    cr_assert_eq(connect_rank(-1, 0, &ctl), DDP_OK, "%s", err.msg);
    call(&one, wait_main);
    until_answer(ctl, "{\"op\":\"waiters\"}", "/batch");
    cr_assert_eq(ddp_store_barrier(zero, "end", NULL, 0, 50, &err), DDP_ERR_TIMEOUT);
    expect_words(&err, "rank 1");
    expect_words(&err, "key '/batch'");
    ddp_store_set(zero, "batch", "", 0, NULL);
    ended(&one, DDP_OK);
    ddp_store_close(zero);
    ddp_store_close(one.store);
    ddp_store_close(ctl);
}

Test(store_barrier, is_good_for_one_use)
{
    ddp_store *one = rank_of_2(1);
    const uint32_t alone[] = { 1 };
    cr_assert_eq(ddp_store_barrier(one, "once", alone, 1, 1000, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_barrier(one, "once", alone, 1, 1000, &err), DDP_ERR_MISMATCH);
    cr_assert_eq(ddp_store_add(one, "n", 1, NULL, &err), DDP_OK, "the connection is still good: %s", err.msg);
    ddp_store_close(one);
}

/* The first arrival sets the deadline. A member with a shorter timeout leaves before the other members, and can use its
 * connection afterwards. */
Test(store_barrier, can_be_left_early)
{
    ddp_store *ctl;
    struct caller zero = { .name = "slow", .timeout_ms = 8000 };
    ddp_store *one;
    cr_assert_eq(connect_rank(0, 3, &zero.store), DDP_OK, "%s", err.msg);
    cr_assert_eq(connect_rank(1, 3, &one), DDP_OK, "%s", err.msg);
    cr_assert_eq(connect_rank(-1, 0, &ctl), DDP_OK, "%s", err.msg);
    call(&zero, join_main);
    until_answer(ctl, "{\"op\":\"barriers\"}", "slow");
    cr_assert_eq(ddp_store_barrier(one, "slow", NULL, 0, 20, &err), DDP_ERR_TIMEOUT, "%s", err.msg);
    cr_assert_eq(ddp_store_add(one, "n", 1, NULL, &err), DDP_OK, "%s", err.msg);
    free(control(ctl, "{\"op\":\"barrier_cancel\",\"name\":\"slow\"}"));
    ended(&zero, DDP_ERR_ABORTED);
    ddp_store_close(zero.store);
    ddp_store_close(one);
    ddp_store_close(ctl);
}

Test(store_barrier, needs_a_rank)
{
    ddp_store *ctl;
    cr_assert_eq(connect_rank(-1, 0, &ctl), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_barrier(ctl, "b", NULL, 0, 50, &err), DDP_ERR_ARG);
    ddp_store_close(ctl);
}

Test(store_barrier, a_rank_outside_the_world_is_refused)
{
    ddp_store *zero = rank_of_2(0), *seven;
    cr_assert_eq(connect_rank(7, 2, &seven), DDP_ERR_MISMATCH, "%s", err.msg);
    cr_assert_null(seven);
    expect_words(&err, "rejected this worker");
    ddp_store_close(zero);
}

Test(store_barrier, control_says_no_in_words)
{
    ddp_store *ctl;
    cr_assert_eq(connect_rank(-1, 0, &ctl), DDP_OK, "%s", err.msg);
    char *reply = control(ctl, "{\"op\":\"dance\"}");
    cr_assert_not_null(strstr(reply, "\"ok\":false"), "%s", reply);
    free(reply);
    ddp_store_close(ctl);
}

/* ddp_grow_waiting and ddp_grow_agree read and set keys in a ddprun store. Under other launchers a job cannot grow. */

static ddp_ctx *ctx;

/* Create a world of one rank with the store of the test. `ddprun` is the value of DDPRUN_STORE: "1" under ddprun. */
static void one_rank(const char *ddprun)
{
    char port[16];
    serve();
    snprintf(port, sizeof(port), "%d", served_port());
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    setenv("DDPRUN_STORE", ddprun, 1);
    cr_assert_eq(ddp_init_from_env(NULL, &ctx), DDP_OK, "%s", ddp_last_error());
}

static void under_ddprun(void)
{
    one_rank("1");
}

static void under_torchrun(void)
{
    one_rank("0");
}

static void tear_down(void)
{
    ddp_finalize(ctx);
    serve_end();
}

Test(grow_keys, nobody_waits_until_the_store_says_so, .init = under_ddprun, .fini = tear_down)
{
    struct ddp_store *store;
    uint32_t nodes = 7;
    cr_assert_eq(ddp_grow_waiting(ctx, &nodes), DDP_OK, "%s", ddp_last_error());
    cr_assert_eq(nodes, 0);
    cr_assert_eq(ddp_store_connect("127.0.0.1", served_port(), NULL, &store, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_set(store, "ddprun/waiting_nodes", "2", 1, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_wait(store, (const char *const[]){ "ddprun/waiting_nodes" }, 1, 0, &err), DDP_OK);
    cr_assert_eq(ddp_grow_waiting(ctx, &nodes), DDP_OK, "%s", ddp_last_error());
    cr_assert_eq(nodes, 2);
    cr_assert_eq(ddp_store_set(store, "ddprun/waiting_nodes", "2x", 2, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_grow_waiting(ctx, &nodes), DDP_OK, "%s", ddp_last_error());
    cr_assert_eq(nodes, 0);
    cr_assert_eq(ddp_grow_agree(ctx), DDP_OK, "%s", ddp_last_error());
    cr_assert_eq(ddp_store_wait(store, (const char *const[]){ "ddprun/grow/0" }, 1, 5000, &err), DDP_OK, "%s",
                 err.msg);
    ddp_store_close(store);
}

Test(grow_keys, another_launcher_cannot_grow, .init = under_torchrun, .fini = tear_down)
{
    uint32_t nodes = 7;
    cr_assert_eq(ddp_grow_waiting(ctx, &nodes), DDP_ERR_UNSUPPORTED);
    cr_assert_eq(nodes, 0);
    cr_assert_eq(ddp_grow_agree(ctx), DDP_ERR_UNSUPPORTED);
}
