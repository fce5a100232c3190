/* The store client against a genuine TCPStore. Debian's is 1.13 and speaks dialect A. */
#include "ddp/store.h"

#include "run.h"
#include "job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(torch_store, .timeout = 120);

/* Hosts a store, answers "question" with "answer" as a second client would, and ends when it is told so. */
static const char host[] = "import datetime\n"
                           "from torch.distributed import TCPStore\n"
                           "minute = datetime.timedelta(seconds=60)\n"
                           "s = TCPStore('127.0.0.1', 0, None, True, minute)\n"
                           "print('port', s.port, 'end', flush=True)\n"
                           "s.wait(['question'], minute)\n"
                           "assert s.get('question') == b'what?'\n"
                           "s.set('answer', b'42\\x00')\n"
                           "assert s.add('n', 1) == 4\n"
                           "s.wait(['end'], minute)\n"
                           "print('all well', flush=True)\n";

static struct ddp_err err;

static struct run_process *start_torch(int *port)
{
    const char *argv[] = { torch_python(), "-", NULL };
    const char *env[] = { "OMP_NUM_THREADS=1", NULL };
    struct run_process *p =
        run_start(argv, &(struct run_options){ .env = env, .stdin_text = host, .timeout_ms = 100000 });
    cr_assert(run_until_output(p, " end\n", 60000), "torch hosts no store: %s", run_output(p));
    cr_assert_eq(sscanf(run_output(p), "port %d", port), 1);
    return p;
}

static ddp_store *connected(int port)
{
    ddp_store *store;
    cr_assert_eq(ddp_store_connect("localhost", port, NULL, &store, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_dialect(store), torch_is_old() ? 'A' : 'C');
    return store;
}

static void expect_value(ddp_store *store, const char *key, const char *value, size_t len)
{
    void *got;
    size_t got_len;
    cr_assert_eq(ddp_store_get(store, key, 20000, &got, &got_len, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(got_len, len);
    cr_assert_eq(memcmp(got, value, len), 0);
    free(got);
}

static void talk(ddp_store *store)
{
    int64_t sum;
    int flag;
    const char *const keys[] = { "question", "nobody's" };
    cr_assert_eq(ddp_store_add(store, "n", 3, &sum, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(sum, 3);
    cr_assert_eq(ddp_store_set(store, "question", "what?", 5, &err), DDP_OK, "%s", err.msg);
    expect_value(store, "answer", "42", 3); /* with its NUL */
    cr_assert_eq(ddp_store_check(store, keys, 2, &flag, &err), DDP_OK);
    cr_assert_eq(flag, 0);
    cr_assert_eq(ddp_store_compare_set(store, "c", "", 0, "new", 3, NULL, NULL, &err), DDP_OK, "%s", err.msg);
    expect_value(store, "c", "new", 3);
    cr_assert_eq(ddp_store_delete(store, "c", &flag, &err), DDP_OK);
    cr_assert_eq(flag, 1);
    cr_assert_eq(ddp_store_num_keys(store, &sum, &err), DDP_OK);
    cr_assert_eq(sum, 3, "%d keys: question, answer, n", (int)sum);
}

/* A wait that runs out, whose key comes later: the genuine server would answer it in front of the next
 * reply. */
static void give_up_a_wait(ddp_store *store, ddp_store *other)
{
    const char *const keys[] = { "question", "late" };
    cr_assert_eq(ddp_store_wait(store, keys, 2, 50, &err), DDP_ERR_TIMEOUT);
    cr_assert_not_null(strstr(err.msg, "the first missing one is 'late'"), "%s", err.msg);
    cr_assert_eq(ddp_store_set(other, "late", "here", 4, &err), DDP_OK);
    expect_value(store, "late", "here", 4);
    expect_value(store, "question", "what?", 5);
}

Test(torch_store, the_client_speaks_with_a_genuine_store)
{
    int port;
    torch_skip_without_libuv();
    struct run_process *torch = start_torch(&port);
    ddp_store *store = connected(port), *other = connected(port);
    talk(store);
    give_up_a_wait(store, other);
    ddp_store_set(store, "end", "", 0, NULL);
    struct run_result r = run_wait(torch);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "all well"));
    run_free(&r);
    ddp_store_close(store);
    ddp_store_close(other);
}
