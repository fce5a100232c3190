/* main.c -- the program train: data-parallel training on libddp. A rank that fails prints the reason, calls ddp_abort
 * and exits. ddp_abort makes all other ranks fail, so that they report which rank has failed. */
#include "train/files.h"
#include "train/trainer.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, PATIENCE_S = 5 };

/* Make all threads of this process flush subnormals. A thread inherits this mode from its creator, and OpenBLAS
 * creates threads in a constructor of its library. So the mode must be set before the constructors of shared
 * libraries run. */
static void (*before_libraries)(void) __attribute__((section(".preinit_array"), used)) = ddp_flush_subnormals;

/* Delay the exit by 200 ms if the failure of another rank made this rank fail. A launcher then detects the exit of the
 * other rank first. ddprun does not need this delay, because it recognizes such a rank by DDP_EXIT_PEER_LOST. */
static void delay_exit(ddp_status status)
{
    const struct timespec pause = { .tv_nsec = 200 * 1000 * 1000 };
    if (ddp_exit_code(status) == DDP_EXIT_PEER_LOST)
        nanosleep(&pause, NULL);
}

static int fail(ddp_ctx *ctx, const struct ddp_err *err)
{
    fprintf(stderr, "train: error: rank %d: %s\n", ddp_rank(ctx), err->msg);
    ddp_abort(ctx, ddp_exit_code(err->code), err->msg);
    delay_exit(err->code);
    return ddp_exit_code(err->code);
}

/* Open the trainer (data, model and checkpoint), train, and close the trainer. An error of this rank makes the other
 * ranks fail too. */
static int train(const struct train_options *options, ddp_ctx *ctx)
{
    struct trainer trainer;
    struct ddp_err err, close_err;
    ddp_status status = trainer_open(&trainer, options, ctx, &err);
    if (status == DDP_OK)
        status = trainer_run(&trainer, &err);
    int exit_code = status == DDP_OK ? 0 : fail(ctx, &err);
    if (trainer_close(&trainer, &close_err) != DDP_OK && exit_code == 0)
        exit_code = fail(ctx, &close_err);
    return exit_code;
}

static void print_waiting(int sig)
{
    static const char words[] = "train: still waiting for the other ranks, or for the store at MASTER_ADDR\n";
    (void)sig;
    if (write(STDERR_FILENO, words, sizeof(words) - 1) < 0)
        return; /* nothing to do: stderr is closed */
}

/* Join the other ranks. If the join takes longer than PATIENCE_S seconds, print that this rank still waits,
 * because a missing rank is an error only after the init timeout. */
static ddp_status meet_others(const ddp_options *options, ddp_ctx **ctx)
{
    const struct sigaction say = { .sa_handler = print_waiting, .sa_flags = SA_RESTART };
    struct sigaction before;
    sigaction(SIGALRM, &say, &before);
    alarm(PATIENCE_S);
    ddp_status status = ddp_init_from_env(options, ctx);
    alarm(0);
    sigaction(SIGALRM, &before, NULL);
    return status;
}

/* Return how many workers share the GPUs that this process can use, including this process. */
static int workers_here(void)
{
    const char *value = getenv("LOCAL_WORLD_SIZE");
    return value != NULL && getenv("DDPRUN_OWN_GPU") == NULL ? atoi(value) : 1;
}

/* Choose the device of the context. All workers have the same options and make the same choice. With --device auto,
 * use GPUs only if each worker can have its own GPU. */
static ddp_status choose_device(const struct train_options *options, ddp_options *context,
                                struct ddp_err *err)
{
    int count = 0;
    if (!train_options_may_use_gpu(options))
        return DDP_OK;
    ddp_status status = cuda_available(options->precision, &count, err);
    if (status != DDP_OK && options->device == DEVICE_CUDA)
        return status;
    if (status == DDP_OK && (options->device == DEVICE_CUDA || workers_here() <= count))
        context->device = DDP_DEVICE_LOCAL;
    return DDP_OK;
}

/* Join the other ranks, train and leave. Return the exit code. An error before or during the join is only printed,
 * because ddp_abort needs a context. */
static int run_training(const struct train_options *options)
{
    ddp_options context = DDP_OPTIONS_INIT;
    struct ddp_err err;
    ddp_ctx *ctx;
    if (choose_device(options, &context, &err) != DDP_OK) {
        fprintf(stderr, "train: error: %s\n", err.msg);
        return ddp_exit_code(err.code);
    }
    ddp_status status = meet_others(&context, &ctx);
    if (status != DDP_OK) {
        fprintf(stderr, "train: error: %s\n", ddp_last_error());
        return ddp_exit_code(status);
    }
    int exit_code = train(options, ctx);
    status = ddp_finalize(ctx);
    if (status != DDP_OK && exit_code == 0) {
        fprintf(stderr, "train: error: %s\n", ddp_last_error());
        exit_code = ddp_exit_code(status);
    }
    return exit_code;
}

int main(int argc, char **argv)
{
    struct train_options options;
    struct ddp_err err;
    ddp_status status = train_options_parse(&options, argc, argv, &err);
    if (status != DDP_OK) {
        fprintf(stderr, "train: error: %s\n", err.msg);
        return EXIT_USAGE;
    }
    if (!options.help && !options.version)
        return run_training(&options);
    if (options.help)
        train_options_help(stdout);
    else
        printf("train %s\n", ddp_version());
    if (files_flush_stdout(&err) == DDP_OK)
        return 0;
    fprintf(stderr, "train: error: %s\n", err.msg);
    return EXIT_FAILURE;
}
