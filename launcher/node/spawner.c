/* spawner.c -- see spawner.h.
 *
 * Everything that can fail before execve fails here, in the agent, where there are words for it:
 * descriptors, memory, the way to the program. What is left for the child is short (proc.c).
 *
 * The descriptor limit: a launcher of many workers needs more descriptors than the usual 1,024, a
 * worker must not get more than the user gave. A program that calls select() breaks on descriptors
 * over 1,024, and some close every descriptor up to the limit at their start. So we raise ours, and
 * each worker gets the user's limit back. */
#include "node/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FDS_OF_OURS = 64,   /* descriptors needed besides those of the workers */
    FDS_PER_WORKER = 9, /* three pipes while it is started, two files, its pidfd */
};

/* As far as the hard limit allows; if that is not enough the first worker without a pipe says so. */
static void raise_fd_limit(struct spawner *s)
{
    getrlimit(RLIMIT_NOFILE, &s->nofile);
    struct rlimit more = s->nofile;
    rlim_t need = FDS_OF_OURS + FDS_PER_WORKER * (rlim_t)s->plan->nproc;
    if (more.rlim_cur == RLIM_INFINITY || more.rlim_cur >= need)
        return;
    more.rlim_cur = need < more.rlim_max ? need : more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
}

/* Grow the table of descriptors to its final size while this process has one thread. The kernel grows a table that threads
 * share only after an RCU grace period, which cost 10 ms at descriptor 64: between the tenth worker and the eleventh. */
static void reserve_descriptors(const struct plan *plan)
{
    const int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, FDS_OF_OURS + FDS_PER_WORKER * plan->nproc - 1);
    if (fd >= 0)
        close(fd);
}

ddp_status spawner_init(struct spawner *s, const struct plan *plan, struct ddp_err *err)
{
    *s = (struct spawner){ .plan = plan };
    raise_fd_limit(s);
    reserve_descriptors(plan);
    if (!proc_slots_open(&s->slots))
        return ddp_fail(err, DDP_ERR_IO, "cannot open /dev/null: %s", strerror(errno));
    return DDP_OK;
}

void spawner_close(struct spawner *s)
{
    proc_slots_close(&s->slots);
}

/* Only a missing file is an error here: Python has words for everything else. */
static bool lacks_script(const char *script)
{
    struct stat st;
    return script != NULL && stat(script, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/* Find the program once; it is the same for all. The search uses the worker's own PATH, which --env
 * may have changed: what counts is what the worker would find. */
static int find_program(struct spawner *s, const char *program, char *const *envp)
{
    if (s->path[0] != '\0')
        return 0;
    int error = proc_find(program, env_find(envp, "PATH"), s->path, sizeof(s->path));
    s->failed = error != 0 ? program : NULL;
    if (error == 0 && lacks_script(s->plan->script)) {
        s->failed = s->plan->script;
        error = ENOENT;
    }
    if (error != 0)
        s->path[0] = '\0';
    return error;
}

int spawner_find(struct spawner *s)
{
    struct ddp_err err;
    struct worker_env env;
    if (plan_env(s->plan, 0, &env, &err) != DDP_OK)
        return ENOMEM;
    const int error = find_program(s, s->plan->workers[0].argv[0], env.block);
    worker_env_free(&env);
    return error;
}

/* Once: it is the same for all. */
static void note_outside(struct spawner *s, int error)
{
    if (!s->outside_noted)
        output_note(s->output, "warning: cannot put workers into their control group: %s", strerror(error));
    s->outside_noted = true;
}

/* The environment is made for one worker at a time and freed at once: for 256 workers it would be
 * megabytes. */
static int start_with(struct spawner *s, int local_rank, const int fds[3], pid_t *pid)
{
    struct ddp_err err;
    struct worker_env env;
    if (plan_env(s->plan, local_rank, &env, &err) != DDP_OK)
        return ENOMEM;
    const struct proc_spec spec = { .path = s->path,
                                    .argv = s->plan->workers[local_rank].argv,
                                    .envp = env.block,
                                    .fds = { fds[0], fds[1], fds[2] },
                                    .nofile = &s->nofile,
                                    .hurry = s->hurry,
                                    .cpus = &s->plan->workers[local_rank].cpus,
                                    .cgroup_fd = contain_cgroup_fd(s->contain) };
    int error = find_program(s, spec.argv[0], env.block);
    if (error == 0 && (*pid = proc_spawn(&s->slots, &spec, &error)) < 0) {
        s->failed = s->path;
        /* The file was found a moment ago, so it is its interpreter or loader that is missing. */
        error = error == ENOENT ? ELIBACC : error;
    } else if (error != 0 && *pid > 0) {
        note_outside(s, error);
        error = 0;
    }
    worker_env_free(&env);
    return error;
}

/* Its stdin, and what starts with it. */
static int start_with_input(struct spawner *s, int local_rank, const int out[2], pid_t *pid)
{
    const int in = input_open(s->input, local_rank);
    if (in < 0) {
        output_note(s->output, "error: cannot make a pipe for the input of a worker: %s", strerror(errno));
        return EMFILE;
    }
    int error = start_with(s, local_rank, (const int[]){ in, out[0], out[1] }, pid);
    input_spawned(s->input, local_rank, in, error == 0);
    return error;
}

/* The worker's ends of the pipes are closed here in every case. If we kept one, its end of file
 * would never come. */
int spawner_start(struct spawner *s, int local_rank, pid_t *pid)
{
    struct ddp_err err;
    int fds[2];
    if (output_open(s->output, local_rank, fds, &err) != DDP_OK) {
        output_note(s->output, "error: %s", err.msg);
        return EMFILE;
    }
    int error = start_with_input(s, local_rank, fds, pid);
    output_spawned(fds);
    if (error == 0)
        output_started(s->output, local_rank, *pid);
    return error;
}
