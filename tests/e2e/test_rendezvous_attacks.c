/* Tests of ddp-rendezvous under attack by broken, rude and greedy clients. In most tests, a normal client is connected
 * during the attack, and must be served afterwards. The server's memory and CPU time must stay bounded. The bytes of
 * these attacks stopped PyTorch's own TCPStore, or made the TCPStore use much memory. */
#include "base/clock.h"
#include "run.h"
#include "procstat.h"
#include "store/encode.h"
#include "hub/hub.h"
#include "store_peers.h"
#include "sim_hub.h" /* hex_read */

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct daemon server;
static int bystander;
static long base_kib, base_cpu_ms;
static bool measured; /* false with a sanitizer, which changes the memory and speed of the server */

static void besiege(void)
{
    server = daemon_start("127.0.0.1:0", "--quiet");
    bystander = peer_connect_c(server.port);
    cr_assert_eq(peer_add(bystander, "/n", 1), 1);
    measured = !procstat_is_sanitized(run_pid(server.process));
    base_kib = procstat_rss_kib(run_pid(server.process));
    base_cpu_ms = procstat_cpu_ms(run_pid(server.process));
}

/* Check after every attack that old and new clients are served, and that the store can stop. */
static void relieve(void)
{
    cr_assert_eq(peer_add(bystander, "/n", 1), 2);
    peer_expect_service(server.port);
    close(bystander);
    daemon_stop(&server);
}

TestSuite(rendezvous_attacks, .init = besiege, .fini = relieve, .timeout = 240);

static void expect_memory_below(long kib)
{
    long peak = procstat_peak_kib(run_pid(server.process));
    if (measured)
        cr_assert_lt(peak - base_kib, kib, "the server grew by %ld KiB", peak - base_kib);
}

static void expect_cpu_below(long ms)
{
    long used = procstat_cpu_ms(run_pid(server.process)) - base_cpu_ms;
    if (measured)
        cr_assert_lt(used, ms, "the server used %ld ms of CPU", used);
}

/* --- wrong lengths ------------------------------------------------------------------------------------- */

static const uint64_t huge[] = { 1ull << 31, 1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 7 };
enum { HUGE_LENGTHS = sizeof(huge) / sizeof(huge[0]), EACH = 50 };

/* Send `start` and then each of the huge lengths. Expect that the server closes the connection and allocates
 * nothing. */
static void announce_huge(const char *start)
{
    for (int i = 0; i < HUGE_LENGTHS * EACH; i++) {
        struct buf b = { 0 };
        int fd = peer_connect(server.port);
        hex_read(start, &b);
        append_u64(&b, huge[i % HUGE_LENGTHS]);
        peer_send(fd, buf_slice(&b));
        peer_expect_end(fd);
        buf_free(&b);
    }
    expect_memory_below(2048);
}

Test(rendezvous_attacks, huge_lengths_are_announced)
{
    static const char *const starts[] = {
        "00 cef7853c 01",                     /* the length of a key follows */
        "03",                                 /* the length of a key in dialect A follows */
        "00 cef7853c 01 0100000000000000 61", /* the length of a value follows */
        "00 cef7853c 06",                     /* the length of a list follows */
        "00 cef7853c 0b",                     /* the length of a list of pairs follows */
        "00 cef7853c 05 0200000000000000",    /* the length of a key in a list follows */
        "00 cef7853c 80",                     /* a length in a request of ddprun follows */
        "00 cef7853c 81",
        "00 cef7853c 82",
    };
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
        announce_huge(starts[i]);
}

Test(rendezvous_attacks, values_are_announced_and_never_sent)
{
    enum { LIARS = 200 };
    int liar[LIARS];
    for (int i = 0; i < LIARS; i++) {
        liar[i] = peer_connect_c(server.port);
        peer_send_hex(liar[i], "01 0100000000000000 61 0000800000000000 00");
    }
    cr_assert_eq(peer_add(bystander, "/m", 1), 1);
    expect_memory_below(2048);
    for (int i = 0; i < LIARS; i++)
        close(liar[i]);
}

/* --- requests without end ------------------------------------------------------------------------------ */

Test(rendezvous_attacks, one_byte_and_then_silence_stops_nobody)
{
    int mute[20];
    for (int i = 0; i < 20; i++) {
        mute[i] = peer_connect(server.port);
        peer_send(mute[i], slice_of(i % 2 ? "\0" : "\3", 1));
    }
    peer_expect_service(server.port);
    for (int i = 0; i < 20; i++)
        close(mute[i]);
}

/* Send 60 MiB of a request that is never complete. A server that parses the request from its first byte at each read
 * would need a minute. */
Test(rendezvous_attacks, an_endless_multi_set_costs_linear_time)
{
    enum { PAIR = 4096, PAIRS = 15000, KEY = 8 };
    static uint8_t pair[PAIR];
    int fd = peer_connect_c(server.port);
    peer_send_hex(fd, "0b 0000020000000000");
    write_le(pair, KEY, 8);
    write_le(pair + 8 + KEY, PAIR - KEY - 16, 8);
    for (int i = 0; i < PAIRS; i++)
        cr_assert(peer_send(fd, slice_of(pair, sizeof(pair))), "it was closed after %d pairs", i);
    peer_expect_service(server.port);
    expect_cpu_below(3000);
    close(fd);
}

Test(rendezvous_attacks, a_long_list_in_small_pieces_costs_linear_time)
{
    enum { KEYS = 131072 };
    struct buf b = { 0 };
    int fd = peer_connect_c(server.port);
    append_u8(&b, 0x06);
    append_u64(&b, KEYS);
    for (uint64_t i = 0; i < KEYS; i++)
        append_blob(&b, slice_of(&i, sizeof(i)));
    for (size_t at = 0; at < b.len; at += 1000)
        cr_assert(peer_send(fd, slice_of(b.data + at, b.len - at < 1000 ? b.len - at : 1000)));
    peer_expect_silence(bystander, 'C');
    expect_cpu_below(3000);
    buf_free(&b);
    close(fd);
}

Test(rendezvous_attacks, waiters_for_many_keys_die)
{
    enum { KEYS = 100000, WARM = 3, ROUNDS = 12 };
    struct buf b = { 0 };
    long warm_kib = 0;
    append_u8(&b, 0x06);
    append_u64(&b, KEYS);
    for (uint64_t i = 0; i < KEYS; i++)
        append_blob(&b, slice_of(&i, sizeof(i)));
    for (int round = 0; round < ROUNDS; round++) {
        int fd = peer_connect_c(server.port);
        cr_assert(peer_send(fd, buf_slice(&b)));
        shutdown(fd, SHUT_WR);
        peer_expect_end(fd); /* the server closes after it has read all bytes */
        if (round == WARM)
            warm_kib = procstat_peak_kib(run_pid(server.process)) - base_kib;
    }
    expect_memory_below(warm_kib + warm_kib / 4 + 1024);
    expect_cpu_below(5000);
    buf_free(&b);
}

/* --- nonsense ------------------------------------------------------------------------------------------ */

static void expect_refused(const char *name, struct slice hello)
{
    int fd = peer_connect(server.port);
    cr_assert(peer_send(fd, hello), "%s", name);
    shutdown(fd, SHUT_WR);
    peer_expect_end(fd);
    peer_expect_service(server.port);
}

Test(rendezvous_attacks, other_protocols_are_shown_the_door)
{
    static const char tls[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    expect_refused("HTTP", slice_str("GET /metrics HTTP/1.1\r\nHost: node1\r\n\r\n"));
    expect_refused("TLS", slice_of(tls, sizeof(tls) - 1));
    expect_refused("SSH", slice_str("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"));
    expect_refused("Redis", slice_str("*1\r\n$4\r\nPING\r\n"));
    expect_refused(
        "RDP", slice_of("\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x03\x00\x00\x00", 19));
}

Test(rendezvous_attacks, every_unknown_opcode_is_closed)
{
    for (int op = 0x13; op < 256; op++) {
        if (op >= 0x80 && op <= 0x83)
            continue;
        int fd = peer_connect_c(server.port);
        peer_send(fd, slice_of(&(char){ (char)op }, 1));
        peer_expect_end(fd);
    }
}

Test(rendezvous_attacks, random_bytes_are_survived)
{
    static unsigned char noise[4096];
    srand(42);
    for (int i = 0; i < 300; i++) {
        int fd = peer_connect(server.port);
        for (size_t k = 0; k < sizeof(noise); k++)
            noise[k] = (unsigned char)rand();
        if (i % 2)
            memcpy(noise, "\0\xce\xf7\x85\x3c", 5);
        peer_send(fd, slice_of(noise, sizeof(noise)));
        close(fd);
    }
    peer_expect_service(server.port);
    expect_memory_below(4096);
}

Test(rendezvous_attacks, rude_clients_that_never_close_are_closed)
{
    enum { RUDE = 20 };
    int rude[RUDE], before = procstat_fds(run_pid(server.process));
    for (int i = 0; i < RUDE; i++) {
        rude[i] = peer_connect_c(server.port);
        peer_send_hex(rude[i], "77");
    }
    peer_expect_silence(bystander, 'C');
    for (struct patience p = { 0 }; procstat_fds(run_pid(server.process)) > before;)
        cr_assert(patience_left(&p), "%d clients are still held",
                  procstat_fds(run_pid(server.process)) - before);
    for (int i = 0; i < RUDE; i++)
        peer_expect_end(rude[i]);
}

/* --- floods -------------------------------------------------------------------------------------------- */

Test(rendezvous_attacks, a_storm_of_connects_and_resets)
{
    const struct linger at_once = { 1, 0 };
    for (int i = 0; i < 3000; i++) {
        int fd = peer_connect(server.port);
        if (i % 3 == 0)
            peer_send_hex(fd, "00 cef7853c 06 0100000000000000 0100000000000000 61");
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(fd);
        if (i % 1000 == 0)
            peer_expect_service(server.port);
    }
    cr_assert_eq(peer_add(bystander, "/m", 1), 1);
    expect_memory_below(4096);
}

/* Read exactly `bytes`. */
static void read_all(int fd, size_t bytes)
{
    static char buffer[1 << 20];
    const struct timeval limit = { PEER_DEADLINE_MS / 1000, 0 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    for (ssize_t n; bytes > 0; bytes -= (size_t)n) {
        n = recv(fd, buffer, bytes < sizeof(buffer) ? bytes : sizeof(buffer), 0);
        cr_assert_gt(n, 0, "%zu bytes are missing: %s", bytes, n == 0 ? "closed" : strerror(errno));
    }
}

enum { BIG = 8 << 20 };
#define GET_BIG     "03 0400000000000000 2f626967"
#define BIG_KEY     "0400000000000000 2f626967"
#define COMPARE_BIG "02 " BIG_KEY "0000000000000000 0000000000000000"
#define GET_SEVEN   "0a 0700000000000000" BIG_KEY BIG_KEY BIG_KEY BIG_KEY BIG_KEY BIG_KEY BIG_KEY

static void set_big(void)
{
    char *value = calloc(1, BIG);
    peer_set(bystander, "/big", slice_of(value, BIG));
    cr_assert_eq(peer_add(bystander, "/m", 1), 1);
    free(value);
}

/* Twenty clients request 56 MiB each, ten others request 8 MiB again and again, and none of them reads. Small requests
 * are still answered. A client that reads gets its large reply, because the store closes clients that do not read. */
Test(rendezvous_attacks, unread_replies_stay_within_their_limit)
{
    enum { GREEDY = 30, ASKED = 200, LIMIT_KIB = 256 << 10, VALUE_KIB = 3 * (BIG >> 10) };
    int greedy[GREEDY];
    set_big();
    for (int i = 0; i < GREEDY; i++) {
        greedy[i] = peer_connect_c(server.port);
        for (int k = 0; i >= 20 && k < ASKED; k++)
            peer_send_hex(greedy[i], GET_BIG);
        if (i < 20)
            peer_send_hex(greedy[i], GET_SEVEN);
        cr_assert_eq(peer_add(bystander, "/m", 1), i + 2);
    }
    expect_memory_below(LIMIT_KIB + VALUE_KIB);
    int honest = peer_connect_c(server.port);
    peer_send_hex(honest, GET_BIG);
    read_all(honest, 8 + (size_t)BIG);
    expect_memory_below(LIMIT_KIB + VALUE_KIB);
    for (int i = 0; i < GREEDY; i++)
        close(greedy[i]);
    close(honest);
}

/* Read a reply whose value has BIG bytes, each equal to `byte`. */
static void expect_big(int fd, char byte)
{
    static char value[BIG];
    const struct timeval limit = { PEER_DEADLINE_MS / 1000, 0 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    peer_expect(fd, "0000800000000000");
    cr_assert_eq(recv(fd, value, BIG, MSG_WAITALL), BIG);
    cr_assert(value[0] == byte && memcmp(value, value + 1, BIG - 1) == 0);
}

/* Twenty clients do not read their replies. All these replies share one copy of the value. The clients later get the
 * whole value, even if the key changes. Clients that die meanwhile do no harm. */
Test(rendezvous_attacks, a_large_value_is_kept_once_for_all_who_ask_for_it)
{
    enum { CLIENTS = 20, VALUE_KIB = BIG >> 10 };
    static char other[BIG];
    int fd[CLIENTS];
    set_big();
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = peer_connect_c(server.port);
        peer_send_hex(fd[i], GET_BIG);
        if (i == CLIENTS / 3) {
            memset(other, 'b', BIG);
            peer_set(bystander, "/big", slice_of(other, BIG));
        }
        cr_assert_eq(peer_add(bystander, "/m", 1), i + 2);
    }
    expect_memory_below(4 * VALUE_KIB);
    peer_send_hex(bystander, "08 " BIG_KEY);
    peer_expect(bystander, "0100000000000000");
    for (int i = 0; i < CLIENTS; i++) {
        if (i % 4 != 0)
            expect_big(fd[i], i <= CLIENTS / 3 ? '\0' : 'b');
        close(fd[i]);
    }
    peer_expect_service(server.port);
}

/* The reply to a compare-and-set is as long as the value. Ninety clients do not read their replies. A well-behaved
 * client gets its reply. */
Test(rendezvous_attacks, unread_replies_to_compare_and_set_stay_within_their_limit)
{
    enum { GREEDY = 90, LIMIT_KIB = 256 << 10, VALUE_KIB = 3 * (BIG >> 10) };
    int greedy[GREEDY];
    set_big();
    for (int i = 0; i < GREEDY; i++) {
        greedy[i] = peer_connect_c(server.port);
        peer_send_hex(greedy[i], COMPARE_BIG);
    }
    cr_assert_eq(peer_add(bystander, "/m", 1), 2);
    int honest = peer_connect_c(server.port);
    peer_send_hex(honest, COMPARE_BIG);
    read_all(honest, 8 + (size_t)BIG);
    expect_memory_below(LIMIT_KIB + VALUE_KIB);
    for (int i = 0; i < GREEDY; i++)
        close(greedy[i]);
    close(honest);
}

/* The client requests 160 MiB of replies, reads them late, and misses nothing. */
Test(rendezvous_attacks, a_client_that_asks_first_and_reads_later_gets_everything)
{
    enum { ASKED = 20 };
    set_big();
    int fd = peer_connect_c(server.port);
    for (int i = 0; i < ASKED; i++)
        peer_send_hex(fd, GET_BIG);
    cr_assert_eq(peer_add(bystander, "/m", 1), 2);
    expect_memory_below(6 * (BIG >> 10));
    read_all(fd, ASKED * (8 + (size_t)BIG));
    peer_expect_silence(fd, 'C');
    close(fd);
}

/* --- many idle clients, few descriptors ---------------------------------------------------------------- */

Test(rendezvous_attacks, idle_clients_are_cheap)
{
    enum { IDLE = 4000, UV_HANDLE = 248, EACH_BYTES = UV_HANDLE + 648 };
    static int idle[IDLE];
    const uint32_t descriptors = limits_raise_descriptors(0);
    if (descriptors < IDLE + 200)
        cr_skip_test("skipped, because only %u descriptors are allowed here", descriptors);
    for (int i = 0; i < IDLE; i++)
        idle[i] = peer_connect(server.port);
    peer_expect_service(server.port);
    expect_memory_below(IDLE * EACH_BYTES / 1024);
    for (int i = 0; i < IDLE; i++)
        close(idle[i]);
}

/* Replace the fixture of the suite, because the tests below start a separate server. */
static void no_siege(void)
{
}

/* More clients connect than the store has descriptors. The store serves the accepted clients. The other clients wait
 * until descriptors are free. */
Test(rendezvous_attacks, running_out_of_descriptors_hurts_nobody, .init = no_siege, .fini = no_siege)
{
    enum { CLIENTS = 150, FDS = 64 };
    int fd[CLIENTS];
    struct daemon d = daemon_start_limited(FDS);
    int first = peer_connect_c(d.port);
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = peer_connect(d.port);
        peer_send_hex(fd[i], PEER_GREETING);
    }
    cr_assert(run_until_error(d.process, "file descriptors", PEER_DEADLINE_MS));
    for (int i = 1; i <= 100; i++)
        cr_assert_eq(peer_add(first, "/n", 1), i);
    cr_assert_lt(procstat_fds(run_pid(d.process)), FDS);
    long cpu_ms = procstat_cpu_ms(run_pid(d.process));
    usleep(500 * 1000); /* long enough to detect a spinning loop */
    cr_assert_lt(procstat_cpu_ms(run_pid(d.process)) - cpu_ms, 250);
    for (int i = 0; i < CLIENTS; i++) { /* every client is served after other clients have left */
        peer_expect(fd[i], PEER_GREETING_ANSWER);
        close(fd[i]);
    }
    peer_expect_service(d.port);
    close(first);
    daemon_stop(&d);
}

/* Silent connections use up the descriptors of the store. To serve other clients, the store closes silent connections,
 * but no connection that has sent a request. */
Test(rendezvous_attacks, silent_connections_do_not_shut_honest_clients_out, .init = no_siege,
     .fini = no_siege)
{
    enum { FDS = 128, SILENT = 150 };
    int silent[SILENT];
    struct daemon d = daemon_start_limited(FDS);
    int honest = peer_connect_c(d.port);
    for (int i = 0; i < SILENT; i++)
        silent[i] = peer_connect(d.port);
    peer_expect_service(d.port);
    cr_assert(run_until_error(d.process, "request for", PEER_DEADLINE_MS));
    cr_assert_eq(peer_add(honest, "/n", 1), 1);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    close(honest);
    daemon_stop(&d);
}

Test(rendezvous_attacks, loopback_means_loopback)
{
    char v6[16];
    snprintf(v6, sizeof(v6), "%d", server.port);
    const char *argv[] = { "/bin/bash", "-c", "exec 3<>/dev/tcp/::1/$0", v6, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_neq(r.exit_code, 0, "it listens on ::1 although 127.0.0.1 was asked for");
}
