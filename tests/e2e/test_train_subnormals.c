/* All threads of train flush subnormals: its own, the loader's, and those that OpenBLAS starts before main. A debugger's view: each
 * thread is stopped and its control word read. */
#include "core/thread_util.h"
#include "core/flush_subnormals.h"
#include "run.h"
#include "training.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <elf.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

TestSuite(train_subnormals, .init = training_open, .fini = training_close, .timeout = 240);

/* Returns false where the kernel refuses. The thread goes on. */
static bool control_word(pid_t thread, uint64_t *word)
{
    int status;
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0)
        return false;
    cr_assert_eq(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
    cr_assert_eq(waitpid(thread, &status, __WALL), thread);
#if defined(__x86_64__)
    struct user_fpregs_struct registers;
    struct iovec room = { &registers, sizeof(registers) };
#elif defined(__aarch64__)
    struct user_fpsimd_struct registers;
    struct iovec room = { &registers, sizeof(registers) };
#else
    char registers[4096];
    struct iovec room = { registers, sizeof(registers) };
#endif
    const long got = ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRFPREG, &room);
    ptrace(PTRACE_DETACH, thread, NULL, NULL);
    cr_assert_eq(got, 0);
#if defined(__x86_64__)
    *word = registers.mxcsr;
#elif defined(__aarch64__)
    *word = registers.fpcr;
#else
    *word = 0;
#endif
    return true;
}

/* How many threads the process has; `keeping` = those of them that keep subnormals, -1 where no thread can be traced. */
static int look_at_threads(pid_t pid, int *keeping)
{
    char path[64];
    int threads = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    *keeping = 0;
    for (struct dirent *entry; *keeping >= 0 && (entry = readdir(dir)) != NULL;) {
        uint64_t word;
        if (entry->d_name[0] == '.')
            continue;
        threads++;
        if (!control_word((pid_t)atoi(entry->d_name), &word))
            *keeping = -1;
        else
            *keeping += (word & FLUSH_SUBNORMALS_BITS) != FLUSH_SUBNORMALS_BITS;
    }
    closedir(dir);
    return threads;
}

/* With these, OpenBLAS has `blas` threads besides main; the loader has two. */
static void expect_all_flush(const char *blas_threads, const char *option, int blas)
{
    const char *argv[] = { bin("train"),       "--data", in_dir("data"), "--epochs", "100000",
                           "--loader_threads", "2",      option,         "2",        NULL };
    const char *env[] = { "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS", blas_threads, NULL };
    int keeping;
    bin_seek_no_leaks();
    if (FLUSH_SUBNORMALS_BITS == 0)
        cr_skip_test("skipped, because this processor cannot flush subnormals");
    make_data("data", "1000", NULL);
    struct run_process *process = run_start(argv, &(struct run_options){ .env = env });
    cr_assert_not_null(process);
    cr_expect(run_until_output(process, "epoch 1/", PATIENCE_MS));
    const int threads = look_at_threads(run_pid(process), &keeping);
    run_signal(process, SIGKILL);
    struct run_result r = run_wait(process);
    cr_expect_eq(r.signal, SIGKILL, "%s", r.err);
    run_free(&r);
    if (keeping < 0)
        cr_skip_test("skipped, because this system lets no process trace its children");
    cr_expect_geq(threads, 3 + blas, "%d threads, expected main, 2 of the loader and %d of OpenBLAS", threads,
                  blas);
    cr_expect_eq(keeping, 0, "%d of %d threads keep subnormals", keeping, threads);
}

/* It starts no more threads than there are processors, and --keep_last starts none. */
Test(train_subnormals, threads_that_openblas_starts_before_main_flush_them)
{
    if (cores_allowed() < 2)
        cr_skip_test("skipped, because OpenBLAS starts no thread on one processor");
    expect_all_flush("OPENBLAS_NUM_THREADS=2", "--keep_last", 1);
}

Test(train_subnormals, threads_that_train_asks_for_flush_them)
{
    expect_all_flush("OPENBLAS_NUM_THREADS=1", "--threads", 1);
}
