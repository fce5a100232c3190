/* Test the messages between hosts: rejected hellos, differences between the calls of two ranks, and reasons with
 * code and text. The messages come from other hosts, so every wrong byte must be rejected with a reason. */
#include "cpu/net_wire.c"

#include <criterion/criterion.h>
#include <string.h>

static struct net_hello make_hello(void)
{
    struct net_hello hello = {
        .run = "ddp/job/1", .host = "node7", .pid = 4711, .from = 3, .to = 1, .lane = 2, .world = 4
    };
    memcpy(hello.nonce, "0123456789abcdef", NET_NONCE);
    return hello;
}

/* Return the hello that rank 1 expects. */
static struct net_hello make_mine(void)
{
    struct net_hello mine = make_hello();
    mine.from = mine.to = 1;
    return mine;
}

static enum net_answer answer_to(const struct net_hello *said, struct net_hello *heard)
{
    const struct net_hello mine = make_mine();
    uint8_t bytes[NET_HELLO];
    net_encode_hello(bytes, said);
    return net_decode_hello(bytes, &mine, heard);
}

Test(net_wire, a_hello_comes_through_as_it_was_said)
{
    struct net_hello said = make_hello(), heard;
    cr_assert_eq(answer_to(&said, &heard), NET_WELCOME);
    cr_assert_eq(memcmp(&said, &heard, sizeof(said)), 0);
}

Test(net_wire, a_hello_of_another_run_or_to_another_rank_is_told_why_not)
{
    struct net_hello said = make_hello(), heard;
    said.nonce[15]++;
    cr_assert_eq(answer_to(&said, &heard), NET_OTHER_RUN);
    said = make_hello();
    strcpy(said.run, "ddp/job/0");
    cr_assert_eq(answer_to(&said, &heard), NET_OTHER_RUN);
    said = make_hello();
    said.to = 0;
    cr_assert_eq(answer_to(&said, &heard), NET_OTHER_RANK);
    said = make_hello();
    said.world = 8;
    cr_assert_eq(answer_to(&said, &heard), NET_OTHER_RANK);
}

Test(net_wire, no_changed_byte_of_what_tells_runs_apart_is_welcome)
{
    const struct net_hello said = make_hello(), mine = make_mine();
    struct net_hello heard;
    uint8_t bytes[NET_HELLO];
    net_encode_hello(bytes, &said);
    for (int i = 0; i < 16 + NET_NONCE + 9; i++) {
        bytes[i] ^= 0x20;
        cr_assert_neq(net_decode_hello(bytes, &mine, &heard), NET_WELCOME, "byte %d", i);
        bytes[i] ^= 0x20;
    }
    cr_assert_eq(net_decode_hello(bytes, &mine, &heard), NET_WELCOME);
}

/* Texts of a peer may lack their NUL. */
Test(net_wire, texts_without_an_end_are_cut)
{
    const struct net_hello said = make_hello(), mine = make_mine();
    struct net_hello heard;
    uint8_t bytes[NET_HELLO];
    net_encode_hello(bytes, &said);
    memset(bytes + 16 + NET_NONCE, 'x', NET_RUN + NET_HOST);
    cr_assert_eq(net_decode_hello(bytes, &mine, &heard), NET_OTHER_RUN);
    cr_assert_eq(strlen(heard.run), NET_RUN - 1);
    cr_assert_eq(strlen(heard.host), NET_HOST - 1);
}

Test(net_wire, a_stranger_is_known_by_its_first_byte)
{
    const struct net_hello said = make_hello();
    uint8_t bytes[NET_HELLO];
    net_encode_hello(bytes, &said);
    for (size_t n = 0; n <= NET_HELLO; n++)
        cr_assert(net_is_hello_prefix(bytes, n));
    cr_assert_not(net_is_hello_prefix((const uint8_t *)"GET / HTTP/1.1", 1));
    cr_assert_not(net_is_hello_prefix((const uint8_t *)"ddpNET1\n", 8));
}

Test(net_wire, an_answer_is_one_of_the_list_or_none)
{
    uint8_t bytes[NET_ANSWER];
    for (int a = 0; a < NET_ANSWERS; a++) {
        net_encode_answer(bytes, (enum net_answer)a);
        cr_assert_eq(net_decode_answer(bytes), (enum net_answer)a);
        cr_assert_str_not_empty(net_answer_text((enum net_answer)a));
    }
    bytes[7] = 1;
    cr_assert_eq(net_decode_answer(bytes), NET_ANSWERS);
    cr_assert_eq(net_decode_answer((const uint8_t *)"HTTP/1.1"), NET_ANSWERS);
    cr_assert_not_null(net_answer_text(NET_ANSWERS));
}

/* --- calls ---------------------------------------------------------------------------------------------- */

Test(net_wire, equal_calls_of_two_ranks_match)
{
    const struct call call = {
        .kind = CALL_REDUCE, .n = 1ull << 40, .dtype = DDP_I64, .op = DDP_MAX, .root = 7
    };
    struct call heard;
    struct ddp_err err;
    uint8_t a[NET_HEAD], b[NET_HEAD];
    uint64_t seq;
    int rank;

    net_encode_head(a, &call, 99, 0);
    net_encode_head(b, &call, 99, 5);
    cr_assert_eq(net_compare_heads(a, b, &err), DDP_OK);
    cr_assert(net_decode_head(b, &heard, &seq, &rank));
    cr_assert_eq(rank, 5);
    cr_assert_eq(seq, 99);
    cr_assert_eq(heard.n, call.n);
    cr_assert_eq(heard.root, 7);
}

Test(net_wire, any_difference_names_both_calls_the_lower_rank_first)
{
    const struct call call = { .kind = CALL_ALL_REDUCE, .n = 5, .dtype = DDP_F32, .op = DDP_SUM };
    struct call others[5] = { call, call, call, call, call };
    struct ddp_err err;
    uint8_t mine[NET_HEAD], theirs[NET_HEAD];

    others[0].kind = CALL_BROADCAST;
    others[1].n = 6;
    others[2].dtype = DDP_BF16;
    others[3].op = DDP_MIN;
    others[4].root = 1;
    net_encode_head(mine, &call, 3, 4);
    for (int i = 0; i < 5; i++) {
        net_encode_head(theirs, &others[i], 3, 2);
        cr_assert_eq(net_compare_heads(mine, theirs, &err), DDP_ERR_MISMATCH);
        cr_assert(strstr(err.msg, ", rank 4 called all_reduce #3 (f32 x 5, sum)") != NULL, "%s", err.msg);
        cr_assert(strstr(err.msg, "rank 2 called ") != NULL, "%s", err.msg);
    }
    net_encode_head(theirs, &call, 4, 2);
    cr_assert_eq(net_compare_heads(mine, theirs, &err), DDP_ERR_MISMATCH);
    memset(theirs, 'x', sizeof(theirs));
    cr_assert_eq(net_compare_heads(mine, theirs, &err), DDP_ERR_MISMATCH);
    cr_assert(strstr(err.msg, "another host") != NULL, "%s", err.msg);
}

/* --- reasons -------------------------------------------------------------------------------------------- */

Test(net_wire, a_reason_keeps_its_code_and_words)
{
    struct ddp_err said, heard;
    char text[CALL_REASON];
    ddp_fail(&said, DDP_ERR_PEER_LOST, "rank 3 has ended");
    call_encode_reason(text, &said);
    call_decode_reason(text, &heard);
    cr_assert_eq(heard.code, DDP_ERR_PEER_LOST);
    cr_assert_str_eq(heard.msg, said.msg);
    call_decode_reason("value of another", &heard);
    cr_assert_eq(heard.code, DDP_ERR_CORRUPT);
    call_decode_reason("-0 well", &heard);
    cr_assert_eq(heard.code, DDP_ERR_CORRUPT);
}

/* --- ports ---------------------------------------------------------------------------------------------- */

Test(net_wire, a_range_of_ports_is_read_and_tried_once_each)
{
    struct net_ports ports;
    struct ddp_err err;
    cr_assert_eq(net_ports_parse("20000-20002", &ports, &err), DDP_OK);
    cr_assert_eq(net_ports_try(&ports, 0, 0), 20000);
    cr_assert_eq(net_ports_try(&ports, 4, 0), 20001);
    cr_assert_eq(net_ports_try(&ports, 4, 1), 20002);
    cr_assert_eq(net_ports_try(&ports, 4, 2), 20000);
    cr_assert_eq(net_ports_try(&ports, 4, 3), -1);
    cr_assert_eq(net_ports_parse("443", &ports, &err), DDP_OK);
    cr_assert_eq(net_ports_try(&ports, 9, 0), 443);
    cr_assert_eq(net_ports_try(&ports, 9, 1), -1);
    cr_assert_eq(net_ports_parse("", &ports, &err), DDP_OK);
    cr_assert_eq(net_ports_try(&ports, 9, 0), 0);
    cr_assert_eq(net_ports_try(&ports, 9, 1), -1);
}

Test(net_wire, what_is_no_range_of_ports_is_refused_with_what_was_expected)
{
    static const char *const wrong[] = { "x",     "1-",   "-1",    "2-1", "0-5", "1-65536",
                                         "1-2-3", " 1-2", "1 - 2", "1,2", "+1" };
    struct net_ports ports;
    struct ddp_err err;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_assert_eq(net_ports_parse(wrong[i], &ports, &err), DDP_ERR_ENV, "%s", wrong[i]);
        cr_assert(strstr(err.msg, "expected LOW-HIGH") != NULL, "%s", err.msg);
    }
}
