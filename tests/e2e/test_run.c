/* The process runner that the end-to-end tests stand on. */
#include "run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

static struct run_result shell(const char *script, const struct run_options *options)
{
    const char *argv[] = { "/bin/sh", "-c", script, NULL };
    return run_command(argv, options);
}

Test(run, keeps_both_outputs_and_the_exit_code)
{
    struct run_result r = shell("echo to-out; echo to-err >&2; exit 3", NULL);
    cr_assert_eq(r.exit_code, 3);
    cr_assert_eq(r.signal, 0);
    cr_assert_str_eq(r.out, "to-out\n");
    cr_assert_str_eq(r.err, "to-err\n");
    cr_assert_not(r.timed_out);
    run_free(&r);
}

Test(run, says_which_signal_ended_it)
{
    struct run_result r = shell("kill -USR1 $$", NULL);
    cr_assert_eq(r.exit_code, -1);
    cr_assert_eq(r.signal, SIGUSR1);
    cr_assert_str_eq(r.out, "");
    run_free(&r);
}

Test(run, kills_a_program_and_its_children_when_time_is_up)
{
    struct run_result r = shell("sleep 60 & sleep 60", &(struct run_options){ .timeout_ms = 100 });
    cr_assert(r.timed_out);
    cr_assert_eq(r.signal, SIGKILL);
    cr_expect_not_null(strstr(r.err, "run: still there: sh, pid "), "%s", r.err);
    run_free(&r);
}

Test(run, sets_and_removes_variables_and_feeds_stdin)
{
    const char *env[] = { "COLOUR=blue", "HOME", NULL };
    struct run_result r = shell("cat; echo $COLOUR ${HOME-none}; pwd",
                                &(struct run_options){ .env = env, .cwd = "/", .stdin_text = "fed " });
    cr_assert_str_eq(r.out, "fed blue none\n/\n");
    run_free(&r);
}

Test(run, says_that_a_program_cannot_be_executed)
{
    const char *argv[] = { "/no/such/program", NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 127);
    cr_assert_not_null(strstr(r.err, "/no/such/program"));
    run_free(&r);
}

Test(run, a_program_in_the_background_is_heard_and_signalled)
{
    const char *argv[] = { "/bin/sh", "-c",
                           "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done", NULL };
    struct run_process *p = run_start(argv, NULL);
    cr_assert(run_until_output(p, "ready\n", PATIENCE_MS));
    cr_assert_not(run_until_output(p, "bye", 1), "nothing was signalled yet");
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    cr_assert_eq(r.exit_code, 7);
    cr_assert_str_eq(r.out, "ready\nbye\n");
    run_free(&r);
}

Test(run, much_output_does_not_block)
{
    struct run_result r = shell("head -c 3000000 /dev/zero | tr '\\0' x", NULL);
    cr_assert_eq(r.exit_code, 0);
    cr_assert_eq(strlen(r.out), 3000000);
    run_free(&r);
}

Test(run, finds_programs_in_the_named_build_directory)
{
    setenv("DDP_BUILD", "/somewhere", 1);
    cr_assert_str_eq(bin("ddprun"), "/somewhere/ddprun");
    unsetenv("DDP_BUILD");
    cr_assert_not_null(strstr(bin("train"), "/train"));
}
