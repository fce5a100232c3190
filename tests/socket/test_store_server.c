/* The store over real sockets: what live PyTorch clients send, in every cut; waiting; ends; limits. */
#include "store/encode.h"
#include "store_peers.h"
#include "sim_hub.h" /* hex_read */
#include "tests/unit/vectors.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(store_server, .init = serve, .fini = serve_end, .timeout = 60);

/* --- the captured vectors ------------------------------------------------------------------------------ */

static void play(const struct vector *vectors, int count, size_t step)
{
    int fd = peer_connect(served_port());
    for (int i = 0; i < count; i++) {
        peer_send_cut(fd, vectors[i].client, step);
        peer_expect(fd, vectors[i].server);
    }
    close(fd);
}

static void play_at_once(const struct vector *vectors, int count)
{
    struct buf all = { 0 }, answers = { 0 };
    int fd = peer_connect(served_port());
    for (int i = 0; i < count; i++) {
        hex_read(vectors[i].client, &all);
        buf_append(&answers, vectors[i].server, strlen(vectors[i].server));
    }
    buf_append(&answers, "", 1);
    peer_send(fd, buf_slice(&all));
    peer_expect(fd, (char *)answers.data);
    buf_free(&all);
    buf_free(&answers);
    close(fd);
}

Test(store_server, answers_torch_1_13)
{
    play(vectors_a, VECTORS_A, SIZE_MAX / 2);
}

Test(store_server, answers_torch_1_13_byte_by_byte)
{
    play(vectors_a, VECTORS_A, 1);
}

Test(store_server, answers_torch_1_13_all_at_once)
{
    play_at_once(vectors_a, VECTORS_A);
}

Test(store_server, answers_torch_2)
{
    play(vectors_c, VECTORS_C, SIZE_MAX / 2);
}

Test(store_server, answers_torch_2_byte_by_byte)
{
    play(vectors_c, VECTORS_C, 1);
}

Test(store_server, answers_torch_2_all_at_once)
{
    play_at_once(vectors_c, VECTORS_C);
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

/* --- many connections ---------------------------------------------------------------------------------- */

/* torch 1.13 opens a second connection on which it never says anything. */
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

/* The small ones are kept back until the end of the turn, the big one is not. */
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

/* --- waiting ------------------------------------------------------------------------------------------- */

Test(store_server, every_way_to_write_a_key_wakes_its_waiter)
{
    static const struct {
        const char *name, *request, *answer;
    } writes[] = {
        { "SET", "01 0200000000000000 2f30 0000000000000000", "" },
        { "COMPARE_SET", "02 0200000000000000 2f31 0000000000000000 0100000000000000 78",
          "0100000000000000 78" },
        { "ADD", "04 0200000000000000 2f32 0100000000000000", "0100000000000000" },
        { "APPEND", "09 0200000000000000 2f33 0100000000000000 78", "" },
        { "MULTI_SET", "0b 0100000000000000 0200000000000000 2f34 0100000000000000 78", "" },
        { "QUEUE_PUSH", "0e 0200000000000000 2f35 0100000000000000 78", "" },
    };
    int waiter = peer_connect_c(served_port()), writer = peer_connect_c(served_port());
    for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
        peer_wait(waiter, (char[]){ '/', (char)('0' + i), '\0' });
        peer_send_hex(writer, writes[i].request);
        peer_expect(writer, writes[i].answer);
        peer_expect(waiter, "00");
    }
    close(waiter);
    close(writer);
}

Test(store_server, a_wait_for_two_keys_ends_with_the_second)
{
    int waiter = peer_connect_c(served_port()), writer = peer_connect_c(served_port());
    peer_send_hex(waiter, "06 0200000000000000 0200000000000000 2f61 0200000000000000 2f62");
    peer_set(writer, "/b", slice_str(""));
    peer_expect_silence(writer, 'C');
    peer_set(writer, "/a", slice_str(""));
    peer_expect(waiter, "00");
    close(waiter);
    close(writer);
}

Test(store_server, a_wait_can_be_cancelled_before_and_after_its_key_comes)
{
    int waiter = peer_connect_c(served_port()), writer = peer_connect_c(served_port());
    peer_send_hex(waiter, "0c");
    peer_expect(waiter, "01");
    peer_wait(waiter, "/late");
    peer_send_hex(waiter, "0c");
    peer_expect(waiter, "01");
    peer_set(writer, "/late", slice_str(""));
    peer_expect_silence(writer, 'C');
    peer_expect_silence(waiter, 'C');
    peer_wait(waiter, "/next");
    peer_set(writer, "/next", slice_str(""));
    peer_expect(waiter, "00");
    peer_send_hex(waiter, "0c");
    peer_expect(waiter, "01");
    close(waiter);
    close(writer);
}

/* torch 1.13 says nothing when its wait times out; the next command shows that it has given up. */
Test(store_server, a_wait_that_was_given_up_leaves_no_stray_byte)
{
    int waiter = peer_connect(served_port()), writer = peer_connect_c(served_port());
    peer_set(writer, "/other", slice_str("x"));
    peer_expect_silence(writer, 'C');
    peer_send_hex(waiter, "05 0100000000000000 0600000000000000 2f6e65766572"); /* WAIT /never */
    peer_send_hex(waiter, "02 0600000000000000 2f6f74686572");                  /* GET /other */
    peer_expect(waiter, "0100000000000000 78");
    peer_set(writer, "/never", slice_str(""));
    peer_expect_silence(writer, 'C');
    peer_expect_silence(waiter, 'A');
    close(waiter);
    close(writer);
}

Test(store_server, a_waiter_that_leaves_is_forgotten)
{
    int fd = peer_connect_c(served_port());
    for (int i = 0; i < 50; i++) {
        int waiter = peer_connect_c(served_port()), member = peer_connect_c(served_port());
        peer_wait(waiter, "/go");
        peer_send_hex(member, "12 0200000000000000 2f62 ffffffffffffff7f"); /* BARRIER /b, never full */
        close(waiter);
        close(member);
    }
    peer_set(fd, "/go", slice_str("1"));
    cr_assert_eq(peer_add(fd, "/n", 1), 1);
    close(fd);
}

/* --- the end of a connection --------------------------------------------------------------------------- */

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

/* Nobody is told to wait for a client that has stopped reading. */
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

/* --- limits -------------------------------------------------------------------------------------------- */

/* One SET with a key and a value of these sizes; true when the server goes on. */
static bool set_sizes(size_t key_len, size_t value_len)
{
    struct buf b = { 0 };
    char answer[4], *zeros = calloc(1, value_len + key_len + 1);
    int fd = peer_connect_c(served_port());
    put_u8(&b, 0x01);
    put_blob(&b, slice_of(zeros, key_len));
    put_blob(&b, slice_of(zeros, value_len));
    peer_send(fd, buf_slice(&b));
    peer_send_hex(fd, "0d 01020304");
    bool alive = recv(fd, answer, sizeof(answer), MSG_WAITALL) == sizeof(answer);
    close(fd);
    buf_free(&b);
    free(zeros);
    return alive;
}

Test(store_server, keys_and_values_have_limits)
{
    cr_assert(set_sizes(8192, 1));
    cr_assert_not(set_sizes(8193, 1));
    cr_assert(set_sizes(1, 8 << 20));
    cr_assert_not(set_sizes(1, (8 << 20) + 1));
    cr_assert(set_sizes(0, 0));
    peer_expect_service(served_port());
}

/* CHECK of `count` keys that do not exist: 1, or -1 when the server closes. */
static int check_many(size_t count)
{
    struct buf b = { 0 };
    unsigned char answer = 0xff;
    int fd = peer_connect_c(served_port());
    put_u8(&b, 0x05);
    put_u64(&b, count);
    for (size_t i = 0; i < count; i++)
        put_blob(&b, slice_of(&i, sizeof(i)));
    peer_send(fd, buf_slice(&b));
    ssize_t n = recv(fd, &answer, 1, 0);
    close(fd);
    buf_free(&b);
    return n == 1 ? answer : -1;
}

Test(store_server, lists_have_a_limit)
{
    cr_assert_eq(check_many(131072), 1);
    cr_assert_eq(check_many(131073), -1);
    cr_assert_eq(check_many(0), 0);
    peer_expect_service(served_port());
}

Test(store_server, adding_to_a_text_closes_the_connection)
{
    int fd = peer_connect_c(served_port());
    peer_set(fd, "/text", slice_str("many"));
    peer_send_hex(fd, "04 0500000000000000 2f74657874 0100000000000000");
    peer_expect_end(fd);
    peer_expect_service(served_port());
}

/* --- where it listens ---------------------------------------------------------------------------------- */

Test(store_server, a_port_in_use_is_refused_with_the_holder_s_name)
{
    struct store_server *second = NULL;
    struct ddp_err err = { 0 };
    char pid[32];
    const struct store_server_options options = { .host = "127.0.0.1",
                                                  .port = served_port(),
                                                  .limits = HUB_LIMITS_DEFAULT };
    snprintf(pid, sizeof(pid), "(pid %d", (int)getpid());
    cr_assert_eq(store_server_start(&options, &second, &err), DDP_ERR_IO);
    cr_assert_not_null(strstr(err.msg, "in use by"), "%s", err.msg);
    cr_assert_not_null(strstr(err.msg, pid), "%s", err.msg);
    cr_assert_not_null(strstr(err.msg, "choose another port"), "%s", err.msg);
}

static void serve_everywhere(void)
{
    serve_with(&(struct store_server_options){ .limits = HUB_LIMITS_DEFAULT });
}

Test(store_server, without_a_host_it_listens_everywhere, .init = serve_everywhere)
{
    peer_expect_service(served_port());
}

Test(store_server, an_address_that_is_not_ours_is_refused_in_words)
{
    struct store_server *s = NULL;
    struct ddp_err err = { 0 };
    const struct store_server_options options = { .host = "192.0.2.1", .limits = HUB_LIMITS_DEFAULT };
    cr_assert_eq(store_server_start(&options, &s, &err), DDP_ERR_IO);
    cr_assert_not_null(strstr(err.msg, "no such address"), "%s", err.msg);
}
