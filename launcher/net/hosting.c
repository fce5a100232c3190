/* hosting.c -- see hosting.h.
 *
 * mode       which nodes                     the endpoint's address is ...
 *                                                local    local, loopback of a name  not local
 *     static     node 0, or --host_store=yes     HOST     ERROR                      ERROR (yes: HOST everywhere)
 *     static     the others, --host_store=no     JOIN     JOIN                       JOIN
 *     elastic    all                             TRY      ERROR                      JOIN
 *     elastic    --host_store=yes                HOST     HOST                       HOST everywhere
 *
 * A name that resolves to 127.0.1.1 on its own machine (Debian's installer writes such a line) would make every node
 * its own host, or make the host unreachable for the others; an address of a container bridge exists on many
 * machines. Both would later look like a firewall, so they are reported now.
 *
 * Facts in, decision out: the addresses of this machine and those of the name are arguments, so that every row of the
 * table is a test. */
#include "net/hosting.h"

#include <stdio.h>
#include <string.h>

bool hosting_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* All of 127/8 belongs to this machine, although only 127.0.0.1 is listed. A scope ("fe80::1%eth0") is part of both
 * texts. */
static const struct own_address *own_of(const struct hosting_facts *f, const char *address)
{
    static const struct own_address loopback = { .interface = "lo" };
    for (int i = 0; i < f->n_own; i++)
        if (strcmp(f->own[i].text, address) == 0)
            return &f->own[i];
    return hosting_is_loopback(address) ? &loopback : NULL;
}

/* Return the local address that the endpoint has; prefer one that others can reach over a loopback one. A name may
 * have both, one from /etc/hosts and one from a name server. */
static const char *ours(const struct hosting_facts *f, const struct own_address **which)
{
    const char *found = NULL;
    for (int i = 0; i < f->n_resolved; i++) {
        const struct own_address *own = own_of(f, f->resolved[i]);
        if (own == NULL || (found != NULL && !hosting_is_loopback(found)))
            continue;
        if (found == NULL || !hosting_is_loopback(f->resolved[i])) {
            found = f->resolved[i];
            *which = own;
        }
    }
    return found;
}

/* As many as fit, best choice first: "10.1.0.5 (eth0), 127.0.0.1 (lo)". snprintf returns the untruncated length, so
 * `used` exceeds `size` at the first that does not fit. */
static void list_own(const struct hosting_facts *f, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int loopback = 0; loopback < 2; loopback++)
        for (int i = 0; i < f->n_own && used < size; i++)
            if (hosting_is_loopback(f->own[i].text) == (loopback == 1))
                used += (size_t)snprintf(text + used, size - used, "%s%s (%s)", used > 0 ? ", " : "",
                                         f->own[i].text, f->own[i].interface);
    if (used >= size)
        snprintf(text + size - 4, 4, "...");
}

/* Link-local addresses need a scope that differs from host to host, so other hosts cannot use them. */
static bool is_reachable(const struct own_address *own)
{
    return !hosting_is_loopback(own->text) && strncmp(own->text, "fe80:", 5) != 0;
}

/* Return the first address that others could use; NULL without one. */
static const char *reachable(const struct hosting_facts *f)
{
    for (int i = 0; i < f->n_own; i++)
        if (is_reachable(&f->own[i]))
            return f->own[i].text;
    return NULL;
}

/* The same as text for advice. */
static const char *such_as(const struct hosting_facts *f)
{
    const char *address = reachable(f);
    return address != NULL ? address : "ADDRESS";
}

/* Interfaces of containers and virtual machines: many machines have the same address. The beginning of their names is
 * their only common property. A bridge with another name gets no warning, because a wrong warning would worry users
 * whose network is fine. */
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

/* Sentence, advice and code as printed. An error and a warning look the same; `choice` separates them. */
static void hosting_set_words(struct hosting *out, const struct finding *f)
{
    out->code = finding_code_name(f->code);
    snprintf(out->words, sizeof(out->words), "%s\n  try      %s\n  finding  %s", f->sentence, f->advice,
             out->code);
}

/* Listens on every address: then this node, too, uses one that others know. */
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

/* In any spelling: 127.1, 0:0:0:0:0:0:0:1. A name has no colon, and does not consist of digits and dots. */
static bool is_literal(const struct hosting_facts *f)
{
    const char *host = f->meeting->host;
    return strchr(host, ':') != NULL || host[strspn(host, "0123456789.")] == '\0';
}

/* A loopback address that the user chose, by number or as "localhost", is a job on one machine. Users try several
 * nodes on one host that way. */
static bool is_deaf(const struct hosting_facts *f, const char *address)
{
    return f->meeting->nnodes_max > 1 && hosting_is_loopback(address) && !is_literal(f) &&
           strcmp(f->meeting->host, "localhost") != 0;
}

/* An error and not a warning: the others would wait for the whole timeout for a store that they cannot reach. */
static void refuse_loopback(const struct hosting_facts *f, const char *address, struct hosting *out)
{
    struct finding finding;
    finding_make(&finding, FINDING_MASTER_NAME_IS_LOOPBACK, f->meeting->host, "host", f->here, "address",
                 address, "such", such_as(f), NULL);
    out->choice = HOSTING_ERROR;
    hosting_set_words(out, &finding);
}

/* Node 0 of a static job whose address belongs to another machine. When a store answers there, probably several nodes
 * have the rank 0, and that store reports it; otherwise no node would host a store. */
static void refuse_foreign(const struct hosting_facts *f, struct hosting *out)
{
    char own[300], subject[FINDING_SUBJECT_MAX];
    struct finding finding;
    list_own(f, own, sizeof(own));
    snprintf(subject, sizeof(subject), "%.80s (%s)", f->meeting->host,
             f->n_resolved > 0 ? f->resolved[0] : "unknown");
    finding_make(&finding, FINDING_NO_STORE_HOST, subject, "host", f->here, "addresses", own, NULL);
    out->choice = f->n_resolved > 0 ? HOSTING_ASK : HOSTING_ERROR;
    hosting_set_words(out, &finding);
}

/* In an elastic job every node has the same command line, and if no node has the address, all would wait for each
 * other. So each reports its facts. Static nodes know from their rank that another node hosts the store. */
static void hosting_join_other(const struct hosting_facts *f, struct hosting *out)
{
    char own[300];
    out->choice = HOSTING_JOIN;
    if (!f->meeting->elastic || f->n_resolved == 0 || out->here)
        return;
    list_own(f, own, sizeof(own));
    snprintf(out->words, sizeof(out->words),
             "%s is not an address of %s (%s): another node of the job, or a ddp-rendezvous, must host the "
             "store there; use --host_store=yes to host it on this node",
             f->resolved[0], f->here, own);
}

/* The address is the same on every machine, so a node that dials it reaches itself. */
static void warn_of_bridge(const struct hosting_facts *f, const char *address,
                           const struct own_address *which, struct hosting *out)
{
    struct finding finding;
    if (f->meeting->nnodes_max == 1 || !is_bridge(which->interface))
        return;
    finding_make(&finding, FINDING_BRIDGE_ADDRESS, address, "interface", which->interface, "host", f->here,
                 "such", such_as(f), NULL);
    hosting_set_words(out, &finding);
}

/* List the addresses that other hosts may reach, interfaces of containers last. */
static void list_reachable(const struct hosting_facts *f, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "none found");
    for (int bridge = 0; bridge < 2; bridge++)
        for (int i = 0; i < f->n_own && used < size; i++)
            if (is_reachable(&f->own[i]) && is_bridge(f->own[i].interface) == (bridge == 1))
                used += (size_t)snprintf(text + used, size - used, "%s%s (%s)", used > 0 ? ", " : "",
                                         f->own[i].text, f->own[i].interface);
    if (used >= size)
        snprintf(text + size - 4, 4, "...");
}

/* A node that joins does not resolve names here, so "localhost" is compared as text. */
static bool is_loopback_endpoint(const struct hosting_facts *f, const char *address)
{
    return address != NULL ? hosting_is_loopback(address) : strcmp(f->meeting->host, "localhost") == 0;
}

/* Several nodes on one host may use loopback. On two hosts each host would silently become a separate job. */
static void warn_of_loopback(const struct hosting_facts *f, const char *address, struct hosting *out)
{
    char such[300];
    struct finding finding;
    if (f->meeting->nnodes_max == 1 || !is_loopback_endpoint(f, address))
        return;
    list_reachable(f, such, sizeof(such));
    finding_make(&finding, FINDING_LOOPBACK_ADDRESS, f->meeting->host, "host", f->here, "such", such, NULL);
    snprintf(out->local_only, sizeof(out->local_only), "%.*s", PLAN_SENTENCE_MAX - 1, finding.sentence);
    hosting_set_words(out, &finding);
}

/* The address is on this machine: listen on it only. A store on every address of a machine would be open to networks
 * that the user has not named. */
static void host_ours(const struct hosting_facts *f, const char *address, const struct own_address *which,
                      struct hosting *out)
{
    const bool may = f->meeting->elastic && f->meeting->host_store != HOST_STORE_YES;
    host_on(f, out, may ? HOSTING_TRY : HOSTING_HOST, address);
    warn_of_bridge(f, address, which, out);
    warn_of_loopback(f, address, out);
}

/* Nodes above 0 look for the store elsewhere, so a loopback address is hardly intended. */
static bool is_another_node(const struct plan_meeting *m)
{
    return !m->elastic && m->node_rank > 0 && m->host_store == HOST_STORE_AUTO;
}

/* Must or may this node host the store? */
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
    const char *address = ours(f, &which);
    const bool forced = m->host_store == HOST_STORE_YES;
    *out =
        (struct hosting){ .here = address != NULL && !(hosting_is_loopback(address) && is_another_node(m)) };
    if (!is_candidate(m)) {
        hosting_join_other(f, out);
        if (address != NULL)
            warn_of_bridge(f, address, which, out);
        warn_of_loopback(f, address, out);
    } else if (forced && (address == NULL || is_deaf(f, address)))
        host_on(f, out, HOSTING_HOST, "");
    else if (address != NULL && is_deaf(f, address))
        refuse_loopback(f, address, out);
    else if (address != NULL)
        host_ours(f, address, which, out);
    else if (m->elastic)
        hosting_join_other(f, out);
    else
        refuse_foreign(f, out);
}
