/* Compares the environment of each worker under torchrun and under ddprun, which is called as "torchrun".
 *
 * Both launchers run each set of options, with a worker that writes its environment to a file. torchrun 1.13 is
 * Debian's (python3-torch). DDP_TORCHRUN is the command of a newer torchrun, such as "/some/venv/bin/python -m
 * torch.distributed.run". Without DDP_TORCHRUN, ddprun is compared with a recording of torchrun 2.15.0
 * (tests/data/torchrun-2.15.0.env; DDP_TORCHRUN_RECORD=FILE makes a recording). Only the variables in the table
 * `loose` may differ. */
#include "run.h"
#include "job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(torchrun_env, .timeout = 300);

enum { VARIABLES_MAX = 400, FILES_MAX = 12, TEXT_MAX = 65536, NAME_MAX_LEN = 32 };

/* Because of a bug, Debian's torchrun 1.13 needs the options -r and -t on Python 3.11. */
#define TORCH_1 "/usr/bin/python3 -m torch.distributed.run -r 1 -t 1 --monitor_interval=0.2"
#define RECORD  "tests/data/torchrun-2.15.0.env"

enum sets_for { ALL, NEWER }; /* NEWER: the set is not for torchrun 1.13 */

/* $T is the launcher, $E the worker, $P a free port. */
static const struct set {
    const char *name;
    enum sets_for of;
    const char *script;
} sets[] = {
    { "static", ALL, "$T --nproc_per_node=2 --master_addr=127.0.0.1 --master_port=$P --no_python $E" },
    { "alone", ALL, "$T --standalone --no_python $E" },
    { "elastic", ALL,
      "$T --nproc_per_node=3 --rdzv_backend=c10d --rdzv_endpoint=127.0.0.1:$P --rdzv_id=job7 "
      "--role=trainer --max_restarts=2 --no_python $E" },
    { "logs", ALL, "$T --nproc_per_node=2 --master_port=$P --rdzv_id=job8 --log_dir=$D/logs --no_python $E" },
    { "inherited", ALL,
      "OMP_NUM_THREADS=3 CUDA_VISIBLE_DEVICES= NCCL_ASYNC_ERROR_HANDLING=0 TORCH_NCCL_ASYNC_ERROR_HANDLING=0 "
      "RANK=9 PET_ROLE=chief $T --nproc_per_node=2 --master_port=$P --no_python $E" },
    { "nodes", ALL,
      "for i in 0 1; do $T --nnodes=2 --nproc_per_node=2 --node_rank=$i --master_addr=127.0.0.1 "
      "--master_port=$P --rdzv_id=job9 --no_python $E & done; wait" },
    { "roles", ALL,
      "$T --nnodes=2 --nproc_per_node=1 --node_rank=0 --role=reader --master_port=$P --rdzv_id=job9 "
      "--no_python $E & $T --nnodes=2 --nproc_per_node=2 --node_rank=1 --role=trainer --master_port=$P "
      "--rdzv_id=job9 --no_python $E & wait" },
    { "restart", ALL, "FAIL_FIRST=1 $T --nproc_per_node=2 --max_restarts=1 --master_port=$P --no_python $E" },
    { "virtual", NEWER,
      "CUDA_VISIBLE_DEVICES=3,1 $T --nproc_per_node=2 --virtual_local_rank --master_port=$P --no_python "
      "$E" },
    { "signals", NEWER,
      "$T --nproc_per_node=1 --signals_to_handle=SIGTERM,SIGINT,SIGHUP,SIGUSR1 --no_python $E" },
    { "nowhere", NEWER, "$T --nproc_per_node=1 --log_dir=/dev/null --master_port=$P --no_python $E" },
};
enum { SETS = sizeof(sets) / sizeof(sets[0]) };

/* The worker's program, which writes its environment to a file. If FAIL_FIRST is set, the first attempt fails after
 * both workers have written their files. */
static const char worker[] = "#!/bin/sh\n"
                             "F=$W/$TORCHELASTIC_RESTART_COUNT.$RANK\n"
                             "env -0 | LC_ALL=C sort -z | tr '\\n\\0' ' \\n' >$F.new && mv $F.new $F\n"
                             "[ -n \"$FAIL_FIRST\" ] && [ \"$TORCHELASTIC_RESTART_COUNT\" = 0 ] || exit 0\n"
                             "until [ -e $W/0.0 ] && [ -e $W/0.1 ]; do sleep 0.05; done\n"
                             "exit 1\n";

/* --- permitted differences -------------------------------------------------------------------------------- */

enum how {
    MINE,      /* one launcher may lack the variable; two values must be equal, except for the variable "_" */
    VALUE,     /* both launchers set the variable, to any value */
    DIRECTORY, /* equal except for the random part of the job's directory */
    OWN_FILE   /* both launchers set the variable; both values are empty, or neither is */
};

static const struct {
    const char *set; /* NULL means every set */
    const char *name;
    enum how how;
    const char *why;
} loose[] = {
    { NULL, "DDPRUN_*", MINE, "ours" },
    { NULL, "DDP_FLIGHT_RECORDER", MINE, "ours" },
    { NULL, "NCCL_ASYNC_ERROR_HANDLING", MINE, "1.13's name, 2.x has another; ours has both" },
    { NULL, "TORCH_NCCL_ASYNC_ERROR_HANDLING", MINE, "2.x's name" },
    { NULL, "TORCHELASTIC_SIGNALS_TO_HANDLE", MINE, "2.x has it" },
    { NULL, "W", VALUE, "where the worker writes" },
    { NULL, "P", VALUE, "as given" },
    { NULL, "_", MINE, "the shell's" },
    { "logs", "TORCHELASTIC_ERROR_FILE", DIRECTORY, "the directory's random part" },
    { NULL, "TORCHELASTIC_ERROR_FILE", OWN_FILE, "no --log_dir" },
    { "alone", "TORCHELASTIC_RUN_ID", VALUE, "made up" },
    { "signals", "TORCHELASTIC_RUN_ID", VALUE, "made up" },
    { "alone", "MASTER_ADDR", VALUE, "this host: its name there, loopback here" },
    { "elastic", "MASTER_ADDR", VALUE, "the same" },
    { "signals", "MASTER_ADDR", VALUE, "the same" },
    { "alone", "MASTER_PORT", VALUE, "it chose one" },
    { "elastic", "MASTER_PORT", VALUE, "two stores there, one here" },
    { "signals", "MASTER_PORT", VALUE, "it chose one" },
    { "alone", "TORCHELASTIC_USE_AGENT_STORE", VALUE, "False in 1.13, where rank 0 serves when elastic" },
    { "elastic", "TORCHELASTIC_USE_AGENT_STORE", VALUE, "the same" },
};
enum { LOOSE = sizeof(loose) / sizeof(loose[0]) };

static bool is_called(const char *pattern, const char *name)
{
    const size_t len = strlen(pattern);
    return pattern[len - 1] == '*' ? strncmp(pattern, name, len - 1) == 0 : strcmp(pattern, name) == 0;
}

/* Return true if only the random text differs. The random text is between the job's name and "/attempt". */
static bool same_but_random(const char *a, const char *b)
{
    const char *end_a = strstr(a, "/attempt_"), *end_b = strstr(b, "/attempt_");
    const char *id_a = strstr(a, "/job8_"), *id_b = strstr(b, "/job8_");
    return end_a != NULL && end_b != NULL && strcmp(end_a, end_b) == 0 && id_a != NULL && id_b != NULL &&
           id_a < end_a && id_b < end_b;
}

/* Return true if the two values are equal, or if a row of `loose` permits the difference. A value is NULL if its side
 * lacks the variable. */
static bool may_be(const char *set, const char *name, const char *theirs, const char *ours)
{
    if (theirs != NULL && ours != NULL && strcmp(theirs, ours) == 0)
        return true;
    for (int i = 0; i < LOOSE; i++) {
        if ((loose[i].set != NULL && strcmp(loose[i].set, set) != 0) || !is_called(loose[i].name, name))
            continue;
        if (loose[i].how == MINE)
            return theirs == NULL || ours == NULL || name[0] == '_';
        if (theirs == NULL || ours == NULL)
            return false;
        if (loose[i].how == OWN_FILE)
            return (theirs[0] == '\0') == (ours[0] == '\0');
        return loose[i].how == VALUE || same_but_random(theirs, ours);
    }
    return false;
}

/* --- environments ----------------------------------------------------------------------------------------- */

/* The sorted lines "NAME=value" of one worker. */
struct dump {
    const char *line[VARIABLES_MAX];
    int n;
    char text[TEXT_MAX];
};

static void cut(struct dump *d)
{
    d->n = 0;
    for (char *line = strtok(d->text, "\n"); line != NULL && d->n < VARIABLES_MAX; line = strtok(NULL, "\n"))
        if (strchr(line, '=') != NULL)
            d->line[d->n++] = line;
}

/* Hide the port, because each run has another port. */
static void hide_port(struct dump *d)
{
    const char *given = NULL;
    for (int i = 0; i < d->n; i++)
        if (strncmp(d->line[i], "P=", 2) == 0)
            given = d->line[i] + 2;
    for (int i = 0; i < d->n; i++)
        if (given != NULL && strncmp(d->line[i], "MASTER_PORT=", 12) == 0 &&
            strcmp(d->line[i] + 12, given) == 0)
            d->line[i] = "MASTER_PORT=$P";
}

static const char *value_in(const struct dump *d, const char *name, size_t len)
{
    for (int i = 0; i < d->n; i++)
        if (strncmp(d->line[i], name, len) == 0 && d->line[i][len] == '=')
            return d->line[i] + len + 1;
    return NULL;
}

static void compare(const char *set, const char *who, const struct dump *theirs, const struct dump *ours)
{
    const struct dump *both[] = { theirs, ours };
    char name[256];
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < both[side]->n; i++) {
            const size_t len = strcspn(both[side]->line[i], "=");
            snprintf(name, sizeof(name), "%.*s", (int)len, both[side]->line[i]);
            const char *a = value_in(theirs, name, len), *b = value_in(ours, name, len);
            cr_expect(may_be(set, name, a, b), "%s, worker %s: %s is %s with torchrun and %s with ddprun",
                      set, who, name, a != NULL ? a : "(not set)", b != NULL ? b : "(not set)");
        }
    }
}

/* --- running ---------------------------------------------------------------------------------------------- */

/* The test's directory, with the program `worker` and one folder for each set and launcher. */
static char dir[64];

static void make_dir(void)
{
    char path[96];
    snprintf(dir, sizeof(dir), "/tmp/torchrun-env.XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/worker", dir);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(worker, file);
    fclose(file);
    const char *argv[] = { "chmod", "755", path, NULL };
    run_command(argv, NULL);
    snprintf(path, sizeof(path), "%s/torchrun", dir);
    cr_assert_eq(symlink(bin("ddprun"), path), 0);
}

static void remove_dir(void)
{
    const char *argv[] = { "rm", "-rf", dir, NULL };
    run_command(argv, NULL);
}

/* Run a set. Both launchers start in the same small environment, except for PATH. */
static void run_set(const struct set *set, const char *launcher, const char *who)
{
    char script[2048];
    snprintf(script, sizeof(script), "D=%s; export W=$D/%s.%s P=%d; mkdir $W; E=$D/worker; T='%s'\n%s\n", dir,
             set->name, who, free_port(), launcher, set->script);
    const char *argv[] = { "env", "-i", "LC_ALL=C.UTF-8", "HOME=/tmp", "PATH=/usr/bin:/bin",
                           "sh",  "-c", script,           NULL };
    struct run_result r = run_command(argv, &(struct run_options){ .timeout_ms = 120000, .cwd = dir });
    cr_assert(r.exit_code == 0, "%s with %s: exit code %d\n%s%s", set->name, launcher, r.exit_code, r.out,
              r.err);
}

/* Find the files that the workers of a set have written. Store their names ("ATTEMPT.RANK") and return their number. */
static int list(const struct set *set, const char *who, char names[FILES_MAX][NAME_MAX_LEN])
{
    char path[128];
    int n = 0;
    snprintf(path, sizeof(path), "%s/%s.%s", dir, set->name, who);
    for (int attempt = 0; attempt < 2; attempt++) {
        for (int rank = 0; rank < 4 && n < FILES_MAX; rank++) {
            char file[192];
            snprintf(names[n], sizeof(names[n]), "%d.%d", attempt, rank);
            snprintf(file, sizeof(file), "%s/%s", path, names[n]);
            n += access(file, R_OK) == 0;
        }
    }
    return n;
}

/* Replace the random end of the directory's name by dashes. A recording was made in a directory with another random
 * end, and contains dashes, too. */
static void hide_random(char *text)
{
    for (char *at = text; (at = strstr(at, dir)) != NULL;)
        memcpy(at + strlen(dir) - 6, "------", 6);
}

static void read_dump(const struct set *set, const char *who, const char *name, struct dump *d)
{
    char path[192];
    snprintf(path, sizeof(path), "%s/%s.%s/%s", dir, set->name, who, name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s has written nothing: %s", who, path);
    d->text[fread(d->text, 1, sizeof(d->text) - 1, file)] = '\0';
    fclose(file);
    hide_random(d->text);
    cut(d);
    hide_port(d);
}

/* --- the record -------------------------------------------------------------------------------------------- */

static void write_record(const char *path, const struct set *set, const char *name, const struct dump *d)
{
    FILE *file = fopen(path, "a");
    cr_assert_not_null(file);
    fprintf(file, "[%s %s]\n", set->name, name);
    for (int i = 0; i < d->n; i++)
        fprintf(file, "%s\n", d->line[i]);
    fclose(file);
}

static void read_record(const struct set *set, const char *name, struct dump *d)
{
    static char all[TEXT_MAX];
    char head[96];
    FILE *file = fopen(RECORD, "r");
    if (file == NULL)
        cr_skip_test("skipped, because the test does not run in the top folder of the sources");
    all[fread(all, 1, sizeof(all) - 1, file)] = '\0';
    fclose(file);
    snprintf(head, sizeof(head), "[%.40s %.40s]\n", set->name, name);
    const char *at = strstr(all, head);
    cr_assert_not_null(at, "%s has no %s", RECORD, head);
    at += strlen(head);
    const char *end = strstr(at, "\n[");
    snprintf(d->text, sizeof(d->text), "%.*s", end != NULL ? (int)(end - at) : (int)strlen(at), at);
    cut(d);
}

/* --- tests ------------------------------------------------------------------------------------------------- */

static const struct set *set_called(const char *name)
{
    for (int i = 0; i < SETS; i++)
        if (strcmp(sets[i].name, name) == 0)
            return &sets[i];
    cr_assert_fail("no such set: %s", name);
    return NULL;
}

/* Compare ddprun with the command `torchrun`. If `torchrun` is NULL, compare ddprun with the recording. */
static void try(const struct set *set, const char *torchrun)
{
    static struct dump theirs, ours;
    char names[FILES_MAX][NAME_MAX_LEN], alias[128];
    const char *record = getenv("DDP_TORCHRUN_RECORD");
    make_dir();
    snprintf(alias, sizeof(alias), "%s/torchrun", dir);
    run_set(set, alias, "ddprun");
    if (torchrun != NULL)
        run_set(set, torchrun, "torch");
    const int n = list(set, "ddprun", names);
    cr_assert_gt(n, 0);
    for (int i = 0; i < n; i++) {
        read_dump(set, "ddprun", names[i], &ours);
        if (torchrun != NULL)
            read_dump(set, "torch", names[i], &theirs);
        else
            read_record(set, names[i], &theirs);
        compare(set->name, names[i], &theirs, &ours);
        if (record != NULL && torchrun != NULL && torchrun == getenv("DDP_TORCHRUN"))
            write_record(record, set, names[i], &theirs);
    }
    remove_dir();
}

static void try_1(const char *name)
{
    const char *argv[] = { "/usr/bin/python3", "-c", /* an import of torch would take seconds */
                           "import importlib.util, os, runpy\n"
                           "at = os.path.dirname(importlib.util.find_spec('torch').origin)\n"
                           "version = runpy.run_path(os.path.join(at, 'version.py'))['__version__']\n"
                           "assert version.startswith('1.13')",
                           NULL };
    torch_skip_sanitized();
    struct run_result r = run_command(argv, NULL);
    const bool missing = r.exit_code != 0;
    if (missing)
        cr_skip_test("skipped, because /usr/bin/python3 has no torch 1.13 (apt-get install python3-torch)");
    try(set_called(name), TORCH_1);
}

/* Each set has two tests, which run in parallel, because an import of torch takes seconds. */
#define OLD_AND_NEW(set)                               \
    Test(torchrun_env, set##_is_as_with_1_13)          \
    {                                                  \
        try_1(#set);                                   \
    }                                                  \
    Test(torchrun_env, set##_is_as_with_2)             \
    {                                                  \
        try(set_called(#set), getenv("DDP_TORCHRUN")); \
    }
#define NEW(set)                                       \
    Test(torchrun_env, set##_is_as_with_2)             \
    {                                                  \
        try(set_called(#set), getenv("DDP_TORCHRUN")); \
    }

OLD_AND_NEW(static)
OLD_AND_NEW(alone)
OLD_AND_NEW(elastic)
OLD_AND_NEW(logs)
OLD_AND_NEW(inherited)
OLD_AND_NEW(nodes)
OLD_AND_NEW(roles)
OLD_AND_NEW(restart)
NEW(virtual)
NEW(signals)
NEW(nowhere)
