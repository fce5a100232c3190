/* cuda.c -- see compute.h: opens and closes a GPU. cuda_available opens no GPU, because main.c calls it before the
 * ranks connect, and the device of the rank is not known then. */
#include "train/cuda/device.h"
#include "train/journal.h"
#include "train/train_options.h"

#include <stdlib.h>

static void *cuda_stream(struct compute *base)
{
    return cuda_of(base)->stream;
}

/* Free the memory and the stream of a device. Libraries and kernels stay loaded until the process ends.
 * open_device may have failed before all members were set. */
static void cuda_close(struct compute *base)
{
    struct cuda *c = cuda_of(base);
    void *const memory[] = { c->weights,        c->workspace,       c->total,
                             c->batch.memory,   c->pictures.memory, c->part.memory,
                             c->columns.memory, c->losses.memory,   c->squares.memory };
    if (c->stream != NULL)
        c->gpu.call.stream_sync(c->stream);
    cuda_gemm_close(c);
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        cuda_release(base, memory[i]);
    for (int i = 0; i < SLOTS; i++) {
        if (c->slot[i].memory != NULL)
            c->gpu.call.host_free(c->slot[i].memory);
        if (c->sent[i] != NULL)
            c->gpu.call.event_free(c->sent[i]);
        if (c->written[i] != NULL)
            c->gpu.call.event_free(c->written[i]);
    }
    if (c->results != NULL)
        c->gpu.call.host_free(c->results);
    if (c->stream != NULL)
        c->gpu.call.stream_free(c->stream);
    free(c->sorted.memory);
    free(c);
}

/* Load the module of kernels, which stays loaded until the process ends. */
static ddp_status load_kernels(struct cuda *c, struct ddp_err *err)
{
    struct CUmod_st *module = NULL;
    char *image;
    ddp_status status = libraries_kernels(c->precision, &image, err);
    if (status != DDP_OK)
        return status;
    status = cuda_driver_check(c, c->driver.module_load(&module, image), "cannot load", "the kernels", err);
    for (int i = 0; i < KERNELS && status == DDP_OK; i++)
        status = cuda_driver_check(c, c->driver.module_function(&c->kernel[i], module, cuda_kernel_names[i]),
                                   "cannot find kernel", cuda_kernel_names[i], err);
    free(image);
    return status;
}

static ddp_status make_streams(struct cuda *c, struct ddp_err *err)
{
    const struct cudart *call = &c->gpu.call;
    cuda_error error = call->stream_make(&c->stream, CUDA_STREAM_NON_BLOCKING);
    for (int i = 0; i < SLOTS && error == CUDA_SUCCESS_; i++) {
        error = call->event_make(&c->sent[i], CUDA_EVENT_NO_TIMING);
        if (error == CUDA_SUCCESS_)
            error = call->event_make(&c->written[i], CUDA_EVENT_NO_TIMING);
    }
    void *results = NULL;
    if (error == CUDA_SUCCESS_)
        error = call->host_alloc(&results, SLOTS * sizeof(struct results));
    c->results = results;
    return gpu_check(&c->gpu, error, "cannot create a stream", err);
}

/* Return the peak rate of device `number` in TFLOP/s, or 0 if the rate is unknown. The device's name determines the
 * rate. `number` is a device number of CUDA's runtime. The driver uses the same numbers. */
static double peak_of(struct cuda *c, int number)
{
    char name[256] = "";
    int device;
    if (c->driver.device(&device, number) != 0 || c->driver.device_name(name, sizeof(name), device) != 0)
        return 0;
    return peaks_tflops(name, c->precision == PRECISION_FP32);
}

/* Open the device. First allocate a little memory, because the allocation makes the runtime's context current for
 * this thread. Loading kernels needs a current context. */
static ddp_status open_device(struct cuda *c, int device, int count, struct ddp_err *err)
{
    void *total = NULL;
    ddp_status status = gpu_use(&c->gpu, device, count, err);
    if (status == DDP_OK)
        status = gpu_alloc(&c->gpu, sizeof(struct results), &total, err);
    c->total = total;
    if (status == DDP_OK)
        status = make_streams(c, err);
    if (status == DDP_OK)
        status = load_kernels(c, err);
    c->base.peak_tflops = status == DDP_OK ? peak_of(c, device) : 0;
    if (status == DDP_OK && !cuda_gemm_open(c))
        status = cuda_end(&c->base, err);
    return status;
}

static const struct compute_ops cuda_ops = { .stream = cuda_stream,
                                             .close = cuda_close,
#define X(member) .member = cuda_##member,
                                             COMPUTE_LAYERS(X) COMPUTE_OTHERS(X)
#undef X
};

ddp_status cuda_open(int device, int precision, struct compute **out, struct ddp_err *err)
{
    int count;
    struct cuda *c = calloc(1, sizeof(*c));
    *out = NULL;
    if (c == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for a device");
    c->base = (struct compute){ .ops = &cuda_ops,
                                .value_bytes = precision == PRECISION_FP32 ? sizeof(float) : 2,
                                .pack = KERNEL_PACK,
                                .remote = true };
    c->precision = precision;
    ddp_status status = libraries_open(c, &count, err);
    if (status != DDP_OK) {
        free(c);
        return status;
    }
    status = open_device(c, device, count, err);
    if (status == DDP_OK)
        *out = &c->base;
    else
        cuda_close(&c->base);
    return status;
}

/* Check that the libraries and the kernels exist. Before the ranks connect, main.c calls this function to choose
 * between CPU and GPU. */
ddp_status cuda_available(int precision, int *count, struct ddp_err *err)
{
    struct cuda c = { .failed = { 0 } };
    char *image = NULL;
    ddp_status status = libraries_open(&c, count, err);
    if (status == DDP_OK)
        status = libraries_kernels(precision, &image, err);
    free(image);
    return status;
}
