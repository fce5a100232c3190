/* Read and draw any event log. The trace must be JSON, and safe inside a page. */
#include "ctl/timeline.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void draw(const struct timeline_events *events)
{
    struct timeline t;
    struct buf trace = { 0 };
    if (!timeline_make(&t, events) || !timeline_trace(&t, &trace))
        abort();
    if (memchr(trace.data, '<', trace.len) != NULL)
        abort();
    cJSON *parsed = cJSON_ParseWithLength((const char *)trace.data, trace.len);
    if (parsed == NULL)
        abort();
    cJSON_Delete(parsed);
    timeline_free(&t);
    buf_free(&trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct timeline_events events = { 0 };
    timeline_read(&events, "log", slice_of(data, size));
    if (timeline_choose(&events, NULL))
        draw(&events);
    timeline_events_free(&events);
    return 0;
}
