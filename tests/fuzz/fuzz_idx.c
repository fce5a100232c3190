/* Read any bytes as a data file, plain or gzip. The file must be rejected with an error text, or be read completely. */
#include "train/data/pictures.h"

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    for (int dims = 1; dims <= IDX_MAX_DIMS; dims += 2) {
        struct idx idx;
        struct ddp_err err = { .msg = "" };
        if (idx_load(&idx, memory_file(data, len), dims, &err) == DDP_OK) {
            uint64_t values = (uint64_t)idx.dim[0] * idx.dim[1] * idx.dim[2];
            if (idx.values != idx.file + idx_header_bytes(dims) || idx.len != idx_header_bytes(dims) + values)
                abort();
            idx_free(&idx);
        } else if (err.msg[0] == '\0') {
            abort();
        }
    }
    return 0;
}
