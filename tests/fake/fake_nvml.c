/* fake_nvml.c -- NVIDIA's management library for two GPUs. Each line of the file $FAKE_NVML is
 *
 *     process GPU PID MIB      a process that computes on a GPU
 *     mode GPU MODE 0          the compute mode of a GPU, as in nvml.h
 *     hang 0 0 0               a call for the list of processes blocks until this row is removed from the file
 *
 * The file is read again for each call. Without the file no process uses a GPU. A call that blocks creates the file
 * $FAKE_NVML.asked, and creates $FAKE_NVML.returned when it continues. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { GPUS = 2, FAILED = 1 };

struct nvml_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instances[2];
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
EXPORT int nvmlDeviceGetPciInfo_v3(void *device, void *info);
EXPORT int nvmlDeviceGetComputeMode(void *device, int *mode);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct nvml_process *out);

static long handles[GPUS] = { 0, 1 }; /* a device is a pointer to its index */

struct row {
    char kind[16];
    long gpu, value, mib;
};

static FILE *open_rows(void)
{
    const char *path = getenv("FAKE_NVML");
    return path != NULL ? fopen(path, "re") : NULL;
}

static int next_row(FILE *file, struct row *row)
{
    return file != NULL &&
           fscanf(file, " %15s %ld %ld %ld", row->kind, &row->gpu, &row->value, &row->mib) == 4;
}

static void close_rows(FILE *file)
{
    if (file != NULL)
        fclose(file);
}

static int has_hang(void)
{
    struct row row;
    int found = 0;
    FILE *file = open_rows();
    while (!found && next_row(file, &row))
        found = strcmp(row.kind, "hang") == 0;
    close_rows(file);
    return found;
}

static void wait_for_the_end_of_the_hang(void)
{
    char path[512];
    if (!has_hang())
        return;
    snprintf(path, sizeof(path), "%s.asked", getenv("FAKE_NVML"));
    close_rows(fopen(path, "we"));
    while (has_hang())
        usleep(10000);
    snprintf(path, sizeof(path), "%s.returned", getenv("FAKE_NVML"));
    close_rows(fopen(path, "we"));
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = GPUS;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if (index >= GPUS)
        return FAILED;
    *device = &handles[index];
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    (void)uuid, (void)device;
    return FAILED;
}

int nvmlDeviceGetPciInfo_v3(void *device, void *info)
{
    (void)device, (void)info;
    return FAILED;
}

int nvmlDeviceGetComputeMode(void *device, int *mode)
{
    struct row row;
    FILE *file = open_rows();
    *mode = 0;
    while (next_row(file, &row))
        if (strcmp(row.kind, "mode") == 0 && row.gpu == *(const long *)device)
            *mode = (int)row.value;
    close_rows(file);
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct nvml_process *out)
{
    const unsigned room = *count;
    struct row row;
    wait_for_the_end_of_the_hang();
    FILE *file = open_rows();
    *count = 0;
    while (next_row(file, &row)) {
        if (strcmp(row.kind, "process") == 0 && row.gpu == *(const long *)device && *count < room)
            out[(*count)++] = (struct nvml_process){ .pid = (unsigned)row.value,
                                                     .bytes = (unsigned long long)row.mib << 20 };
    }
    close_rows(file);
    return 0;
}
