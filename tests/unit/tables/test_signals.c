/* test_signals.c -- tests of signals: the effect of each signal, the text about the sender, and whether a repeated
 * signal is a new request. The tables are pure, so the tests send no signal. */
#include "tables/signals.h"
#include "run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static signal_set parsed(const char *text)
{
    signal_set set = 0;
    struct ddp_err err;
    cr_assert_eq(signals_parse(text, &set, &err), DDP_OK, "%s: %s", text, err.msg);
    return set;
}

/* --- effects of signals ---------------------------------------------------------------------------------- */

Test(signals, without_a_list_each_does_what_its_row_says)
{
    cr_expect_eq(signals_act(0, SIGTERM), SIGNAL_STOP);
    cr_expect_eq(signals_act(0, SIGINT), SIGNAL_STOP);
    cr_expect_eq(signals_act(0, SIGHUP), SIGNAL_STOP);
    cr_expect_eq(signals_act(0, SIGQUIT), SIGNAL_STATUS);
    cr_expect_eq(signals_act(0, SIGUSR1), SIGNAL_PASS);
    cr_expect_eq(signals_act(0, SIGTSTP), SIGNAL_REST);
    cr_expect_eq(signals_act(0, SIGCONT), SIGNAL_RESUME);
    cr_expect_eq(signals_act(0, SIGSEGV), SIGNAL_NONE);
}

Test(signals, a_list_makes_more_of_them_stop_the_job)
{
    signal_set set = parsed("SIGTERM,usr1,Quit");
    cr_expect_eq(signals_act(set, SIGUSR1), SIGNAL_STOP);
    cr_expect_eq(signals_act(set, SIGQUIT), SIGNAL_STOP);
    cr_expect_eq(signals_act(set, SIGUSR2), SIGNAL_PASS);
    cr_expect_eq(signals_act(set, SIGINT), SIGNAL_STOP);
    cr_expect_eq(signals_act(parsed("SIGTERM,SIGINT,SIGHUP,SIGQUIT"), SIGQUIT), SIGNAL_STOP);
}

Test(signals, a_name_that_cannot_stop_a_job_is_answered_with_those_that_can)
{
    static const char *const wrong[] = {
        "",     ",",       "SIG",      "SIGKILL", "SIGTERM,",      "SIGTERM,,SIGINT",
        "CONT", "SIGTSTP", "SIGTERMS", "15",      "SIGTERM SIGINT"
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        signal_set set = 7;
        struct ddp_err err;
        cr_expect_eq(signals_parse(wrong[i], &set, &err), DDP_ERR_ARG, "'%s'", wrong[i]);
        cr_expect_eq(set, 7);
        cr_expect_not_null(
            strstr(err.msg, "'SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1' or 'SIGUSR2'"), "%s",
            err.msg);
    }
}

/* --- sender ---------------------------------------------------------------------------------------------- */

/* Expect a text that begins with the signal, and then contains the parts of the sender. */
static void expect_text(struct received_signal heard, const char *signal, const char *sender)
{
    struct buf text = { 0 };
    cr_assert(received_signal_text(&heard, &text) && buf_append(&text, "", 1));
    const char *got = (const char *)text.data;
    cr_expect(strncmp(got, signal, strlen(signal)) == 0 && has_parts(got + strlen(signal), sender), "%s",
              got);
    buf_free(&text);
}

Test(signals, the_sender_is_named_as_far_as_it_is_known)
{
    struct received_signal heard = { .signal = SIGTERM, .sender = { .pid = 812, .uid = 1000 } };
    expect_text(heard, "SIGTERM from ", "exited |(pid 812, uid 1000)");
    snprintf(heard.sender.name, SENDER_NAME_MAX, "slurmstepd");
    expect_text(heard, "SIGTERM from ", "slurmstepd (pid 812, uid 1000)");
    heard.sender = (struct signal_sender){ .name = "node 1" };
    expect_text(heard, "SIGTERM from ", "node 1");
    heard.sender = (struct signal_sender){ .uid = 1000 };
    expect_text(heard, "SIGTERM from ", "container (uid 1000)");
    heard.sender.kernel = true;
    expect_text(heard, "SIGTERM from ", "the kernel");
    heard.signal = SIGINT;
    expect_text(heard, "SIGINT from ", "the terminal");
    heard.signal = SIGHUP;
    expect_text(heard, "SIGHUP from the terminal", "closed");
}

/* --- repeated signals ------------------------------------------------------------------------------------ */

static struct received_signal from(int pid, int sig, bool by_guardian)
{
    return (struct received_signal){ .signal = sig, .by_guardian = by_guardian, .sender = { .pid = pid } };
}

static bool is_new(struct stop_memory *memory, struct received_signal heard, uint64_t now_ms)
{
    return signals_is_new_stop(memory, &heard, now_ms);
}

Test(signals, two_from_the_same_hand_are_two_requests)
{
    struct stop_memory memory = { 0 };
    cr_expect(is_new(&memory, from(9, SIGTERM, true), 100));
    cr_expect(is_new(&memory, from(9, SIGTERM, true), 100));
    cr_expect(is_new(&memory, from(9, SIGINT, true), 100));
}

Test(signals, one_sent_to_guardian_and_agent_is_one_request)
{
    struct stop_memory memory = { 0 };
    cr_expect(is_new(&memory, from(9, SIGTERM, false), 100));
    cr_expect_not(is_new(&memory, from(9, SIGTERM, true), 101));
    cr_expect(is_new(&memory, from(9, SIGTERM, true), 102), "there is only one copy");
    cr_expect_not(is_new(&memory, from(9, SIGTERM, false), 103));
    cr_expect(is_new(&memory, from(9, SIGTERM, false), 105), "and once more is another one");
    cr_expect(is_new(&memory, from(9, SIGTERM, true), 1106), "but not after a second");
    cr_expect(is_new(&memory, from(8, SIGTERM, false), 1107), "nor from another sender");
}

Test(signals, one_sent_to_relay_guardian_and_agent_is_one_request)
{
    struct received_signal by_relay = from(7, SIGTERM, true);
    by_relay.by_parent = true;
    for (int first = 0; first < 3; first++) {
        const struct received_signal all[] = { from(9, SIGTERM, false), from(9, SIGTERM, true), by_relay };
        struct stop_memory memory = { 0 };
        cr_expect(is_new(&memory, all[first], 100));
        cr_expect_not(is_new(&memory, all[(first + 1) % 3], 101), "%d", first);
        cr_expect_not(is_new(&memory, all[(first + 2) % 3], 102), "%d", first);
        cr_expect(is_new(&memory, by_relay, 103), "%d", first);
    }
}

Test(signals, a_terminal_hangs_up_once_however_often_it_says_so)
{
    struct stop_memory memory = { 0 };
    struct received_signal hangup = { .signal = SIGHUP, .by_guardian = true, .sender = { .kernel = true } };
    cr_expect(is_new(&memory, hangup, 100));
    cr_expect_not(is_new(&memory, from(9, SIGHUP, true), 100));
    cr_expect_not(is_new(&memory, hangup, 60000));
    cr_expect(is_new(&memory, from(9, SIGTERM, true), 60001));
}
