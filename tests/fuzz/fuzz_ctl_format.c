/* Pass any JSON to every formatter of ddpctl, as the answer of a store. Each formatter must print this answer as
 * complete lines, without a crash. */
#include "ctl/tables.h"

#include <assert.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool (*const formats[])(const cJSON *answer, struct buf *out) = {
    ctl_format_why,     ctl_format_jobs,     ctl_format_rejects,   ctl_format_status, ctl_format_keys,
    ctl_format_waiters, ctl_format_barriers, ctl_format_cancelled, ctl_format_stacks,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cJSON *answer = cJSON_ParseWithLength((const char *)data, size);
    for (size_t i = 0; answer != NULL && i < sizeof(formats) / sizeof(*formats); i++) {
        struct buf out = { 0 };
        assert(formats[i](answer, &out));
        assert(out.len > 0 && out.data[out.len - 1] == '\n');
        buf_free(&out);
    }
    cJSON_Delete(answer);
    return 0;
}
