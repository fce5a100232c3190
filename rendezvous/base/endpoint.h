/* endpoint.h -- "HOST:PORT" as text and as two values; nothing is resolved or connected here. */
#ifndef BASE_ENDPOINT_H
#define BASE_ENDPOINT_H

#include "ddp/error.h"

#include <stdbool.h>

struct sockaddr;

enum { ENDPOINT_HOST_MAX = 256, ENDPOINT_TEXT_MAX = ENDPOINT_HOST_MAX + 16 };

struct endpoint {
    char host[ENDPOINT_HOST_MAX]; /* without brackets; "" = none was given */
    int port;                     /* 0..65535 */
};

/* Parse "host:port", "1.2.3.4:port", "[v6]:port", ":port", "port", and "host", "[v6]" with `default_port`.
 * DDP_ERR_ARG: `err` describes the error in `text`. */
ddp_status endpoint_parse(const char *text, int default_port, struct endpoint *out, struct ddp_err *err);

/* Format "host:port", with brackets around an IPv6 address; return `text`. */
char *endpoint_print(const char *host, int port, char text[static ENDPOINT_TEXT_MAX]);

/* The same for a socket address. An IPv4 address inside an IPv6 one is formatted as IPv4. Return `text`. */
char *endpoint_of_sockaddr(const struct sockaddr *addr, char text[static ENDPOINT_TEXT_MAX]);

/* Return true for an address that only this host reaches. A name is no address. */
bool endpoint_is_loopback(const char *address);

#endif
