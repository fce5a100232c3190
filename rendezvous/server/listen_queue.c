/* listen_queue.c -- see listen_queue.h. */
#include "server/listen_queue.h"

#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

uint64_t listen_queue_drops(int fd)
{
    uint32_t numbers[SK_MEMINFO_VARS] = { 0 };
    socklen_t len = sizeof(numbers);
    return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, numbers, &len) == 0 ? numbers[SK_MEMINFO_DROPS] : 0;
}

/* Of a listening socket the field for selectively acknowledged segments holds its queue's limit, see tcp_get_info() of
 * the kernel. */
uint64_t listen_queue_limit(int fd)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_sacked : 0;
}
