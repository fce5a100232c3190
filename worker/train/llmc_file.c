/* llmc_file.c -- see llmc_file.h. A file is taken into memory as a whole, once its header and its size fit the model. */
#include "train/llmc_file.h"

#include "ddp/ckpt.h"
#include "train/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* `len` bytes, or an error. */
static ddp_status read_all(int fd, uint8_t *to, uint64_t len, uint64_t offset, struct ddp_err *err)
{
    for (uint64_t got = 0; got < len;) {
        const uint64_t left = len - got, at_once = 1u << 30;
        ssize_t n = read(fd, to + got, left < at_once ? left : at_once);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ddp_fail(err, DDP_ERR_IO, "offset %" PRIu64 ": read: %s", offset + got, strerror(errno));
        if (n == 0)
            return ddp_fail(err, DDP_ERR_CORRUPT, "offset %" PRIu64 ": the file ends here", offset + got);
        got += (uint64_t)n;
    }
    return DDP_OK;
}

static ddp_status load_body(int fd, const struct llmc *f, const struct model_kind *kind,
                            const struct model_tensors *params, struct ddp_err *err)
{
    const uint64_t len = f->bytes - LLMC_HEADER;
    uint8_t *body = malloc(len);
    if (body == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %" PRIu64 " bytes of parameters", len);
    ddp_status status = read_all(fd, body, len, LLMC_HEADER, err);
    if (status == DDP_OK)
        llmc_read(f, kind, body, params);
    free(body);
    return status;
}

static ddp_status load(int fd, const struct model_kind *kind, const struct model_tensors *params,
                       struct ddp_err *err)
{
    uint8_t head[LLMC_HEADER];
    struct llmc f;
    uint64_t bytes = 0;
    ddp_status status = files_size(fd, &bytes, err);
    if (status == DDP_OK)
        status = read_all(fd, head, sizeof(head), 0, err);
    if (status == DDP_OK)
        status = llmc_check(&f, kind, head, bytes, err);
    return status == DDP_OK ? load_body(fd, &f, kind, params, err) : status;
}

ddp_status llmc_load(const char *path, const struct model_kind *kind, const struct model_tensors *params,
                     struct ddp_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not hold us up */
    if (fd < 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: open: %s", path, strerror(errno));
    ddp_status status = load(fd, kind, params, err);
    close(fd);
    return status == DDP_OK ? DDP_OK : ddp_wrap(err, "%s", path);
}

ddp_status llmc_save(const char *path, const struct model_kind *kind, const struct model_tensors *params,
                     const float *values, struct ddp_err *err)
{
    const uint64_t bytes = llmc_bytes(kind);
    uint8_t *file = malloc(bytes);
    if (file == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: no memory for %" PRIu64 " bytes", path, bytes);
    llmc_write(kind, params, values, file);
    ddp_status status = ddp_file_replace(path, file, bytes, err);
    free(file);
    return status;
}
