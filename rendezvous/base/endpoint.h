/* endpoint.h -- "HOST:PORT" as text and as two values. Nothing is resolved or connected here. */
#ifndef BASE_ENDPOINT_H
#define BASE_ENDPOINT_H

#include "ddp/error.h"

#include <stdbool.h>

struct sockaddr;

enum { ENDPOINT_HOST_MAX = 256, ENDPOINT_TEXT_MAX = ENDPOINT_HOST_MAX + 16 };

struct endpoint {
    char host[ENDPOINT_HOST_MAX]; /* without brackets; "" = no host was given */
    int port;                     /* 0..65535 */
};

/* Parse "host:port", "1.2.3.4:port", "[v6]:port", ":port" or "port". "host" and "[v6]" get `default_port`. Return
 * DDP_ERR_ARG if `text` is invalid. */
ddp_status endpoint_parse(const char *text, int default_port, struct endpoint *out, struct ddp_err *err);

/* Format "host:port", with brackets around an IPv6 address. Return `text`. */
char *endpoint_print(const char *host, int port, char text[static ENDPOINT_TEXT_MAX]);

/* Format a socket address as "host:port". An IPv4 address inside an IPv6 address is formatted as IPv4. Return
 * `text`. */
char *endpoint_of_sockaddr(const struct sockaddr *addr, char text[static ENDPOINT_TEXT_MAX]);

/* Return true for a loopback address in numeric form. Return false for a host name. */
bool endpoint_is_loopback(const char *address);

#endif
