/* endpoint.c -- see endpoint.h.
 *
 * The port follows the last colon. A text such as "::1:29400" is rejected, because it may be an IPv6 address with or
 * without a port. The error shows how to write both forms. */
#include "endpoint.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdbool.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static bool all_digits(const char *text)
{
    return *text != '\0' && text[strspn(text, "0123456789")] == '\0';
}

/* Parse a port. strtol would accept signs, blanks and hexadecimal. */
int port_parse(const char **text)
{
    enum { MOST = 65535 };
    const char *first = *text;
    int port = 0;
    for (; **text >= '0' && **text <= '9'; ++*text)
        port = port <= MOST ? port * 10 + (**text - '0') : port;
    return *text > first && port <= MOST ? port : -1;
}

static ddp_status set_port(const char *text, int *port, struct ddp_err *err)
{
    const char *rest = text;
    const int value = port_parse(&rest);
    if (value < 0 || *rest != '\0')
        return ddp_fail(err, DDP_ERR_ARG, "the port '%s' is not a number from 0 to 65535", text);
    *port = value;
    return DDP_OK;
}

bool endpoint_is_host(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && (text[i] == '\0' || strchr(".-_:%", text[i]) == NULL))
            return false;
    return len > 0 && text[0] != '-';
}

/* Copy the host, which may be empty. */
static ddp_status set_host(struct endpoint *out, const char *host, size_t len, const char *whole,
                           struct ddp_err *err)
{
    if (len >= sizeof(out->host))
        return ddp_fail(err, DDP_ERR_ARG, "the host in '%.64s...' is longer than %zu bytes", whole,
                        sizeof(out->host) - 1);
    if (len > 0 && !endpoint_is_host(host, len))
        return ddp_fail(
            err, DDP_ERR_ARG,
            "a host may have only letters, digits and the characters '.-_:%%', and must not begin with '-'");
    memcpy(out->host, host, len);
    out->host[len] = '\0';
    return DDP_OK;
}

/* Parse "[host]" or "[host]:port". Colons inside the brackets are part of the address. */
static ddp_status parse_bracketed(const char *text, struct endpoint *out, struct ddp_err *err)
{
    const char *end = strchr(text, ']');
    if (end == NULL || (end[1] != '\0' && end[1] != ':'))
        return ddp_fail(err, DDP_ERR_ARG, "write brackets as in [IPv6 address]:PORT");
    if (set_host(out, text + 1, (size_t)(end - text - 1), text, err) != DDP_OK)
        return err != NULL ? err->code : DDP_ERR_ARG;
    return end[1] == ':' ? set_port(end + 2, &out->port, err) : DDP_OK;
}

/* Parse an address. A number is a port, because it is not a valid host name. */
ddp_status endpoint_parse(const char *text, int default_port, struct endpoint *out, struct ddp_err *err)
{
    *out = (struct endpoint){ .port = default_port };
    const char *colon = strrchr(text, ':');
    if (*text == '\0')
        return ddp_fail(err, DDP_ERR_ARG, "the address is empty");
    if (*text == '[')
        return parse_bracketed(text, out, err);
    if (all_digits(text))
        return set_port(text, &out->port, err);
    if (colon == NULL)
        return set_host(out, text, strlen(text), text, err);
    if (memchr(text, ':', (size_t)(colon - text)) != NULL)
        return ddp_fail(err, DDP_ERR_ARG, "an IPv6 address needs brackets; write [%.*s]:%s or [%s]",
                        (int)(colon - text), text, colon + 1, text);
    ddp_status status = set_port(colon + 1, &out->port, err);
    return status != DDP_OK ? status : set_host(out, text, (size_t)(colon - text), text, err);
}

/* Format an address. Put brackets around an IPv6 address, so that the port is not read as a part of the address. */
char *endpoint_print(const char *host, int port, char text[static ENDPOINT_TEXT_MAX])
{
    const bool v6 = strchr(host, ':') != NULL;
    snprintf(text, ENDPOINT_TEXT_MAX, "%s%.*s%s:%d", v6 ? "[" : "", ENDPOINT_HOST_MAX, host, v6 ? "]" : "",
             port);
    return text;
}

/* Format an IPv4 peer as 10.0.0.2. A socket for both families shows the peer as ::ffff:10.0.0.2, which operators do not
 * expect. */
char *endpoint_of_sockaddr(const struct sockaddr *addr, char text[static ENDPOINT_TEXT_MAX])
{
    char host[INET6_ADDRSTRLEN] = "?";
    int port = 0;
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)addr;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        port = ntohs(v4->sin_port);
    } else if (addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)addr;
        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
            inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], host, sizeof(host));
        else
            inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        port = ntohs(v6->sin6_port);
    }
    return endpoint_print(host, port, text);
}

bool endpoint_is_loopback(const char *address)
{
    static const char mapped[] = "::ffff:";
    if (strncmp(address, mapped, sizeof(mapped) - 1) == 0)
        address += sizeof(mapped) - 1;
    return strcmp(address, "::1") == 0 ||
           (strncmp(address, "127.", 4) == 0 && address[strspn(address, "0123456789.")] == '\0');
}
