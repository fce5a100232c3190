/* Attacks on AUTH and on the calls of agents, over real sockets. The attacker replays recorded bytes, sends the store's
 * bytes back, or tries to become an agent with the messages of an operator. Other attackers change one bit of each
 * message, or report ranks of another node. */
#include "auth_peer.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct secret secret = { .key = { 1, 2, 3 } };

static int connect_here(void)
{
    return peer_connect_c(served_port());
}

static void serve_secret(void)
{
    struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    options.limits.secret = &secret;
    options.limits.guarded = true;
    serve_with(&options);
    auth_peer = (struct auth_peer){ connect_here, &secret };
}

TestSuite(auth_attacks, .init = serve_secret, .fini = serve_end, .timeout = 300);

/* --- attacks ---------------------------------------------------------------------------------------------------- */

/* The first message is correct, so it is answered. */
Test(auth_attacks, a_recorded_agent_is_not_an_agent)
{
    struct client agent, replay;
    uint8_t answer[AUTH_ANSWER_BYTES];
    peer_authenticate(&agent, AUTH_AGENT);
    peer_identify(&agent, "agent");
    peer_expect_welcome(&agent);
    peer_join(&agent, 0, 1);
    replay = (struct client){ .fd = peer_connect_c(served_port()) };
    peer_send(replay.fd, buf_slice(&agent.sent));
    cr_assert_eq(peer_read_blob(replay.fd, answer, sizeof(answer)), AUTH_ANSWER_BYTES);
    peer_expect_closed(&replay, "replay");
    peer_expect_nodes(1);
    cr_expect_not_null(strstr(peer_call(&agent, "{\"op\":\"heartbeat\"}"), "\"ok\":true"));
    peer_end(&replay);
    peer_end(&agent);
}

Test(auth_attacks, the_stores_own_messages_prove_nothing)
{
    attack_with_stores_messages();
}

Test(auth_attacks, the_stores_own_frames_are_not_requests)
{
    attack_with_stores_frames();
}

Test(auth_attacks, an_operator_does_not_become_an_agent)
{
    attack_as_operator();
    peer_expect_nodes(0);
}

Test(auth_attacks, one_wrong_bit_in_any_message_ends_the_connection)
{
    attack_with_wrong_bits();
    peer_expect_nodes(0);
}

/* The store serves only root and the user who runs the store. Another user of the same host sends the recorded messages
 * of an agent, and gets no answer. */
Test(auth_attacks, another_user_of_the_stores_host_is_refused_before_its_messages)
{
    struct client agent, other;
    setfsuid(65534);
    if (setfsuid(0) != 65534)
        cr_skip_test("skipped, because only root can act as another user");
    peer_authenticate(&agent, AUTH_AGENT);
    peer_identify(&agent, "agent");
    peer_expect_welcome(&agent);
    peer_join(&agent, 0, 1);
    setfsuid(65534);
    other = (struct client){ .fd = peer_connect(served_port()) };
    setfsuid(0);
    peer_send_hex(other.fd, PEER_GREETING);
    peer_send(other.fd, buf_slice(&agent.sent));
    peer_expect_closed(&other, "another user");
    peer_expect_nodes(1);
    cr_expect_not_null(strstr(peer_call(&agent, "{\"op\":\"heartbeat\"}"), "\"ok\":true"));
    peer_end(&other);
    peer_end(&agent);
}

/* Node 1 of two nodes reports ranks of node 0. An agent that is not a member reports ranks of both nodes. */
Test(auth_attacks, an_agent_reports_its_own_ranks_only)
{
    static const char *const reports[] = {
        "{\"op\":\"worker_started\",\"round\":1,\"rank\":1,\"pid\":9}",
        "{\"op\":\"worker_exited\",\"round\":1,\"rank\":1,\"pid\":9,\"exit_code\":1}",
        "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"local_rank\":0,\"pid\":9,\"exit_code\":1}",
        "{\"op\":\"cause\",\"round\":1,\"rank\":1,\"local_rank\":0,\"pid\":9,\"exit_code\":1}"
    };
    struct client agents[2];
    for (int i = 0; i < 2; i++) {
        peer_authenticate(&agents[i], AUTH_AGENT);
        peer_identify(&agents[i], "agent");
        peer_expect_welcome(&agents[i]);
        peer_join(&agents[i], i, 2);
    }
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
        const char *answer = peer_call(&agents[1], reports[i]);
        cr_expect_not_null(strstr(answer, "\"ok\":false"), "%s: %s", reports[i], answer);
    }
    const char *own = peer_call(&agents[1], "{\"op\":\"worker_started\",\"round\":1,\"rank\":2,\"pid\":9}");
    cr_expect_not_null(strstr(own, "\"ok\":true"), "%s", own);
    attack_with_reports(1);
    cr_expect_not_null(strstr(peer_call(&agents[0], "{\"op\":\"status\"}"), "\"state\":\"running\""));
    for (int i = 0; i < 2; i++)
        peer_end(&agents[i]);
}

/* --- a peer that connects again and again --------------------------------------------------------------- */

static struct {
    pthread_t thread;
    _Atomic bool ends;
    _Atomic int n; /* number of connections that the thread has made */
} stranger;

/* Connect from 127.0.0.2, begin an authentication, and leave. Do so until `ends`. */
static void *reconnect(void *unused)
{
    const struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002) };
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                    .sin_port = htons((uint16_t)served_port()) };
    const struct linger at_once = { .l_onoff = 1 }; /* a reset, so that no port stays in TIME_WAIT */
    char hello[128];
    (void)unused;
    snprintf(hello, sizeof(hello), PEER_GREETING " 83 %02x%02x000000000000 0201", AUTH_HELLO_BYTES % 256,
             AUTH_HELLO_BYTES / 256);
    while (!stranger.ends) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        if (bind(fd, (const struct sockaddr *)&own, sizeof(own)) == 0 &&
            connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0 && peer_send_hex(fd, hello))
            stranger.n++;
        close(fd);
    }
    return NULL;
}

Test(auth_attacks, a_peer_that_connects_again_and_again_keeps_no_agent_out)
{
    enum { AGENTS = 20, RECONNECTS = 50 };
    cr_assert_eq(pthread_create(&stranger.thread, NULL, reconnect, NULL), 0);
    for (int i = 0; i < AGENTS; i++) {
        struct client c;
        for (const int before = stranger.n; stranger.n < before + RECONNECTS;)
            usleep(1000);
        peer_authenticate(&c, AUTH_AGENT);
        for (const int before = stranger.n; stranger.n < before + RECONNECTS;)
            usleep(1000);
        peer_identify(&c, "agent");
        peer_expect_welcome(&c);
        peer_end(&c);
    }
    stranger.ends = true;
    pthread_join(stranger.thread, NULL);
}
