/* Attacks on a job of two nodes that has a secret: from a third host, and by another user of a worker's host. Each
 * attack uses real sockets in a separate network namespace, because the store judges a client by its address and its
 * user. */
#include "auth_peer.h"
#include "base/clock.h"
#include "ddp/context.h"
#include "hub/messages.h"
#include "scene.h"
#include "sim_hub.h" /* hex_read */
#include "store/encode.h"
#include "store_peers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <unistd.h>

#define GREETING "00cef7853c"
#define KEY_K    "01000000000000006b"

/* The bytes that a stranger sends after the greeting. The store must reject each request (expect_refused). */
static const char *const attacks[] = {
    /* read, write, delete, list */
    "03" KEY_K, "01" KEY_K "010000000000000076", "08" KEY_K, "11",
    /* IDENTIFY as rank 0 and as an agent; CONTROL: status, join, claim a connection */
    "8029000000000000007b22726f6c65223a22776f726b6572222c2272616e6b223a302c22776f726c645f73697a65223a347d",
    "801d000000000000007b22726f6c65223a226167656e74222c226a6f62223a226e6f6e65227d",
    "820f000000000000007b226f70223a22737461747573227d",
    "821a000000000000007b226f70223a226a6f696e222c226a6f62223a226e6f6e65227d",
    "821f000000000000007b226f70223a22766f756368222c22636f6e6e223a312c22706964223a317d"
};

static struct run_result stranger(const struct host *from, const char *as, const char *bytes)
{
    char command[1024];
    snprintf(command, sizeof(command), "%s %s 10.9.0.1 29500 " GREETING "%s", as, bin("tests/prog/stranger"),
             bytes);
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    return host_run(from, argv);
}

/* Make all attacks, and expect that the store closes each connection. If `answers` is false, the store closes
 * connections of the attacker's user as soon as it has accepted them, so it must send nothing. If `answers` is true,
 * the store must answer IDENTIFY with an error, and must send nothing else. */
static void expect_refused(const struct host *from, const char *as, bool answers)
{
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
        struct run_result r = stranger(from, as, attacks[i]);
        const bool gets_reason = answers && strncmp(attacks[i], "80", 2) == 0;
        cr_expect(strstr(r.out, "closed after ") != NULL &&
                      (gets_reason ? strstr(r.out, "bytes: 01") != NULL
                                   : strstr(r.out, "closed after 0 bytes") != NULL),
                  "attack %zu of %s: %s%s", i, from->name, r.out, r.err);
    }
}

static void attack_from_third_host(struct play *play)
{
    expect_refused(&play->net->host[2], "", true);
}

static void after_rejects(struct play *play)
{
    const char *argv[] = { bin("ddpctl"), "--addr", "10.9.0.1:29500", "rejects", NULL };
    struct run_result r = host_run(&play->net->host[0], argv);
    cr_expect(strstr(r.out, "10.9.0.3") != NULL && strstr(r.out, "confirmed") != NULL, "%s%s", r.out, r.err);
    after_stop_all(play);
}

SCENE(strangers, a_third_host_gets_no_answer, .hosts = 3, .options = "--nnodes=2", .until = "up",
      .fault = attack_from_third_host, .after = after_rejects,
      .node = { { .exit = 143 }, { .exit = 143 }, { .by_hand = true } })

/* --- an operator on another host ---------------------------------------------------------------------------- */

/* Run ddpctl on a host. `variable` is the value of PET_SECRET_FILE. */
static void ask_on(const struct host *host, const char *variable, const char *command, int exit_code,
                   const char *words)
{
    char text[320];
    snprintf(text, sizeof(text), "PET_SECRET_FILE=%s %s --addr 10.9.0.1:29500 --timeout 20 %s", variable,
             bin("ddpctl"), command);
    const char *argv[] = { "/bin/sh", "-c", text, NULL };
    struct run_result r = host_run(host, argv);
    cr_expect_eq(r.exit_code, exit_code, "%s: %d", command, r.exit_code);
    cr_expect(strstr(r.out, words) != NULL || strstr(r.err, words) != NULL, "%s: no '%s' in %s%s", command,
              words, r.out, r.err);
}

/* Run ddpctl without the secret on `host`. `warns` is true if ddpctl must warn, because it cannot verify the answers of
 * the store on this host. */
static void expect_warning(const struct host *host, bool warns)
{
    const char *argv[] = { bin("ddpctl"), "--addr", "10.9.0.1:29500", "status", NULL };
    struct run_result r = host_run(host, argv);
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    cr_expect_eq(strstr(r.err, "verified") != NULL, warns, "%s", r.err);
}

static void ask_with(struct play *play, const char *variable, const char *command, int exit_code,
                     const char *words)
{
    ask_on(&play->net->host[2], variable, command, exit_code, words);
}

static void ask(struct play *play, const char *command, int exit_code, const char *words)
{
    ask_with(play, "", command, exit_code, words);
}

static void ask_from_third_host(struct play *play)
{
    static const struct {
        const char *command, *words;
    } reads[] = {
        { "status", "world size 4" }, { "why", "" },        { "top", "RANK" }, { "rejects", "" },
        { "jobs", "demo" },           { "stacks", "rank" }, { "waiters", "" }, { "--json keys", "\"ok\"" }
    };
    char command[160];
    for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
        snprintf(command, sizeof(command), "--secret_file %s %s", play->secret, reads[i].command);
        ask(play, command, 0, reads[i].words);
    }
    snprintf(command, sizeof(command), "--secret_file - status <%s", play->secret);
    ask(play, command, 0, "world size 4");
    ask_with(play, play->secret, "status", 0, "world size 4");
    ask_with(play, "/run/missing", "status", 2, "PET_SECRET_FILE");
    ask(play, "status", 1, "PET_SECRET_FILE");
    cr_assert(host_sh(&play->net->host[2], "%s --make_secret /run/other", bin("ddprun")));
    ask(play, "--secret_file /run/other status", 1, "secrets differ: sha256 ");
    after_stop_all(play);
}

SCENE(strangers, an_operator_needs_the_secret, .hosts = 3, .options = "--nnodes=2 --rdzv_id=demo",
      .until = "up", .after = ask_from_third_host,
      .node = { { .exit = 143 }, { .exit = 143 }, { .by_hand = true } })

/* Use ddpctl on node 1, where the agent confirms the user of ddpctl. Rank 3 does not enter the barrier. Without the
 * secret, ddpctl cannot cancel the barrier. With the secret ddpctl can cancel the barrier, and then the waiting ranks
 * exit with 75. */
static void ask_from_node(struct play *play)
{
    const struct host *node = &play->net->host[1];
    char command[160];
    cr_assert(host_sh(node,
                      "until %s --addr 10.9.0.1:29500 barriers | grep 'epoch.* 0-2 '; do sleep 0.1; done",
                      bin("ddpctl")));
    expect_warning(&play->net->host[0], false);
    expect_warning(node, true);
    ask_on(node, "", "status", 0, "world size 4");
    ask_on(node, "", "why", 0, "");
    ask_on(node, "", "stacks", 0, "rank");
    ask_on(node, "", "cancel epoch", 1, "barrier_cancel: ");
    ask_on(node, "", "barriers", 0, "epoch");
    snprintf(command, sizeof(command), "--secret_file %s cancel epoch", play->secret);
    ask_on(node, "", command, 0, "");
}

SCENE(strangers, an_operator_on_a_node_reads_and_cancels_with_the_secret, .options = "--rdzv_id=demo",
      .program = "member say:up but:3 barrier:epoch all forever", .until = "up", .after = ask_from_node,
      .node = { { .exit = 75 }, { .exit = 75 } })

/* First send a request as the job's user. This request must get an answer. Otherwise the rejection of the attacks would
 * prove nothing. Then attack from the same host as another user. The agent of this host confirms only the job's
 * user. */
static void attack_by_another_user(struct play *play)
{
    struct run_result r = stranger(&play->net->host[1], "", "0401000000000000006e0100000000000000");
    cr_expect_not_null(strstr(r.out, "after 8 bytes: 0100000000000000"), "%s%s", r.out, r.err);
    expect_refused(&play->net->host[1], "setpriv --reuid=65534 --regid=65534 --clear-groups", true);
}

SCENE(strangers, another_user_of_a_workers_host_gets_no_answer, .until = "up",
      .fault = attack_by_another_user, .after = after_stop_all, .node = { { .exit = 143 }, { .exit = 143 } })

/* --- the processes of a worker's host ------------------------------------------------------------------------ */

/* Claim ranks as a process on node 1. The store grants only ranks of node 1. */
static void claim_ranks(struct play *play)
{
    static const struct {
        int rank;
        const char *gets;
    } claims[] = { { 3, "open after 9 bytes: 000000000000000000" }, { 0, "bytes: 01" } };
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        char json[128], hex[320];
        size_t n = 0;
        const int len =
            snprintf(json, sizeof(json),
                     "{\"role\":\"worker\",\"job\":\"demo\",\"attempt\":0,\"rank\":%d,\"world_size\":4}",
                     claims[i].rank);
        n += (size_t)snprintf(hex, sizeof(hex), "80%02x00000000000000", len);
        for (int k = 0; k < len; k++)
            n += (size_t)snprintf(hex + n, sizeof(hex) - n, "%02x", (unsigned)json[k]);
        struct run_result r = stranger(&play->net->host[1], "", hex);
        cr_expect_not_null(strstr(r.out, claims[i].gets), "rank %d: %s%s", claims[i].rank, r.out, r.err);
    }
}

static void expect_foreign_rank(struct play *play)
{
    const char *argv[] = { bin("ddpctl"), "--addr", "10.9.0.1:29500", "rejects", NULL };
    struct run_result r = host_run(&play->net->host[0], argv);
    cr_expect(strstr(r.out, "10.9.0.2") != NULL && has_parts(r.out, "rank 0 |job 'demo'"), "%s%s", r.out,
              r.err);
    after_stop_all(play);
}

SCENE(strangers, a_process_is_no_rank_of_another_node, .options = "--rdzv_id=demo", .until = "up",
      .fault = claim_ranks, .after = expect_foreign_rank, .node = { { .exit = 143 }, { .exit = 143 } })

/* Open 200 connections from node 1, and expect that the store accepts all of them. The limit for strangers is lower, but
 * these connections come from a node with an agent. */
static void connect_many(struct play *play)
{
    const char *argv[] = { bin("tests/prog/stranger"), "10.9.0.1", "29500", "many", "200", NULL };
    struct run_result r = host_run(&play->net->host[1], argv);
    cr_expect_str_eq(r.out, "many done: 200\n", "%s", r.err);
}

static void expect_no_rejects(struct play *play)
{
    after_no_rejects(play);
    after_stop_all(play);
}

SCENE(strangers, two_hundred_connections_of_a_node_pass_at_once, .until = "up", .fault = connect_many,
      .after = expect_no_rejects, .node = { { .exit = 143 }, { .exit = 143 } })

/* Let the store have few descriptors. */
static void limit_files(struct play *play)
{
    cr_assert(
        host_sh(&play->net->host[0],
                "printf '#!/bin/sh\nulimit -n 600\nexec %s \"$@\"\n' >/run/ddprun && chmod +x /run/ddprun",
                bin("ddprun")));
}

/* Let another user of node 1 open 1000 connections, more than the store has descriptors. Then let the job's user
 * connect from node 1. */
static void connect_among_held(struct play *play)
{
    char command[256];
    snprintf(command, sizeof(command),
             "exec setpriv --reuid=65534 --regid=65534 --clear-groups %s 10.9.0.1 29500 hold 1000",
             bin("tests/prog/stranger"));
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    play->other = host_start(&play->net->host[1], argv, NULL);
    cr_expect(run_until_output(play->other, "hold done", PATIENCE_MS));
    connect_many(play);
}

SCENE(strangers, another_user_of_a_node_takes_no_descriptor, .before = limit_files, .until = "up",
      .fault = connect_among_held, .after = after_stop_all,
      .node = { { .ddprun = "/run/ddprun", .exit = 143 }, { .exit = 143 } })

/* The ranks of node 1 connect at the same time, each with a connection of libddp. */
SCENE(strangers, two_hundred_ranks_of_a_node_pass_at_once, .options = "--rdzv_id=demo",
      .program = "member sum say:up forever", .until = "up",
      .never = ": rejected: ", .after = expect_no_rejects,
      .node = { { .exit = 143 }, { .options = "--nproc_per_node=200", .exit = 143 } })

/* The ranks of both attempts connect through the gate. The restart may stop a worker of node 0 before the store has
 * accepted the connection of this worker. The store then rejects the connection. */
SCENE(strangers, an_elastic_job_restarts, .elastic = true,
      .options = "--nnodes=2:2 --rdzv_backend=c10d --rdzv_id=el --rdzv_endpoint=10.9.0.1 --max_restarts=2 "
                 "--restart_backoff=200ms",
      .program = "member sum say:met only:3 attempt:0 exit:7 all sum barrier:end say:again",
      .says = "starting attempt 1", .never = "confirmed within", .within_ms = 60000,
      .node = { { .prints = "met|met|again|again" }, { .prints = "met|met|again|again" } })

/* --- many bytes, slow bytes, nonsense ------------------------------------------------------------------------ */

/* Return the largest memory of a ddprun process in kB. `row` is VmRSS for the present memory, or VmHWM for the highest
 * memory so far. */
static long memory_kb(const struct host *host, const char *row)
{
    long most = 0;
    char command[128];
    snprintf(command, sizeof(command),
             "for pid in $(pgrep -x ddprun); do sed -n 's/%s: *//p' /proc/$pid/status; done", row);
    const char *argv[] = { "/bin/sh", "-c", command, NULL };
    struct run_result r = host_run(host, argv);
    for (char *line = strtok(r.out, "\n"); line != NULL; line = strtok(NULL, "\n"))
        most = strtol(line, NULL, 10) > most ? strtol(line, NULL, 10) : most;
    return most;
}

/* Make the program /run/job: it waits for the end of the attack, and then needs the store. */
static void make_waiting_job(struct play *play)
{
    for (int i = 0; i < 2; i++)
        cr_assert(host_sh(&play->net->host[i],
                          "printf '#!/bin/sh\necho up\nuntil [ -e /run/end ]; do sleep 0.1; done\n"
                          "exec %s sum say:served\n' >/run/job && chmod +x /run/job",
                          bin("tests/prog/member")));
}

static void end_job(struct play *play)
{
    for (int i = 0; i < 2; i++)
        cr_assert(host_sh(&play->net->host[i], "touch /run/end"));
}

/* Attack with every mode of tests/prog/stranger. Expect that the store closes every connection and keeps no key. The
 * peak of the store's memory may rise by at most `most_kb`. `ddpctl rejects` must list the stranger with the text
 * `listed`. */
static void besiege(struct play *play, int from, const char *as, const char *listed, long most_kb)
{
    static const char *const modes[] = { "fill 200", "stall 16", "unread 200", "huge 45", "random 32" };
    const struct host *store = &play->net->host[0];
    const char *rejects[] = { bin("ddpctl"), "--addr", "10.9.0.1:29500", "rejects", NULL };
    const char *keys[] = { bin("ddpctl"), "--addr", "10.9.0.1:29500", "keys", NULL };
    const long before_kb = memory_kb(store, "VmHWM");
    cr_expect_gt(before_kb, 0);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        char command[512], words[64];
        const int name = (int)strcspn(modes[i], " ");
        snprintf(command, sizeof(command), "%s %s 10.9.0.1 29500 %s", as, bin("tests/prog/stranger"),
                 modes[i]);
        snprintf(words, sizeof(words), "%.*s done: %s closed", name, modes[i], modes[i] + name + 1);
        const char *argv[] = { "/bin/sh", "-c", command, NULL };
        struct run_result r = host_run(&play->net->host[from], argv);
        cr_expect_not_null(strstr(r.out, words), "%s: %s%s", modes[i], r.out, r.err);
        cr_expect_lt(memory_kb(store, "VmHWM"), before_kb + most_kb, "%s", modes[i]);
    }
    struct run_result r = host_run(store, rejects);
    cr_expect_not_null(strstr(r.out, listed), "%s%s", r.out, r.err);
    r = host_run(store, keys);
    cr_expect(r.exit_code == 0 && strstr(r.out, "evil") == NULL, "%s%s", r.out, r.err);
    end_job(play);
}

static void besiege_from_third_host(struct play *play)
{
    besiege(play, 2, "", "10.9.0.3", 128 * 64); /* 128 strangers with 64 KiB each */
}

SCENE(strangers, a_third_host_fills_and_stalls_nothing, .hosts = 3, .options = "--nnodes=2",
      .program = "/run/job", .before = make_waiting_job, .until = "up", .fault = besiege_from_third_host,
      .node = { { .prints = "served|served" }, { .prints = "served|served" }, { .by_hand = true } })

static void besiege_as_another_user(struct play *play)
{
    besiege(play, 0, "setpriv --reuid=65534 --regid=65534 --clear-groups", "of uid 65534", 128 * 64);
}

SCENE(strangers, another_user_of_the_stores_host_fills_and_stalls_nothing, .program = "/run/job",
      .before = make_waiting_job, .until = "up", .fault = besiege_as_another_user,
      .node = { { .prints = "served|served" }, { .prints = "served|served" } })

/* Attack from node 1, whose agent is asked about each connection. The gate does not limit the number of connections
 * from a node. The store stops reading from a stranger of which it holds more than 64 KiB. The last read adds at most
 * 64 KiB, so the store holds at most 128 KiB of each of 200 strangers. The test allows 192 KiB for each of them. */
static void besiege_from_node(struct play *play)
{
    besiege(play, 1, "setpriv --reuid=65534 --regid=65534 --clear-groups", "10.9.0.2", 200 * 192);
}

SCENE(strangers, another_user_of_a_node_fills_and_stalls_nothing, .program = "/run/job",
      .before = make_waiting_job, .until = "up", .fault = besiege_from_node,
      .node = { { .prints = "served|served" }, { .prints = "served|served" } })

/* --- the messages of an agent ------------------------------------------------------------------------------- */

enum { OTHER_UID = 65534 };

static const struct play *attacked;

/* The host and the user of the attacker. */
static struct {
    int host;
    uid_t uid;
} attacker = { 2, 0 };

/* Connect to the store from the host of the attacker, as the user of the attacker. Only this thread enters the network
 * of the host, and leaves it at once. The uid is changed only for socket(), because a socket belongs to the user that
 * has created it. */
static int connect_as_attacker(void)
{
    char path[64];
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(29500) };
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)attacked->net->host[attacker.host].init);
    const int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), its = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert(own >= 0 && its >= 0 && setns(its, CLONE_NEWNET) == 0);
    setfsuid(attacker.uid);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setfsuid(0);
    inet_pton(AF_INET, "10.9.0.1", &to.sin_addr);
    const bool is_connected = connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0;
    cr_assert(setns(own, CLONE_NEWNET) == 0 && is_connected);
    close(own);
    close(its);
    return fd;
}

static int greet_as_attacker(void)
{
    const int fd = connect_as_attacker();
    peer_send_hex(fd, PEER_GREETING);
    peer_expect(fd, PEER_GREETING_ANSWER);
    return fd;
}

/* Use the secret of the job in further messages of the attacker. */
static void use_secret(struct play *play, struct secret **secret)
{
    struct ddp_err err;
    attacked = play;
    cr_assert_eq(secret_read(play->secret, secret, &err), DDP_OK, "%s", err.msg);
    auth_peer = (struct auth_peer){ greet_as_attacker, *secret };
}

enum { CALLS = 4 };

/* Encode the calls of an agent with which an attacker could become a node, claim a connection, or end the job. */
static void encode_calls(char *calls[CALLS])
{
    cJSON *const messages[CALLS] = {
        message_encode_join(&(struct message_join){ .job = "demo",
                                                    .instance = "",
                                                    .version = DDP_VERSION,
                                                    .host = "node1",
                                                    .pid = 7,
                                                    .boot_id = "",
                                                    .addr = "",
                                                    .own = "",
                                                    .mode = "static",
                                                    .nnodes_min = 2,
                                                    .nnodes_max = 2,
                                                    .node_rank = 1,
                                                    .nproc = 2,
                                                    .store_port = MESSAGE_NONE,
                                                    .task = "",
                                                    .program = "",
                                                    .role = "",
                                                    .join_knob = "",
                                                    .join_timeout_ms = 60000,
                                                    .node_timeout_ms = 60000,
                                                    .grow = "agreed",
                                                    .hang_ms = MESSAGE_NONE,
                                                    .on_hang = "report" }),
        message_encode_vouch(&(struct message_vouch){ .conn = 1, .rank = 0, .pid = 1, .round = 1 }),
        message_encode_worker_exited(
            &(struct message_worker_exited){ .rank = 0, .pid = 1, .exit_code = 9, .round = 1 }),
        cJSON_Parse(
            "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"local_rank\":0,\"pid\":1,\"exit_code\":9}")
    };
    for (int i = 0; i < CALLS; i++) {
        calls[i] = cJSON_PrintUnformatted(messages[i]);
        cr_assert_not_null(calls[i]);
        cJSON_Delete(messages[i]);
    }
}

/* The attacker begins a connection in one of these ways. */
enum { AT_ONCE, AFTER_IDENTIFY, WITH_OTHER_SECRET, WITH_WRONG_PROOF, STARTS };

/* Begin a connection in the way `start`, and send the call `text`. The attacker's secret differs from the job's secret.
 * With WITH_WRONG_PROOF the attacker sends the fingerprint of the job's secret, so the store asks for the proof.
 * Everyone on the network can read this fingerprint. */
static void begin_attack(struct client *c, int start, const struct secret *real, const char *text)
{
    peer_greet(c, AUTH_AGENT);
    if (start == WITH_WRONG_PROOF) {
        struct auth honest = { 0 };
        uint8_t hello[AUTH_HELLO_BYTES];
        auth_hello(&honest, real, AUTH_AGENT, "demo", c->hello + AUTH_HELLO_BYTES - AUTH_NONCE_BYTES, hello);
        memcpy(c->hello, hello, sizeof(hello));
    }
    if (start >= WITH_OTHER_SECRET) {
        peer_send_frame(c, OP_AUTH, slice_of(c->hello, sizeof(c->hello)), false);
        cr_assert_eq(peer_read_blob(c->fd, c->answer, sizeof(c->answer)), AUTH_ANSWER_BYTES);
        cr_expect_eq(c->answer[1], start == WITH_WRONG_PROOF ? AUTH_OK : AUTH_SECRET_DIFFERS);
        peer_send_frame(c, OP_AUTH, slice_of(c->proof, sizeof(c->proof)), false);
    }
    if (start != AT_ONCE)
        peer_send_frame(c, OP_IDENTIFY, slice_str("{\"role\":\"agent\",\"job\":\"demo\"}"), false);
    peer_send_frame(c, OP_CONTROL, slice_str(text), false);
}

/* Make every call as the attacker, for each way to begin a connection. Expect that the store closes the connection
 * without an answer to the call. With AFTER_IDENTIFY, the store first answers IDENTIFY with the reason of its
 * rejection. */
static void claim_membership(const struct secret *real)
{
    static const struct secret other = { .key = { 1, 2, 3 } };
    struct client clients[CALLS];
    char *calls[CALLS];
    encode_calls(calls);
    for (int start = 0; start < STARTS; start++) {
        auth_peer.secret = &other;
        for (int i = 0; i < CALLS; i++)
            begin_attack(&clients[i], start, real, calls[i]);
        for (int i = 0; i < CALLS; i++) {
            uint8_t status = 0, reason[512];
            if (start == AFTER_IDENTIFY) {
                cr_expect_eq(recv(clients[i].fd, &status, 1, MSG_WAITALL), 1);
                cr_expect_eq(status, 1);
                cr_expect_gt(peer_read_blob(clients[i].fd, reason, sizeof(reason)), 0);
            }
            peer_expect_closed(&clients[i], calls[i]);
            peer_end(&clients[i]);
        }
    }
    auth_peer.secret = real;
    for (int i = 0; i < CALLS; i++)
        free(calls[i]);
}

static void await_first_node(struct play *play)
{
    cr_assert(host_sh(
        &play->net->host[attacker.host],
        "until PET_SECRET_FILE=%s %s --addr 10.9.0.1:29500 status 2>&1 | grep node0; do sleep 0.1; done",
        play->secret, bin("ddpctl")));
}

/* Attack before node 1 has joined, and again while the job runs. */
static void take_places(struct play *play)
{
    struct secret *real;
    use_secret(play, &real);
    await_first_node(play);
    claim_membership(real);
    peer_expect_nodes(1);
    scene_start(play, 1, NULL);
    cr_expect(run_until_output(play->node[1], "up", 60000), "node 1 has not joined");
    claim_membership(real);
    peer_expect_nodes(2);
    end_job(play);
    secret_free(real);
}

static void take_places_as_another_user(struct play *play)
{
    attacker.host = 1;
    attacker.uid = OTHER_UID;
    take_places(play);
}

SCENE(strangers, another_user_of_a_node_takes_no_place_and_ends_no_rank, .options = "--rdzv_id=demo",
      .program = "/run/job", .before = make_waiting_job, .fault = take_places_as_another_user,
      .node = { { .prints = "served|served" }, { .by_hand = true, .prints = "served|served" } })

SCENE(strangers, a_third_host_takes_no_place_and_ends_no_rank, .hosts = 3,
      .options = "--nnodes=2 --rdzv_id=demo", .program = "/run/job", .before = make_waiting_job,
      .fault = take_places,
      .node = { { .prints = "served|served" },
                { .by_hand = true, .prints = "served|served" },
                { .by_hand = true } })

/* --- recorded and changed messages -------------------------------------------------------------------------- */

/* This program records packets until SIGTERM. It then prints, in hexadecimal, the bytes that this host has sent on the
 * agent's connection. The agent's connection is the one with a `join`. */
static const char recorder[] = "import signal,socket,sys\n"
                               "s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.ntohs(3))\n"
                               "s.setsockopt(socket.SOL_SOCKET,33,1<<24)\n" /* SO_RCVBUFFORCE */
                               "s.bind(('eth0',0)); s.settimeout(0.1)\n"
                               "first,streams={},{}\n"
                               "end=[]\n"
                               "signal.signal(signal.SIGTERM,lambda *unused: end.append(1))\n"
                               "print('listening',flush=True)\n"
                               "while not end:\n"
                               "    try: p=s.recv(1<<17)[14:]\n"
                               "    except socket.timeout: continue\n"
                               "    if len(p)<40 or p[0]>>4!=4 or p[9]!=6: continue\n"
                               "    t=p[(p[0]&15)*4:int.from_bytes(p[2:4],'big')]\n"
                               "    if t[2:4]!=b'\\x73\\x3c': continue\n" /* to port 29500 */
                               "    port,seq,data=t[:2],int.from_bytes(t[4:8],'big'),t[(t[12]>>4)*4:]\n"
                               "    if t[13]&2: first[port]=(seq+1)%2**32; streams[port]=bytearray()\n"
                               "    if not data or port not in first: continue\n"
                               "    at=(seq-first[port])%2**32\n"
                               "    streams[port].extend(bytes(max(0,at+len(data)-len(streams[port]))))\n"
                               "    streams[port][at:at+len(data)]=data\n"
                               "for b in streams.values():\n"
                               "    if b'\"op\":\"join\"' in b: print('recorded',b[:16384].hex()); break\n";

static void start_recorder(struct play *play)
{
    const char *argv[] = { "/usr/bin/python3", "-c", recorder, NULL };
    play->other = host_start(&play->net->host[1], argv, NULL);
    cr_assert(run_until_output(play->other, "listening", PATIENCE_MS));
    make_waiting_job(play);
}

/* Return the recorded bytes that node 1's agent has sent to the store. The caller frees them. */
static struct buf recorded_bytes(struct play *play)
{
    struct buf bytes = { 0 };
    run_signal(play->other, SIGTERM);
    struct run_result r = run_wait(play->other);
    play->other = NULL;
    const char *recorded = strstr(r.out, "recorded ");
    cr_assert_not_null(recorded, "%s%s", r.out, r.err);
    hex_read(recorded + strlen("recorded "), &bytes);
    cr_assert(memmem(bytes.data, bytes.len, "\"op\":\"join\"", 11) != NULL);
    return bytes;
}

/* Send bytes as the attacker. Return the number of bytes that the store sends until it closes the connection. */
static size_t count_answer(struct slice bytes)
{
    char got[1024];
    size_t n = 0;
    const int fd = connect_as_attacker();
    peer_send(fd, bytes);
    for (;;) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        cr_assert_gt(poll(&ready, 1, PEER_DEADLINE_MS), 0, "the store does not close the connection");
        const ssize_t more = recv(fd, got + n, sizeof(got) - n, 0);
        if (more <= 0)
            break;
        n += (size_t)more;
    }
    close(fd);
    return n;
}

/* Send all bytes of node 1's agent again. The store must answer only PING, `hello` and the first message of AUTH, which
 * is still valid when it is repeated. */
static void replay(struct play *play)
{
    struct buf bytes = recorded_bytes(play);
    const size_t n = count_answer(buf_slice(&bytes));
    /* the answers to PING, `hello` and AUTH */
    cr_expect_eq(n, 4 + (8 + 11) + (8 + AUTH_ANSWER_BYTES), "%zu bytes", n);
    buf_free(&bytes);
}

static void replay_and_change(struct play *play)
{
    struct secret *real;
    use_secret(play, &real);
    replay(play);
    attack_with_stores_messages();
    attack_with_stores_frames();
    attack_as_operator();
    attack_with_wrong_bits();
    attack_with_reports(1);
    peer_expect_nodes(2);
    end_job(play);
    secret_free(real);
}

static void replay_and_change_as_another_user(struct play *play)
{
    attacker.host = 1;
    attacker.uid = OTHER_UID;
    replay_and_change(play);
}

SCENE(strangers, another_user_of_a_node_replays_and_changes_nothing, .options = "--rdzv_id=demo",
      .program = "/run/job", .before = start_recorder, .until = "up",
      .fault = replay_and_change_as_another_user,
      .node = { { .prints = "served|served" }, { .prints = "served|served" } })

/* Use the right secret on the store's host, but as another user. The store closes the connections of this user as soon
 * as it has accepted them, so every attack ends before its first answer. */
static void attack_at_accept(struct play *play)
{
    struct secret *real;
    struct client c;
    char *calls[CALLS];
    struct buf bytes = recorded_bytes(play);
    attacker.host = 0;
    use_secret(play, &real);
    encode_calls(calls);
    peer_greet(&c, AUTH_AGENT); /* as root, which the store admits */
    attacker.uid = OTHER_UID;
    expect_refused(&play->net->host[0], "setpriv --reuid=65534 --regid=65534 --clear-groups", false);
    cr_expect_eq(count_answer(buf_slice(&bytes)), 0);
    for (int i = 0; i < CALLS; i++) {
        bytes.len = 0;
        cr_assert(append_u8(&bytes, 0x83) && append_blob(&bytes, slice_of(c.hello, sizeof(c.hello))) &&
                  append_u8(&bytes, 0x82) && append_blob(&bytes, slice_str(calls[i])));
        const size_t n = count_answer(buf_slice(&bytes));
        cr_expect_eq(n, 0, "%s: %zu bytes", calls[i], n);
        free(calls[i]);
    }
    peer_end(&c);
    const char *rejects[] = { bin("ddpctl"), "--addr", "10.9.0.1:29500", "rejects", NULL };
    struct run_result r = host_run(&play->net->host[0], rejects);
    cr_expect_not_null(strstr(r.out, "of uid 65534"), "%s%s", r.out, r.err);
    attacker.uid = 0;
    peer_expect_nodes(2);
    end_job(play);
    buf_free(&bytes);
    secret_free(real);
}

SCENE(strangers, another_user_of_the_stores_host_is_refused_before_its_messages, .options = "--rdzv_id=demo",
      .program = "/run/job", .before = start_recorder, .until = "up", .fault = attack_at_accept,
      .node = { { .prints = "served|served" }, { .prints = "served|served" } })

SCENE(strangers, a_third_host_replays_and_changes_nothing, .hosts = 3, .options = "--nnodes=2 --rdzv_id=demo",
      .program = "/run/job", .before = start_recorder, .until = "up", .fault = replay_and_change,
      .node = { { .prints = "served|served" }, { .prints = "served|served" }, { .by_hand = true } })

/* --- half-open handshakes ---------------------------------------------------------------------------------- */

/* Time in ms from node 1's start to its workers' start, without and with half-open handshakes. */
static uint64_t join_ms[2];

static void join(struct play *play, bool flooded)
{
    const uint64_t start_ms = clock_ms();
    scene_start(play, 1, NULL);
    cr_expect(run_until_output(play->node[1], "up", 60000), "node 1 has not joined");
    join_ms[flooded] = clock_ms() - start_ms;
}

static void join_quietly(struct play *play)
{
    await_first_node(play);
    join(play, false);
}

/* Expect that the store has closed connections of the third host, but no connection of node 1. The flood fills the
 * store with connections of the third host, so the store must close some of them to make room. */
static void expect_room_for_node_1(struct play *play)
{
    const char *argv[] = { bin("ddpctl"), "--addr", "10.9.0.1:29500", "--json", "rejects", NULL };
    struct run_result r = host_run(&play->net->host[0], argv);
    cJSON *o = cJSON_Parse(r.out);
    const cJSON *row;
    int strangers = 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(o, "rejects"))
    {
        const char *source = cJSON_GetStringValue(cJSON_GetObjectItem(row, "source"));
        const char *why = cJSON_GetStringValue(cJSON_GetObjectItem(row, "why"));
        cr_assert(source != NULL && why != NULL, "%s", r.out);
        strangers += strstr(source, "10.9.0.3") != NULL;
        cr_expect(strstr(source, "10.9.0.2") == NULL ||
                      (strstr(why, "too many") == NULL && strstr(why, "needs") == NULL),
                  "%s", r.out);
    }
    cr_expect_gt(strangers, 0, "the store has rejected no stranger, so this test tests nothing: %s", r.out);
    cJSON_Delete(o);
}

/* Let node 1 join while a third host keeps 10,000 half-open authentications and begins more. */
static void flood(struct play *play)
{
    const char *argv[] = { bin("tests/prog/stranger"), "10.9.0.1", "29500", "half", "10000", NULL };
    await_first_node(play);
    const long before_kb = memory_kb(&play->net->host[0], "VmHWM");
    struct run_process *flooder =
        host_start(&play->net->host[2], argv, &(struct run_options){ .timeout_ms = 300000 });
    cr_expect(run_until_output(flooder, "half done", 60000), "the flood does not begin");
    join(play, true);
    const long grown_kb = memory_kb(&play->net->host[0], "VmHWM") - before_kb;
    printf(
        "half-open handshakes: node 1 runs after %llu ms with 10,000 of them, and after %llu ms without; the "
        "store has grown by %ld KiB\n",
        (unsigned long long)join_ms[1], (unsigned long long)join_ms[0], grown_kb);
    expect_room_for_node_1(play);
    cr_expect_gt(before_kb, 0);
    cr_expect_lt(grown_kb, 20 * 1024);
    run_signal(flooder, SIGTERM);
    struct run_result r = run_wait(flooder);
    cr_expect_eq(r.signal, SIGTERM, "the flood has ended by itself: %s%s", r.out, r.err);
}

Test(strangers, half_open_handshakes_do_not_delay_an_agent)
{
    struct scene scene = { .name = "half_open_handshakes_do_not_delay_an_agent",
                           .hosts = 3,
                           .options = "--nnodes=2 --rdzv_id=demo",
                           .fault = join_quietly,
                           .never = "works again",
                           .after = after_stop_all,
                           .node = {
                               { .exit = 143 }, { .by_hand = true, .exit = 143 }, { .by_hand = true } } };
    scene_play(&scene);
    scene.fault = flood;
    scene_play(&scene);
}

/* --- where the secret is ----------------------------------------------------------------------------------- */

/* Expect the secret in no worker's environment, command line or memory, as digits or bytes. */
static void search_workers(struct play *play)
{
    static const char script[] =
        "import glob,os,re,sys\n"
        "text=open(glob.glob('/tmp/ddprun-test-secret-%d')[0],'rb').read().strip()\n"
        "needles=[text,bytes.fromhex(text.decode())]\n"
        "seen=found=0\n"
        "for p in glob.glob('/proc/[0-9]*'):\n"
        "    try:\n"
        "        command=open(p+'/cmdline','rb').read()\n"
        "        agent=open(p+'/comm').read().strip()=='ddprun'\n"
        "        if os.path.basename(p)==str(os.getpid()) or not command: continue\n"
        "        blobs=[command,open(p+'/environ','rb').read()]\n"
        "        mem=open(p+'/mem','rb')\n"
        "        for line in open(p+'/maps'):\n"
        "            m=re.match(r'([0-9a-f]+)-([0-9a-f]+) r',line)\n"
        "            if not m: continue\n"
        "            try:\n"
        "                mem.seek(int(m[1],16)); blobs.append(mem.read(int(m[2],16)-int(m[1],16)))\n"
        "            except (OSError,ValueError,OverflowError): pass\n"
        "    except OSError: continue\n"
        "    hit=any(n in b for n in needles for b in blobs)\n"
        "    if agent: found+=hit\n"
        "    else:\n"
        "        seen+=1\n"
        "        if hit: print('SECRET IN',p,command)\n"
        "print('workers',seen>=2,'agents',found>=1)\n";
    char text[sizeof(script) + 32];
    const char *argv[] = { "/usr/bin/python3", "-c", text, NULL };
    snprintf(text, sizeof(text), script, (int)getpid());
    for (int i = 0; i < 2; i++) {
        struct run_result r = host_run(&play->net->host[i], argv);
        cr_expect_str_eq(r.out, "workers True agents True\n", "%s%s", r.out, r.err);
    }
}

SCENE(strangers, no_worker_has_the_secret, .until = "up", .fault = search_workers, .after = after_stop_all,
      .node = { { .exit = 143 }, { .exit = 143 } })

/* --- the policy -------------------------------------------------------------------------------------------- */

static void make_other_secret(struct play *play)
{
    cr_assert(host_sh(&play->net->host[1], "%s --make_secret /run/other", bin("ddprun")));
}

SCENE(strangers, another_secret_is_named, .options = "--timeout=13", .before = make_other_secret,
      .until = NULL, .within_ms = CONNECTIONS,
      .node = { { .exit = 125 },
                { .options = "--secret_file=/run/other",
                  .exit = 125,
                  .says = "secrets differ: sha256 |.. here, " } })

/* Remove PET_SECRET_FILE, which every scene sets. */
static void forget_secret(struct play *play)
{
    cr_assert(host_sh(
        &play->net->host[0],
        "printf '#!/bin/sh\nunset PET_SECRET_FILE\nexec %s \"$@\"\n' >/run/ddprun && chmod +x /run/ddprun",
        bin("ddprun")));
}

SCENE(strangers, several_nodes_need_a_secret, .before = forget_secret, .options = "--timeout=3",
      .within_ms = CONNECTIONS,
      .node = { { .ddprun = "/run/ddprun", .exit = 125, .says = "NO_SECRET" }, { .by_hand = true } })

SCENE(strangers, an_insecure_store_is_named, .before = forget_secret, .within_ms = CONNECTIONS,
      .after = after_stop_all,
      .node = { { .ddprun = "/run/ddprun", .options = "--insecure", .exit = 143, .says = "STORE_IS_OPEN" },
                { .by_hand = true } })
