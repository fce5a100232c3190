/* Load arbitrary bytes as a checkpoint. A failed load must return an error text and change no block. */
#include "ddp/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Write the input to a file in memory and return the name of this file. Each call overwrites the same file. */
static const char *file_of(const uint8_t *data, size_t len)
{
    static char path[32];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("ckpt", 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, len, 0) != (ssize_t)len)
        abort();
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char a[16] = "before", b[5] = "old";
    const ddp_ckpt_block blocks[2] = { { "a", a, sizeof(a) }, { "b", b, sizeof(b) } };
    struct ddp_err err = { .msg = "" };
    if (ddp_ckpt_load(file_of(data, len), blocks, 2, &err) == DDP_OK)
        return 0;
    if (err.msg[0] == '\0' || strcmp(a, "before") != 0 || strcmp(b, "old") != 0)
        abort();
    return 0;
}
