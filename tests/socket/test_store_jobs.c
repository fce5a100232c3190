/* Two jobs at once on one store, over real sockets: agents that join, workers, plain clients. */
#include "store/encode.h"
#include "ddp/store.h"
#include "store_peers.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void serve_many(void)
{
    struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    options.limits.many_jobs = true;
    serve_with(&options);
}

TestSuite(store_jobs, .init = serve_many, .fini = serve_end, .timeout = 60);

/* --- an agent: IDENTIFY, CONTROL, and what is pushed ------------------------------------------------------------ */

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

/* The next object; yours. */
static char *hear(int fd)
{
    uint8_t length[8];
    read_all(fd, length, sizeof(length));
    size_t len = get_u64(length);
    char *text = calloc(1, len + 1);
    read_all(fd, text, len);
    return text;
}

/* The next object that has these words; others are passed over. */
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
    cr_assert(put_u8(&out, opcode) && put_blob(&out, slice_str(json)));
    cr_assert(peer_send(fd, buf_slice(&out)));
    buf_free(&out);
}

static void join(int fd, const char *job, const char *instance)
{
    char json[512];
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"%s\",\"instance\":\"%s\",\"version\":\"0.1.0\",\"host\":\"n0\","
             "\"pid\":%d,"
             "\"mode\":\"static\",\"nnodes_min\":1,\"nnodes_max\":1,\"node_rank\":0,\"nproc\":1,"
             "\"join_timeout_ms\":60000,\"max_restarts\":3}",
             job, instance, (int)getpid());
    say(fd, 0x82, json);
}

/* A job of one node with one worker, which runs. */
static int agent_of(const char *job)
{
    int fd = peer_connect_c(served_port());
    say(fd, 0x80, "{\"role\":\"agent\"}");
    peer_expect(fd, "00 0000000000000000");
    join(fd, job, "");
    hear_of(fd, "\"push\":\"round\"");
    return fd;
}

static ddp_store *worker_of(const char *job, int attempt)
{
    ddp_store *s;
    struct ddp_err err;
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.role = "worker";
    options.job = job;
    options.attempt = attempt;
    options.rank = 0;
    options.world_size = 1;
    cr_assert_eq(ddp_store_connect("127.0.0.1", served_port(), &options, &s, &err), DDP_OK, "%s", err.msg);
    return s;
}

static bool has(ddp_store *s, const char *key)
{
    int there = 0;
    cr_assert_eq(ddp_store_check(s, &key, 1, &there, NULL), DDP_OK);
    return there;
}

/* --- apart ------------------------------------------------------------------------------------------------------ */

Test(store_jobs, keys_do_not_mix)
{
    int a = agent_of("a"), b = agent_of("b");
    ddp_store *in_a = worker_of("a", 0), *in_b = worker_of("b", 0);
    ddp_store_set(in_a, "k", "v", 1, NULL);
    cr_assert(has(in_a, "k"));
    cr_assert_not(has(in_b, "k"));
    ddp_store_close(in_a);
    ddp_store_close(in_b);
    close(a);
    close(b);
}

Test(store_jobs, a_restart_of_one_leaves_the_other_alone)
{
    int a = agent_of("a"), b = agent_of("b");
    ddp_store *in_b = worker_of("b", 0);
    ddp_store_set(in_b, "k", "v", 1, NULL);
    say(a, 0x82,
        "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"pid\":7,\"exit_code\":3,\"words\":\"ended with 3\"}");
    say(a, 0x82, "{\"op\":\"stopped\",\"round\":1,\"max_code\":3,\"rank0_code\":3}");
    hear_of(a, "\"next\":\"restart\"");
    join(a, "a", "");
    hear_of(a, "\"push\":\"round\",\"round\":2,\"attempt\":1");
    ddp_store *in_a = worker_of("a", 1);
    cr_assert_not(has(in_a, "k"));
    cr_assert(has(in_b, "k"));
    ddp_store_close(in_a);
    ddp_store_close(in_b);
    close(a);
    close(b);
}

/* The other job's agent hears nothing of a death that is not its business. */
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

/* --- plain clients ---------------------------------------------------------------------------------------------- */

/* Answer the question whose the next plain connection is. The question names both ends, as the kernel of the agent's machine
 * knows them. */
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

/* Its requests waited for the agent, and then for room: what it asked for is more than it may leave unread. */
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
    hear_of(b, "{\"ok\":true}"); /* all has been sent that there is room for */
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

/* --- a vanished node -------------------------------------------------------------------------------------------- */

/* A dead process's connection is closed by its kernel: that is heard before any heartbeat is missed. */
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

/* The server's end of a connection of ours; both are in this process. */
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

/* Keep-alive finds an idle host that has vanished, the user timeout one that we have something to send to. */
Test(store_jobs, a_host_that_vanishes_gives_its_descriptor_back)
{
    int fd = peer_connect_c(served_port()), other = other_end(fd);
    cr_assert_geq(other, 0);
    cr_assert_eq(option_of(other, SOL_SOCKET, SO_KEEPALIVE), 1);
    cr_assert_gt(option_of(other, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    close(fd);
}
