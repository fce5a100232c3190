/* Tests of how a node reaches the store, on a simulated clock: its attempts, its findings, and the times of its
 * messages. The plan opens no socket, so a test can give it any error of the network. */
#include "net/dial_plan.c"

#include <criterion/criterion.h>
#include <string.h>

static struct dial dial;
static uint64_t now;
static struct buf heard;

static void begin(const char *host, uint64_t budget_ms)
{
    const struct dial_options options = { .host = host,
                                          .port = 29500,
                                          .who = "node 0's store",
                                          .here = "n1",
                                          .knob = "--timeout",
                                          .budget_ms = budget_ms,
                                          .open_files = 64,
                                          .seed = 7 };
    now = 1000;
    buf_free(&heard);
    dial_begin(&dial, &options, now);
}

static void resolved(const char *a, const char *b)
{
    const char *addresses[] = { a, b };
    dial_resolved(&dial, addresses, b != NULL ? 2 : 1, NULL, now);
}

static struct dial_step next(void)
{
    return dial_next(&dial, now);
}

static void keep(void *user, const char *words)
{
    (void)user;
    buf_append(&heard, words, strlen(words) + 1);
}

static bool hears(const char *words)
{
    heard.len = 0;
    dial_print_status(&dial, now, keep, NULL);
    return heard.len > 0 && strstr((const char *)heard.data, words) != NULL;
}

static bool reports(const char *words)
{
    heard.len = 0;
    cr_assert(dial_report(&dial, &heard, now));
    buf_append(&heard, "", 1);
    return strstr((const char *)heard.data, words) != NULL;
}

static void fail_runner(int runner, bool on_the_spot, int error)
{
    dial_failed(&dial, runner, on_the_spot, error, slice_of(NULL, 0), now);
}

static void tear_down(void)
{
    buf_free(&heard);
}

/* Run the plan until the time `until`. Each connect fails with `error` after `took_ms`. Return the number of
 * connects. */
static int live(uint64_t until, int error, uint64_t took_ms)
{
    int connects = 0;
    while (now < until) {
        struct dial_step w = next();
        if (w.what == DIAL_GIVE_UP)
            break;
        if (w.what == DIAL_RESOLVE)
            resolved("10.0.0.1", NULL);
        if (w.what == DIAL_WAIT)
            now = w.at_ms < until ? w.at_ms : until;
        if (w.what == DIAL_CONNECT) {
            connects++;
            now += took_ms;
            fail_runner(w.runner, took_ms == 0, error);
        }
    }
    return connects;
}

Test(dial_plan, a_store_that_is_there_costs_one_try)
{
    begin("n0", 9000);
    cr_assert_eq(next().what, DIAL_RESOLVE);
    cr_assert_eq(next().what, DIAL_WAIT);
    resolved("10.0.0.1", NULL);
    cr_assert_eq(next().what, DIAL_CONNECT);
    cr_assert_eq(next().what, DIAL_WAIT);
    dial_connected(&dial, 0, "10.0.0.2", now);
    dial_arrived(&dial, 0, now);
    cr_assert_eq(next().at_ms, UINT64_MAX);
    now += 100000;
    cr_assert_eq(next().what, DIAL_WAIT, "who has arrived does not give up");
    cr_assert_not(hears(""));
}

Test(dial_plan, addresses_race_with_a_head_start)
{
    begin("n0", 90000);
    next();
    resolved("fe80::1", "10.0.0.1");
    cr_assert_eq(next().runner, 0);
    struct dial_step w = next();
    cr_assert_eq(w.what, DIAL_WAIT);
    cr_assert_eq(w.at_ms, now + 250);
    now = w.at_ms;
    w = next();
    cr_assert_eq(w.what, DIAL_CONNECT);
    cr_assert_eq(w.runner, 1);
}

Test(dial_plan, a_dead_address_costs_the_next_one_no_time)
{
    begin("n0", 90000);
    next();
    resolved("fe80::1", "10.0.0.1");
    next();
    fail_runner(0, true, ENETUNREACH);
    struct dial_step w = next();
    cr_assert_eq(w.what, DIAL_CONNECT);
    cr_assert_eq(w.runner, 1);
    fail_runner(1, false, ECONNREFUSED);
    next();
    cr_assert_eq(dial.finding, FINDING_CONNECT_REFUSED, "the farthest stage is reported");
}

Test(dial_plan, pauses_grow_to_two_seconds_with_jitter)
{
    begin("n0", 900000);
    uint64_t last = 0;
    live(1001, ECONNREFUSED, 1);
    for (int i = 0; i < 12; i++) {
        struct dial_step w = next();
        cr_assert_eq(w.what, DIAL_WAIT);
        last = w.at_ms - now;
        cr_assert_leq(last, 2500);
        now = w.at_ms;
        while ((w = next()).what != DIAL_CONNECT)
            if (w.what == DIAL_RESOLVE)
                resolved("10.0.0.1", NULL);
        fail_runner(w.runner, false, ECONNREFUSED);
    }
    cr_assert_geq(last, 1500);
}

Test(dial_plan, the_budget_ends_it_whatever_it_does, .fini = tear_down)
{
    begin("n0", 30000);
    live(1000000, ECONNREFUSED, 1);
    cr_assert_eq(now, 31000);
    cr_assert_eq(next().what, DIAL_GIVE_UP);
    cr_assert(reports("n1 cannot reach node 0's store at n0:29500, and gives up after 30.0 s (--timeout): "
                      "10.0.0.1:29500 refused the connection after 1 ms"),
              "%s", (char *)heard.data);
    cr_assert(reports("\n  hello    not reached"));
    cr_assert(reports("CONNECT_REFUSED, "));
}

Test(dial_plan, words_come_after_two_seconds_then_in_full_then_every_thirty, .fini = tear_down)
{
    begin("n0", 900000);
    live(2999, ECONNREFUSED, 1);
    cr_assert_not(hears(""));
    live(3000, ECONNREFUSED, 1);
    cr_assert(
        hears("waiting for node 0's store at n0:29500 for 2.0 s: 10.0.0.1:29500 refused the connection after "
              "1 ms: no process listens on that port; giving up in 14 min (--timeout)"),
        "%s", (char *)heard.data);
    live(9000, ECONNREFUSED, 1);
    cr_assert_not(hears(""));
    live(11000, ECONNREFUSED, 1);
    cr_assert(hears("run 'ss -ltnp sport = :29500' on that host"), "the advice comes within 15 s");
    cr_assert(strstr((char *)heard.data, "finding  CONNECT_REFUSED") != NULL);
    live(40000, ECONNREFUSED, 1);
    cr_assert_not(hears(""));
    live(41001, ECONNREFUSED, 1);
    cr_assert(hears("giving up in 14 min"));
    cr_assert(strstr((char *)heard.data, "try") == NULL, "nothing is repeated but the one line");
    cr_assert_leq(dial_status_due(&dial), now + 30000);
}

/* The wait of a node that cannot host the store has a fixed limit, which no option sets. */
Test(dial_plan, a_limit_without_an_option_names_none, .fini = tear_down)
{
    begin("n0", 900000);
    dial.options.knob = NULL;
    live(3000, ECONNREFUSED, 1);
    cr_assert(hears("; giving up in 14 min") && strchr((char *)heard.data, '(') == NULL, "%s",
              (char *)heard.data);
    cr_assert(reports(", and gives up after 2.0 s: "), "%s", (char *)heard.data);
}

Test(dial_plan, a_change_is_told, .fini = tear_down)
{
    begin("n0", 900000);
    live(12000, ECONNREFUSED, 1);
    cr_assert(hears("refused the connection"));
    live(20000, ENETUNREACH, 0);
    cr_assert(hears("n1 has no route to 10.0.0.1"), "%s", (char *)heard.data);
    live(30000, EMFILE, 1);
    cr_assert(hears("ulimit -n 64"), "%s", (char *)heard.data);
}

/* A stage that fails with `error` after `took_ms` gives the finding `code`. */
Test(dial_plan, every_observation_has_its_finding)
{
    static const struct {
        enum dial_stage stage;
        int error;
        uint64_t took_ms;
        const char *code;
    } cases[] = {
        { STAGE_RESOLVE, EAI_NONAME, 1, "NAME_UNKNOWN" },
        { STAGE_RESOLVE, EAI_AGAIN, 1, "RESOLVER_DOWN" },
        { STAGE_RESOLVE, ETIMEDOUT, 5000, "RESOLVER_SILENT" },
        { STAGE_RESOLVE, EAI_FAIL, 5000, "RESOLVE_FAILED" },
        { STAGE_RESOLVE, DIAL_LOOPBACK, 0, "NAME_IS_LOOPBACK" },
        { STAGE_ROUTE, ENETUNREACH, 0, "NO_ROUTE" },
        { STAGE_ROUTE, EHOSTUNREACH, 0, "ROUTE_UNREACHABLE" },
        { STAGE_ROUTE, EACCES, 0, "ROUTE_PROHIBITED" },
        { STAGE_ROUTE, EADDRNOTAVAIL, 0, "FAMILY_OFF" },
        { STAGE_ROUTE, EINVAL, 0, "ROUTE_FAILED" },
        { STAGE_CONNECT, ECONNREFUSED, 1, "CONNECT_REFUSED" },
        { STAGE_CONNECT, DIAL_REFUSED_HERE, 1, "MASTER_IS_LOOPBACK" },
        { STAGE_CONNECT, ETIMEDOUT, 5000, "CONNECT_DROPPED" },
        { STAGE_CONNECT, EHOSTUNREACH, 3100, "HOST_SILENT" },
        { STAGE_CONNECT, EHOSTUNREACH, 1, "CONNECT_REJECTED" },
        { STAGE_CONNECT, ENETUNREACH, 1, "NET_UNREACHABLE" },
        { STAGE_CONNECT, EACCES, 1, "CONNECT_PROHIBITED" },
        { STAGE_CONNECT, EMFILE, 1, "NO_DESCRIPTORS" },
        { STAGE_CONNECT, ECONNRESET, 1, "CONNECT_FAILED" },
        { STAGE_HELLO, HELLO_SILENT, 3000, "HELLO_UNANSWERED" },
        { STAGE_HELLO, HELLO_CLOSED, 1, "HELLO_CLOSED" },
        { STAGE_HELLO, HELLO_HTTP, 1, "PORT_IS_HTTP" },
        { STAGE_HELLO, HELLO_ENCRYPTED, 1, "STORE_ENCRYPTED" },
        { STAGE_HELLO, HELLO_PLAIN, 1, "STORE_NOT_ENCRYPTED" },
        { STAGE_HELLO, HELLO_REJECTED, 1, "TLS_REJECTED" },
        { STAGE_HELLO, HELLO_NO_SECRET, 1, "SECRET_UNKNOWN" },
        { STAGE_HELLO, HELLO_TLS, 1, "PORT_IS_TLS" },
        { STAGE_HELLO, HELLO_SSH, 1, "PORT_IS_SSH" },
        { STAGE_HELLO, HELLO_TORCH, 1, "PORT_IS_TORCH" },
        { STAGE_HELLO, HELLO_OTHER, 1, "PORT_IS_OTHER_SERVICE" },
        { STAGE_HELLO, EIO, 1, "HELLO_FAILED" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dial_met met = { .stage = cases[i].stage,
                                      .error = cases[i].error,
                                      .took_ms = cases[i].took_ms };
        cr_expect_str_eq(dial_code(dial_finding_of(&met)), cases[i].code);
    }
    cr_expect_str_eq(dial_code(FINDING_NONE), "NO_ANSWER_YET");
#define ONE(...) +1
    cr_assert_eq(sizeof(cases) / sizeof(cases[0]), 0 DIAL_FINDINGS(ONE),
                 "a row of the table has no case here");
#undef ONE
}

Test(dial_plan, no_answer_is_dropped_after_five_seconds_and_told, .fini = tear_down)
{
    begin("10.9.0.1", 90000);
    next();
    resolved("10.9.0.1", NULL);
    cr_assert_eq(next().what, DIAL_CONNECT);
    now += 2000;
    cr_assert(hears("no answer to the connection attempt yet"), "%s", (char *)heard.data);
    struct dial_step w = next();
    now = w.at_ms;
    cr_assert_eq(now, 6000);
    w = next();
    cr_assert_eq(w.what, DIAL_DROP);
    next();
    cr_assert(hears("10.9.0.1:29500 does not answer: neither a connection nor a refusal within 5.0 s"), "%s",
              (char *)heard.data);
}

Test(dial_plan, a_silent_hello_is_told_after_three_seconds, .fini = tear_down)
{
    begin("10.9.0.1", 90000);
    next();
    resolved("10.9.0.1", NULL);
    next();
    dial_connected(&dial, 0, "10.9.0.2", now);
    now = next().at_ms;
    cr_assert_eq(now, 4000);
    cr_assert_eq(next().what, DIAL_DROP);
    next();
    cr_assert(hears("accepts connections, but does not reply within 3.0 s"), "%s", (char *)heard.data);
    cr_assert(reports("route    1 of 1 tries worked: from 10.9.0.2"), "%s", (char *)heard.data);
}

Test(dial_plan, a_name_that_means_this_machine_is_told_at_once, .fini = tear_down)
{
    const char *addresses[] = { "127.0.1.1" };
    begin("n0", 90000);
    next();
    dial_resolved(&dial, addresses, 1, "127.0.1.1 n0", now);
    cr_assert_eq(next().what, DIAL_CONNECT, "it may be a tunnel: it is tried");
    fail_runner(0, true, ECONNREFUSED);
    next();
    cr_assert(hears("on n1 the name 'n0' resolves to 127.0.1.1, which is n1 itself (/etc/hosts has the "
                    "line \"127.0.1.1 n0\"); the store is on another node"),
              "%s", (char *)heard.data);
    cr_assert(strstr((char *)heard.data, "remove 'n0' from /etc/hosts on n1") != NULL);
}

Test(dial_plan, a_foreign_service_is_named_at_once, .fini = tear_down)
{
    const char answer[] = "HTTP/1.1 400 Bad Request\r\nServer: x";
    begin("10.9.0.1", 90000);
    next();
    resolved("10.9.0.1", NULL);
    next();
    dial_connected(&dial, 0, "10.9.0.2", now);
    dial_failed(&dial, 0, false, dial_answer_kind(slice_str(answer)), slice_str(answer), now);
    next();
    cr_assert(hears("it sent \"HTTP/1.1 400 Bad Reques\""), "%s", (char *)heard.data);
}

Test(dial_plan, first_bytes_tell_services_apart)
{
    cr_expect_eq(dial_answer_kind(slice_str("HTTP/1.0")), HELLO_HTTP);
    cr_expect_eq(dial_answer_kind(slice_str("SSH-2.0-x")), HELLO_SSH);
    cr_expect_eq(dial_answer_kind(slice_str("\x15\x03\x01")), HELLO_TLS);
    cr_expect_eq(dial_answer_kind(slice_str("220 mail")), HELLO_OTHER);
    cr_expect_eq(dial_answer_kind(slice_str("")), HELLO_CLOSED);
}

Test(dial_plan, a_name_that_appears_later_is_found, .fini = tear_down)
{
    begin("pod-0.svc", 90000);
    next();
    dial_unresolved(&dial, EAI_NONAME, now);
    now += 2000;
    cr_assert(hears("n1 cannot resolve 'pod-0.svc'"), "%s", (char *)heard.data);
    struct dial_step w = next();
    cr_assert_eq(w.what, DIAL_RESOLVE);
    resolved("10.0.0.1", NULL);
    cr_assert_eq(next().what, DIAL_CONNECT);
}

Test(dial_plan, a_failed_lookup_has_the_reason_of_the_resolver, .fini = tear_down)
{
    begin("n0", 90000);
    next();
    dial_unresolved(&dial, EAI_FAIL, now);
    now += 2000;
    cr_assert(hears(gai_strerror(EAI_FAIL)), "%s", (char *)heard.data);
}

Test(dial_plan, a_silent_name_service_is_told_while_we_wait, .fini = tear_down)
{
    begin("n0", 90000);
    next();
    now += 2000;
    cr_assert(hears("the lookup of the host name has not ended yet"));
    now = next().at_ms;
    cr_assert_eq(now, 6000);
    next();
    cr_assert(hears("n1 cannot resolve 'n0': the name service has not answered for 5.0 s"), "%s",
              (char *)heard.data);
}

Test(dial_plan, the_history_is_bounded_and_keeps_its_first, .fini = tear_down)
{
    begin("n0", 100000000);
    live(1001, ECONNREFUSED, 1);
    for (uint64_t i = 0; i < 60; i++)
        live(now + 3000, i % 2 == 0 ? ENETUNREACH : ECONNREFUSED, i % 2);
    cr_assert_eq(dial.n_past, DIAL_HISTORY_MAX);
    cr_assert_eq(dial.history[0].from_ms, 1);
    cr_assert(reports("changes omitted"));
}

/* --- large packets ------------------------------------------------------------------------------------------ */

/* Simulate the probe of a path. `answers` has one character for each packet: '1' if the packet is answered, otherwise
 * '0'. `sizes` has the expected size of each packet: 'S' for a small packet, 'L' for a large packet. Expect `result` at
 * the end. */
static void expect_probe(const char *answers, const char *sizes, enum path_step result)
{
    struct path_answers a = { 0 };
    enum path_step step;
    size_t n = 0;
    for (; (step = path_next(&a)) <= PROBE_SEND_LARGE && answers[n] != '\0'; n++) {
        const enum path_size size = step == PROBE_SEND_LARGE ? PATH_LARGE : PATH_SMALL;
        cr_expect_eq(size == PATH_LARGE ? 'L' : 'S', sizes[n], "%s, packet %zu", answers, n);
        a.sent[size]++;
        a.answered[size] += answers[n] == '1';
    }
    cr_expect_eq(answers[n], '\0', "%s: ends after %zu packets", answers, n);
    cr_expect_eq(step, result, "%s: %d", answers, (int)step);
}

Test(dial_plan, a_path_loses_large_packets_if_all_small_ones_around_them_arrive)
{
    expect_probe("1010101", "SLSLSLS", PROBE_LOSES);
    expect_probe("01010101", "SSLSLSLS", PROBE_LOSES); /* one small packet was lost */
    expect_probe("11", "SL", PROBE_CARRIES);
    expect_probe("101011", "SLSLSL", PROBE_CARRIES);
}

Test(dial_plan, a_path_without_answers_is_unknown)
{
    expect_probe("00", "SS", PROBE_UNKNOWN);     /* a firewall drops the packets or the answers */
    expect_probe("1000", "SLSS", PROBE_UNKNOWN); /* the peer limits its answers, or is switched off */
    expect_probe("10101000", "SLSLSLSS", PROBE_UNKNOWN);
}

Test(dial_plan, a_router_that_reports_the_mtu_is_no_fault)
{
    struct path_answers a = { .sent = { 1, 1 }, .answered = { 1, 0 }, .is_reported = true };
    cr_expect_eq(path_next(&a), PROBE_CARRIES);
}

/* If the kernel itself cannot send the large packets, the path has not lost these packets. */
Test(dial_plan, a_path_with_another_error_is_unknown)
{
    struct path_answers a = { .sent = { 4, 3 }, .answered = { 4, 0 }, .has_error = true };
    cr_expect_eq(path_next(&a), PROBE_UNKNOWN);
}
