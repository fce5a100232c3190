/* Tests of "HOST:PORT" in every spelling that a user may type. The errors must show the right spelling, because an
 * IPv6 address and its port look alike. */
#include "base/endpoint.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

static void expect(const char *text, const char *host, int port)
{
    struct endpoint e;
    struct ddp_err err = { 0 };
    cr_assert_eq(endpoint_parse(text, 29400, &e, &err), DDP_OK, "%s: %s", text, err.msg);
    cr_assert_str_eq(e.host, host, "%s", text);
    cr_assert_eq(e.port, port, "%s", text);
}

static void expect_error(const char *text, const char *words)
{
    struct endpoint e;
    struct ddp_err err = { 0 };
    cr_assert_eq(endpoint_parse(text, 29400, &e, &err), DDP_ERR_ARG, "%s", text);
    cr_assert_not_null(strstr(err.msg, words), "%s: %s", text, err.msg);
}

Test(endpoint, every_spelling_is_understood)
{
    expect("node1:1234", "node1", 1234);
    expect("10.0.0.1:0", "10.0.0.1", 0);
    expect("[::1]:65535", "::1", 65535);
    expect(":80", "", 80);
    expect("80", "", 80);
    expect("node1", "node1", 29400);
    expect("[fe80::1%eth0]", "fe80::1%eth0", 29400);
}

Test(endpoint, what_is_wrong_is_said)
{
    expect_error("", "empty");
    expect_error("node:", "a number");
    expect_error("node:http", "'http' is");
    expect_error("node:-1", "a number");
    expect_error("node:65536", "0 to 65535");
    expect_error("99999999999999999999", "0 to 65535");
    expect_error("::1:29400", "[::1]:29400");
    expect_error("[::1", "[IPv6 address]:PORT");
    expect_error("[::1]29400", "[IPv6 address]:PORT");
    expect_error("a b:1", ".-_:%");
    expect_error("/tmp/x:1", ".-_:%");
    expect_error("-1", ".-_:%");
    expect_error("a,b", ".-_:%");
    expect_error("[a=b]:1", ".-_:%");
    char longer[400];
    memset(longer, 'h', sizeof(longer));
    memcpy(longer + sizeof(longer) - 3, ":1", 3);
    expect_error(longer, "longer than 255");
}

Test(endpoint, is_printed_with_brackets_where_needed)
{
    char text[ENDPOINT_TEXT_MAX];
    cr_assert_str_eq(endpoint_print("::", 1, text), "[::]:1");
    cr_assert_str_eq(endpoint_print("node", 2, text), "node:2");
}

Test(endpoint, a_mapped_address_is_shown_as_ipv4)
{
    char text[ENDPOINT_TEXT_MAX];
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(7) };
    inet_pton(AF_INET6, "::ffff:10.1.2.3", &v6.sin6_addr);
    cr_assert_str_eq(endpoint_of_sockaddr((struct sockaddr *)&v6, text), "10.1.2.3:7");
    inet_pton(AF_INET6, "fe80::1", &v6.sin6_addr);
    cr_assert_str_eq(endpoint_of_sockaddr((struct sockaddr *)&v6, text), "[fe80::1]:7");
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(9) };
    inet_pton(AF_INET, "127.0.0.1", &v4.sin_addr);
    cr_assert_str_eq(endpoint_of_sockaddr((struct sockaddr *)&v4, text), "127.0.0.1:9");
}

Test(endpoint, loopback_addresses_are_numbers)
{
    static const char *const yes[] = { "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1" };
    static const char *const no[] = { "",          "10.0.0.1",        "::",       "::ffff:10.0.0.1",
                                      "localhost", "127.example.org", "128.0.0.1" };
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        cr_expect(endpoint_is_loopback(yes[i]), "%s", yes[i]);
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        cr_expect_not(endpoint_is_loopback(no[i]), "%s", no[i]);
}
