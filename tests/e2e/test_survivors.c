/* test_survivors.c -- short runs of three programs of tests/survivors/: survivors (`make survivors`), launches
 * (`make launches`) and reuse, which reuses process ids. The run of survivors tries each kind of worker once with each
 * combination of fault and --contain. Only the kind "chains" is tried with fewer faults (CHAINS).
 *
 * The programs trust no output of ddprun. A trial runs below a process that adopts orphans, and is over when wait()
 * reports that there is no child. AFTER, the time until a process counts as a survivor, is long, because other tests
 * may use the processors. Only `make survivors` on a quiet machine measures how soon ddprun ends. */
#include "run.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#define AFTER "--after=15000"

enum { NOTHING_TRIED = 77, LIMIT_MS = 280000, SHOWN = 2000 };

struct sample {
    char launcher[16], kinds[64], faults[48];
};

TestSuite(survivors, .timeout = 300);

/* Return the last SHOWN bytes of `text`, from the first whole line on. Return a shorter text unchanged. */
static const char *end_of(const char *text)
{
    const size_t len = strlen(text);
    const char *from = len > SHOWN ? strchr(text + len - SHOWN, '\n') : NULL;
    return from != NULL ? from + 1 : text;
}

/* Run a program of tests/survivors/, and expect that it finds no fault. Print only the end of its output, which names
 * the fault, because logs may be cut. */
static void expect_clean(const char *const argv[])
{
    bin_seek_no_leaks();
    struct run_result r = run_command(argv, &(struct run_options){ .timeout_ms = LIMIT_MS });
    const char *skipped = strstr(r.out, "skipped, because"), *failed = strstr(r.out, "FAILED");
    if (r.exit_code == NOTHING_TRIED)
        cr_skip_test("%.300s", skipped != NULL ? skipped : r.out);
    cr_expect_eq(r.exit_code, 0, "%s %s %s: exit %d, signal %d%s\n%s%s", strrchr(argv[0], '/') + 1, argv[1],
                 argv[2], r.exit_code, r.signal, r.timed_out ? ", not finished in time" : "", end_of(r.err),
                 failed != NULL ? failed : end_of(r.out));
}

/* Workers of the kind "chains" use the whole machine, so no entry combines this kind with another kind. CHAINS has only
 * the faults that hit the guardian or the agent, because each of these two processes must be able to end the chains. A
 * sanitized build uses the list `few`, whose only kind is "daemon". Such a build is too slow to kill all processes of
 * "chains", because these processes fork again and again. The kind "daemon" is enough to find wrong memory accesses. */
#define ALL    "term,guardian,agent,both,hangup,oom"
#define CHAINS "chains", "term,guardian,agent,both"
ParameterizedTestParameters(survivors, nothing_outlives_its_job_and_no_other_job_is_touched)
{
    static struct sample all[] = {
        { "plain", "plain,forks,daemon,deaf", ALL },
        { "plain", "stopped,pidns,loader", ALL },
        { "plain", CHAINS },
        { "cgroup", "plain,forks,daemon,deaf", ALL },
        { "cgroup", "stopped,pidns,loader", ALL },
        { "cgroup", CHAINS },
        { "pidns", "plain,forks,daemon,deaf", ALL },
        { "pidns", "stopped,pidns,loader", ALL },
        { "pidns", CHAINS },
    };
    static struct sample few[] = { { "plain", "daemon", ALL },
                                   { "cgroup", "daemon", ALL },
                                   { "pidns", "daemon", ALL } };
    if (bin_is_sanitized())
        return cr_make_param_array(struct sample, few, sizeof(few) / sizeof(few[0]));
    return cr_make_param_array(struct sample, all, sizeof(all) / sizeof(all[0]));
}

ParameterizedTest(struct sample *s, survivors, nothing_outlives_its_job_and_no_other_job_is_touched)
{
    char launcher[40], kinds[80], faults[64];
    snprintf(launcher, sizeof(launcher), "--launchers=%s", s->launcher);
    snprintf(kinds, sizeof(kinds), "--kinds=%s", s->kinds);
    snprintf(faults, sizeof(faults), "--faults=%s", s->faults);
    expect_clean((const char *const[]){ bin("tests/survivors/survivors"), launcher, kinds, AFTER, faults,
                                        bin("ddprun"), bin("tests/prog/survivor"), NULL });
}

/* Simulate the oldest kernel and use --contain=plain, the weakest form, with all kinds of workers. With a sanitizer,
 * test fewer kinds. */
Test(survivors, nothing_outlives_its_job_on_an_old_kernel)
{
    const char *kinds = bin_is_sanitized() ? "--kinds=daemon" : AFTER;
    expect_clean((const char *const[]){ bin("tests/survivors/survivors"),
                                        "--without=pidfd_open,pidfd_send_signal,clone3,close_range", kinds,
                                        AFTER, "--launchers=plain", "--faults=term,guardian,agent",
                                        bin("ddprun"), bin("tests/prog/survivor"), NULL });
}

Test(survivors, launches_end_without_zombies_and_leaked_descriptors)
{
    expect_clean(
        (const char *const[]){ bin("tests/survivors/launches"), "--launches=40", bin("ddprun"), NULL });
}

Test(survivors, a_stranger_with_the_number_of_a_dead_worker_is_never_signalled)
{
    expect_clean((const char *const[]){ bin("tests/survivors/reuse"), "--jobs=8", bin("ddprun"),
                                        bin("tests/prog/survivor"), NULL });
}
