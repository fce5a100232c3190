/* survivors.c -- checks that no process outlives its job: every kind of worker x every fault x every layer, many times.
 *
 *     survivors [--rounds=N] [--jobs=N] [--seed=N] [--after=MS] [--launchers=A,B] [--kinds=A,B] [--faults=A,B] [--peers]
 *               [--without=CALL,CALL] DDPRUN WORKER
 *
 * Prints a table of trials, survivors and the worst time for each launcher. Each failure has a line below the table,
 * with the arguments that repeat it. Exit status 0: no process survived, and no other process was affected. 1: a
 * process survived or was affected. 77: nothing could be tested here.
 *
 * Trials run in parallel, each below its own process (tree.h). Another job of the same user (bystander.h) runs all the
 * time, and no trial may affect this job. The results are in memory shared with the trials. */
#include "bystander.h"
#include "cage.h"
#include "table.h"
#include "trial.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOBS_MAX = 64, EXIT_SURVIVORS = 1, EXIT_USAGE_ERROR = 2, EXIT_NOTHING_TRIED = 77, PROGRESS_MS = 5000 };

#define X(id, name, words) name,
static const char *const kind_names[] = { KINDS(X) };
static const char *const fault_names[] = { FAULTS(X) };
static const char *const launcher_names[] = { LAUNCHERS(X) };
#undef X

struct options {
    int rounds, jobs, after_ms;
    uint64_t seed;
    unsigned launchers, kinds, faults; /* bits */
    const char *ddprun, *worker, *without;
};

/* The trials of one launcher. */
struct series {
    const struct options *o;
    struct trial *trials;
    struct trial_result *results;      /* shared */
    size_t count, calm, started, done; /* the first `calm` trials may run in parallel */
    pid_t running[JOBS_MAX];
    size_t index[JOBS_MAX]; /* number of each running trial */
    struct bystander bystander;
    const char *touched; /* how the second job was harmed; NULL if unharmed */
};

/* --- the command line --------------------------------------------------------------------------------------- */

/* Parse "a,b" as bits of `names`, or return 0. */
static unsigned parse_set(const char *text, const char *const names[], int count)
{
    unsigned set = 0;
    while (*text != '\0') {
        size_t len = strcspn(text, ",");
        int i = 0;
        while (i < count && (strlen(names[i]) != len || memcmp(names[i], text, len) != 0))
            i++;
        if (i == count)
            return 0;
        set |= 1U << i;
        text += len + (text[len] == ',');
    }
    return set;
}

enum { DDPRUNS = (1U << BY_PEERS) - 1, PEERS = ((1U << BY_COUNT) - 1) & ~DDPRUNS };

static const struct option known[] = { { "rounds", 1, NULL, 'r' }, { "jobs", 1, NULL, 'j' },
                                       { "seed", 1, NULL, 's' },   { "launchers", 1, NULL, 'l' },
                                       { "kinds", 1, NULL, 'k' },  { "faults", 1, NULL, 'f' },
                                       { "peers", 0, NULL, 'p' },  { "without", 1, NULL, 'w' },
                                       { "after", 1, NULL, 'a' },  { 0 } };

static bool take_number(struct options *o, int letter, const char *text)
{
    int *number = letter == 'r' ? &o->rounds : letter == 'j' ? &o->jobs : letter == 'a' ? &o->after_ms : NULL;
    if (number != NULL)
        *number = atoi(text);
    return number != NULL;
}

static bool take_set(struct options *o, int letter, const char *text)
{
    if (letter == 'l')
        o->launchers = parse_set(text, launcher_names, BY_COUNT);
    else if (letter == 'k')
        o->kinds = parse_set(text, kind_names, KIND_COUNT);
    else if (letter == 'f')
        o->faults = parse_set(text, fault_names, FAULT_COUNT);
    else
        return false;
    return true;
}

static bool take(struct options *o, int letter, const char *text)
{
    if (letter == 's')
        o->seed = strtoull(text, NULL, 0);
    else if (letter == 'p')
        o->launchers = PEERS;
    else if (letter == 'w')
        o->without = text;
    else
        return take_number(o, letter, text) || take_set(o, letter, text);
    return true;
}

static bool parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){ .rounds = 1,
                           .jobs = 4,
                           .after_ms = TRIAL_AFTER_MS,
                           .seed = 1,
                           .launchers = DDPRUNS,
                           .kinds = ~0U,
                           .faults = ~0U };
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;)
        if (!take(o, c, optarg))
            return false;
    if (optind + 2 != argc)
        return false;
    o->ddprun = argv[optind];
    o->worker = argv[optind + 1];
    return o->rounds > 0 && o->after_ms >= 0 && o->jobs > 0 && o->jobs <= JOBS_MAX && o->launchers &&
           o->kinds && o->faults;
}

/* --- the trials --------------------------------------------------------------------------------------------- */

/* Return true if the launcher supports the fault: FAULT_AGENT and FAULT_BOTH are only for ddprun, and FAULT_OOM needs a
 * limit of memory. */
static bool applies(enum launcher by, enum fault fault)
{
    if (by >= BY_PEERS && (fault == FAULT_AGENT || fault == FAULT_BOTH))
        return false;
    return fault != FAULT_OOM || cage_has_memory();
}

static void add_trials(struct series *s, enum launcher by, const char *record_dir, unsigned kinds)
{
    const struct options *o = s->o;
    for (int round = 0; round < o->rounds; round++)
        for (int kind = 0; kind < KIND_COUNT; kind++)
            for (int fault = 0; fault < FAULT_COUNT; fault++)
                if ((kinds >> kind & 1) && (o->faults >> fault & 1) && applies(by, (enum fault)fault))
                    s->trials[s->count++] = (struct trial){ .by = by,
                                                            .kind = (enum kind)kind,
                                                            .fault = (enum fault)fault,
                                                            .seed = o->seed + (uint64_t)round,
                                                            .after_ms = o->after_ms,
                                                            .ddprun = o->ddprun,
                                                            .worker = o->worker,
                                                            .without = o->without,
                                                            .record_dir = record_dir };
}

/* Make the list of trials. Rounds are the outer loop, so that an interrupted series has tried each kind with each fault
 * equally often. Chains come last, one trial at a time, because a chain uses the whole machine. */
static bool make_trials(struct series *s, enum launcher by, const char *record_dir)
{
    const struct options *o = s->o;
    size_t most = (size_t)o->rounds * KIND_COUNT * FAULT_COUNT;
    s->trials = calloc(most, sizeof(*s->trials));
    s->results =
        mmap(NULL, most * sizeof(*s->results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->trials == NULL || s->results == MAP_FAILED)
        return false;
    add_trials(s, by, record_dir, o->kinds & ~(1U << KIND_CHAINS));
    s->calm = s->count;
    add_trials(s, by, record_dir, o->kinds & 1U << KIND_CHAINS);
    return true;
}

static void start_next(struct series *s, int slot)
{
    size_t i = s->started++;
    s->index[slot] = i;
    s->running[slot] = fork();
    if (s->running[slot] != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    trial_run(&s->trials[i], &s->results[i]);
    _exit(0);
}

static void wait_one(struct series *s)
{
    pid_t pid = wait(NULL);
    for (int slot = 0; slot < s->o->jobs; slot++) {
        if (s->running[slot] != pid)
            continue;
        s->running[slot] = 0;
        s->done++;
    }
    if (s->touched == NULL)
        s->touched = pid == s->bystander.launcher ? "its launcher has ended" : bystander_harm(&s->bystander);
}

static void show_progress(const struct series *s, uint64_t *next_ms)
{
    if (clock_ms() < *next_ms)
        return;
    *next_ms = clock_ms() + PROGRESS_MS;
    int survivors = 0;
    for (size_t i = 0; i < s->started; i++)
        survivors += s->results[i].survivors > 0;
    fprintf(stderr, "%s: %zu of %zu trials, %d with survivors\n", launcher_names[s->trials[0].by], s->done,
            s->count, survivors);
}

/* Run the trials up to number `until`, and at most `jobs` of them at the same time. */
static void run_trials(struct series *s, size_t until, int jobs)
{
    uint64_t next_ms = clock_ms() + PROGRESS_MS;
    while (s->done < until) {
        for (int slot = 0; slot < jobs; slot++)
            if (s->running[slot] == 0 && s->started < until)
                start_next(s, slot);
        wait_one(s);
        show_progress(s, &next_ms);
    }
}

/* --- one launcher ------------------------------------------------------------------------------------------- */

/* Lock or unlock this program's file with flock. Trials of KIND_CHAINS need the whole machine, so they take an
 * exclusive lock, and other copies of this program wait. All other trials take a shared lock. */
static void take_turn(int how)
{
    static int self = -1;
    if (self < 0)
        self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (self >= 0)
        flock(self, how);
}

/* Return the number of failed trials, or -1 if this launcher is missing. */
static int run_launcher(const struct options *o, enum launcher by, const char *record_dir)
{
    char why[1024];
    struct series s = { .o = o };
    const struct trial first = {
        .by = by, .ddprun = o->ddprun, .worker = o->worker, .record_dir = record_dir
    };
    if (!bystander_open(&s.bystander, &first, why, sizeof(why))) {
        table_skipped(by, why);
        bystander_close(&s.bystander);
        return -1;
    }
    int bad = 1;
    if (make_trials(&s, by, record_dir)) {
        take_turn(LOCK_SH);
        run_trials(&s, s.calm, o->jobs);
        take_turn(LOCK_EX);
        run_trials(&s, s.count, 1);
        take_turn(LOCK_UN);
        bad = table_print(s.trials, s.results, s.count, s.touched);
    }
    bystander_close(&s.bystander);
    free(s.trials);
    return bad;
}

/* Start one more job after all trials. At its start, ddprun finds and removes everything that the last killed job has
 * left, even if that job has left only its record. */
static void start_once_more(const struct options *o, const char *record_dir)
{
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("XDG_RUNTIME_DIR", record_dir, 1);
        execlp(o->ddprun, o->ddprun, "--standalone", "true", (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

/* Remove the directory of records. Every job removes its record, or the next start does, so only the directory
 * remains. */
static bool remove_records(const char *record_dir)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/ddprun", record_dir);
    return (rmdir(path) == 0 || errno == ENOENT) && rmdir(record_dir) == 0;
}

/* Check that the program WORKER can be executed, and make a directory for records. Without the check, a missing program
 * would look like an error of every launcher. */
static bool prepare(const struct options *o, char *record_dir)
{
    if (access(o->worker, X_OK) != 0)
        fprintf(stderr, "survivors: cannot run the WORKER %s: %s\n", o->worker, strerror(errno));
    else if (mkdtemp(record_dir) == NULL)
        fprintf(stderr, "survivors: cannot make %s: %s\n", record_dir, strerror(errno));
    else
        return true;
    return false;
}

int main(int argc, char **argv)
{
    struct options o;
    char record_dir[] = "/tmp/survivors-XXXXXX";
    int bad = 0, tried = 0;
    if (!parse(&o, argc, argv)) {
        fprintf(stderr, "usage: survivors [--rounds=N] [--jobs=N] [--seed=N] [--after=MS] [--launchers=A,B] "
                        "[--kinds=A,B]\n"
                        "                 [--faults=A,B] [--peers] [--without=CALL,CALL] DDPRUN WORKER\n");
        return EXIT_USAGE_ERROR;
    }
    if (!prepare(&o, record_dir))
        return EXIT_USAGE_ERROR;
    if ((o.faults >> FAULT_OOM & 1) && !cage_has_memory())
        printf("OOM kill: skipped, because no memory control group can be made here (root only)\n");
    if ((o.kinds >> KIND_CHAINS & 1) && !cage_has_processes()) {
        printf("chains: skipped, because no pids control group can be made here, and they would take all "
               "numbers\n");
        o.kinds &= ~(1U << KIND_CHAINS);
    }
    for (int by = 0; by < BY_COUNT && o.kinds != 0; by++) {
        if ((o.launchers >> by & 1) == 0)
            continue;
        int n = run_launcher(&o, (enum launcher)by, record_dir);
        tried += n >= 0;
        /* survivors of the other launchers are not a failure of this program */
        bad += n > 0 && by < BY_PEERS;
    }
    start_once_more(&o, record_dir);
    if (!remove_records(record_dir))
        fprintf(stderr, "survivors: records of jobs are left in %s: %s\n", record_dir, strerror(errno));
    if (tried == 0)
        return EXIT_NOTHING_TRIED;
    return bad > 0 ? EXIT_SURVIVORS : 0;
}
