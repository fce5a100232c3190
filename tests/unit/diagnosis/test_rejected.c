/* Tests of rejected connections, which are distinguished by their first bytes, counted, and printed. Any host can
 * send such connections, so their number and their texts are limited. */
#include "diagnosis/rejected.h"
#include "sim_hub.h"

#include <criterion/criterion.h>
#include <stdio.h>

static void expect_kind(const char *hex, enum reject_kind kind)
{
    struct buf bytes = { 0 };
    hex_read(hex, &bytes);
    enum reject_kind got = reject_kind_of(buf_slice(&bytes));
    cr_assert_eq(got, kind, "%s is %s, not %s", hex, reject_kind_word(got), reject_kind_word(kind));
    buf_free(&bytes);
}

Test(rejects, first_bytes_tell_who_it_is)
{
    expect_kind("", REJECT_SILENT);
    expect_kind("03 05000000 000000", REJECT_C10D_1); /* ADD, a key of 5 bytes */
    expect_kind("00 05000000 000000", REJECT_C10D_1); /* SET of dialect A (PyTorch 1.13): its opcode 0 is also
                                                       * the opcode of VALIDATE in dialect C */
    expect_kind("00", REJECT_C10D_1);
    expect_kind("00 cef7853c 0d c610", REJECT_C10D_2);
    expect_kind("00 cef7853c", REJECT_C10D_2);
    expect_kind("00 cef7853c 80 2200", REJECT_DDPRUN);
    expect_kind("47455420 2f204854", REJECT_HTTP);
    expect_kind("50524920 2a204854", REJECT_HTTP);
    expect_kind("160301 0200010001", REJECT_TLS);
    expect_kind("5353482d 322e302d", REJECT_SSH);
    expect_kind("ffff", REJECT_OTHER);
    expect_kind("474554", REJECT_OTHER);
}

static bool note(struct rejects *r, const char *peer, const char *first, uint64_t now_ms)
{
    return rejects_note(r, &(struct reject_facts){ .peer = peer, .why = "why", .first = slice_str(first) },
                        now_ms);
}

Test(rejects, a_source_is_told_once_a_minute)
{
    struct rejects r = { 0 };
    cr_assert(note(&r, "10.0.0.2:1", "GET ", 0));
    cr_assert_not(note(&r, "10.0.0.2:2", "GET ", 10));
    cr_assert_not(note(&r, "10.0.0.2:3", "SSH-", 20));
    cr_assert(note(&r, "10.0.0.3:1", "GET ", 30));
    cr_assert_not(note(&r, "10.0.0.2:4", "GET ", 59999));
    cr_assert(note(&r, "10.0.0.2:5", "GET ", 60000));
    cr_assert_eq(r.count, 3);
    cr_assert_str_eq(r.row[0].source, "10.0.0.2");
    cr_assert_eq(r.row[0].times, 4);
    cr_assert_eq(r.row[0].first_ms, 0);
    cr_assert_eq(r.row[0].last_ms, 60000);
}

/* The list of sources has a limited length. If a source was dropped from the list, its next connection counts as the
 * first connection of a new source. So the number of log lines per minute has a separate limit. */
Test(rejects, many_sources_share_the_lines_of_a_minute)
{
    struct rejects r = { 0 };
    char peer[48];
    for (int minute = 1; minute <= 2; minute++) {
        int lines = 0;
        for (int i = 0; i < 5000; i++) {
            snprintf(peer, sizeof(peer), "[fe80::%x]:7", i % (2 * REJECTS_MAX));
            lines += note(&r, peer, "GET ", (uint64_t)minute * 60000 + (uint64_t)i);
        }
        cr_expect_eq(lines, REJECTS_MAX, "minute %d: %d lines", minute, lines);
    }
    cr_expect_eq(r.total, 10000);
}

Test(rejects, the_oldest_source_gives_way)
{
    struct rejects r = { 0 };
    char peer[32];
    for (int i = 0; i < REJECTS_MAX + 3; i++) {
        snprintf(peer, sizeof(peer), "[fe80::%d]:7", i);
        note(&r, peer, "GET ", (uint64_t)i);
    }
    cr_assert_eq(r.count, REJECTS_MAX);
    cr_assert_eq(r.total, REJECTS_MAX + 3);
    cr_assert_str_eq(r.row[2].source, "[fe80::66]");
    cr_assert_str_eq(r.row[3].source, "[fe80::3]");
}

/* --- in the hub ------------------------------------------------------------------------------------------------ */

enum { CLIENT = 40 };

static struct sim sim;

static void set_up(void)
{
    sim_init(&sim, NULL);
    sim_client(&sim, CLIENT);
}

static void tear_down(void)
{
    sim_free(&sim);
}

TestSuite(hub_rejects, .init = set_up, .fini = tear_down);

static void expect_row(const char *words)
{
    const char *answer = sim_control(&sim, CLIENT, "{\"op\":\"rejects\"}");
    cr_assert_not_null(strstr(answer, words), "%s has no %s", answer, words);
}

Test(hub_rejects, a_browser_is_closed_and_shown)
{
    sim_connect(&sim, 10);
    sim_feed_bytes(&sim, 10, slice_str("GET / HTTP/1.1\r\n"));
    sim_expect(&sim, 10, "closed: unknown request 0x47 *HTTP");
    expect_row("{\"source\":\"peer\",\"kind\":\"http\",\"first\":\"474554202f204854\"");
}

Test(hub_rejects, a_worker_of_another_job_is_shown_with_the_job)
{
    sim_job(&sim, 0, 2);
    sim_client(&sim, 10);
    sim_identify(&sim, 10, "{\"role\":\"worker\",\"job\":\"old\",\"rank\":0,\"world_size\":2}", NULL);
    expect_row("\"kind\":\"ddprun\",\"job\":\"old\",\"first\":\"00cef7853c\",\"why\":\"IDENTIFY refused: ");
}

Test(hub_rejects, who_goes_in_the_middle_of_its_first_words_is_shown)
{
    sim_connect(&sim, 10);
    sim_feed(&sim, 10, "03 05000000 00000000 69");
    sim_disconnect(&sim, 10);
    expect_row("\"kind\":\"c10d_1\",\"first\":\"0305000000000000\",\"why\":\"peer closed it\",\"times\":1");
}

/* The list of rejected clients contains a connection that has sent nothing, unless an agent has the same address. After
 * its first byte, the connection is not in the list any more. */
Test(hub_rejects, a_silent_connection_is_shown_and_left_open)
{
    sim_connect(&sim, 10);
    sim_connect(&sim, 11);
    sim_at(&sim, 1000000);
    expect_row("\"kind\":\"silent\",\"why\":\"");
    expect_row("\"times\":2,\"first_ms\":1000000");
    cr_assert(sim.conn[10].open && sim.conn[11].open);
    sim_feed(&sim, 10, "00 cef7853c");
    expect_row("\"times\":1");
}

/* --- notices ---------------------------------------------------------------------------------------------- */

Test(notices, an_empty_sentence_withdraws_a_finding)
{
    struct notices n = { 0 };
    notices_add(&n, 1, "GPU_BUSY", "GPU 0 of n1", "", "");
    cr_assert_eq(n.count, 0);
    notices_add(&n, 1, "GPU_BUSY", "GPU 0 of n1", "is used", "stop it");
    notices_add(&n, 1, "GPU_BUSY", "GPU 1 of n1", "is used", "stop it");
    notices_add(&n, 1, "GPU_BUSY", "GPU 0 of n1", "", "");
    cr_assert_eq(n.count, 1);
    cr_expect_not(notices_have(&n, FINDING_GPU_BUSY, "GPU 0 of n1"));
    cr_expect(notices_have(&n, FINDING_GPU_BUSY, "GPU 1 of n1"));
    notices_add(&n, 1, "GPU_BUSY", "GPU 1 of n1", "", "");
    cr_expect_eq(n.count, 0);
    notices_free(&n);
}

Test(notices, a_full_list_replaces_its_oldest_row_also_after_a_removal)
{
    struct notices n = { 0 };
    char subject[16];
    for (int i = 0; i < NOTICES_MAX + 2; i++) {
        snprintf(subject, sizeof(subject), "n%d", i);
        notices_add(&n, 1, "GPU_BUSY", subject, "is used", "stop it");
    }
    cr_assert_eq(n.count, NOTICES_MAX);
    notices_add(&n, 1, "GPU_BUSY", "n2", "is used again", "stop it");
    notices_add(&n, 1, "GPU_BUSY", "n9", "", "");
    cr_assert_eq(n.count, NOTICES_MAX - 1);
    notices_add(&n, 1, "GPU_BUSY", "n100", "is used", "stop it");
    cr_expect(notices_have(&n, FINDING_GPU_BUSY, "n2"), "the row of n9 was free");
    notices_add(&n, 1, "GPU_BUSY", "n101", "is used", "stop it");
    cr_assert_eq(n.count, NOTICES_MAX);
    cr_expect_not(notices_have(&n, FINDING_GPU_BUSY, "n2"), "the oldest row, although it was sent again");
    cr_expect(notices_have(&n, FINDING_GPU_BUSY, "n3") && notices_have(&n, FINDING_GPU_BUSY, "n100"));
    notices_free(&n);
}

Test(notices, only_the_sender_replaces_or_withdraws_a_finding)
{
    struct notices n = { 0 };
    cr_assert(notices_add(&n, 1, "GPU_BUSY", "GPU 0 of n1", "is used", "stop it"));
    cr_expect_not(notices_add(&n, 2, "GPU_BUSY", "GPU 0 of n1", "", ""));
    cr_expect_not(notices_add(&n, 2, "GPU_BUSY", "GPU 0 of n1", "is free", ""));
    cr_expect_str_eq(n.list[0].finding.sentence, "is used");
    cr_expect(notices_add(&n, NOTICE_OF_STORE, "GPU_BUSY", "GPU 0 of n1", "is full", "stop it"));
    cr_expect_not(notices_add(&n, 2, "GPU_BUSY", "GPU 0 of n1", "", ""), "node 1 is still its sender");
    cr_expect(notices_add(&n, 2, "UNKNOWN", "n2", "", ""));
    notices_moved(&n, 1, 3);
    cr_expect_not(notices_add(&n, 1, "GPU_BUSY", "GPU 0 of n1", "", ""));
    cr_expect(notices_add(&n, 3, "GPU_BUSY", "GPU 0 of n1", "is used again", "stop it"));
    notices_moved(&n, 3, NOTICE_OF_STORE);
    cr_expect(notices_add(&n, 4, "GPU_BUSY", "GPU 0 of n1", "", ""));
    cr_expect_eq(n.count, 0);
    notices_free(&n);
}

Test(notices, a_sender_of_many_findings_removes_only_one_finding_of_others)
{
    struct notices n = { 0 };
    char subject[16];
    for (int i = 0; i < NOTICES_MAX; i++) {
        snprintf(subject, sizeof(subject), "GPU %d of n1", i);
        notices_add(&n, 1, "GPU_BUSY", subject, "is used", "stop it");
    }
    for (int i = 0; i < NOTICES_MAX; i++) {
        snprintf(subject, sizeof(subject), "GPU %d of n2", i);
        notices_add(&n, 2, "GPU_BUSY", subject, "is used", "stop it");
    }
    cr_assert_eq(n.count, NOTICES_MAX);
    cr_expect_not(notices_have(&n, FINDING_GPU_BUSY, "GPU 0 of n1"));
    cr_expect(notices_have(&n, FINDING_GPU_BUSY, "GPU 1 of n1"));
    cr_expect(notices_have(&n, FINDING_GPU_BUSY, "GPU 15 of n2"));
    notices_free(&n);
}
