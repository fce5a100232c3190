/* Any bytes as a data file, plain or gzip: refused with words, or read completely. */
#include "train/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A file without a place on the disk; the same one for all inputs. */
static const char *file_of(const uint8_t *data, size_t len)
{
    static char path[32];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("idx", 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, len, 0) != (ssize_t)len)
        abort();
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    for (int dims = 1; dims <= IDX_MAX_DIMS; dims += 2) {
        struct idx idx;
        struct ddp_err err = { .msg = "" };
        if (idx_load(&idx, file_of(data, len), dims, &err) == DDP_OK) {
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
