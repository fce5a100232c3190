/* What a node says that has lost its store, when the fault is on its own side. */
#include "report/host_checks.h"

#include <criterion/criterion.h>

static struct finding found;

static const struct store_loss loss = { .host = "n1",
                                        .node_rank = 1,
                                        .pid = 77,
                                        .how = "the store closed the connection",
                                        .dropped = "",
                                        .node_timeout_ms = 3000 };

static void expect(const char *code, const char *sentence)
{
    cr_expect_str_eq(finding_code_name(found.code), code);
    cr_expect_str_eq(found.sentence, sentence);
    cr_expect_null(strstr(found.advice, "${"), "%s", found.advice);
}

Test(store_words, a_store_that_goes_away_is_no_affair_of_ours)
{
    cr_expect_not(store_loss_finding(&loss, &found));
}

Test(store_words, who_was_frozen_and_given_up_says_both)
{
    struct store_loss l = loss;
    l.dropped = "silent for 3012 ms";
    l.stood_ms = 12300;
    cr_assert(store_loss_finding(&l, &found));
    expect("NODE_STOOD_STILL",
           "this ddprun (node 1, n1, pid 77) stood still for at least 12.3 s, and the job "
           "goes on without it: it was given up as silent for 3012 ms (--node_timeout is 3 s)");
}

/* The job was over, and its store, before this node woke up. */
Test(store_words, who_was_frozen_and_heard_no_last_word)
{
    struct store_loss l = loss;
    l.node_rank = -1;
    l.stood_ms = 60000;
    cr_assert(store_loss_finding(&l, &found));
    expect("NODE_STOOD_STILL", "this ddprun (n1, pid 77) stood still for at least 60 s, and the job goes on "
                               "without it: the store closed the connection");
}

Test(store_words, who_ran_all_the_time_was_not_heard)
{
    struct store_loss l = loss;
    l.dropped = "silent for 3012 ms";
    cr_assert(store_loss_finding(&l, &found));
    expect("NODE_UNHEARD",
           "the store has given up this ddprun (node 1, n1, pid 77), although it ran all the time: it "
           "was given up as silent for 3012 ms (--node_timeout is 3 s)");
}
