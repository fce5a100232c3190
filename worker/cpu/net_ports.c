/* net_ports.c -- see net_ports.h.
 *
 * The ranks of a host begin at different ports of the range, each at its own number, so that with enough
 * ports none meets another; after that they go round once. */
#include "cpu/net_ports.h"

#include <stdlib.h>

/* Digits only: strtol alone would take blanks and signs. Moves *text behind them; -1 = there is no port. */
static int take_port(const char **text)
{
    char *end;
    if (**text < '0' || **text > '9')
        return -1;
    long port = strtol(*text, &end, 10);
    *text = end;
    return port >= 1 && port <= 65535 ? (int)port : -1;
}

ddp_status net_ports_parse(const char *text, struct net_ports *out, struct ddp_err *err)
{
    const char *at = text;

    *out = (struct net_ports){ 0, 0 };
    if (*text == '\0')
        return DDP_OK;
    out->low = out->high = take_port(&at);
    if (*at == '-') {
        at++;
        out->high = take_port(&at);
    }
    if (*at != '\0' || out->low < 0 || out->high < out->low)
        return ddp_fail(err, DDP_ERR_ENV,
                        "DDP_PORT_RANGE=%.40s: LOW-HIGH was expected, ports from 1 to 65535", text);
    return DDP_OK;
}

int net_ports_try(const struct net_ports *ports, int rank, int turn)
{
    int count = ports->high - ports->low + 1;
    if (ports->low == 0)
        return turn == 0 ? 0 : -1;
    return turn < count ? ports->low + (rank + turn) % count : -1;
}
