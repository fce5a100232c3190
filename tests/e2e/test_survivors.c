/* test_survivors.c -- a sample of `make survivors`: each kind of worker meets each fault once, in each layer. And of
 * `make launches`; and numbers of processes that come again.
 *
 * tests/survivors/ does the work. It trusts nothing that ddprun says: a trial is below a process that adopts orphans, and
 * is over when wait() says that there is no child. */
#include "run.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

enum { NOTHING_TRIED = 77, LIMIT_MS = 120000 };

struct sample {
    char launcher[16], kinds[64];
};

TestSuite(survivors, .timeout = 150);

/* Chains take the whole machine, so they are a sample of their own. A sanitizer is too slow to win a race against them,
 * and of the others one is enough to look for wrong accesses. */
ParameterizedTestParameters(survivors, nothing_outlives_its_job_and_no_other_job_is_touched)
{
    static struct sample all[] = {
        { "plain", "plain,forks,daemon,deaf" },  { "plain", "stopped,pidns,loader" },  { "plain", "chains" },
        { "cgroup", "plain,forks,daemon,deaf" }, { "cgroup", "stopped,pidns,loader" }, { "cgroup", "chains" },
        { "pidns", "plain,forks,daemon,deaf" },  { "pidns", "stopped,pidns,loader" },  { "pidns", "chains" },
    };
    static struct sample few[] = { { "plain", "daemon" }, { "cgroup", "daemon" }, { "pidns", "daemon" } };
    if (bin_is_sanitized())
        return cr_make_param_array(struct sample, few, sizeof(few) / sizeof(few[0]));
    return cr_make_param_array(struct sample, all, sizeof(all) / sizeof(all[0]));
}

ParameterizedTest(struct sample *s, survivors, nothing_outlives_its_job_and_no_other_job_is_touched)
{
    char launcher[40], kinds[80];
    bin_seek_no_leaks();
    snprintf(launcher, sizeof(launcher), "--launchers=%s", s->launcher);
    snprintf(kinds, sizeof(kinds), "--kinds=%s", s->kinds);
    struct run_result r =
        run_command((const char *const[]){ bin("tests/survivors/survivors"), launcher, kinds, bin("ddprun"),
                                           bin("tests/prog/survivor"), NULL },
                    &(struct run_options){ .timeout_ms = LIMIT_MS });
    const char *why = strstr(r.out, "skipped, because");
    if (r.exit_code == NOTHING_TRIED)
        cr_skip_test("%s: %.200s", s->launcher, why != NULL ? why : "");
    cr_expect_eq(r.exit_code, 0, "exit %d, signal %d\n%s\n%s", r.exit_code, r.signal, r.out, r.err);
    run_free(&r);
}

/* What one of those programs says. */
static void expect_clean(const char *const argv[])
{
    bin_seek_no_leaks();
    struct run_result r = run_command(argv, &(struct run_options){ .timeout_ms = LIMIT_MS });
    if (r.exit_code == NOTHING_TRIED)
        cr_skip_test("%.300s", r.out);
    cr_expect_eq(r.exit_code, 0, "exit %d, signal %d\n%s\n%s", r.exit_code, r.signal, r.out, r.err);
    run_free(&r);
}

Test(survivors, launches_end_without_zombies_and_leaked_descriptors)
{
    expect_clean(
        (const char *const[]){ bin("tests/survivors/launches"), "--launches=40", bin("ddprun"), NULL });
}

Test(survivors, a_stranger_with_the_number_of_a_dead_worker_is_never_signalled)
{
    expect_clean((const char *const[]){ bin("tests/survivors/reuse"), "--jobs=20", bin("ddprun"),
                                        bin("tests/prog/survivor"), NULL });
}
