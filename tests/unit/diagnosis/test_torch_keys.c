/* Tests of the keys that PyTorch writes, and of the descriptions of these keys. The keys are from clients of PyTorch
 * 1.13.1 and 2.15.0. */
#include "diagnosis/torch_keys.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define OLD "//worker/attempt_0/default_pg/"
#define NEW "/default_pg/0//"

struct known {
    const char *key, *words, *setup;
    const char *group;
    int rank;
};

static const struct known known[] = {
    { OLD "0/0/3", "rank 3's Gloo address", "init_process_group", "0", 3 },
    { OLD "0/0/rank_12", "rank 12's host name", "init_process_group", "0", 12 },
    { OLD "2/0/1", "rank 1's Gloo address in group 2", "new_group (group 2)", "2", 1 },
    { OLD "0/SEQ_NUM_STORE_KEY", "rank 0's sequence number", "init_process_group", "0", 0 },
    { OLD "0/0", "rank 0's NCCL id", NULL, "0", 0 },
    { OLD "1/4", "rank 0's NCCL id in group 1", NULL, "1", 0 },
    { OLD "0/2:5", "rank 2's NCCL id for rank 5", NULL, "0", 2 },
    { OLD "store_based_barrier_key:1", "the other ranks to enter the barrier of init_process_group",
      "init_process_group", "0", -1 },
    { OLD "store_based_barrier_key:3", "the other ranks to enter the barrier of new_group (group 2)",
      "new_group (group 2)", "2", -1 },
    { OLD "pg_wrapper:1/0/0", "rank 0's Gloo address in group 1", "new_group (group 1)", "1", 0 },
    { "/default_pg/0/0/1", "rank 1's Gloo address", "init_process_group", "0", 1 },
    { NEW "cpu//0/1", "rank 1's Gloo address", "init_process_group", "0", 1 },
    { NEW "1//cpu//0/0", "rank 0's Gloo address in group 1", "new_group (group 1)", "1", 0 },
    { NEW "cpu//pg_wrapper:0/0/1", "rank 1's Gloo address", "init_process_group", "0", 1 },
    { NEW "cuda//0", "rank 0's NCCL id", NULL, "0", 0 },
    { NEW "7//cuda//0", "rank 0's NCCL id in group 7", NULL, "7", 0 },
    { NEW "cuda//1:0", "rank 1's NCCL id for rank 0", NULL, "0", 1 },
    { NEW "cuda//UniqueNCCLID:2", "the NCCL id of root 2", NULL, "0", -1 },
    { "/default_pg/store_based_barrier_key:0:last_worker",
      "the last rank to enter the barrier of init_process_group", "init_process_group", "0", -1 },
    { NEW "store_based_barrier_key:1:last_worker",
      "the last rank to enter the barrier of new_group (group 1)", "new_group (group 1)", "1", -1 },
    { NEW "4f2a//store_based_barrier_key:4f2a",
      "the other ranks to enter the barrier of new_group (group 4f2a)", "new_group (group 4f2a)", "4f2a",
      -1 },
    { "/rpc_prefix_0/0/1", "rank 1's Gloo address for RPC", "init_rpc", "", 1 },
    { "/rpc_prefix_0/names/1", "rank 1's name for RPC", "init_rpc", "", 1 },
    { "//worker/attempt_2/rpc_prefix_0/addrs/w1", "the address of worker 'w1' for RPC", "init_rpc", "", -1 },
    { "/exception_dump", "the notice of a rank that gave up", NULL, "", -1 },
    { "/default_pg_3_trace_end", "the record of rank 3's last completed operation", NULL, "", 3 },
    { "/torch.rendezvous.x.1/torchelastic/role_info/4", "the worker count of node 4's torchrun agent", NULL,
      "", -1 },
    { "/x/last_member", "the last member to enter the barrier 'x'", NULL, "", -1 },
    { "init/", "the count of clients", "init_process_group", "", -1 },
};

static struct torch_key read_key(const char *text)
{
    struct torch_key key;
    cr_assert(torch_key_read(slice_str(text), &key), "%s", text);
    return key;
}

static void expect_text(bool (*put)(const struct torch_key *key, struct buf *out),
                        const struct torch_key *key, const char *expected)
{
    struct buf out = { 0 };
    cr_assert(put(key, &out) && buf_append(&out, "", 1));
    cr_expect_str_eq((const char *)out.data, expected);
    buf_free(&out);
}

Test(torch_keys, are_told_in_words)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        const struct torch_key key = read_key(known[i].key);
        expect_text(torch_key_append, &key, known[i].words);
        cr_expect_str_eq(key.group, known[i].group, "%s", known[i].key);
        cr_expect_eq(key.rank, known[i].rank, "%s: rank %lld", known[i].key, (long long)key.rank);
        cr_expect_eq(torch_key_when(&key) == TORCH_SETUP, known[i].setup != NULL, "%s", known[i].key);
        if (known[i].setup != NULL)
            expect_text(torch_key_append_setup, &key, known[i].setup);
    }
}

Test(torch_keys, of_users_are_left_alone)
{
    static const char *const others[] = {
        "",          "/x",           "/init/",      "/default_pg/0//cpu//x/y",
        "/0/0",      "/0/rank_1",    "/default_pg", "/default_pg/",
        OLD "0/0/x", "/rpc_prefix_", OLD,           "/rpc_prefix_0/0"
    };
    struct torch_key key;
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        cr_expect_not(torch_key_read(slice_str(others[i]), &key), "%s", others[i]);
}

Test(torch_keys, may_be_any_bytes_of_any_length)
{
    static char bytes[9000] = "/default_pg/";
    struct torch_key key;
    memset(bytes + 12, '*', sizeof(bytes) - 12);
    cr_assert_not(torch_key_read(slice_of(bytes, sizeof(bytes)), &key));
    cr_assert_not(torch_key_read(slice_of(NEW "cpu//0/1234567890", strlen(NEW) + 18), &key));
    for (size_t n = 0; n <= strlen(OLD "0/0/rank_12"); n++)
        (void)torch_key_read(slice_of(OLD "0/0/rank_12", n), &key);
}

Test(torch_keys, of_one_setup_are_one_place)
{
    const struct torch_key a = read_key(NEW "cpu//0/1"), b = read_key(OLD "store_based_barrier_key:1"),
                           c = read_key(NEW "1//cpu//0/1"), d = read_key("/rpc_prefix_0/0/1"),
                           e = read_key(NEW "cuda//0");
    cr_assert(torch_key_same_setup(&a, &b));
    cr_assert_not(torch_key_same_setup(&a, &c));
    cr_assert_not(torch_key_same_setup(&a, &d));
    cr_assert_not(torch_key_same_setup(&e, &e), "the first ranks to communicate wait for an NCCL id");
}

Test(torch_keys, count_where_all_ranks_come)
{
    cr_assert(read_key(OLD "store_based_barrier_key:2").of_all);
    cr_assert(read_key(NEW "store_based_barrier_key:2").of_all);
    cr_assert_not(read_key(NEW "4f2a//store_based_barrier_key:4f2a").of_all);
    cr_assert(torch_key_counts(slice_str(OLD "store_based_barrier_key:2")));
    cr_assert_not(torch_key_counts(slice_str("/counter")));
    cr_assert_not(torch_key_counts(slice_str("")));
    cr_assert(torch_key_may_set_up(slice_str(NEW "cpu//0/1")));
    cr_assert_not(torch_key_may_set_up(slice_str("/x")));
}

Test(torch_keys, are_told_to_programs)
{
    const struct torch_key key = read_key(NEW "cuda//0");
    cJSON *o = torch_key_json(&key);
    char *text = cJSON_PrintUnformatted(o);
    cr_assert_str_eq(
        text, "{\"kind\":\"nccl_id\",\"text\":\"rank 0's NCCL id\",\"group\":\"0\",\"rank\":0,\"number\":0}");
    cJSON_free(text);
    cJSON_Delete(o);
}

/* A client may use any bytes as the name of a group. */
Test(torch_keys, are_told_in_utf_8)
{
    const struct torch_key key = read_key("/default_pg/0//\xff//cuda//0");
    cJSON *o = torch_key_json(&key);
    char *text = cJSON_PrintUnformatted(o);
    cr_assert(strstr(text, "\"group\":") != NULL && strchr(text, '\xff') == NULL, "%s", text);
    cJSON_free(text);
    cJSON_Delete(o);
}

/* --- torch notes ---------------------------------------------------------------------------------------------- */

/* Tests of the records about PyTorch's ranks. struct torch_meet describes a barrier, and struct torch_client describes
 * a client. */

static struct torch_meets meets;

static struct torch_meet *make(int number)
{
    char key[32];
    snprintf(key, sizeof(key), "barrier %d", number);
    return torch_meets_make(&meets, slice_str(key));
}

static struct torch_meet *find(int number)
{
    char key[32];
    snprintf(key, sizeof(key), "barrier %d", number);
    return torch_meets_find(&meets, slice_str(key));
}

Test(torch_notes, a_barrier_is_found_by_key_and_by_id)
{
    struct torch_meet *first = make(1), *second = make(2);
    cr_expect_eq(find(1), first);
    cr_expect_eq(find(2), second);
    cr_expect_eq(torch_meets_of_id(&meets, first->id), first);
    cr_expect_null(find(3));
    cr_expect_null(torch_meets_of_id(&meets, 0));
    cr_expect_null(torch_meets_of_id(&meets, second->id + 1));
}

/* A new barrier replaces the record of the oldest barrier. The id of the oldest barrier is then unknown, not reused. */
Test(torch_notes, the_oldest_barrier_gives_way)
{
    const uint32_t oldest = make(0)->id;
    for (int i = 1; i < TORCH_MEETS_MAX; i++)
        make(i);
    cr_expect_not_null(find(0));
    make(TORCH_MEETS_MAX);
    cr_expect_null(find(0));
    cr_expect_not_null(find(1));
    cr_expect_null(torch_meets_of_id(&meets, oldest));
}

Test(torch_notes, a_client_has_one_set_of_notes)
{
    struct torch_client *at = NULL, *notes = torch_client_at(&at);
    cr_assert_not_null(notes);
    cr_expect_eq(torch_client_at(&at), notes);
    torch_client_free(&at);
    cr_expect_null(at);
    torch_client_free(&at);
}
