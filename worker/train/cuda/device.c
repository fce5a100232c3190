/* device.c -- see device.h: what all of this directory stands on. */
#include "train/cuda/device.h"

static const unsigned threads_of[] = {
#define X(name, threads) threads,
    KERNEL_LIST(X)
#undef X
};
const char *const cuda_kernel_names[] = {
#define X(name, threads) #name,
    KERNEL_LIST(X)
#undef X
};

/* --- what goes wrong ------------------------------------------------------------------------------------------------------ */

void cuda_failed(struct cuda *c, ddp_status status, const struct ddp_err *err)
{
    if (status != DDP_OK && c->failed.code == DDP_OK)
        c->failed = *err;
}

bool cuda_check(struct cuda *c, cuda_error error, const char *doing)
{
    struct ddp_err err = { 0 };
    cuda_failed(c, gpu_check(&c->gpu, error, doing, &err), &err);
    return error == CUDA_SUCCESS_;
}

ddp_status cuda_driver_check(struct cuda *c, driver_result result, const char *doing, const char *what,
                             struct ddp_err *err)
{
    const char *words = NULL;
    if (result == 0)
        return DDP_OK;
    if (c->driver.error_string(result, &words) != 0 || words == NULL)
        words = "an error without words";
    return ddp_fail(err, DDP_ERR_CUDA, "%s %s: error %u (%.200s)", doing, what, result, words);
}

ddp_status cuda_end(struct compute *base, struct ddp_err *err)
{
    struct cuda *c = cuda_of(base);
    if (c->failed.code == DDP_OK)
        return DDP_OK;
    *err = c->failed;
    return err->code;
}

/* --- calls and memory ------------------------------------------------------------------------------------------------------ */

void cuda_launch(struct cuda *c, enum kernel kernel, size_t x, size_t y, void *args)
{
    struct ddp_err err = { 0 };
    void *parameters[] = { args };
    if (x == 0 || y == 0 || c->failed.code != DDP_OK)
        return;
    if (x > INT32_MAX || y > UINT16_MAX) {
        ddp_fail(&err, DDP_ERR_ARG,
                 "kernel %s: %zu x %zu blocks are more than a GPU takes; make --batch smaller",
                 cuda_kernel_names[kernel], x, y);
        cuda_failed(c, err.code, &err);
        return;
    }
    driver_result result = c->driver.launch(c->kernel[kernel], (unsigned)x, (unsigned)y, 1,
                                            threads_of[kernel], 1, 1, 0, c->stream, parameters, NULL);
    cuda_failed(c, cuda_driver_check(c, result, "starting kernel", cuda_kernel_names[kernel], &err), &err);
}

void *cuda_alloc(struct compute *base, size_t bytes)
{
    struct cuda *c = cuda_of(base);
    struct ddp_err err = { 0 };
    void *memory = NULL;
    if (gpu_alloc(&c->gpu, bytes > 0 ? bytes : 1, &memory, &err) != DDP_OK)
        return NULL;
    return memory;
}

/* Kernels that are on their way may still use it. */
void cuda_release(struct compute *base, void *memory)
{
    struct cuda *c = cuda_of(base);
    if (memory == NULL)
        return;
    cuda_check(c, c->gpu.call.stream_sync(c->stream), "waiting before cudaFree");
    cuda_check(c, c->gpu.call.free(memory), "cudaFree");
}

void cuda_zero(struct compute *base, void *at, size_t bytes)
{
    struct cuda *c = cuda_of(base);
    cuda_check(c, c->gpu.call.set_async(at, 0, bytes, c->stream), "cudaMemsetAsync");
}

void *cuda_room(struct cuda *c, struct room *room, size_t bytes)
{
    struct ddp_err err = { 0 };
    if (room->bytes >= bytes && room->memory != NULL)
        return room->memory;
    cuda_release(&c->base, room->memory);
    *room = (struct room){ cuda_alloc(&c->base, bytes), bytes };
    if (room->memory == NULL)
        cuda_failed(c, ddp_fail(&err, DDP_ERR_NOMEM, "%zu bytes of device memory are not to be had", bytes),
                    &err);
    return room->memory;
}
