/* Read any bytes as a flight record. Compare two copies of this record and an empty record. The comparison must end.
 * Then format the result of the comparison as text. */
#include "ctl/tables.h"
#include "record/flight_dump.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char empty[] = "{\"format\":\"ddp-flight\",\"rank\":1,\"world_size\":2,\"entries\":[]}";
    struct flight_dump dumps[3];
    struct ddp_err err;
    struct buf out = { 0 };
    size_t n = 0;
    n += flight_dump_read(&dumps[n], "flight_0.json", slice_of(data, size), &err) == DDP_OK;
    n += flight_dump_read(&dumps[n], "flight_0.json", slice_of(data, size), &err) == DDP_OK;
    n += flight_dump_read(&dumps[n], "flight_1.json", slice_of(empty, sizeof(empty) - 1), &err) == DDP_OK;
    const struct flight_entry *calls[FLIGHT_OPEN_MAX];
    for (size_t i = 0; i < n; i++)
        (void)flight_open_calls(&dumps[i], calls);
    (void)flight_half_started(dumps, n);
    cJSON *answer = flight_compare(dumps, n);
    ctl_format_flight(answer, &out);
    cJSON_Delete(answer);
    buf_free(&out);
    for (size_t i = 0; i < n; i++)
        flight_dump_free(&dumps[i]);
    return 0;
}
