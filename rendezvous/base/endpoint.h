/* endpoint.h -- parses and formats "HOST:PORT". These functions do not resolve names and do not open connections, so
 * that pure modules can use them. */
#ifndef BASE_ENDPOINT_H
#define BASE_ENDPOINT_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>

struct sockaddr;

enum {
    ENDPOINT_HOST_MAX = 256,                    /* size of a host name or address in bytes, with the NUL */
    ENDPOINT_TEXT_MAX = ENDPOINT_HOST_MAX + 16, /* bytes of "[HOST]:PORT" with the NUL */
};

struct endpoint {
    char host[ENDPOINT_HOST_MAX]; /* without brackets; "" if the text has only a port */
    int port;                     /* 0 to 65535 */
};

/* Parse the decimal digits at *text as a port from 0 to 65535, and move *text past the digits. Signs, blanks and
 * hexadecimal are rejected. Return -1 for a larger number, and if *text begins with no digit. */
int port_parse(const char **text);

/* Return true if the `len` bytes can be a name or an address of a host: letters, digits and ". - _ : %", and no '-' at
 * the beginning, because a program would read such a name as an option. */
bool endpoint_is_host(const char *text, size_t len);

/* Parse "host:port", "1.2.3.4:port", "[v6]:port", ":port" or "port". For "host" and "[v6]", the port is `default_port`.
 * Return DDP_ERR_ARG if `text` is invalid. */
ddp_status endpoint_parse(const char *text, int default_port, struct endpoint *out, struct ddp_err *err);

/* Format "host:port", with brackets around an IPv6 address. Return `text`. The caller owns the array. */
char *endpoint_print(const char *host, int port, char text[static ENDPOINT_TEXT_MAX]);

/* Format a socket address as "host:port". An IPv4-mapped IPv6 address is formatted as IPv4. Return `text`. */
char *endpoint_of_sockaddr(const struct sockaddr *addr, char text[static ENDPOINT_TEXT_MAX]);

/* Return true for a loopback address in numeric form. Return false for a host name. */
bool endpoint_is_loopback(const char *address);

#endif
