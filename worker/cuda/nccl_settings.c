/* nccl_settings.c -- see nccl_settings.h.
 *
 * Several ranks on one GPU: NCCL refuses two ranks with the same host and the same GPU, so each is given a host id of its own,
 * and they talk over loopback sockets. Contexts of different processes take turns on a GPU, so a kernel that waits for another
 * rank is interrupted for it; one block for each keeps that cheap. Slow, and meant for tests alone. */
#include "cuda/nccl_settings.h"

#include "cuda/nccl_abi.h"

#include <stdio.h>
#include <string.h>

/* name, value; what --share_gpu adds to a host id of its own */
static const struct nccl_setting sharing[] = {
    { "NCCL_SOCKET_IFNAME", "=lo" }, { "NCCL_ALGO", "Ring" },       { "NCCL_PROTO", "Simple" },
    { "NCCL_MAX_CTAS", "1" },        { "NCCL_NVLS_ENABLE", "0" },   { "NCCL_IB_DISABLE", "1" },
    { "NCCL_RAS_ENABLE", "0" },      { "NCCL_NET_PLUGIN", "none" }, { "NCCL_MNNVL_ENABLE", "0" },
};

/* The job is part of it: ranks of two jobs on one GPU must not look like one host either. */
static void host_id(const struct nccl_facts *facts, struct nccl_setting *out)
{
    snprintf(out->name, sizeof(out->name), "NCCL_HOSTID");
    snprintf(out->value, sizeof(out->value), "ddprun-%.280s-%d", facts->run, facts->rank);
}

/* '=': this interface, and not all whose names begin so. */
static void iface(const struct nccl_facts *facts, struct nccl_setting *out)
{
    snprintf(out->name, sizeof(out->name), "NCCL_SOCKET_IFNAME");
    snprintf(out->value, sizeof(out->value), "=%.60s", facts->iface);
}

int nccl_settings(const struct nccl_facts *facts, struct nccl_setting out[NCCL_SETTINGS_MAX])
{
    int n = 0;
    if (facts->share_gpu) {
        host_id(facts, &out[n++]);
        for (size_t i = 0; i < sizeof(sharing) / sizeof(sharing[0]); i++)
            out[n++] = sharing[i];
    } else if (facts->iface[0] != '\0') {
        iface(facts, &out[n++]);
    }
    return n;
}

int nccl_id_count(int world, int version)
{
    int count = (world + NCCL_RANKS_PER_ID - 1) / NCCL_RANKS_PER_ID;
    return version < NCCL_SCALABLE || count < 1 ? 1 : count < NCCL_IDS_MAX ? count : NCCL_IDS_MAX;
}

/* Spread over the ranks, and so over the hosts. */
int nccl_id_maker(int i, int count, int world)
{
    return (int)((long long)i * world / count);
}

const char *nccl_id_key(char key[NCCL_KEY], int i)
{
    snprintf(key, NCCL_KEY, "nccl_id/%d", i);
    return key;
}
