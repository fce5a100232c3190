/* Test how the process that holds a port is found in the text of the kernel's table of sockets. Also test the message
 * that names this process. */
#include "server/listen.c"
#include "run.h"

#include <criterion/criterion.h>
#include <string.h>

/* A part of the table of a real machine. The rows are both ends of a connection from port 40000 to port 29400, the
 * listener on port 29400, and a TIME_WAIT leftover of port 1234. */
static const char tcp4[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:9C40 0100007F:72D8 01 00000000:00000000 00:00000000 00000000  1001        0 777 1 0000 "
    "20 4 30 10 -1\n"
    "   1: 0100007F:72D8 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 888 1 0000 "
    "20 4 30 10 -1\n"
    "   2: 0100007F:72D8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000 "
    "100 0 0 10 0\n"
    "   3: 0100007F:04D2 0100007F:9C41 06 00000000:00000000 03:00001766 00000000     0        0 0 3 "
    "0000000000000000\n";

static const char tcp6[] =
    "  sl  local_address                         remote_address                        st tx_queue rx_queue "
    "tr ...\n"
    "   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 "
    "00:00000000 00000000     0        0 29042 1 0000 100 0 0 10 0\n";

Test(port_table, a_listener_wins_over_its_connections)
{
    struct port_holder h;
    cr_assert(port_table_find(tcp4, 29400, &h));
    cr_assert_eq(h.inode, 4711);
    cr_assert_eq(h.uid, 1000);
}

Test(port_table, a_connection_holds_its_port_too)
{
    struct port_holder h;
    cr_assert(port_table_find(tcp4, 40000, &h));
    cr_assert_eq(h.inode, 777);
    cr_assert_eq(h.uid, 1001);
}

Test(port_table, a_leftover_without_an_owner_is_nobody)
{
    struct port_holder h;
    cr_assert_not(port_table_find(tcp4, 1234, &h));
    cr_assert(h.leftover);
    cr_assert_not(port_table_find(tcp4, 29401, &h));
    cr_assert_not(h.leftover);
    cr_assert_not(port_table_find("", 29401, &h));
}

Test(port_table, the_table_of_ipv6_is_read_the_same_way)
{
    struct port_holder h;
    cr_assert(port_table_find(tcp6, 22, &h));
    cr_assert_eq(h.inode, 29042);
    cr_assert_eq(h.uid, 0);
}

Test(port_table, nonsense_in_the_table_is_skipped)
{
    struct port_holder h;
    cr_assert_not(port_table_find("\n\n:::\n  0: zz\n 1: 0100007F:72D8", 29400, &h));
}

Test(port_table, says_as_much_as_is_known)
{
    char text[400];
    struct port_holder h = { .inode = 1, .uid = 1000, .pid = 812, .name = "redis-server" };
    cr_assert_str_eq(port_holder_words(&h, text, sizeof(text)), "redis-server (pid 812)");
    strcpy(h.user, "bob");
    strcpy(h.command, "redis-server *:6379");
    h.age_s = 3 * 3600 + 5;
    cr_assert(has_parts(port_holder_words(&h, text, sizeof(text)),
                        "redis-server (pid 812, user bob, |3 h: redis-server *:6379)"),
              "%s", text);
    strcpy(h.job, "gpt");
    h.age_s = 119;
    cr_assert_not_null(strstr(port_holder_words(&h, text, sizeof(text)), " of ddprun job gpt: "), "%s", text);
    strcpy(h.rank, "3");
    h.by_torchrun = true;
    cr_assert(
        has_parts(port_holder_words(&h, text, sizeof(text)),
                  "redis-server (pid 812, user bob, |119 s, rank 3 |torchrun job gpt: redis-server *:6379)"),
        "%s", text);
    port_holder_words(&(struct port_holder){ .inode = 1, .uid = 1001 }, text, sizeof(text));
    cr_assert(strstr(text, "user id 1001 (") && strstr(text, "hidden"), "%s", text);
    port_holder_words(&(struct port_holder){ .leftover = true }, text, sizeof(text));
    cr_assert(strstr(text, "old connections") && !strstr(text, "hidden"), "%s", text);
    port_holder_words(&(struct port_holder){ 0 }, text, sizeof(text));
    cr_assert(strstr(text, "hidden") && !strstr(text, "user"), "%s", text);
}
