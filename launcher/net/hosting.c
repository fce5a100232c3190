/* hosting.c -- see hosting.h. The decision depends on the node and on the address of the endpoint, as the table below
 * shows. The addresses of this machine and of the name are arguments, so that a test can check every row of the
 * table. */

/* The decisions:
 *
 *                                             address of     name that resolves       address of
 *     job        node                         this machine   to a loopback address    another machine
 *     static     node 0                       HOST           ERROR                    ASK, or ERROR for an unknown name
 *     static     another node                 JOIN           JOIN                     JOIN
 *     elastic    every node                   TRY            ERROR                    JOIN
 *     any        with --host_store=yes        HOST           HOST on every address    HOST on every address
 *     any        with --host_store=no         JOIN           JOIN                     JOIN
 *
 * Two mistakes are reported before the first connect, because later they look like the effect of a firewall:
 *
 * - A name resolves to 127.0.1.1 on its own machine, because Debian's installer writes such a line to /etc/hosts. Other
 *   nodes cannot reach a store at this address.
 * - The endpoint is the address of a container bridge, which exists on many machines. */

#include "net/hosting.h"

#include <stdio.h>
#include <string.h>

/* Return the entry of `address` in the list of this machine's addresses, or NULL. For a loopback address that
 * the list lacks, such as 127.0.0.2, return the entry `loopback`. Addresses include the scope, as in "fe80::1%eth0". */
static const struct own_address *own_of(const struct hosting_facts *f, const char *address)
{
    static const struct own_address loopback = { .interface = "lo" };
    for (int i = 0; i < f->n_own; i++)
        if (strcmp(f->own[i].text, address) == 0)
            return &f->own[i];
    return endpoint_is_loopback(address) ? &loopback : NULL;
}

/* Return an address of this machine to which the endpoint's name resolves, or NULL. An address that other nodes can
 * reach is preferred to a loopback address. */
static const char *local_address(const struct hosting_facts *f, const struct own_address **which)
{
    const char *found = NULL;
    for (int i = 0; i < f->n_resolved; i++) {
        const struct own_address *own = own_of(f, f->resolved[i]);
        if (own == NULL || (found != NULL && !endpoint_is_loopback(found)))
            continue;
        if (found == NULL || !endpoint_is_loopback(f->resolved[i])) {
            found = f->resolved[i];
            *which = own;
        }
    }
    return found;
}

/* Return true if other hosts can reach the address. A link-local address such as "fe80::1%eth0" is valid only on this
 * host, because the address contains the name of an interface of this host. */
static bool is_reachable(const struct own_address *own)
{
    return !endpoint_is_loopback(own->text) && strncmp(own->text, "fe80:", 5) != 0;
}

/* Return the first address that other hosts can reach, or NULL if no such address exists. */
static const char *reachable(const struct hosting_facts *f)
{
    for (int i = 0; i < f->n_own; i++)
        if (is_reachable(&f->own[i]))
            return f->own[i].text;
    return NULL;
}

/* Return an address for the example in the advice: the first address that other hosts can reach, or "ADDRESS". */
static const char *such_as(const struct hosting_facts *f)
{
    const char *address = reachable(f);
    return address != NULL ? address : "ADDRESS";
}

/* Return true for a network interface of containers or virtual machines. The address of such an interface often exists
 * on many machines. The name begins with one of the words in `fronts`. */
static bool is_bridge(const char *interface)
{
    static const char *const fronts[] = {
        "docker", "veth", "br-", "virbr", "cni", "flannel", "lxc", "podman"
    };
    for (size_t i = 0; i < sizeof(fronts) / sizeof(fronts[0]); i++)
        if (strncmp(interface, fronts[i], strlen(fronts[i])) == 0)
            return true;
    return false;
}

/* List the local addresses that fit into `text`: "10.1.0.5 (eth0), 127.0.0.1 (lo)". Loopback addresses come last. If
 * `reachable` is true, list only the addresses that other hosts may reach. Addresses of container interfaces then come
 * last. */
static void list_own(const struct hosting_facts *f, bool reachable, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "%s", reachable ? "none found" : "");
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < f->n_own && used < size; i++) {
            const bool is_last =
                reachable ? is_bridge(f->own[i].interface) : endpoint_is_loopback(f->own[i].text);
            if (is_last == (last == 1) && (!reachable || is_reachable(&f->own[i])))
                used += (size_t)snprintf(text + used, size - used, "%s%s (%s)", used > 0 ? ", " : "",
                                         f->own[i].text, f->own[i].interface);
        }
    if (used >= size)
        snprintf(text + size - 4, 4, "...");
}

/* Store a finding as text. The caller sets `choice`: with HOSTING_ERROR or HOSTING_ASK, the text is printed as an
 * error, otherwise as a warning. */
static void hosting_set_words(struct hosting *out, const struct finding *f)
{
    out->code = finding_code_name(f->code);
    finding_format(f, out->words, sizeof(out->words));
}

/* Decide to host the store on `address`. If `address` is "", the store listens on every address of this host. In this
 * case, the node dials the first of these addresses that other hosts can reach, or 127.0.0.1 if no such address exists.
 * A loopback address is the last choice, because the dialled address becomes the workers' MASTER_ADDR. */
static void host_on(const struct hosting_facts *f, struct hosting *out, enum hosting_choice choice,
                    const char *address)
{
    const char *other = reachable(f);
    const char *dial = address[0] != '\0' ? address : other != NULL ? other : "127.0.0.1";
    out->choice = choice;
    out->here = true;
    snprintf(out->address, sizeof(out->address), "%s", address);
    snprintf(out->dial, sizeof(out->dial), "%s", dial);
}

/* --- the cases ------------------------------------------------------------------------------------------ */

/* Return true for a numeric address: IPv6 contains a colon, and IPv4 has only digits and dots, as in 127.1. */
static bool is_literal(const struct hosting_facts *f)
{
    const char *host = f->meeting->host;
    return strchr(host, ':') != NULL || host[strspn(host, "0123456789.")] == '\0';
}

/* Return true if a name resolves to a loopback address by mistake. A numeric loopback address and "localhost" are no
 * mistake, because all nodes may run on one host. */
static bool is_wrong_loopback(const struct hosting_facts *f, const char *address)
{
    return f->meeting->nnodes_max > 1 && endpoint_is_loopback(address) && !is_literal(f) &&
           strcmp(f->meeting->host, "localhost") != 0;
}

/* Reject a loopback address, because other nodes could not reach the store. */
static void refuse_loopback(const struct hosting_facts *f, const char *address, struct hosting *out)
{
    struct finding finding;
    finding_make(&finding, FINDING_MASTER_NAME_IS_LOOPBACK, f->meeting->host, "this_host", f->here, "address",
                 address, "reachable_address", such_as(f), NULL);
    out->choice = HOSTING_ERROR;
    hosting_set_words(out, &finding);
}

/* Decide for node 0 of a static job if the endpoint is on another machine. Node 0 must host the store, but it cannot
 * host the store at this endpoint, so no node would host the store. If the endpoint's name cannot be resolved, this is
 * an error at once (HOSTING_ERROR). Otherwise first ask whether a store exists at the endpoint (HOSTING_ASK), because
 * two nodes may have node rank 0 by mistake. In that case, the store of the other node reports both nodes. */
static void refuse_foreign(const struct hosting_facts *f, struct hosting *out)
{
    char own[300], subject[FINDING_SUBJECT_MAX];
    struct finding finding;
    list_own(f, false, own, sizeof(own));
    snprintf(subject, sizeof(subject), "%.80s (%s)", f->meeting->host,
             f->n_resolved > 0 ? f->resolved[0] : "unknown");
    finding_make(&finding, FINDING_NO_STORE_HOST, subject, "host", f->here, "addresses", own, NULL);
    out->choice = f->n_resolved > 0 ? HOSTING_ASK : HOSTING_ERROR;
    hosting_set_words(out, &finding);
}

/* Decide to join a store on another machine. Perhaps no node of an elastic job has the endpoint's address. So write a
 * text with this node's addresses. The text is printed if the dial fails. */
static void hosting_join_other(const struct hosting_facts *f, struct hosting *out)
{
    char own[300];
    out->choice = HOSTING_JOIN;
    if (!f->meeting->elastic || f->n_resolved == 0 || out->here)
        return;
    list_own(f, false, own, sizeof(own));
    snprintf(out->words, sizeof(out->words),
             "%s is not an address of %s (%s), so this node expects the store on another host (hosted by "
             "another node or by a ddp-rendezvous); use --host_store=yes to host the store on this node",
             f->resolved[0], f->here, own);
}

/* Warn if the address belongs to a container interface. Many machines have the same address on such an interface, so
 * another node that dials this address may reach itself. */
static void warn_of_bridge(const struct hosting_facts *f, const char *address,
                           const struct own_address *which, struct hosting *out)
{
    struct finding finding;
    if (f->meeting->nnodes_max == 1 || !is_bridge(which->interface))
        return;
    finding_make(&finding, FINDING_BRIDGE_ADDRESS, address, "interface", which->interface, "host", f->here,
                 "reachable_address", such_as(f), NULL);
    hosting_set_words(out, &finding);
}

/* Return true for a loopback endpoint. `address` is NULL on a node that only joins, because such a node has not
 * resolved the name. On such a node, only the name "localhost" counts as a loopback endpoint. */
static bool is_loopback_endpoint(const struct hosting_facts *f, const char *address)
{
    return address != NULL ? endpoint_is_loopback(address) : strcmp(f->meeting->host, "localhost") == 0;
}

/* Warn about a loopback endpoint, which works only if all nodes run on one host. Nodes on different hosts would form
 * separate jobs without an error. */
static void warn_of_loopback(const struct hosting_facts *f, const char *address, struct hosting *out)
{
    char such[300];
    struct finding finding;
    if (f->meeting->nnodes_max == 1 || !is_loopback_endpoint(f, address))
        return;
    list_own(f, true, such, sizeof(such));
    finding_make(&finding, FINDING_LOOPBACK_ADDRESS, f->meeting->host, "host", f->here, "reachable_address",
                 such, NULL);
    snprintf(out->local_only, sizeof(out->local_only), "%.*s", PLAN_SENTENCE_MAX - 1, finding.sentence);
    hosting_set_words(out, &finding);
}

/* Decide to host the store on the endpoint's address only, because other networks should not reach the store. */
static void host_at_endpoint(const struct hosting_facts *f, const char *address,
                             const struct own_address *which, struct hosting *out)
{
    const bool may = f->meeting->elastic && f->meeting->host_store != HOST_STORE_YES;
    host_on(f, out, may ? HOSTING_TRY : HOSTING_HOST, address);
    warn_of_bridge(f, address, which, out);
    warn_of_loopback(f, address, out);
}

/* Return true if node 0 of a static job hosts the store, and this node is another node. */
static bool is_another_node(const struct plan_meeting *m)
{
    return !m->elastic && m->node_rank > 0 && m->host_store == HOST_STORE_AUTO;
}

/* Return true if this node must or may host the store. */
static bool is_candidate(const struct plan_meeting *m)
{
    if (m->host_store != HOST_STORE_AUTO)
        return m->host_store == HOST_STORE_YES;
    return m->elastic || m->node_rank == 0;
}

void hosting_decide(const struct hosting_facts *f, struct hosting *out)
{
    const struct plan_meeting *m = f->meeting;
    const struct own_address *which = NULL;
    const char *address = local_address(f, &which);
    const bool forced = m->host_store == HOST_STORE_YES;
    *out =
        (struct hosting){ .here = address != NULL && !(endpoint_is_loopback(address) && is_another_node(m)) };
    if (!is_candidate(m)) {
        hosting_join_other(f, out);
        if (address != NULL)
            warn_of_bridge(f, address, which, out);
        warn_of_loopback(f, address, out);
    } else if (forced && (address == NULL || is_wrong_loopback(f, address)))
        host_on(f, out, HOSTING_HOST, "");
    else if (address != NULL && is_wrong_loopback(f, address))
        refuse_loopback(f, address, out);
    else if (address != NULL)
        host_at_endpoint(f, address, which, out);
    else if (m->elastic)
        hosting_join_other(f, out);
    else
        refuse_foreign(f, out);
}
