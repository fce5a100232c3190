/* Read any bytes as the output of py-spy, and as the rows of an agent. Accepted rows must fit into their buffer, and
 * printing them must work. */
#include "record/stacks.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <limits.h>
#include <stdint.h>

enum { ROOM = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print_all(const struct stacks *s)
{
    struct buf out = { 0 };
    assert(stacks_text(s->rows, &out));
    assert(out.len == 0 || out.data[out.len - 1] == '\n');
    for (int most = 0; most < 8; most++) {
        out.len = 0;
        assert(stacks_brief(s->rows, most, &out) >= 0);
        assert(out.len == 0 || out.data[out.len - 1] == '\n');
    }
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stacks first, second;
    const struct stack_thread t = { .rank = 1, .pid = 2, .tid = 2, .host = "n1" };
    cJSON *rows = cJSON_ParseWithLength((const char *)data, size);
    assert(stacks_init(&first, ROOM) && stacks_init(&second, ROOM));
    (void)stacks_add_py_spy(&first, slice_of(data, size), &t, 1, NULL);
    stacks_merge(&second, first.rows, 0, INT_MAX);
    stacks_merge(&second, rows, 0, INT_MAX);
    print_all(&first);
    print_all(&second);
    cJSON_Delete(rows);
    stacks_free(&first);
    stacks_free(&second);
    return 0;
}
