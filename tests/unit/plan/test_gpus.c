/* Tests of three tasks: read CUDA_VISIBLE_DEVICES by CUDA's rules, choose the number of workers, and find the users
 * of a GPU. The machine is a value in the test, so the tests need no GPU. */
#include "plan/machine.c"
#include "plan/plan.c"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct gpu_list list;
static struct ddp_err err;

/* Return the names of the visible GPUs as a list such as "3,0". */
static const char *visible(const char *value, int physical)
{
    static char text[4096];
    size_t used = 0;
    gpus_list(&list, value, physical);
    text[0] = '\0';
    for (int i = 0; i < list.n; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i > 0 ? "," : "", list.names[i]);
    return text;
}

static bool share;

static int workers(enum nproc_kind kind, int count, int cpus)
{
    int nproc = -1;
    err = (struct ddp_err){ 0 };
    ddp_status status = gpus_workers(&list, (struct cli_nproc){ kind, count }, share, cpus, &nproc, &err);
    return status == DDP_OK ? nproc : -1;
}

Test(gpus, without_the_variable_all_are_visible)
{
    cr_assert_str_eq(visible(NULL, 4), "0,1,2,3");
    cr_assert_str_eq(visible(NULL, 0), "");
}

Test(gpus, ids_are_taken_in_the_order_given)
{
    cr_assert_str_eq(visible("3,0", 4), "3,0");
    cr_assert_str_eq(visible(" 2 ,1", 4), "2,1");
    cr_assert_str_eq(visible("GPU-8932f937-d72c,GPU-aa", 4), "GPU-8932f937-d72c,GPU-aa");
    cr_assert_str_eq(visible("MIG-1/2/3,MIG-4", 4), "MIG-1/2/3,MIG-4");
}

Test(gpus, the_list_ends_before_what_is_no_gpu)
{
    cr_assert_str_eq(visible("0,-1,1", 4), "0");
    cr_assert_str_eq(visible("1,9,0", 4), "1");
    cr_assert_not_null(strstr(list.note, "GPU 9, but"));
    cr_assert_str_eq(visible("1,,2", 4), "1");
    cr_assert_str_eq(visible("2gpu,x,1", 4), "2");
    cr_assert_str_eq(visible("GPU-a,1", 4), "GPU-a");
    cr_assert_str_eq(visible("1,1", 4), "");
    cr_assert_not_null(strstr(list.note, "1 twice"));
}

Test(gpus, empty_and_minus_one_hide_all)
{
    cr_assert_str_eq(visible("", 4), "");
    cr_assert(list.hidden);
    cr_assert_str_eq(visible("-1", 4), "");
    cr_assert(list.hidden);
    cr_assert_eq(workers(NPROC_NUMBER, 16, 2), 16, "a job on CPUs may be of any size");
}

Test(gpus, the_number_of_workers_follows_the_gpus)
{
    visible("3,1", 4);
    cr_assert_eq(workers(NPROC_DEFAULT, 0, 8), 2);
    cr_assert_eq(workers(NPROC_GPU, 0, 8), 2);
    cr_assert_eq(workers(NPROC_AUTO, 0, 8), 2);
    cr_assert_eq(workers(NPROC_CPU, 0, 8), 8);
    cr_assert_eq(workers(NPROC_NUMBER, 1, 8), 1);
    visible(NULL, 0);
    cr_assert_eq(workers(NPROC_DEFAULT, 0, 8), 1);
    cr_assert_eq(workers(NPROC_AUTO, 0, 8), 8);
    cr_assert_eq(workers(NPROC_NUMBER, 64, 8), 64);
}

Test(gpus, more_workers_than_gpus_is_an_error_with_both_numbers)
{
    visible("3,1", 4);
    cr_assert_eq(workers(NPROC_NUMBER, 3, 8), -1);
    cr_assert_not_null(strstr(err.msg, "the 2 GPUs"), "%s", err.msg);
    visible(NULL, 1);
    cr_assert_eq(workers(NPROC_NUMBER, 2, 8), -1);
    cr_assert_not_null(strstr(err.msg, "the 1 GPU of"), "%s", err.msg);
    visible(NULL, 0);
    cr_assert_eq(workers(NPROC_GPU, 0, 8), -1);
    cr_assert_not_null(strstr(err.msg, "no GPU"));
    visible("", 4);
    cr_assert_eq(workers(NPROC_GPU, 0, 8), -1);
    cr_assert_not_null(strstr(err.msg, "has 4"));
}

Test(gpus, a_list_of_any_length_fits)
{
    static char many[20000];
    for (int i = 0; i < 3000; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "%d,", i);
    visible(many, 3000);
    cr_assert_eq(list.n, GPUS_MAX);
}

Test(gpus, more_workers_than_gpus_share_them_when_told_to)
{
    visible(NULL, 1);
    cr_assert_eq(workers(NPROC_NUMBER, 2, 8), -1);
    cr_assert_not_null(strstr(err.msg, "--share_gpu"));
    share = true;
    cr_assert_eq(workers(NPROC_NUMBER, 2, 8), 2);
}

/* --- users of the GPUs -------------------------------------------------------------------------------------- */

/* A simulated driver with one GPU. `n_users` is the number of processes that use the GPU. If `n_users` is -1, the GPU
 * has failed. */
static int n_users;

static int find_by_index(unsigned index, void **device)
{
    *device = &n_users;
    return index == 0 ? 0 : 6;
}

static int read_processes(void *device, unsigned *count, struct nvml_process *out)
{
    (void)device;
    const unsigned room = *count;
    *count = (unsigned)n_users;
    if (n_users < 0 || *count > room)
        return n_users < 0 ? 15 : 7;
    for (unsigned i = 0; i < *count; i++)
        out[i] = (struct nvml_process){ .pid = INT_MAX - i };
    return 0;
}

static int read_mode(void *device, int *mode)
{
    (void)device;
    *mode = 3;
    return n_users < 0 ? 15 : 0;
}

static struct gpu_users users_of(const struct machine *m, const char *gpu)
{
    struct gpu_users users;
    read_users(m, &gpu, 1, NULL, &users);
    return users;
}

Test(gpus, the_users_of_a_gpu_that_cannot_be_read_are_unknown)
{
    struct machine m = {
        .nvml = &m, .by_index = find_by_index, .processes = read_processes, .compute_mode = read_mode
    };
    n_users = 0;
    struct gpu_users users = users_of(&m, "0");
    cr_expect(users.count == 0 && users.unknown == 0 && users.mode == 3);
    n_users = GPU_PROCESSES_MAX;
    users = users_of(&m, "0");
    cr_expect(users.count == GPU_PROCESSES_MAX && users.unknown == 0);
    n_users = GPU_PROCESSES_MAX + 1;
    users = users_of(&m, "0");
    cr_expect(users.count == 0 && users.unknown == 1);
    n_users = -1;
    users = users_of(&m, "0");
    cr_expect(users.count == 0 && users.unknown == 1 && users.mode == 0);
    cr_expect_eq(users_of(&m, "1").unknown, 1, "there is no such GPU");
    m.nvml = NULL;
    cr_expect_eq(users_of(&m, "0").unknown, 1, "the library cannot be loaded");
    cr_expect_eq(users_of(NULL, "0").unknown, 1, "there is no driver");
    n_users = 0;
    m = (struct machine){ .nvml = &m, .by_index = find_by_index };
    cr_expect_eq(users_of(&m, "0").unknown, 1, "an old driver lists no processes");
}
