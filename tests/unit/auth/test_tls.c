/* Tests of TLS between two engines: which secret opens a connection, and that no attack opens a connection. The attacks
 * are garbage, cut and replayed messages, and one changed byte anywhere in the handshake. Another attack is a server
 * with a certificate in place of the secret. */
#include "auth/auth.h"
#include "auth/tls.h"
#include "run.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct secret other = { .key = { 9 }, .jobs = "" };
static struct secret team_b = { .key = { 4, 5, 6 }, .jobs = "b-" };
static struct secret team_a = { .key = { 1, 2, 3 }, .jobs = "a-", .next = &team_b };

static struct tls_context *client_context, *server_context;

/* One side of a connection. `sent` are all bytes for the peer, `got` all decrypted bytes. */
struct side {
    struct tls *tls;
    struct buf sent, got;
};

static struct side client, server;

static struct tls_context *context(enum tls_side side, const struct secret *secrets, const char *job)
{
    struct tls_context *c;
    struct ddp_err err;
    cr_assert_eq(tls_context_open(side, secrets, job, &c, &err), DDP_OK, "%s", err.msg);
    return c;
}

static void fresh(struct side *s, const struct tls_context *c)
{
    tls_free(s->tls);
    s->tls = tls_new(c);
    cr_assert_not_null(s->tls);
    s->sent.len = s->got.len = 0;
}

static enum tls_state give(struct side *to, struct slice bytes)
{
    return tls_receive(to->tls, bytes, &to->got, &to->sent);
}

/* Move all bytes of `from` to `to`, at most `step` bytes at a time. */
static void move(struct side *from, struct side *to, size_t step)
{
    for (size_t at = 0; at < from->sent.len; at += step) {
        const size_t left = from->sent.len - at;
        give(to, slice_of(from->sent.data + at, left < step ? left : step));
    }
    from->sent.len = 0;
}

static void shake(size_t step)
{
    give(&client, slice_of(NULL, 0));
    for (int i = 0; i < 3; i++) {
        move(&client, &server, step);
        move(&server, &client, step);
    }
}

static void begin_as(const struct secret *secret, const char *job)
{
    tls_context_close(client_context);
    client_context = context(TLS_CLIENT, secret, job);
    fresh(&client, client_context);
    fresh(&server, server_context);
}

static void begin(void)
{
    server_context = context(TLS_SERVER, &team_a, "");
    begin_as(&team_a, "a-job");
}

static void end_side(struct side *s)
{
    tls_free(s->tls);
    buf_free(&s->sent);
    buf_free(&s->got);
}

static void end(void)
{
    end_side(&client);
    end_side(&server);
    tls_context_close(client_context);
    tls_context_close(server_context);
}

TestSuite(tls, .init = begin, .fini = end);

static bool both_open(void)
{
    return tls_state(client.tls) == TLS_OPEN && tls_state(server.tls) == TLS_OPEN;
}

static void expect_text(const struct side *s, const char *text)
{
    cr_expect(slice_equal(buf_slice(&s->got), slice_str(text)), "got %zu bytes: %.*s", s->got.len,
              (int)s->got.len, (const char *)s->got.data);
}

Test(tls, the_secret_opens_a_connection_in_both_directions)
{
    shake(SIZE_MAX);
    cr_assert(both_open(), "%s%s", tls_why(client.tls), tls_why(server.tls));
    cr_expect_eq(tls_secret(server.tls), &team_a);
    cr_expect_str_eq(tls_job(server.tls), "a-job");
    cr_expect(tls_send(client.tls, slice_str("question"), &client.sent));
    cr_expect_null(memmem(client.sent.data, client.sent.len, "question", 8));
    move(&client, &server, SIZE_MAX);
    cr_expect(tls_send(server.tls, slice_str("answer"), &server.sent));
    move(&server, &client, SIZE_MAX);
    expect_text(&server, "question");
    expect_text(&client, "answer");
}

Test(tls, messages_that_arrive_byte_by_byte_are_whole)
{
    shake(1);
    cr_assert(both_open());
    cr_expect(tls_send(client.tls, slice_str("slow"), &client.sent));
    move(&client, &server, 1);
    expect_text(&server, "slow");
}

Test(tls, a_long_value_arrives_unchanged)
{
    enum { BYTES = 3 << 20 };
    char *value = malloc(BYTES);
    cr_assert_not_null(value);
    for (size_t i = 0; i < BYTES; i++)
        value[i] = (char)(i * 31 >> 3);
    shake(SIZE_MAX);
    cr_assert(tls_send(server.tls, slice_of(value, BYTES), &server.sent));
    move(&server, &client, 60000);
    cr_expect(slice_equal(buf_slice(&client.got), slice_of(value, BYTES)));
    free(value);
}

Test(tls, after_the_end_of_one_side_the_other_may_still_send)
{
    shake(SIZE_MAX);
    cr_assert(tls_send(client.tls, slice_str("last"), &client.sent));
    tls_end(client.tls, &client.sent);
    move(&client, &server, SIZE_MAX);
    cr_expect_eq(tls_state(server.tls), TLS_ENDED);
    expect_text(&server, "last");
    cr_assert(tls_send(server.tls, slice_str("reply"), &server.sent));
    move(&server, &client, SIZE_MAX);
    expect_text(&client, "reply");
}

/* --- secrets, jobs and tenants ------------------------------------------------------------------------------ */

static void expect_rejected(const char *why)
{
    shake(SIZE_MAX);
    cr_expect_eq(tls_state(client.tls), TLS_FAILED);
    cr_expect_eq(tls_state(server.tls), TLS_FAILED);
    cr_expect_not_null(strstr(tls_why(server.tls), why), "%s", tls_why(server.tls));
    cr_expect_not(tls_send(client.tls, slice_str("x"), &client.sent));
    cr_expect_not(tls_send(server.tls, slice_str("x"), &server.sent));
}

Test(tls, another_secret_is_rejected)
{
    begin_as(&other, "a-job");
    expect_rejected("secrets differ: sha256 ");
}

Test(tls, a_job_of_another_tenant_is_rejected)
{
    begin_as(&team_b, "a-job");
    expect_rejected("secrets differ: sha256 ");
}

Test(tls, a_job_without_a_tenant_is_rejected)
{
    begin_as(&team_a, "c-job");
    expect_rejected("no secret");
}

Test(tls, each_tenant_gets_its_own_key)
{
    begin_as(&team_b, "b-job");
    shake(SIZE_MAX);
    cr_assert(both_open());
    cr_expect_eq(tls_secret(server.tls), &team_b);
    cr_expect_str_eq(tls_job(server.tls), "b-job");
}

Test(tls, an_operator_without_a_job_is_known_by_its_secret)
{
    begin_as(&team_b, "");
    shake(SIZE_MAX);
    cr_assert(both_open());
    cr_expect_eq(tls_secret(server.tls), &team_b);
    begin_as(&other, "");
    expect_rejected("secrets differ");
}

Test(tls, the_key_depends_on_the_job)
{
    uint8_t a[AUTH_HASH_BYTES], b[AUTH_HASH_BYTES];
    auth_tls_key(&team_a, "a-job", a);
    auth_tls_key(&team_a, "a-jobs", b);
    cr_expect_neq(memcmp(a, b, sizeof(a)), 0);
    cr_expect_neq(memcmp(a, team_a.key, sizeof(a)), 0);
}

/* --- what an attacker sends ----------------------------------------------------------------------------------- */

Test(tls, garbage_fails_and_opens_nothing)
{
    static const char *const first[] = { "\x16", "\x16\x03\x01", "GET / HTTP/1.1\r\n\r\n",
                                         "\x15\x03\x03\x00\x02\x02\x28", "\x17\x03\x03\x00\x05hello" };
    unsigned seed = 1;
    for (int i = 0; i < 500; i++) {
        uint8_t bytes[600];
        for (size_t k = 0; k < sizeof(bytes); k++)
            bytes[k] = (uint8_t)((seed = seed * 1103515245 + 12345) >> 16);
        memcpy(bytes, first[i % 5], strlen(first[i % 5]));
        fresh(&server, server_context);
        fresh(&client, client_context);
        give(&client, slice_of(NULL, 0));
        give(&server, slice_of(bytes, sizeof(bytes)));
        give(&client, slice_of(bytes, sizeof(bytes)));
        cr_expect_neq(tls_state(server.tls), TLS_OPEN);
        cr_expect_neq(tls_state(client.tls), TLS_OPEN);
        cr_expect_eq(server.got.len + client.got.len, 0);
    }
}

/* The record of the first message announces 16 KiB. The server must fail after TLS_HANDSHAKE_MAX bytes, and not wait
 * for the rest. */
Test(tls, a_long_first_message_is_not_kept)
{
    static uint8_t bytes[TLS_HANDSHAKE_MAX] = { 0x16, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb };
    cr_expect_eq(give(&server, slice_of(bytes, sizeof(bytes))), TLS_HANDSHAKE);
    cr_expect_eq(give(&server, slice_of(bytes + 9, 1)), TLS_FAILED);
    cr_expect_not_null(strstr(tls_why(server.tls), "many bytes"), "%s", tls_why(server.tls));
}

static void put_number(uint8_t *at, size_t bytes, size_t number)
{
    for (size_t i = bytes; i-- > 0; number >>= 8)
        at[i] = (uint8_t)number;
}

/* Make the first message of a client with `n` equal identities. The key is the last extension of OpenSSL's message:
 *
 *     record 5 | message 4 | version 2, random 32, session id | ciphers, compression | length 2 of all extensions
 *     ... | type 2, length 2 | length 2, n times {length 2, identity, age 4} | length 2, n times {32, binder} */
static struct buf hello_with_identities(size_t n)
{
    enum { AGE = 4, BINDER = 33 };
    struct buf hello = { 0 };
    fresh(&client, client_context);
    give(&client, slice_of(NULL, 0));
    const struct buf *one = &client.sent;
    const uint8_t *identity = memmem(one->data, one->len, "ddprun1 ", 8);
    cr_assert_not_null(identity);
    const size_t at = (size_t)(identity - one->data) - 8, len = (size_t)(identity[-2] << 8 | identity[-1]);
    const size_t offer = 2 + len + AGE;
    size_t all = 5 + 4 + 2 + 32;
    all += 1 + (size_t)one->data[all];
    all += 2 + (size_t)(one->data[all] << 8 | one->data[all + 1]);
    all += 1 + (size_t)one->data[all];
    cr_assert_eq(at + 4 + 2 + offer + 2 + BINDER, one->len);
    cr_assert(buf_append(&hello, one->data, at + 6));
    for (size_t i = 0; i < n; i++)
        cr_assert(buf_append(&hello, identity - 2, offer));
    put_number(hello.data + at + 4, 2, n * offer);
    cr_assert(buf_append(&hello, (uint8_t[2]){ 0 }, 2));
    put_number(hello.data + hello.len - 2, 2, n * BINDER);
    for (size_t i = 0; i < n; i++)
        cr_assert(buf_append(&hello, one->data + one->len - BINDER, BINDER));
    put_number(hello.data + at + 2, 2, hello.len - at - 4);
    put_number(hello.data + all, 2, hello.len - all - 2);
    put_number(hello.data + 6, 3, hello.len - 9);
    put_number(hello.data + 3, 2, hello.len - 5);
    return hello;
}

static void expect_failure(size_t identities, const char *why)
{
    struct buf hello = hello_with_identities(identities);
    fresh(&server, server_context);
    cr_expect_eq(give(&server, buf_slice(&hello)), TLS_FAILED, "%zu identities", identities);
    cr_expect_not_null(strstr(tls_why(server.tls), why), "%zu identities: %s", identities,
                       tls_why(server.tls));
    buf_free(&hello);
}

/* The store rejects a message with more than one identity, because each identity costs several hashes. A message that
 * is too long is rejected before OpenSSL parses it. */
Test(tls, a_message_with_many_identities_is_rejected)
{
    begin_as(&other, "a-job");
    expect_failure(1, "secrets differ");
    expect_failure(2, "one key");
    expect_failure(20, "one key");
    expect_failure(150, "many bytes");
    cr_expect_eq(server.sent.len, 0, "OpenSSL has parsed the message");
}

/* A message may arrive together with the last bytes of the handshake. The handshake's size limit does not apply to the
 * message. */
Test(tls, a_long_message_may_arrive_with_the_end_of_the_handshake)
{
    char text[3 * TLS_HANDSHAKE_MAX];
    memset(text, 'x', sizeof(text));
    give(&client, slice_of(NULL, 0));
    move(&client, &server, SIZE_MAX);
    move(&server, &client, SIZE_MAX);
    cr_assert(tls_send(client.tls, slice_of(text, sizeof(text)), &client.sent));
    move(&client, &server, SIZE_MAX);
    cr_assert_eq(tls_state(server.tls), TLS_OPEN, "%s", tls_why(server.tls));
    cr_expect(slice_equal(buf_slice(&server.got), slice_of(text, sizeof(text))));
}

/* Record the three flights of a handshake: the client's first message, the server's answer, the client's proof. */
static void record(struct buf flight[3])
{
    struct side *const from[] = { &client, &server, &client }, *const to[] = { &server, &client, &server };
    fresh(&client, client_context);
    fresh(&server, server_context);
    give(&client, slice_of(NULL, 0));
    for (int i = 0; i < 3; i++) {
        flight[i] = (struct buf){ 0 };
        cr_assert(buf_append(&flight[i], from[i]->sent.data, from[i]->sent.len));
        move(from[i], to[i], SIZE_MAX);
    }
    cr_assert(both_open());
}

static void drop(struct buf flight[3])
{
    for (int i = 0; i < 3; i++)
        buf_free(&flight[i]);
}

Test(tls, a_cut_first_message_is_only_waited_for)
{
    struct buf flight[3];
    record(flight);
    for (size_t n = 0; n < flight[0].len; n++) {
        fresh(&server, server_context);
        cr_expect_eq(give(&server, slice_of(flight[0].data, n)), TLS_HANDSHAKE, "%zu bytes", n);
        cr_expect_eq(server.sent.len, 0, "an answer after %zu bytes", n);
    }
    drop(flight);
}

Test(tls, a_replayed_handshake_is_rejected)
{
    struct buf flight[3];
    record(flight);
    fresh(&server, server_context);
    cr_expect_eq(give(&server, buf_slice(&flight[0])), TLS_HANDSHAKE);
    cr_expect_eq(give(&server, buf_slice(&flight[2])), TLS_FAILED);
    fresh(&client, client_context);
    give(&client, slice_of(NULL, 0));
    cr_expect_eq(give(&client, buf_slice(&flight[1])), TLS_FAILED);
    drop(flight);
}

Test(tls, a_replayed_message_is_rejected)
{
    shake(SIZE_MAX);
    cr_assert(tls_send(client.tls, slice_str("once"), &client.sent));
    cr_expect_eq(give(&server, buf_slice(&client.sent)), TLS_OPEN);
    cr_expect_eq(give(&server, buf_slice(&client.sent)), TLS_FAILED);
    expect_text(&server, "once");
}

Test(tls, a_reflected_message_is_rejected)
{
    shake(SIZE_MAX);
    cr_assert(tls_send(client.tls, slice_str("mine"), &client.sent));
    cr_expect_eq(give(&client, buf_slice(&client.sent)), TLS_FAILED);
    expect_text(&client, "");
}

/* Return true for the bytes of a record's version. TLS 1.3 does not authenticate the version of a record that is not
 * encrypted, and no receiver uses this version. */
static bool is_record_version(const struct buf *flight, size_t offset)
{
    for (size_t at = 0; at + 5 <= flight->len;
         at += 5 + (size_t)(flight->data[at + 3] << 8 | flight->data[at + 4]))
        if (offset == at + 1 || offset == at + 2)
            return true;
    return false;
}

/* The handshake has three flights. Change one bit of each byte of each flight, and make a new handshake for each
 * change. */
Test(tls, no_changed_byte_of_the_handshake_opens_a_connection)
{
    struct side *const from[] = { &client, &server, &client }, *const to[] = { &server, &client, &server };
    struct buf flight[3];
    record(flight);
    for (int changed = 0; changed < 3; changed++)
        for (size_t offset = 0; offset < flight[changed].len; offset++) {
            bool exempt = false;
            fresh(&client, client_context);
            fresh(&server, server_context);
            give(&client, slice_of(NULL, 0));
            for (int i = 0; i < 3; i++) {
                if (i == changed && offset < from[i]->sent.len) {
                    exempt = is_record_version(&from[i]->sent, offset);
                    from[i]->sent.data[offset] ^= (uint8_t)(1 << offset % 8);
                }
                move(from[i], to[i], SIZE_MAX);
            }
            cr_expect(exempt || tls_state(server.tls) != TLS_OPEN, "flight %d, byte %zu", changed, offset);
            cr_expect_eq(server.got.len + client.got.len, 0);
        }
    drop(flight);
}

/* --- a server with a certificate ------------------------------------------------------------------------------ */

static char dir[] = "/tmp/ddp-tls-XXXXXX";

static int dial(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (struct patience p = { 0 }; connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0;)
        cr_assert(patience_left(&p), "no server listens");
    return fd;
}

/* Complete the client's handshake with the server on `port`, as far as possible. */
static enum tls_state greet(int port)
{
    uint8_t bytes[4096];
    ssize_t n = 1;
    const int fd = dial(port);
    enum tls_state state = give(&client, slice_of(NULL, 0));
    while (state == TLS_HANDSHAKE && n > 0) {
        cr_assert_eq(send(fd, client.sent.data, client.sent.len, MSG_NOSIGNAL), (ssize_t)client.sent.len);
        client.sent.len = 0;
        n = recv(fd, bytes, sizeof(bytes), 0);
        if (n > 0)
            state = give(&client, slice_of(bytes, (size_t)n));
    }
    close(fd);
    return state;
}

static struct run_process *attack(const char *const *more, int *port)
{
    const char *argv[24] = { "openssl", "s_server", "-quiet", "-accept" };
    static char place[32];
    int n = 4;
    *port = free_port();
    snprintf(place, sizeof(place), "127.0.0.1:%d", *port);
    argv[n++] = place;
    for (; *more != NULL; more++)
        argv[n++] = *more;
    return run_start(argv, NULL);
}

static void stop(struct run_process *p)
{
    run_signal(p, 9);
    run_wait(p);
}

/* The attacker answers at the store's address with a self-signed certificate. */
Test(tls, a_server_with_a_certificate_is_rejected)
{
    char cert[64], key[64], command[512];
    int port;
    temp_dir_make(dir);
    snprintf(cert, sizeof(cert), "%s/cert.pem", dir);
    snprintf(key, sizeof(key), "%s/key.pem", dir);
    snprintf(
        command, sizeof(command),
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=store -days 2 "
        "-out %s -keyout %s >/dev/null 2>&1",
        cert, key);
    if (system(command) != 0) {
        temp_dir_remove(dir);
        cr_skip_test("skipped, because openssl is not installed");
    }
    static const char *const versions[] = { "-tls1_3", "-tls1_2", NULL };
    for (int i = 0; versions[i] != NULL; i++) {
        struct run_process *server_process =
            attack((const char *[]){ "-cert", cert, "-key", key, versions[i], NULL }, &port);
        fresh(&client, client_context);
        cr_expect_eq(greet(port), TLS_FAILED, "%s", versions[i]);
        cr_expect_eq(client.got.len, 0);
        stop(server_process);
    }
    temp_dir_remove(dir);
}

/* The server is OpenSSL's s_server, which shares no code with ours. The server has first the key of the client's job,
 * then the key of another job. */
Test(tls, openssl_s_server_is_accepted_only_with_the_key)
{
    static const char *const right[] = { "a-job", "a-other" };
    uint8_t key[AUTH_HASH_BYTES];
    char digits[2 * AUTH_HASH_BYTES + 1], print[AUTH_PRINT_TEXT], identity[64];
    int port;
    if (system("openssl version >/dev/null 2>&1") != 0)
        cr_skip_test("skipped, because openssl is not installed");
    auth_fingerprint(&team_a, print);
    snprintf(identity, sizeof(identity), "ddprun1 %s a-job", print);
    for (int i = 0; i < 2; i++) {
        auth_tls_key(&team_a, right[i], key);
        for (size_t k = 0; k < sizeof(key); k++)
            snprintf(digits + 2 * k, 3, "%02x", key[k]);
        struct run_process *server_process = attack(
            (const char *[]){ "-nocert", "-tls1_3", "-psk", digits, "-psk_identity", identity, NULL }, &port);
        fresh(&client, client_context);
        cr_expect_eq(greet(port), i == 0 ? TLS_OPEN : TLS_FAILED, "%s: %s", right[i], tls_why(client.tls));
        stop(server_process);
    }
}

/* --- alerts ----------------------------------------------------------------------------------------------------- */

Test(tls, the_alerts_of_a_store_are_recognized)
{
    uint8_t alert[TLS_ALERT_BYTES];
    tls_alert(TLS_ALERT_ENCRYPTED, alert);
    cr_expect_eq(tls_alert_code(slice_of(alert, sizeof(alert))), TLS_ALERT_ENCRYPTED);
    cr_expect_eq(tls_alert_code(slice_of(alert, sizeof(alert) - 1)), -1);
    cr_expect_eq(tls_alert_code(slice_str("HTTP/1.1 400 Bad Request")), -1);
    give(&client, slice_of(NULL, 0));
    cr_expect_eq(give(&client, slice_of(alert, sizeof(alert))), TLS_FAILED);
}
