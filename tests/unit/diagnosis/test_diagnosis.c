/* Each case has the facts about a job and the expected findings, with the causes first. No case uses a clock or a
 * socket. */
#include "base/exit_codes.h"
#include "base/text.h"
#include "diagnosis/diagnosis.h"
#include "diagnosis/findings.h"
#include "job/members.h"
#include "snapshot_case.h"
#include "store/store.h"
#include "tests/prog/table_pages.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- stalled ranks --------------------------------------------------------------------------------------- */

#define STEPPED(n, in, number, ms, ...)                                                                      \
    {                                                                                                        \
        .rank = n, .host = "n1", .pid = 70 + (n), .started = true, .has_steps = true, .step = 5, .call = in, \
        .call_seq = number, .still_ms = ms, __VA_ARGS__                                                      \
    }

Test(diagnose_job, a_rank_outside_of_the_call_in_which_the_others_wait)
{
    EXPECT(CASE(RUNNING, RANKS(STEPPED(0, "all_reduce", 9, 5000), STEPPED(1, "all_reduce", 9, 4000),
                               STEPPED(2, "", 8, 6000, .proc_state = 'R', .cpu_percent = 99),
                               STEPPED(3, "all_reduce", 9, 5000))),
           "RANK_STALLED", "rank 2 (n1, pid 72)",
           "has not made a step for 6.0 s (last step: 5); 3 others wait for it in all_reduce #9; it "
           "computes (99 % CPU)");
}

/* A rank in the state "running" (R) counts as stalled if it uses less than 5 % CPU time. For example, its Python code
 * may wait for a lock. */
Test(diagnose_job, a_rank_that_runs_at_times_has_an_agent)
{
    EXPECT(CASE(RUNNING, RANKS(STEPPED(0, "all_reduce", 9, 5000),
                               STEPPED(1, "", 8, 6000, .proc_state = 'R', .cpu_percent = 2))),
           "RANK_STALLED", "rank 1 (n1, pid 71)", "it is in state R");
}

Test(diagnose_job, a_rank_in_an_older_call_is_behind)
{
    EXPECT(CASE(RUNNING, RANKS(STEPPED(0, "all_reduce", 9, 5000),
                               STEPPED(1, "barrier", 7, 6000, .proc_state = 'S', .wchan = "nfs_wait"))),
           "RANK_STALLED", "rank 1 (n1, pid 71)",
           "(it is in barrier #7); 1 other waits for it in all_reduce #9; it sleeps in nfs_wait");
}

Test(diagnose_job, a_rank_that_has_ended_is_told_as_what_it_is)
{
    EXPECT(CASE(RUNNING, RANKS(STEPPED(0, "all_reduce", 9, 5000), STEPPED(1, "", 7, 6000, .exited = true))),
           "RANK_EXITED", "rank 1", "exited with code 0");
}

Test(diagnose_job, nobody_stands_still_for_a_moment_or_alone)
{
    struct diagnosis d =
        look(CASE(RUNNING, RANKS(STEPPED(0, "all_reduce", 9, 2000), STEPPED(1, "", 8, 60000))));
    cr_expect_eq(d.n, 0, "%s", d.list[0].sentence);
    d = look(CASE(RUNNING, RANKS(STEPPED(0, "", 9, 60000), STEPPED(1, "", 8, 60000))));
    cr_expect_eq(d.n, 0, "%s", d.list[0].sentence);
    d = look(CASE(RUNNING, RANKS(STEPPED(0, "all_reduce", 9, 60000), STEPPED(1, "", 8, 1000), RANK(2))));
    cr_expect_eq(d.n, 0, "%s", d.list[0].sentence);
    d = look(CASE(RUNNING,
                  RANKS(STEPPED(0, "all_reduce", 9, 60000), STEPPED(1, "", 8, 60000, .node_lost = true))));
    cr_expect_eq(d.n, 0, "%s", d.list[0].sentence);
}

/* --- missing members ------------------------------------------------------------------------------------ */

Test(diagnose_job, a_node_that_never_came)
{
    EXPECT(CASE(GATHERING, NODES(NODE(0))), "NODE_MISSING", "node 1", "has not joined");
}

Test(diagnose_job, many_nodes_that_never_came_are_one_finding)
{
    struct snapshot s = CASE(GATHERING, NODES(NODE(1), NODE(5)));
    s.min = s.max = 500;
    EXPECT(s, "NODE_MISSING", "nodes 0, 2-4, 6-499", "in 62.0 s");
}

Test(diagnose_job, a_moment_of_waiting_is_no_trouble)
{
    struct snapshot s = CASE(GATHERING, NODES(NODE(0)));
    s.waited_ms = 1000;
    cr_assert_eq(look(s).n, 0);
}

Test(diagnose_job, too_few_nodes_of_an_elastic_job)
{
    struct snapshot s =
        CASE(GATHERING, .elastic = true, NODES(NODE(0, .node_rank = -1), NODE(1, .node_rank = -1)));
    s.min = 3, s.max = 4;
    EXPECT(s, "TOO_FEW_NODES", "2 nodes", "(n0, n1); the job needs at least 3");
}

/* An elastic job needs only its minimum number of nodes, before and after its first round. A node that will return
 * counts, too. */
Test(diagnose_job, exactly_the_minimum_of_an_elastic_job_is_enough)
{
    struct snapshot s =
        CASE(GATHERING, .elastic = true, NODES(NODE(0, .node_rank = -1), NODE(1, .node_rank = -1)));
    s.min = 2, s.max = 4;
    cr_expect_eq(look(s).n, 0);
    s.round = 1;
    cr_expect_eq(look(s).n, 0);
    s.min = 3;
    EXPECT(s, "TOO_FEW_LEFT", "2 nodes", "the job needs at least 3: 1 more node");
    s.returning = 1;
    cr_expect_eq(look(s).n, 0);
}

/* The finding explains why too few nodes are left. It must name neither node 5, which was never in a round, nor node 0,
 * which has returned. */
Test(diagnose_job, too_few_nodes_left_name_the_nodes_that_were_lost)
{
#define WENT(n, ...)                                                                                    \
    {                                                                                                   \
        .host = "n" #n, .node_rank = n, .pid = 80 + (n), .how = "stopped", .gone_ms = 1000, __VA_ARGS__ \
    }
    struct diagnosis d =
        look(CASE(GATHERING, .elastic = true, .round = 1, .min = 4, .max = 6, NODES(NODE(0)),
                  LIST(gone, snapshot_gone, WENT(0, .ran = true), WENT(5), WENT(1, .ran = true),
                       WENT(2, .ran = true, .lost = true), WENT(3, .ran = true))));
    expect_at(&d, d.n - 1, "TOO_FEW_LEFT", "1 node",
              ", because node 1 (n1, pid 81) left 1.0 s ago, node 2 (n2, pid 82) was lost 1.0 s ago, and 1 "
              "more; the job needs at least 4: 3 more nodes");
}

Test(diagnose_job, a_node_that_came_and_died)
{
    EXPECT(CASE(GATHERING, NODES(NODE(0)),
                LIST(gone, snapshot_gone,
                     { .host = "n1",
                       .how = "its connection was closed",
                       .node_rank = 1,
                       .pid = 77,
                       .lost = true,
                       .stayed_ms = 3000,
                       .gone_ms = 10000 })),
           "NODE_DIED_WAITING", "node 1 (n1, pid 77)", "stayed for 3.0 s, and was lost 10.0 s ago");
}

Test(diagnose_job, a_node_that_came_back_is_not_missed)
{
    cr_assert_eq(look(CASE(GATHERING, NODES(NODE(0), NODE(1)),
                           LIST(gone, snapshot_gone,
                                { .host = "n1", .how = "x", .node_rank = 1, .pid = 77, .lost = true })))
                     .n,
                 0);
}

/* Nodes of an elastic job have no node rank before the first round. */
Test(diagnose_job, a_node_of_an_elastic_job_whose_host_has_joined_later_is_not_missed)
{
    struct snapshot s = CASE(
        GATHERING, .elastic = true, NODES(NODE(0, .node_rank = -1), NODE(1, .node_rank = -1)),
        LIST(gone, snapshot_gone, { .host = "n1", .how = "x", .node_rank = -1, .pid = 77, .gone_ms = 70000 },
             { .host = "n3", .how = "x", .node_rank = -1, .pid = 78, .gone_ms = 70000 }));
    EXPECT(s, "NODE_LEFT", "n3 (pid 78)", "");
    s.gone = (const struct snapshot_gone[]){
        { .host = "n1", .how = "x", .node_rank = -1, .pid = 77, .gone_ms = 50000 }
    };
    s.n_gone = 1;
    EXPECT(s, "NODE_LEFT", "n1 (pid 77)", "");
}

static struct snapshot lost(bool silent)
{
    static struct snapshot_gone gone = { .host = "n1",
                                         .how = "silent for 3.0 s",
                                         .node_rank = 1,
                                         .pid = 401,
                                         .lost = true,
                                         .ran = true,
                                         .gone_ms = 1500 };
    struct snapshot s = CASE(RUNNING, .gone = &gone, .n_gone = 1);
    gone.silent = silent;
    s.n_nodes = 0; /* the texts of the nodes are not valid after this function returns */
    s.phase = PHASE_STOPPING;
    return s;
}

Test(diagnose_job, a_lost_node_is_silent_or_has_hung_up)
{
    EXPECT(lost(true), "NODE_LOST_SILENT", "node 1 (n1, pid 401)", "it had been silent for 3.0 s");
    EXPECT(lost(false), "NODE_LOST_CLOSED", "node 1 (n1, pid 401)", "was lost 1.5 s ago");
}

Test(diagnose_job, a_late_node_is_a_spare)
{
    struct snapshot s = CASE(RUNNING);
    const struct snapshot_node nodes[] = { NODE(2, .is_spare = true, .node_rank = -1), NODE(0), NODE(1) };
    s.nodes = nodes, s.n_nodes = 3, s.elastic = true;
    EXPECT(s, "NODE_IS_SPARE", "n2 (pid 402)", "joined 60.0 s ago, while the job ran with 2 nodes");
    cr_assert_not(finding_is_trouble(FINDING_NODE_IS_SPARE));
}

/* --- how nodes were started ----------------------------------------------------------------------------- */

Test(diagnose_job, one_node_rank_on_two_machines)
{
    struct snapshot s =
        CASE(GATHERING, NODES(NODE(0)),
             LIST(refused, snapshot_refused,
                  REFUSED("NODE_RANK_TAKEN", 3, .node_rank = 0, .words = "n3 says 0, which n0 has already")));
    s.min = s.max = 4;
    struct diagnosis d = look(s);
    expect_at(&d, 0, "NODE_RANK_TAKEN", "n3 (pid 903)",
              "n3 says 0, which n0 has already; no node has node rank 1-3");
    expect_at(&d, 1, "NODE_MISSING", "nodes 1-3", "");
}

/* A rejection has the code of a finding, so the rejected node and the waiting nodes print the same text. */
Test(diagnose_job, a_refusal_is_told_to_all_under_its_own_code)
{
    static const char *const codes[] = {
#define X(code, ...) #code,
        FINDINGS_OF_REFUSALS(X)
#undef X
    };
    for (size_t i = 0; i < LEN(codes); i++)
        EXPECT(CASE(GATHERING, NODES(NODE(0), NODE(1)),
                    LIST(refused, snapshot_refused, REFUSED(codes[i], 5, .words = "5 there, 4 here"))),
               codes[i], "n5 (pid 905)", "5 there, 4 here");
}

Test(diagnose_job, who_was_refused_and_came_in_later_is_not_told)
{
    cr_assert_eq(look(CASE(GATHERING, NODES(NODE(0), NODE(1)),
                           LIST(refused, snapshot_refused, REFUSED("NNODES_DIFFERS", 1, .pid = 401))))
                     .n,
                 0);
}

Test(diagnose_job, an_old_rejection_concerns_only_a_job_that_waits)
{
#define REJECTED(ms)                                                              \
    LIST(refused, snapshot_refused, REFUSED("VERSION_DIFFERS", 5, .ago_ms = ms)), \
        LIST(strangers, snapshot_stranger,                                        \
             { .kind = REJECT_TLS, .address = "10.2.3.4", .times = 1, .ago_ms = ms })
    cr_expect_eq(look(CASE(RUNNING, REJECTED(60000))).n, 0);
    struct diagnosis d = look(CASE(RUNNING, REJECTED(59999)));
    cr_expect_eq(d.n, 2);
    d = look(CASE(GATHERING, NODES(NODE(0), NODE(1)), REJECTED(60000)));
    cr_expect_eq(d.n, 2);
    expect_at(&d, 0, "VERSION_DIFFERS", "n5 (pid 905)", "");
    expect_at(&d, 1, "TLS_CLIENT", "10.2.3.4", "");
}

/* The reason of the rejection comes first, then its consequence for the waiting nodes. */
Test(diagnose_job, a_node_that_was_refused_is_missed)
{
    struct snapshot s = CASE(GATHERING, NODES(NODE(0)),
                             LIST(refused, snapshot_refused, REFUSED("NNODES_DIFFERS", 1, .ago_ms = 9000),
                                  REFUSED("NNODES_DIFFERS", 1, .pid = 1001)));
    struct diagnosis d = look(s);
    expect_at(&d, 1, "NNODES_DIFFERS", "n1 (pid 1001)", "n1 (pid 1001) was rejected 4.0 s ago: words");
    expect_at(&d, 2, "NODE_REJECTED", "node 1 (n1, pid 1001)", "is still missing");
    cr_assert(strstr(d.list[2].sentence, "the job waits at most another 13 min (--timeout)") != NULL, "%s",
              d.list[2].sentence);
    cr_assert_eq(d.n, 3);
    s.is_final = true;
    d = look(s);
    cr_assert(strstr(d.list[2].sentence, "waits") == NULL, "%s", d.list[2].sentence);
}

Test(diagnose_job, an_elastic_job_that_has_enough_misses_nobody_who_was_refused)
{
    struct snapshot s = CASE(GATHERING, .elastic = true, NODES(NODE(0), NODE(1)),
                             LIST(refused, snapshot_refused, REFUSED("NPROC_DIFFERS", -1)));
    struct diagnosis d = look(s);
    cr_assert_eq(d.n, 1);
    s.min = s.max = 3;
    d = look(s);
    expect_at(&d, 1, "NODE_REJECTED", "n-1 (pid 899)", "rejected 4.0 s ago (NPROC_DIFFERS)");
}

/* After its rejection, the node was accepted with the right command, and was then lost. */
Test(diagnose_job, a_node_that_was_let_in_at_last_and_died_is_not_missed_for_its_refusal)
{
    struct diagnosis d =
        look(CASE(GATHERING, NODES(NODE(0)), LIST(refused, snapshot_refused, REFUSED("NNODES_DIFFERS", 1)),
                  LIST(gone, snapshot_gone,
                       { .host = "n1", .how = "words", .node_rank = 1, .lost = true, .gone_ms = 1000 })));
    expect_at(&d, 0, "NNODES_DIFFERS", "n1 (pid 901)", "words");
    expect_at(&d, 1, "NODE_DIED_WAITING", "node 1 (n1)", "was lost 1.0 s ago");
    cr_assert_eq(d.n, 2);
}

Test(diagnose_job, different_numbers_of_workers_are_a_note)
{
    EXPECT(CASE(GATHERING, NODES(NODE(0, .nproc = 8), NODE(1, .nproc = 7))), "NPROC_UNEVEN",
           "node 0 (n0, pid 400)", "has 8 workers, node 1 (n1, pid 401) has 7; all nodes together have 15");
    EXPECT(CASE(GATHERING, NODES(NODE(0, .nproc = 8), NODE(1, .nproc = 7), NODE(2, .nproc = 8))),
           "NPROC_UNEVEN", "node 0 (n0, pid 400)",
           "has 8 workers, node 1 (n1, pid 401) has 7; all nodes together have 23");
}

Test(diagnose_job, two_machines_with_one_address)
{
    EXPECT(CASE(GATHERING, NODES(NODE(0, .addr = "172.17.0.1"), NODE(1, .addr = "172.17.0.1"))),
           "ADDRESS_NOT_UNIQUE", "node 0 (n0, pid 400)", "the same address 172.17.0.1");
}

/* One router translates the addresses of both nodes, so one address for both is not a mistake. */
Test(diagnose_job, nodes_behind_a_router_that_translates)
{
#define INSIDE(n) NODE(n, .own = "10.8.0.1" #n, .addr = "10.9.0.254")
    struct diagnosis d = look(CASE(GATHERING, NODES(INSIDE(0), INSIDE(1))));
    cr_assert_eq(d.n, 2);
    expect_at(&d, 0, "ADDRESS_TRANSLATED", "node 0 (n0, pid 400)",
              "the address 10.8.0.10, but connects to the store from 10.9.0.254");
    expect_at(&d, 1, "ADDRESS_TRANSLATED", "node 1 (n1, pid 401)", "10.8.0.11");
    cr_assert_eq(look(CASE(GATHERING, NODES(NODE(0, .own = "10.9.0.10"), NODE(1)))).n, 0,
                 "it is as it sees itself");
    cr_assert_eq(look(CASE(GATHERING, NODES(NODE(0, .own = "10.9.0.10", .addr = "127.0.0.6"), NODE(1)))).n, 0,
                 "a sidecar's");
}

/* --- foreign connections, and the store itself ---------------------------------------------------------- */

#define STRANGER(...) \
    LIST(strangers, snapshot_stranger, { .address = "10.2.3.4", .times = 3, .ago_ms = 4000, __VA_ARGS__ })

Test(diagnose_job, strangers_are_told_apart_by_their_first_bytes)
{
    EXPECT(CASE(RUNNING, STRANGER(.kind = REJECT_HTTP, .bytes = "\"GET / HT\"")), "FOREIGN_CLIENT",
           "10.2.3.4",
           "rejected (3 times, last 4.0 s ago): it speaks HTTP; its first bytes are \"GET / HT\"");
    EXPECT(CASE(RUNNING, STRANGER(.kind = REJECT_TLS)), "TLS_CLIENT", "10.2.3.4", "TLS");
    EXPECT(CASE(RUNNING, STRANGER(.kind = REJECT_SILENT)), "SILENT_CLIENT", "10.2.3.4", "never sent");
    EXPECT(CASE(RUNNING, STRANGER(.kind = REJECT_DDPRUN, .job = "old")), "OTHER_JOB", "10.2.3.4",
           "requests job 'old' (3 times, last 4.0 s ago); this store serves job 'k3'");
}

Test(diagnose_job, a_sidecar_stands_between)
{
    EXPECT(
        CASE(RUNNING,
             LIST(strangers, snapshot_stranger,
                  { .kind = REJECT_HTTP, .address = "127.0.0.6", .times = 1, .ago_ms = 4000, .bytes = "x" })),
        "PROXY_BETWEEN", "127.0.0.6", "127.0.0.6 (4.0 s ago), ");
}

Test(diagnose_job, torchrun_in_place_of_ddprun_explains_a_missing_node)
{
    struct diagnosis d = look(CASE(GATHERING, NODES(NODE(0)), STRANGER(.kind = REJECT_C10D_2)));
    expect_at(&d, 0, "TORCHRUN_INSTEAD", "10.2.3.4", "no ddprun has joined from that address");
    expect_at(&d, 1, "NODE_MISSING", "node 1", "");
}

/* FOREIGN_CLIENT is before NODE_MISSING in the table of findings. But FOREIGN_CLIENT is a note. Notes come last,
 * because a note names no culprit. */
Test(diagnose_job, a_note_follows_the_culprit)
{
    struct diagnosis d =
        look(CASE(GATHERING, NODES(NODE(0)), STRANGER(.kind = REJECT_HTTP, .bytes = "\"GET / HT\"")));
    cr_assert_eq(d.n, 2);
    expect_at(&d, 0, "NODE_MISSING", "node 1", "");
    expect_at(&d, 1, "FOREIGN_CLIENT", "10.2.3.4", "");
}

Test(diagnose_job, workers_of_pytorch_are_no_strangers)
{
    cr_assert_eq(look(CASE(RUNNING, LIST(strangers, snapshot_stranger,
                                         { .kind = REJECT_C10D_2, .address = "10.9.0.11", .times = 1 })))
                     .n,
                 0);
}

Test(diagnose_job, an_accept_queue_that_overflows)
{
    struct snapshot s = CASE(GATHERING, NODES(NODE(0), NODE(1)));
    s.store.accept_overflows = 18, s.store.somaxconn = 128, s.max = s.min = 2;
    EXPECT(s, "ACCEPT_QUEUE_OVERFLOWED", "n0", "overflowed 18 times since the store started (somaxconn 128)");
}

Test(diagnose_job, a_store_without_descriptors_or_room)
{
    struct snapshot s = CASE(RUNNING);
    s.store.refused_no_fd = 5, s.store.open_files = 64;
    EXPECT(s, "STORE_NO_DESCRIPTORS", "n0", "had to wait 5 times");
    EXPECT(s, "STORE_NO_DESCRIPTORS", "n0", "(ulimit -n 64)");
    s.store.refused_no_fd = 0, s.store.used = s.store.max = 1 << 20;
    EXPECT(s, "STORE_NEARLY_FULL", "n0", "1048576 of 1048576 bytes");
}

Test(diagnose_job, what_a_node_says_about_itself_comes_first)
{
    struct diagnosis d = look(CASE(GATHERING, NODES(NODE(0)),
                                   LIST(notices, snapshot_notice,
                                        { .code = FINDING_LIMIT_MEMLOCK,
                                          .subject = "n0",
                                          .sentence = "n0 allows 64 KiB",
                                          .advice = "raise" })));
    expect_at(&d, 0, "LIMIT_MEMLOCK", "n0", "64 KiB");
    expect_at(&d, 1, "NODE_MISSING", "node 1", "");
}

/* --- during a round ------------------------------------------------------------------------------------- */

Test(diagnose_job, the_first_cause_stands_above_its_consequences)
{
    struct diagnosis d = look(CASE(RUNNING,
                                   .cause = { .known = true,
                                              .host = "n1",
                                              .words = "was killed by signal 9 (SIGKILL)",
                                              .node_rank = 1,
                                              .rank = 3,
                                              .pid = 73,
                                              .after_ms = 12300 },
                                   THREE_WAIT, RANKS(THREE, RANK(3, .exited = true, .signal = 9))));
    expect_at(&d, 0, "WORKER_FAILED", "rank 3 (n1, pid 73)",
              "was killed by signal 9 (SIGKILL), 12.3 s after");
    expect_at(&d, 1, "RANK_KILLED", "rank 3", "9, SIGKILL (n1, pid 73)");
    expect_at(&d, 2, "BARRIER_INCOMPLETE", "barrier 'step-7'",
              "3 of 4 ranks have waited for 60.0 s; missing: rank 3");
}

Test(diagnose_job, a_program_that_is_missing_on_one_node)
{
    struct snapshot s = CASE(RUNNING, .cause = { .known = true,
                                                 .host = "n1",
                                                 .rank = 2,
                                                 .node_rank = 1,
                                                 .words = "/opt/train: no such file",
                                                 .error = ENOENT });
    EXPECT(s, "PROGRAM_MISSING_ON_NODE", "node 1 (n1)", "lacks the program");
    EXPECT(s, "PROGRAM_MISSING_ON_NODE", "node 1 (n1)", "/opt/train: no such file");
    cr_expect_str_eq(look(s).list[0].advice, ADVICE_INSTALL);
    s.cause.error = EACCES;
    s.cause.words = "/opt/train is not executable";
    EXPECT(s, "PROGRAM_MISSING_ON_NODE", "node 1 (n1)", "is not permitted to execute the program");
    cr_expect_str_eq(look(s).list[0].advice, ADVICE_PERMIT);
    s.cause.error = ENOEXEC;
    s.cause.words = "/opt/train is a program for aarch64";
    EXPECT(s, "PROGRAM_MISSING_ON_NODE", "node 1 (n1)", "cannot start the program");
    cr_expect_str_eq(look(s).list[0].advice, finding_advice(FINDING_PROGRAM_MISSING_ON_NODE));
}

Test(diagnose_job, workers_that_cannot_reach_each_other)
{
    struct diagnosis d = look(CASE(
        RUNNING,
        .cause = { .known = true, .host = "n1", .words = "exit 1", .node_rank = 1, .rank = 3, .pid = 73 },
        LIST(notices, snapshot_notice,
             { .code = FINDING_PORTS_CLOSED,
               .subject = "rank 3 (n1, pid 73)",
               .sentence = "others are not",
               .advice = "open them" })));
    expect_at(&d, 0, "PORTS_CLOSED", "rank 3 (n1, pid 73)", "others are not");
    expect_at(&d, 1, "WORKER_FAILED", "rank 3 (n1, pid 73)", "");
}

/* Expect the finding `code` about the missing rank 3. After it, expect the consequence: the finding about the
 * barrier. */
static void expect_missing(struct snapshot_rank rank, const char *code, const char *sentence)
{
    const struct snapshot_rank ranks[] = { THREE, rank };
    struct snapshot s = CASE(RUNNING, THREE_WAIT);
    s.ranks = ranks, s.n_ranks = 4;
    struct diagnosis d = look(s);
    expect_at(&d, 0, code, "rank 3", sentence);
    expect_at(&d, 1, "BARRIER_INCOMPLETE", "barrier 'step-7'", "");
    cr_assert_eq(d.n, 2);
}

#define HERE .met = true, .connected = true, .silent_ms = 60000

Test(diagnose_job, why_a_rank_does_not_come)
{
    expect_missing((struct snapshot_rank)RANK(3, .exited = true), "RANK_EXITED",
                   "exited with code 0 (n1, pid 73)");
    expect_missing((struct snapshot_rank)RANK(3, HERE, .proc_state = 'T', .state_ms = 59000), "RANK_STOPPED",
                   "stopped (state T) (n1, pid 73), for 59.0 s");
    expect_missing((struct snapshot_rank)RANK(3, HERE, .proc_state = 'D', .state_ms = 9000,
                                              .wchan = "nfs_wait_bit_killable"),
                   "RANK_IN_KERNEL", "state D, in nfs_wait_bit_killable");
    expect_missing((struct snapshot_rank)RANK(3, HERE, .proc_state = 'R', .cpu_percent = 99), "RANK_BUSY",
                   "uses 99 % CPU (n1, pid 73), but has not reached the point where the others wait; last "
                   "message 60.0 s ago");
    expect_missing((struct snapshot_rank)RANK(3, .proc_state = 'R', .cpu_percent = 100), "RANK_BUSY",
                   "it never connected");
    expect_missing((struct snapshot_rank)RANK(3, .proc_state = 'R', .cpu_percent = 100, .round_ms = 32000),
                   "RANK_BUSY", "it never connected within 32.0 s");
    expect_missing((struct snapshot_rank)AT_KEY(3, "/nccl"), "RANK_WAITS_ELSEWHERE", "for key '/nccl'");
    expect_missing((struct snapshot_rank)RANK(3, HERE, .proc_state = 'S'), "RANK_MISSING",
                   "last message 60.0 s ago; it sleeps");
    expect_missing((struct snapshot_rank)RANK(3, .met = true), "RANK_DISCONNECTED",
                   "but closed its connection");
    expect_missing((struct snapshot_rank)RANK(3), "RANK_NOT_CONNECTED", "started (n1, pid 73)");
    expect_missing((struct snapshot_rank)RANK(3, .proc_state = 'S', .wchan = "hrtimer_nanosleep"),
                   "RANK_NOT_CONNECTED",
                   "started (n1, pid 73), but never connected to the store; it sleeps in hrtimer_nanosleep");
    expect_missing((struct snapshot_rank)RANK(3, .proc_state = 'S', .state_ms = 32000), "RANK_NOT_CONNECTED",
                   "it sleeps");
    expect_missing((struct snapshot_rank){ .rank = 3 }, "RANK_UNKNOWN", "never connected");
}

/* Ranks 0, 1 and 3 are the members of the barrier. */
Test(diagnose_job, only_members_of_a_barrier_are_missing)
{
    static uint8_t members[] = { 0x0b };
    static const struct barrier barrier = {
        .world_size = 4, .members = 3, .arrived = 2, .is_member = members
    };
#define OF_SOME(...)            \
    LIST(waits, snapshot_wait,  \
         { .name = { "b", 1 },  \
           .is_barrier = true,  \
           .barrier = &barrier, \
           .waiting = 2,        \
           .members = 3,        \
           .rank = UINT32_MAX,  \
           .for_ms = 60000 }),  \
        RANKS(IN_BARRIER(0, "b"), IN_BARRIER(1, "b"), __VA_ARGS__)
    const struct snapshot s =
        CASE(RUNNING, OF_SOME(RANK(2, HERE, .proc_state = 'T', .state_ms = 9000), RANK(3, HERE)));
    words absent;
    cr_expect_str_eq(absent_ranks(absent, &s), "rank 3");
    cr_expect_not(diagnose_barrier_hangs(&s, 59000), "rank 2 is no member, and rank 3 may still arrive");
    struct diagnosis d = look(s);
    expect_at(&d, 0, "RANK_STOPPED", "rank 2", "");
    expect_at(&d, 1, "RANK_MISSING", "rank 3", "");
    expect_at(&d, 2, "BARRIER_INCOMPLETE", "barrier 'b'", "missing: rank 3");
    cr_expect_eq(d.n, 3);
    const struct snapshot stopped = CASE(RUNNING, OF_SOME(RANK(2, HERE), RANK(3, HERE, .proc_state = 'T')));
    cr_expect(diagnose_barrier_hangs(&stopped, 59000));
}

Test(diagnose_job, a_moment_in_the_kernel_is_no_hang)
{
    expect_missing((struct snapshot_rank)RANK(3, HERE, .proc_state = 'D', .state_ms = 500), "RANK_MISSING",
                   "");
}

Test(diagnose_job, uneven_inputs_show_as_two_barriers)
{
    struct diagnosis d = look(CASE(RUNNING,
                                   LIST(waits, snapshot_wait, BARRIER("step-412", 3),
                                        { .name = { "epoch_end", 9 },
                                          .is_barrier = true,
                                          .waiting = 1,
                                          .members = 4,
                                          .rank = 3,
                                          .for_ms = 60000 }),
                                   RANKS(IN_BARRIER(0, "step-412"), IN_BARRIER(1, "step-412"),
                                         IN_BARRIER(2, "step-412"), IN_BARRIER(3, "epoch_end"))));
    expect_at(&d, 0, "RANKS_DIVERGED", "rank 3 waits",
              "rank 3 waits in barrier 'epoch_end', while 3 ranks wait in barrier 'step-412'");
    expect_at(&d, 1, "RANK_WAITS_ELSEWHERE", "rank 3", "barrier 'epoch_end'");
}

Test(diagnose_job, a_key_that_a_busy_rank_has_not_set)
{
    struct diagnosis d = look(CASE(RUNNING, LIST(waits, snapshot_wait, KEY("nccl_id", 3)),
                                   RANKS(RANK(0, HERE, .proc_state = 'R', .cpu_percent = 100),
                                         AT_KEY(1, "nccl_id"), AT_KEY(2, "nccl_id"), AT_KEY(3, "nccl_id"))));
    expect_at(&d, 0, "RANK_BUSY", "rank 0", "100 % CPU");
    expect_at(&d, 1, "KEY_NOT_SET", "key 'nccl_id'", "ranks 1-3 wait for key 'nccl_id'");
}

/* --- jobs with many ranks --------------------------------------------------------------------------------- */

enum { WORLD = 4096 };

static struct snapshot big_barrier(struct snapshot_rank *ranks)
{
    for (uint32_t i = 0; i < WORLD; i++)
        ranks[i] =
            i < WORLD / 2 ? (struct snapshot_rank){ .rank = i } : (struct snapshot_rank)IN_BARRIER(i, "b");
    static const struct snapshot_wait wait = { .name = { "b", 1 },
                                               .is_barrier = true,
                                               .waiting = WORLD / 2,
                                               .members = WORLD,
                                               .rank = UINT32_MAX,
                                               .for_ms = 60000 };
    struct snapshot s = CASE(RUNNING, .waits = &wait, .n_waits = 1);
    s.ranks = ranks, s.n_ranks = s.world_size = WORLD, s.n_nodes = 0;
    return s;
}

Test(diagnose_job, what_is_too_much_for_a_screen_is_counted)
{
    static struct snapshot_rank ranks[WORLD];
    struct diagnosis d = look(big_barrier(ranks));
    cr_assert_eq(d.n, DIAGNOSIS_SAME + 1);
    cr_assert_eq(d.list[DIAGNOSIS_SAME - 1].more, WORLD / 2 - DIAGNOSIS_SAME);
    expect_at(&d, DIAGNOSIS_SAME, "BARRIER_INCOMPLETE", "barrier 'b'", "2048 of 4096");
    expect_at(&d, DIAGNOSIS_SAME, "BARRIER_INCOMPLETE", "barrier 'b'", "missing: ranks 0-2047");
}

/* --- diagnose ------------------------------------------------------------------------------------------------- */

/* Tests of a rank's state as a sentence and as JSON. */

static void expect(struct snapshot_rank facts, const char *sentence, const char *json)
{
    struct finding finding;
    char expected[512];
    snprintf(expected, sizeof(expected), "rank 3: %s", sentence);
    diagnose_rank(&facts, &finding);
    cr_assert_str_eq(finding.sentence, expected);
    cJSON *o = diagnose_json(&facts);
    char *printed = cJSON_PrintUnformatted(o);
    cr_assert_str_eq(printed, json);
    cJSON_free(printed);
    cJSON_Delete(o);
}

#define N1 .rank = 3, .host = "n1", .pid = 77

Test(diagnose, a_rank_that_nobody_has_heard_of)
{
    expect((struct snapshot_rank){ .rank = 3 }, "never connected",
           "{\"rank\":3,\"state\":\"never_connected\"}");
}

Test(diagnose, a_process_that_has_not_connected)
{
    expect((struct snapshot_rank){ N1, .started = true },
           "started (n1, pid 77), but never connected to the store",
           "{\"rank\":3,\"state\":\"never_connected\",\"host\":\"n1\",\"pid\":77}");
}

Test(diagnose, a_rank_that_is_busy)
{
    expect((struct snapshot_rank){ N1, .met = true, .connected = true, .silent_ms = 1250 },
           "connected (n1, pid 77), but has not reached the point where the others wait; last message 1.2 "
           "s ago",
           "{\"rank\":3,\"state\":\"connected\",\"host\":\"n1\",\"pid\":77,\"silent_ms\":1250}");
}

Test(diagnose, a_rank_that_waits_elsewhere)
{
    expect(
        (struct snapshot_rank){ N1, .met = true, .connected = true, .silent_ms = 5,
                                .waits.name = slice_str("/x") },
        "connected (n1, pid 77), but waits for key '/x', not at the point where the others wait; last "
        "message 5 ms ago",
        "{\"rank\":3,\"state\":\"connected\",\"host\":\"n1\",\"pid\":77,\"silent_ms\":5,\"waits_for\":\"key "
        "'/x'\"}");
}

Test(diagnose, a_rank_that_has_closed_its_connection)
{
    expect((struct snapshot_rank){ .rank = 3, .pid = 77, .met = true, .silent_ms = 180000 },
           "was connected (pid 77), but closed its connection to the store; last message 3.0 min ago",
           "{\"rank\":3,\"state\":\"disconnected\",\"pid\":77,\"silent_ms\":180000}");
}

Test(diagnose, a_rank_that_has_exited)
{
    expect((struct snapshot_rank){ N1, .started = true, .exited = true, .exit_code = 1 },
           "exited with code 1 (n1, pid 77)",
           "{\"rank\":3,\"state\":\"exited\",\"host\":\"n1\",\"pid\":77,\"exit_code\":1}");
    expect((struct snapshot_rank){ N1, .started = true, .exited = true, .exit_code = 1, .state_ms = 12000 },
           "exited with code 1 (n1, pid 77), 12.0 s ago",
           "{\"rank\":3,\"state\":\"exited\",\"host\":\"n1\",\"pid\":77,\"exit_code\":1}");
}

Test(diagnose, a_rank_that_was_killed)
{
    expect((struct snapshot_rank){ .rank = 3, .host = "n1", .exited = true, .signal = SIGSEGV },
           "killed by signal 11, SIGSEGV (n1)",
           "{\"rank\":3,\"state\":\"exited\",\"host\":\"n1\",\"signal\":11}");
    expect((struct snapshot_rank){ .rank = 3, .exited = true, .signal = 64 }, "killed by signal 64",
           "{\"rank\":3,\"state\":\"exited\",\"signal\":64}");
}

/* The user reads only the remedy that applies. `ddprun explain` prints all remedies. */
Test(diagnose, the_remedy_fits_the_state)
{
    static const struct {
        struct snapshot_rank facts;
        enum finding_code code;
        const char *advice;
    } cases[] = {
        { { N1, .proc_state = 'T' }, FINDING_RANK_STOPPED, "kill -CONT 77 continues it" },
        { { N1, .proc_state = 't' },
          FINDING_RANK_STOPPED,
          "continue the process in its debugger: TracerPid in /proc/77/status is the debugger's pid" },
        { { .rank = 3, .proc_state = 'T' }, FINDING_RANK_STOPPED, "kill -CONT PID continues it" },
        { { N1, .exited = true, .exit_code = 1 }, FINDING_RANK_EXITED, "check the end of the rank's log" },
        { { N1, .exited = true },
          FINDING_RANK_EXITED,
          "check for uneven numbers of batches, or for a branch in which one rank exits before the others; "
          "let all ranks enter the same collectives, and one last barrier before they exit" },
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct finding f;
        diagnose_rank(&cases[i].facts, &f);
        cr_expect_eq(f.code, cases[i].code);
        cr_expect_str_eq(f.advice, cases[i].advice);
    }
}

Test(diagnose, the_remedy_of_a_stalled_rank_fits_its_state)
{
    static const struct {
        char state;
        const char *advice;
    } cases[] = {
        { 'T', "kill -CONT 71 continues it" },
        { 't', "continue the process in its debugger: TracerPid in /proc/71/status is the debugger's pid" },
        { 'D',
          "check the kernel log of that host ('dmesg') for a disk, a network file system or a driver that "
          "does not answer" },
        { 'S',
          "inspect the process with 'py-spy dump --pid 71' or 'gdb -p 71'; a checkpoint or an evaluation can "
          "also take this long" },
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        const struct diagnosis d = look(
            CASE(RUNNING, RANKS(STEPPED(0, "all_reduce", 9, 5000),
                                STEPPED(1, "", 8, 6000, .proc_state = cases[i].state, .state_ms = 6000))));
        expect_at(&d, 0, "RANK_STALLED", "rank 1 (n1, pid 71)", "");
        cr_expect_str_eq(d.list[0].advice, cases[i].advice);
    }
}

/* If several ranks have exited, the finding has the time of the first exit. */
Test(diagnose, ranks_that_exited_early_are_told_with_the_time_of_the_first)
{
    struct quota quota = { .max = 1 << 20 };
    struct members m = { .quota = &quota };
    struct finding f;
    cr_assert(members_begin(&m, &(struct job_name){ "demo", 0, 3 }, true));
    for (uint32_t rank = 0; rank < 2; rank++) {
        cr_assert(member_place(members_at(&m, rank), "n1", 70 + (int)rank));
        members_at(&m, rank)->exited = true;
        members_at(&m, rank)->state_since_ms = 5000 - 1000 * rank;
    }
    cr_assert(diagnose_early_exit(&m, 2, -1, 16000, &f));
    cr_expect_str_eq(
        f.sentence,
        "ranks 0-1 exited with code 0, the first 12.0 s ago, while rank 2 waited for them in a collective");
    cr_assert(diagnose_early_exit(&m, 2, 0, 16000, &f));
    cr_expect_str_eq(
        f.sentence,
        "rank 0 (n1, pid 70) exited with code 0, 11.0 s ago, while rank 2 waited for it in a collective");
    members_free(&m);
}

/* --- members ------------------------------------------------------------------------------------------------- */

Test(members, a_new_attempt_knows_nobody)
{
    struct quota quota = { .max = 1 << 20 };
    struct members m = { .quota = &quota };
    cr_assert(members_begin(&m, &(struct job_name){ "demo", 0, 4 }, true));
    cr_assert(member_place(members_at(&m, 3), "n1", 77));
    cr_assert(member_place(members_at(&m, 3), "n2", 0));
    members_at(&m, 3)->exited = true;
    struct snapshot_rank facts = member_snapshot(&m, 3);
    cr_assert(facts.exited && facts.pid == 77);
    cr_assert_str_eq(facts.host, "n2");
    cr_assert_null(members_at(&m, 4));
    cr_assert(members_begin(&m, &(struct job_name){ "demo", 1, 2 }, true));
    cr_assert_null(members_at(&m, 3));
    members_free(&m);
    cr_assert_eq(quota.used, 0);
}

Test(members, a_world_too_big_for_the_quota_changes_nothing)
{
    struct quota quota = { .max = 1000 };
    struct members m = { .quota = &quota };
    cr_assert(members_begin(&m, &(struct job_name){ "demo", 0, 2 }, true));
    cr_assert_not(members_begin(&m, &(struct job_name){ "demo", 1, 100000 }, true));
    cr_assert(m.known && m.attempt == 0 && m.world_size == 2);
    members_free(&m);
}

/* --- text and decimal ---------------------------------------------------------------------------------------- */

static const char *shown(bool (*put)(struct buf *, struct slice, size_t), struct slice bytes, size_t max)
{
    static struct buf out;
    out.len = 0;
    cr_assert(put(&out, bytes, max) && buf_append(&out, "", 1));
    return (char *)out.data;
}

Test(text, foreign_bytes_are_made_harmless)
{
    cr_assert_str_eq(shown(text_append, slice_of("a\0\033[31m\xff", 8), 99), "a\\x00\\x1b[31m\\xff");
    cr_assert_str_eq(shown(text_append, slice_str("abcdef"), 3), "abc...");
    cr_assert_str_eq(shown(text_append, slice_str("%s"), 3), "%s");
    cr_assert_str_eq(shown(text_append_hex, slice_of("\0\xff", 2), 9), "00ff");
    cr_assert(text_is_plain(slice_str("plain ~")));
    cr_assert_not(text_is_plain(slice_of("\0", 1)));
}

static bool parses_to(const char *text, int64_t want)
{
    int64_t value;
    return decimal_parse(slice_str(text), &value) && value == want;
}

Test(decimal, reads_what_stoll_reads)
{
    cr_assert(parses_to("0", 0) && parses_to("-0", 0) && parses_to("+7", 7) &&
              parses_to(" \t\n\v\f\r-12ab", -12));
    cr_assert(parses_to("9223372036854775807", INT64_MAX) && parses_to("-9223372036854775808", INT64_MIN));
    cr_assert(parses_to("0000000000000000000000000000012", 12));
    int64_t value;
    const char *const bad[] = { "", "+", "- 1", "--1", "a", "9223372036854775808", "-9223372036854775809" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_not(decimal_parse(slice_str(bad[i]), &value), "'%s'", bad[i]);
}

Test(decimal, what_it_prints_it_reads)
{
    const int64_t values[] = { 0, 1, -1, 10, -10, INT64_MAX, INT64_MIN };
    char room[DECIMAL_MAX];
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        int64_t back;
        cr_assert(decimal_parse(decimal_print(values[i], room), &back));
        cr_assert_eq(back, values[i]);
    }
}

/* --- findings ------------------------------------------------------------------------------------------------- */

/* Tests of the table of findings, and of the pages made from it. */

Test(findings, every_code_has_a_name_and_is_found_by_it)
{
    for (int i = FINDING_NONE + 1; i < FINDING_CODES; i++)
        cr_assert_eq(finding_by_name(finding_code_name((enum finding_code)i)), i);
    cr_assert_eq(finding_by_name("NO_SUCH"), FINDING_NONE);
}

/* Expect no word between "Typical causes" and its colon, because explain prints only the text after the colon. */
static void expect_causes(const char *code, const char *detection)
{
    const char *causes = strstr(detection, " Typical cause");
    cr_assert_not_null(causes, "%s", code);
    causes += strlen(" Typical cause");
    cr_expect_eq(strncmp(causes + (*causes == 's'), ": ", 2), 0, "%s", code);
}

Test(findings, causes_have_no_words_before_the_colon)
{
#define X(code, grade, sentence, advice, example, detection) expect_causes(#code, detection);
    FINDINGS(X)
#undef X
}

/* Expect several sentences: what the state of the rank implies, and how the finding is detected. */
static void expect_meaning(const char *code, const char *detection)
{
    const char *causes = strstr(detection, " Typical cause"), *stop = strstr(detection, ". ");
    cr_expect(causes != NULL && stop != NULL && stop + 1 < causes, "%s: %s", code, detection);
}

Test(findings, meanings_of_ranks_have_several_sentences)
{
#define X(code, grade, sentence, advice, example, detection) expect_meaning(#code, detection);
    FINDINGS_OF_RANKS(X)
#undef X
}

Test(findings, a_word_that_nobody_gives_is_seen)
{
    struct finding f;
    finding_make(&f, FINDING_LIMIT_NOFILE, "n1", "have", "1024", NULL);
    cr_assert_str_eq(f.sentence, "n1 allows 1024 open files; this job needs about ${number} there");
}

Test(findings, long_words_are_cut)
{
    static char name[2000];
    memset(name, 'x', sizeof(name) - 1);
    struct finding f;
    finding_make(&f, FINDING_VERSION_DIFFERS, "n1", "time", "1 s", "words", name, NULL);
    cr_assert_eq(strlen(f.sentence), FINDING_TEXT_MAX - 1);
    cr_assert_str_eq(f.sentence + FINDING_TEXT_MAX - 4, "...");
}

/* Return true if `example` contains the parts of `sentence` around the placeholders, in the same order. The value of
 * ${address} must not contain a blank. */
static bool is_example(const char *sentence, const char *example)
{
    const char *at = example;
    bool is_address = false;
    while (*sentence != '\0') {
        const char *word = strstr(sentence, "${"), *value = at;
        const size_t len = word != NULL ? (size_t)(word - sentence) : strlen(sentence);
        at = memmem(at, strlen(at), sentence, len);
        if (at == NULL || (is_address && memchr(value, ' ', (size_t)(at - value)) != NULL))
            return false;
        at += len;
        sentence = word != NULL ? strchr(word, '}') + 1 : sentence + len;
        is_address = word != NULL && strncmp(word, "${address}", strlen("${address}")) == 0;
    }
    return !is_address || strchr(at, ' ') == NULL;
}

Test(findings, examples_are_what_the_sentences_print)
{
    static const struct {
        const char *code, *sentence, *example;
    } rows[] = {
#define X(code, grade, sentence, advice, example, detection) { #code, sentence, example },
        FINDINGS(X)
#undef X
    };
    for (size_t i = 0; i < LEN(rows); i++)
        cr_expect(is_example(rows[i].sentence, rows[i].example), "%s: %s", rows[i].code, rows[i].example);
    cr_expect_not(is_example("${a}: killed by ${b}", "rank 3: exited"));
    cr_expect_not(is_example("no route to ${address}", "no route to 10.0.0.1: no answer"));
}

static const char *const examples[FINDING_CODES] = {
#define X(code, grade, sentence, advice, example, detection) [FINDING_##code] = example,
    FINDINGS(X)
#undef X
};

/* Expect that the sentence of `f` is the example in the row of FINDINGS with the code of `f`. */
static void expect_sample(const struct finding *f)
{
    cr_expect_str_eq(f->sentence, examples[f->code], "%s: %s", finding_code_name(f->code), f->sentence);
}

/* Expect that the snapshot has a finding with this code. Its sentence must be the example in the row of FINDINGS with
 * this code. */
static void expect_sample_in(struct snapshot s, enum finding_code code)
{
    const struct diagnosis d = look(s);
    uint32_t i = 0;
    while (i < d.n && d.list[i].code != code)
        i++;
    cr_assert_lt(i, d.n, "no finding %s", finding_code_name(code));
    expect_sample(&d.list[i]);
}

#define SAMPLE(...)                                      \
    {                                                    \
        .rank = 3, .host = "n1", .pid = 812, __VA_ARGS__ \
    }

Test(findings, samples_are_findings_about_a_rank)
{
    static const struct {
        enum finding_code code;
        struct snapshot_rank facts;
    } cases[] = {
        { FINDING_RANK_KILLED, SAMPLE(.exited = true, .signal = SIGKILL, .state_ms = 12000) },
        { FINDING_RANK_EXITED, SAMPLE(.exited = true, .exit_code = 1, .state_ms = 12000) },
        { FINDING_RANK_NODE_LOST, SAMPLE(.node_lost = true, .met = true, .silent_ms = 32000) },
        { FINDING_RANK_STOPPED, SAMPLE(.proc_state = 'T', .state_ms = 32000) },
        { FINDING_RANK_IN_KERNEL,
          SAMPLE(.proc_state = 'D', .state_ms = 32000, .wchan = "nfs_wait_bit_killable") },
        { FINDING_RANK_BUSY, SAMPLE(.met = true, .silent_ms = 32000, .proc_state = 'R', .cpu_percent = 98) },
        { FINDING_RANK_WAITS_ELSEWHERE,
          SAMPLE(.met = true, .connected = true, .silent_ms = 32000, .waits = { .name = { "eval", 4 } }) },
        { FINDING_RANK_DISCONNECTED, SAMPLE(.met = true, .silent_ms = 32000) },
        { FINDING_RANK_MISSING, SAMPLE(.met = true, .connected = true, .silent_ms = 32000, .proc_state = 'S',
                                       .wchan = "futex_wait") },
        { FINDING_RANK_NOT_CONNECTED,
          SAMPLE(.started = true, .round_ms = 32000, .proc_state = 'S', .wchan = "futex_wait") },
        { FINDING_RANK_UNKNOWN, { .rank = 3, .round_ms = 32000 } },
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        struct finding f;
        diagnose_rank(&cases[i].facts, &f);
        cr_expect_eq(f.code, cases[i].code);
        expect_sample(&f);
    }
}

Test(findings, samples_are_findings_about_ranks)
{
    static uint8_t arrived[] = { 0x0e };
    static const struct barrier barrier = { .node.key_len = 7,
                                            .world_size = 4,
                                            .members = 4,
                                            .arrived = 3,
                                            .has_arrived = arrived,
                                            .name = "epoch-3" };
    const struct snapshot_rank left = { .rank = 0, .host = "n1", .pid = 812, .state_ms = 12000 };
    struct finding f;
    diagnose_early_exit_of_barrier(&barrier, &left, &f);
    expect_sample(&f);
#define EPOCH IN_BARRIER(0, "epoch-3"), IN_BARRIER(1, "epoch-3"), IN_BARRIER(2, "epoch-3")
#define EPOCH_WAIT              \
    { .name = { "epoch-3", 7 }, \
      .is_barrier = true,       \
      .waiting = 3,             \
      .members = 4,             \
      .rank = UINT32_MAX,       \
      .for_ms = 32000 }
    expect_sample_in(CASE(RUNNING, LIST(waits, snapshot_wait, EPOCH_WAIT), RANKS(EPOCH, RANK(3))),
                     FINDING_BARRIER_INCOMPLETE);
    expect_sample_in(CASE(RUNNING,
                          LIST(waits, snapshot_wait, EPOCH_WAIT,
                               { .name = { "eval", 4 },
                                 .is_barrier = true,
                                 .waiting = 1,
                                 .members = 4,
                                 .rank = 3,
                                 .for_ms = 30000 }),
                          RANKS(EPOCH, IN_BARRIER(3, "eval"))),
                     FINDING_RANKS_DIVERGED);
    expect_sample_in(
        CASE(RUNNING,
             LIST(waits, snapshot_wait,
                  { .name = { "model-ready", 11 }, .waiting = 1, .rank = 1, .for_ms = 32000 }),
             RANKS(RANK(0),
                   { .rank = 1, .host = "n1", .pid = 812, .waits = { .name = { "model-ready", 11 } } })),
        FINDING_KEY_NOT_SET);
#define GLOO(n) "/default_pg/0//cpu//0/" n
#define GLOO_WAIT(n, count) \
    LIST(waits, snapshot_wait, { .name = { GLOO(n), 23 }, .waiting = count, .rank = 0, .for_ms = 32000 })
    expect_sample_in(CASE(RUNNING, GLOO_WAIT("3", 3),
                          RANKS(AT_KEY(0, GLOO("3")), AT_KEY(1, GLOO("3")), AT_KEY(2, GLOO("3")), RANK(3))),
                     FINDING_INIT_INCOMPLETE);
    expect_sample_in(
        CASE(RUNNING, GLOO_WAIT("2", 2), RANKS(AT_KEY(0, GLOO("2")), AT_KEY(1, GLOO("2"))), .world_size = 2),
        FINDING_GROUP_BEYOND_JOB);
#define AT_1204(n) STEPPED(n, "all_reduce", 1204, 32000)
    expect_sample_in(
        CASE(RUNNING, RANKS(AT_1204(0), AT_1204(1), AT_1204(2),
                            STEPPED(3, "", 1203, 32000, .pid = 812, .step = 120, .proc_state = 'T'),
                            AT_1204(4), AT_1204(5), AT_1204(6), AT_1204(7))),
        FINDING_RANK_STALLED);
}

Test(findings, samples_are_findings_about_nodes)
{
#define GONE(...)                                                              \
    {                                                                          \
        .host = "n1", .node_rank = 1, .pid = 80, .gone_ms = 12000, __VA_ARGS__ \
    }
    const struct snapshot gone = CASE(
        GATHERING, NODES(NODE(0)),
        LIST(gone, snapshot_gone, GONE(.how = "silent for 15.0 s", .lost = true, .ran = true, .silent = true),
             GONE(.how = "its connection was closed", .lost = true, .ran = true),
             GONE(.how = "its connection was closed", .lost = true, .stayed_ms = 3000),
             GONE(.how = "SIGTERM from bash (pid 77, uid 1000)")));
    expect_sample_in(gone, FINDING_NODE_LOST_SILENT);
    expect_sample_in(gone, FINDING_NODE_LOST_CLOSED);
    expect_sample_in(gone, FINDING_NODE_DIED_WAITING);
    expect_sample_in(gone, FINDING_NODE_LEFT);
    struct snapshot s =
        CASE(GATHERING, NODES(NODE(0)), .is_final = true,
             LIST(refused, snapshot_refused, REFUSED("NNODES_DIFFERS", 1, .pid = 80, .ago_ms = 12000)));
    expect_sample_in(s, FINDING_NODE_REJECTED);
    struct snapshot_node nodes[63];
    for (int i = 0; i < 63; i++)
        nodes[i] = (struct snapshot_node)NODE(0, .node_rank = i < 3 ? i : i + 1);
    s = CASE(GATHERING, .nodes = nodes, .n_nodes = 63, .min = 128, .max = 128, .waited_ms = 32000);
    expect_sample_in(s, FINDING_NODE_MISSING);
    s = CASE(GATHERING, .elastic = true, .min = 4, .max = 8, .waited_ms = 32000,
             NODES(NODE(0, .node_rank = -1), NODE(1, .node_rank = -1)));
    expect_sample_in(s, FINDING_TOO_FEW_NODES);
    s = CASE(GATHERING, .elastic = true, .round = 1, .left_ms = 300000, NODES(NODE(0)),
             LIST(gone, snapshot_gone, GONE(.how = "silent for 15.0 s", .lost = true, .ran = true)));
    expect_sample_in(s, FINDING_TOO_FEW_LEFT);
    s = CASE(GATHERING, .phase = PHASE_STOPPING, .waited_ms = 20000,
             NODES(NODE(1, .pid = 80, .is_stopping = true)));
    expect_sample_in(s, FINDING_NODE_STOP_SLOW);
    const struct snapshot_node with_spare[] = { NODE(0), NODE(1),
                                                NODE(2, .pid = 90, .is_spare = true, .joined_ms = 12000) };
    s = CASE(RUNNING);
    s.nodes = with_spare, s.n_nodes = LEN(with_spare);
    expect_sample_in(s, FINDING_NODE_IS_SPARE);
    s = CASE(GATHERING, NODES(NODE(0, .pid = 71, .nproc = 8), NODE(1, .pid = 80, .nproc = 7)));
    expect_sample_in(s, FINDING_NPROC_UNEVEN);
    s = CASE(GATHERING,
             NODES(NODE(0, .pid = 71, .addr = "172.17.0.1"), NODE(1, .pid = 80, .addr = "172.17.0.1")));
    expect_sample_in(s, FINDING_ADDRESS_NOT_UNIQUE);
    s = CASE(GATHERING, NODES(NODE(1, .pid = 80, .own = "172.17.0.2", .addr = "10.0.0.9")));
    expect_sample_in(s, FINDING_ADDRESS_TRANSLATED);
    s = CASE(RUNNING, .cause = { .known = true,
                                 .host = "n1",
                                 .words = "exited with code 1",
                                 .node_rank = 1,
                                 .rank = 3,
                                 .pid = 812,
                                 .after_ms = 12300 });
    expect_sample_in(s, FINDING_WORKER_FAILED);
    s = CASE(RUNNING, .cause = { .known = true,
                                 .host = "n1",
                                 .words = "could not be started: ./train: no such file",
                                 .node_rank = 1,
                                 .rank = 3,
                                 .error = ENOENT,
                                 .after_ms = 12 });
    expect_sample_in(s, FINDING_PROGRAM_MISSING_ON_NODE);
}

Test(findings, samples_are_findings_about_launches)
{
#define OWN(n)                                                                   \
    {                                                                            \
        .rank = n, .pid = 71 + (n), .is_of_job = true, .host = "n1", .owner = "" \
    }
#define SPAWNED(n)                                                                   \
    {                                                                                \
        .rank = n, .pid = 75 + (n), .is_of_job = true, .is_child = true, .owner = "" \
    }
    static const struct snapshot_claim shared[] = {
        OWN(0),
        OWN(1),
        { .rank = 0, .pid = 90, .owner = "pid 90 on n1 (python x.py)" },
        { .rank = 1, .pid = 91, .owner = "pid 91 on n1 (python x.py)" }
    };
    static const struct snapshot_claim large[] = { OWN(0), OWN(1), SPAWNED(0), SPAWNED(1) };
    struct snapshot s = CASE(RUNNING, .world_size = 2);
    s.surplus = (struct snapshot_surplus){ .count = 4, .claims = shared, .n = 4, .for_ms = 10000 };
    cr_assert(torch_key_read(slice_str("/default_pg/store_based_barrier_key:1"), &s.surplus.key));
    expect_sample_in(s, FINDING_STORE_SHARED);
    s.surplus.claims = large;
    expect_sample_in(s, FINDING_GROUP_TOO_LARGE);
}

/* The list of processes leaves room for the text after the list, however long the description of a process is. */
Test(diagnose_job, the_text_after_a_long_list_is_not_cut)
{
    static char owner[400];
    struct snapshot_claim claims[7];
    struct snapshot s = CASE(RUNNING, .world_size = 2);
    for (size_t i = 0; i < LEN(claims); i++)
        claims[i] = (struct snapshot_claim){ .rank = -1, .pid = 90, .owner = i == 0 ? owner : "another one" };
    s.surplus =
        (struct snapshot_surplus){ .count = 12345, .claims = claims, .n = LEN(claims), .for_ms = 10000 };
    cr_assert(torch_key_read(slice_str("/default_pg/store_based_barrier_key:1"), &s.surplus.key));
    for (size_t len = 1; len < sizeof(owner); len++) {
        owner[len - 1] = 'x';
        const struct diagnosis d = look(s);
        cr_assert_eq(d.list[0].code, FINDING_STORE_SHARED);
        const char *sentence = d.list[0].sentence;
        cr_expect_str_eq(sentence + strlen(sentence) - strlen(" connections"), " connections", "%s",
                         sentence);
        cr_expect_not_null(strstr(sentence, "; 12338 "), "%s", sentence);
    }
}

Test(findings, samples_are_findings_about_clients)
{
    static const struct {
        enum finding_code code;
        struct snapshot_refused refused;
    } refusals[] = {
#define NODE_1 .host = "n1", .addr = "10.0.0.2", .pid = 80
#define REJECTED_AS(name, text, ...) \
    { FINDING_##name, REFUSED(#name, 2, .words = text, .ago_ms = 2000, __VA_ARGS__) }
        REJECTED_AS(LAUNCHED_TWICE,
                    "ddprun was started twice on n1: pid 80 has the same --node_rank=1 as pid 71", NODE_1),
        REJECTED_AS(NODE_RANK_TAKEN, "n2 (pid 90) has the same --node_rank=1 as n1 (pid 80)",
                    .addr = "10.0.0.3", .pid = 90),
        REJECTED_AS(
            JOB_FULL,
            "n3 (pid 99) is one node too many: job 'a' already has 2 of 2 nodes; the first node was n0",
            .host = "n3", .addr = "10.0.0.4", .pid = 99),
        REJECTED_AS(NNODES_DIFFERS, "n1 has --nnodes=3, n0 has --nnodes=2", NODE_1),
    };
    static const struct {
        enum finding_code code;
        struct snapshot_stranger client;
    } strangers[] = {
#define CLIENT(at, n, ...) { .address = at, .times = n, .ago_ms = 4000, __VA_ARGS__ }
        { FINDING_PROXY_BETWEEN, CLIENT("127.0.0.6", 3, .kind = REJECT_TLS) },
        { FINDING_TLS_CLIENT, CLIENT("10.0.0.9", 3, .kind = REJECT_TLS) },
        { FINDING_TORCHRUN_INSTEAD, CLIENT("10.0.0.9", 2, .kind = REJECT_C10D_2) },
        { FINDING_OTHER_JOB, CLIENT("10.0.0.9", 2, .kind = REJECT_DDPRUN, .job = "b") },
        { FINDING_SILENT_CLIENT, CLIENT("10.0.0.9", 4, .kind = REJECT_SILENT) },
        { FINDING_FOREIGN_CLIENT, CLIENT("10.0.0.9", 2, .kind = REJECT_HTTP, .bytes = "GET / HTTP/1.1") },
    };
    for (size_t i = 0; i < LEN(refusals); i++)
        expect_sample_in(CASE(GATHERING, NODES(NODE(0), NODE(1)), .min = 3, .max = 3,
                              .refused = &refusals[i].refused, .n_refused = 1),
                         refusals[i].code);
    for (size_t i = 0; i < LEN(strangers); i++)
        expect_sample_in(CASE(RUNNING, .job = "a", .strangers = &strangers[i].client, .n_strangers = 1),
                         strangers[i].code);
    struct snapshot s = CASE(RUNNING);
    s.store = (struct snapshot_store){ .host = "n0",
                                       .endpoint = "10.0.0.1:29500",
                                       .accept_overflows = 12,
                                       .somaxconn = 128,
                                       .refused_no_fd = 7,
                                       .open_files = 1024,
                                       .used = 1073000000,
                                       .max = 1 << 30 };
    expect_sample_in(s, FINDING_ACCEPT_QUEUE_OVERFLOWED);
    expect_sample_in(s, FINDING_STORE_NO_DESCRIPTORS);
    expect_sample_in(s, FINDING_STORE_NEARLY_FULL);
}

/* Expect that each number of seconds has the form that text_ms prints: "32.0 s", never "32 s". */
static void expect_durations(const char *code, const char *example)
{
    for (const char *at = strstr(example, " s"); at != NULL; at = strstr(at + 1, " s")) {
        const char *from = at;
        char text[TEXT_MS_MAX];
        while (from > example && strchr("0123456789.", from[-1]) != NULL)
            from--;
        if (from == at || isalnum((unsigned char)at[2]))
            continue;
        text_ms((uint64_t)(strtod(from, NULL) * 1000 + 0.5), text);
        cr_expect_eq(strncmp(from, text, strlen(text)), 0, "%s: %s", code, example);
    }
}

Test(findings, durations_of_examples_have_the_printed_form)
{
#define X(code, grade, sentence, advice, example, detection) expect_durations(#code, example);
    FINDINGS(X)
#undef X
}

/* Return true if the text has a duration, such as "12 ms", "32.0 s" or "5.0 min". */
static bool has_duration(const char *text)
{
    static const char *const units[] = { "ms", "s", "min", "h" };
    for (const char *at = strchr(text, ' '); at != NULL; at = strchr(at + 1, ' '))
        for (size_t i = 0; at > text && isdigit((unsigned char)at[-1]) && i < LEN(units); i++)
            if (strncmp(at + 1, units[i], strlen(units[i])) == 0 &&
                !isalnum((unsigned char)at[1 + strlen(units[i])]))
                return true;
    return false;
}

/* A reader of a log must learn when an event happened, or for how long a state has lasted. */
Test(findings, an_event_has_a_time)
{
    static const enum finding_code events[] = {
        FINDING_RESOLVER_DOWN, FINDING_HELLO_FAILED,    FINDING_NO_ANSWER_YET,
        FINDING_HOST_ENDED,    FINDING_HOST_LOST,       FINDING_PROGRAM_MISSING_ON_NODE,
        FINDING_STORE_SHARED,  FINDING_GROUP_TOO_LARGE, FINDING_RANK_REPEATED,
        FINDING_RANK_UNKNOWN,  FINDING_RANK_SLOW,
    };
    for (size_t i = 0; i < LEN(events); i++)
        cr_expect(has_duration(examples[events[i]]), "%s: %s", finding_code_name(events[i]),
                  examples[events[i]]);
    cr_expect_not(has_duration("rank 0 (n1, pid 7) has 2 slots and 3 members"));
}

/* The placeholders that an advice may contain. `ddprun explain` prints their names in capitals, so each name must
 * explain the value to a reader. */
static const struct {
    const char *name, *meaning;
} readable[] = {
    { "address", "an IP address" },
    { "child_pid", "the process id of a child" },
    { "gpu", "the index of a GPU" },
    { "host", "the name of a host" },
    { "known_name", "the name of a host in known_hosts" },
    { "launch_command", "the scheduler's command, with ddprun" },
    { "nnodes", "a number of nodes, as for --nnodes" },
    { "node", "a node" },
    { "number", "the new value of a limit" },
    { "peer_host", "the host at the other end of a connection" },
    { "pid", "a process id" },
    { "port", "a TCP port" },
    { "queue_length", "a number of connections" },
    { "rank", "a rank" },
    { "reachable_address", "an IP address that the other hosts can reach" },
    { "remote_shell", "the value of --remote_shell" },
    { "scheduler", "the name of a scheduler" },
    { "setup_function", "a function of PyTorch" },
    { "started_nodes", "the number of nodes on which ddprun runs" },
    { "starting_host", "the host that starts another host" },
    { "store_address", "host and port of the store" },
    { "subject", "the name of a host; printed as HOST" },
    { "this_host", "the host on which the finding is made" },
};

static bool expect_readable(void *code, struct slice word, struct buf *out)
{
    bool found = false;
    (void)out;
    for (size_t i = 0; i < LEN(readable); i++)
        found = found || slice_equal(word, slice_str(readable[i].name));
    cr_expect(found, "%s: the name ${%.*s} explains nothing to a reader", (const char *)code, (int)word.len,
              (const char *)word.data);
    return true;
}

/* A rank may be blocked in read, write, accept, connect, flock or epoll_wait. The remedy is the same for all calls. */
Test(findings, the_remedy_of_a_blocked_rank_fits_every_call)
{
    static const char *const terms[] = { "file system", "peer", "read", "write", "lock", "'lslocks'" };
    for (size_t i = 0; i < LEN(terms); i++)
        cr_expect_not_null(strstr(finding_advice(FINDING_RANK_BLOCKED), terms[i]), "%s", terms[i]);
}

Test(findings, placeholders_of_an_advice_explain_themselves)
{
    struct buf out = { 0 };
#define X(code, ...) cr_expect(finding_fill(&out, finding_advice(FINDING_##code), expect_readable, #code));
    FINDINGS(X)
#undef X
    buf_free(&out);
}

/* The member `hang` of report.json has only one finding. A code of FINDINGS_OF_HANGS names the cause and replaces any
 * earlier finding. A code of HANG_SYMPTOMS describes only a symptom, and never replaces a finding with another code. */
Test(findings, a_verdict_about_a_hang_replaces_a_symptom)
{
    cr_expect(finding_names_hang(FINDING_RANK_SLEEPS, FINDING_NONE));
    cr_expect(finding_names_hang(FINDING_RANK_STOPPED, FINDING_NONE));
    cr_expect(finding_names_hang(FINDING_RANK_SLEEPS, FINDING_RANK_STALLED));
    cr_expect(finding_names_hang(FINDING_RANK_STOPPED, FINDING_RANK_STOPPED), "a later stop");
    cr_expect_not(finding_names_hang(FINDING_RANK_STOPPED, FINDING_RANK_SLEEPS), "a debugger stops the rank");
    cr_expect_not(finding_names_hang(FINDING_RANK_STALLED, FINDING_RANK_STOPPED));
    cr_expect_not(finding_names_hang(FINDING_RANK_SLOW, FINDING_NONE));
    cr_expect_not(finding_names_hang(FINDING_NODE_MISSING, FINDING_NONE));
}

Test(findings, explain_prints_the_row)
{
    struct buf out = { 0 };
    cr_assert_eq(explain_code("rank_stopped", false, &out, NULL), DDP_OK);
    cr_assert(buf_append(&out, "", 1));
    cr_expect_str_eq(
        (char *)out.data,
        "RANK_STOPPED (error)\n"
        "\nExample\n    rank 3: stopped (state T) (n1, pid 812), for 32.0 s\n"
        "\nMeaning and detection\n"
        "    The process does nothing until a user continues it, and other ranks wait for\n"
        "    it. State T means that a signal has stopped the process; state t means that\n"
        "    a debugger has stopped it. The agent reads the state from /proc/PID/stat.\n"
        "\nTypical causes\n    Ctrl-Z, SIGSTOP, a debugger\n"
        "\nRemedy\n    state T: kill -CONT PID continues it; state t: continue the process in its\n"
        "    debugger: TracerPid in /proc/PID/status is the debugger's pid\n",
        "%s", (char *)out.data);
    buf_free(&out);
}

static cJSON *explained(const char *code)
{
    struct buf out = { 0 };
    cr_assert_eq(explain_code(code, true, &out, NULL), DDP_OK);
    cJSON *json = cJSON_ParseWithLength((const char *)out.data, out.len);
    cr_assert_not_null(json, "%.*s", (int)out.len, (const char *)out.data);
    buf_free(&out);
    return json;
}

Test(findings, explain_prints_one_json_object)
{
    static const char *const members[] = { "code", "grade", "example", "detection", "causes", "advice" };
    cJSON *json = explained("rank_stopped");
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        cr_expect(cJSON_IsString(cJSON_GetObjectItem(json, members[i])), "%s", members[i]);
    cJSON_Delete(json);
    json = explained("SIGKILL");
    cr_expect_eq(cJSON_GetNumberValue(cJSON_GetObjectItem(json, "exit_code")), 137);
    cr_expect(cJSON_IsString(cJSON_GetObjectItem(json, "meaning")));
    cJSON_Delete(json);
    json = explained(NULL);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(json, "findings")), FINDING_CODES - 1);
    cr_expect_gt(cJSON_GetArraySize(cJSON_GetObjectItem(json, "exit_codes")), 5);
    for (int list = 0; list < 2; list++) {
        cJSON *item;
        cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, list == 0 ? "findings" : "exit_codes"))
            cr_expect(cJSON_IsString(cJSON_GetObjectItem(item, "advice")), "%s", cJSON_Print(item));
    }
    cr_expect(cJSON_IsString(cJSON_GetObjectItem(json, "other_exit_codes")));
    cJSON_Delete(json);
    cr_expect_eq(explain_code("no_such_code", true, &(struct buf){ 0 }, NULL), DDP_ERR_ARG);
}

/* Every exit code has all texts. Signals such as SIGKILL and SIGTERM each have a separate row in the table, and 42 is
 * an exit code that a worker has chosen. Their causes must differ from the causes of EXIT_CODE_SIGNAL, the row for all
 * other signals. */
Test(findings, explain_describes_each_exit_code)
{
    static const char *const members[] = { "example", "meaning", "detection", "causes", "advice" };
    char name[8], of_row[256] = "";
    for (int code = 0; code <= 255; code++) {
        snprintf(name, sizeof(name), "%d", code);
        cJSON *json = explained(name);
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
            cr_expect(cJSON_IsString(cJSON_GetObjectItem(json, members[i])), "%d %s", code, members[i]);
        const char *causes = cJSON_GetStringValue(cJSON_GetObjectItem(json, "causes"));
        const char *example = cJSON_GetStringValue(cJSON_GetObjectItem(json, "example"));
        if (code == EXIT_CODE_SIGNAL)
            snprintf(of_row, sizeof(of_row), "%s", causes);
        if (code == EXIT_CODE_SIGNAL + SIGKILL || code == EXIT_CODE_SIGNAL + SIGTERM || code == 42)
            cr_expect_str_neq(causes, of_row);
        if (code == EXIT_CODE_SIGNAL + SIGUSR1)
            cr_expect_str_eq(causes, of_row, "this signal has no row");
        if (code == 42)
            cr_expect_not_null(strstr(example, " 42,"), "%s", example);
        cJSON_Delete(json);
    }
}

static void expect_sections(const char *code, const char *const *headings)
{
    struct buf out = { 0 };
    cr_assert_eq(explain_code(code, false, &out, NULL), DDP_OK);
    cr_assert(buf_append(&out, "", 1));
    for (; *headings != NULL; headings++)
        cr_expect_not_null(strstr((char *)out.data, *headings), "%s", (char *)out.data);
    buf_free(&out);
}

Test(findings, explain_has_every_section_for_every_code)
{
    static const char *const of_findings[] = { "\nExample\n    ", "\nMeaning and detection\n    ",
                                               "\nTypical causes\n    ", "\nRemedy\n    ", NULL };
    static const char *const of_exit_codes[] = { "\nExample\n    ",   "\nMeaning\n    ",
                                                 "\nDetection\n    ", "\nTypical causes\n    ",
                                                 "\nRemedy\n    ",    NULL };
#define X(code, ...) expect_sections(#code, of_findings);
    FINDINGS(X)
#undef X
    for (const char *const *code =
             (const char *const[]){ "0", "1", "2", "75", "123", "124", "125", "126", "127", "128", "137",
                                    "139", "255", "SIGKILL", NULL };
         *code != NULL; code++)
        expect_sections(*code, of_exit_codes);
}

Test(findings, the_manual_has_every_code)
{
    struct buf man = { 0 };
    cr_assert(findings_print_man(&man) && buf_append(&man, "", 1));
    cr_assert_null(strstr((char *)man.data, "${"));
    cr_assert_null(strstr((char *)man.data, "..\n"));
#define X(code, ...) cr_assert_not_null(strstr((char *)man.data, "\n.B " #code "\n"));
    FINDINGS(X)
#undef X
    buf_free(&man);
}
