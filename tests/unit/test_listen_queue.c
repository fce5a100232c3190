/* The kernel's counter of connections that nobody accepted in time. */
#include "server/listen_queue.h"

#include <criterion/criterion.h>

static const char netstat[] = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\n"
                              "TcpExt: 1 18 20\n"
                              "IpExt: InNoRoutes Foreign\n"
                              "IpExt: 7 8\n";

Test(listen_queue, a_number_stands_below_its_name)
{
    cr_assert_eq(listen_queue_find(netstat, "ListenOverflows"), 18);
    cr_assert_eq(listen_queue_find(netstat, "ListenDrops"), 20);
    cr_assert_eq(listen_queue_find(netstat, "Foreign"), 8);
}

Test(listen_queue, what_is_not_there_is_0)
{
    cr_assert_eq(listen_queue_find(netstat, "Listen"), 0);
    cr_assert_eq(listen_queue_find("TcpExt: ListenOverflows\n", "ListenOverflows"), 0);
    cr_assert_eq(listen_queue_find("TcpExt: A ListenOverflows\nTcpExt: 5\n", "ListenOverflows"), 0);
    cr_assert_eq(listen_queue_find("", "ListenOverflows"), 0);
}

Test(listen_queue, this_machine_has_a_limit)
{
    cr_assert_gt(listen_queue_limit(), 0);
}
