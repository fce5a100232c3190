/* nccl_join.c -- see nccl_watch.h: creates NCCL's communicator with the help of the cpu communicator. Each attempt
 * creates new ids and uses other keys, because a unique id contains the address of a thread in the process that created
 * it. */
#include "cuda/nccl_watch.h"

#include "base/clock.h"
#include "cuda/gpu.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const places[] = { "libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                      "/usr/local/lib/libnccl.so.2", NULL };

static const struct lib_kind kind = {
    "NCCL", "DDP_NCCL_LIBRARY", places,
    "install libnccl2 from NVIDIA's repository, or `pip install nvidia-nccl-cu13` (or -cu12), which installs "
    "site-packages/nvidia/nccl/lib/libnccl.so.2"
};

static const struct lib_symbol symbols[] = {
#define X(member, symbol, needed, result, parameters) { #symbol, needed, offsetof(struct nccl_lib, member) },
    NCCL_FUNCTION_LIST(X)
#undef X
};

/* Check the version before the functions, because an old library also lacks functions. An error about the version is
 * clearer than an error about a missing function. */
static ddp_status check_version(struct nccl_lib *lib, struct ddp_err *err)
{
    ddp_status status = lib_symbols(&kind, lib->handle, symbols, 1, lib, err);
    if (status != DDP_OK)
        return status;
    if (lib->get_version(&lib->version) != NCCL_SUCCESS)
        lib->version = 0;
    return nccl_check_version(lib->version, err);
}

ddp_status nccl_lib_open(struct nccl_lib *lib, const char *path, struct ddp_err *err)
{
    size_t place = 0;
    *lib = (struct nccl_lib){ 0 };
    ddp_status status = lib_open(&kind, path, &place, &lib->handle, err);
    if (status == DDP_OK)
        status = check_version(lib, err);
    if (status == DDP_OK)
        status = lib_symbols(&kind, lib->handle, symbols, sizeof(symbols) / sizeof(symbols[0]), lib, err);
    return status;
}

/* --- the environment of NCCL -------------------------------------------------------------------------- */

static bool has_address(const struct ifaddrs *i, const char *address)
{
    char text[64];
    int family = i->ifa_addr != NULL ? i->ifa_addr->sa_family : AF_UNSPEC;
    socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return (family == AF_INET || family == AF_INET6) &&
           getnameinfo(i->ifa_addr, len, text, sizeof(text), NULL, 0, NI_NUMERICHOST) == 0 &&
           strcmp(text, address) == 0;
}

/* Set `name` to the interface of the connection to the store. If that interface is unknown, set `name` to "", and
 * NCCL chooses an interface. */
static void find_iface(const struct comm_setup *setup, char name[64])
{
    char address[64];
    struct ifaddrs *all;
    struct ddp_err ignored;

    name[0] = '\0';
    if (setup->host->local_address(setup->bootstrap->store, address, sizeof(address), &ignored) != DDP_OK ||
        getifaddrs(&all) != 0)
        return;
    const char *plain = strncmp(address, "::ffff:", 7) == 0 ? address + 7 : address;
    for (const struct ifaddrs *i = all; i != NULL && name[0] == '\0'; i = i->ifa_next)
        if (has_address(i, plain))
            snprintf(name, 64, "%.60s", i->ifa_name);
    freeifaddrs(all);
}

/* Set NCCL's environment variables, because NCCL has no functions for these settings. Do not change variables that
 * the user has set. */
static void set_environment(struct nccl_comm *n, const struct comm_setup *setup)
{
    struct nccl_setting settings[NCCL_SETTINGS_MAX];
    char iface[64];
    find_iface(setup, iface);
    const struct nccl_facts facts = { setup->bootstrap->prefix, iface, setup->share_gpu, n->base.rank };
    int count = nccl_settings(&facts, settings);
    for (int i = 0; i < count; i++)
        setenv(settings[i].name, settings[i].value, 0);
    const char *now = getenv("NCCL_SOCKET_IFNAME");
    snprintf(n->iface, sizeof(n->iface), "%.60s", now != NULL ? now : "");
}

/* --- cards -------------------------------------------------------------------------------------------- */

/* Return a number that identifies the machine: a hash (FNV-1a) of the boot id, which is equal in all containers of a
 * machine. */
static int32_t host_number(void)
{
    char text[64] = "";
    uint32_t hash = 2166136261u;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL || fgets(text, sizeof(text), file) == NULL)
        gethostname(text, sizeof(text) - 1);
    if (file != NULL)
        fclose(file);
    for (const char *c = text; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return (int32_t)hash;
}

static ddp_status compare_cards(struct nccl_comm *n, const struct comm_setup *setup, struct ddp_err *err)
{
    struct nccl_card mine = { n->lib.version, n->base.gpu.device, setup->share_gpu, host_number(), "" };
    struct nccl_card *cards = calloc((size_t)n->base.world, sizeof(*cards));
    memcpy(mine.bus_id, n->base.gpu.bus_id, sizeof(mine.bus_id));
    if (cards == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d ranks", n->base.world);
    const struct call call = { CALL_ALL_GATHER,
                               &mine,
                               cards,
                               sizeof(mine),
                               DDP_U8,
                               DDP_SUM,
                               0,
                               NULL,
                               setup->host->remaining_ms(setup->bootstrap) };
    ddp_status status = cpu_call(n, &call, err);
    if (status == DDP_OK)
        status = nccl_check_cards(cards, n->base.world, err);
    free(cards);
    return status;
}

/* --- ids ---------------------------------------------------------------------------------------------- */

static ddp_status make_id(struct nccl_comm *n, const struct comm_setup *setup, const char *key, nccl_id *id,
                          struct ddp_err *err)
{
    nccl_result result = n->lib.get_unique_id(id);
    if (result != NCCL_SUCCESS)
        return nccl_fail(err, n->base.rank, "cannot create a unique id", result,
                         n->lib.last_error != NULL ? n->lib.last_error(NULL) : NULL);
    return setup->host->publish(setup->bootstrap, key, id, sizeof(*id), err);
}

/* Publish this rank's ids, then fetch the ids of other ranks. If ranks fetched first, they would wait for each
 * other. */
static ddp_status exchange_ids(struct nccl_comm *n, const struct comm_setup *setup, nccl_id *ids, int count,
                               struct ddp_err *err)
{
    char key[NCCL_KEY];
    ddp_status status = DDP_OK;
    for (int i = 0; i < count && status == DDP_OK; i++)
        if (nccl_id_maker(i, count, n->base.world) == n->base.rank)
            status = make_id(n, setup, nccl_id_key(key, i), &ids[i], err);
    for (int i = 0; i < count && status == DDP_OK; i++)
        if (nccl_id_maker(i, count, n->base.world) != n->base.rank)
            status = setup->host->fetch(setup->bootstrap, nccl_id_key(key, i), &ids[i], sizeof(ids[i]), err);
    return status;
}

/* Remove the ids that this rank has published, after all ranks have read them. */
static ddp_status clear_ids(struct nccl_comm *n, const struct comm_setup *setup, int count,
                            struct ddp_err *err)
{
    char key[NCCL_KEY];
    ddp_status status = DDP_OK;
    for (int i = 0; i < count && status == DDP_OK; i++)
        if (nccl_id_maker(i, count, n->base.world) == n->base.rank)
            status = setup->host->clear(setup->bootstrap, nccl_id_key(key, i), err);
    return status;
}

/* --- the communicator --------------------------------------------------------------------------------- */

/* Start the creation of NCCL's communicator. The watch thread (nccl_watch.c) completes the creation. */
static ddp_status create_nccl(struct nccl_comm *n, nccl_id *ids, int count, struct ddp_err *err)
{
    nccl_config config = { .size = sizeof(config),
                           .magic = (unsigned)NCCL_CONFIG_MAGIC_HIGH << 16 | NCCL_CONFIG_MAGIC_LOW,
                           .version = NCCL_LEAST,
                           .blocking = 0 };
    nccl_result result =
        count > 1 ? n->lib.init_rank_scalable(&n->nccl, n->base.world, n->base.rank, count, ids, &config)
                  : n->lib.init_rank(&n->nccl, n->base.world, ids[0], n->base.rank, &config);
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
        return DDP_OK;
    const char *words = n->lib.last_error != NULL ? n->lib.last_error(NULL) : NULL;
    nccl_fail(err, n->base.rank, "cannot create the communicator", result, words);
    return watch_fault(n, err);
}

static ddp_status create_and_wait(struct nccl_comm *n, const struct comm_setup *setup, nccl_id *ids,
                                  int count, struct ddp_err *err)
{
    pthread_mutex_lock(&n->lock);
    n->creating_until_ms = clock_ms() + setup->host->remaining_ms(setup->bootstrap);
    ddp_status status = watch_start(n, err);
    if (status == DDP_OK)
        status = create_nccl(n, ids, count, err);
    while (status == DDP_OK && n->state == NCCL_CREATING) {
        pthread_cond_wait(&n->changed, &n->lock);
        status = watch_alive(n, err);
    }
    pthread_mutex_unlock(&n->lock);
    return status;
}

/* Join all ranks. First every rank sets NCCL's environment variables and publishes its NCCL version and its GPU. One
 * rank in 128 creates a unique id and writes it to the store. ncclCommInitRankConfig starts the creation and does not
 * wait. The watch thread completes the creation. After a barrier the ranks remove the ids from the store. */
ddp_status join_all(struct nccl_comm *n, const struct comm_setup *setup, struct ddp_err *err)
{
    const struct call all_there = { .kind = CALL_INIT,
                                    .timeout_ms = setup->host->remaining_ms(setup->bootstrap) };
    set_environment(n, setup);
    ddp_status status = compare_cards(n, setup, err);
    if (status != DDP_OK)
        return status;
    int count = n->lib.init_rank_scalable != NULL ? nccl_id_count(n->base.world, n->lib.version) : 1;
    nccl_id *ids = calloc((size_t)count, sizeof(*ids));
    if (ids == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d unique ids", count);
    status = exchange_ids(n, setup, ids, count, err);
    if (status == DDP_OK)
        status = create_and_wait(n, setup, ids, count, err);
    if (status == DDP_OK)
        status = cpu_call(n, &all_there, err);
    if (status == DDP_OK)
        status = clear_ids(n, setup, count, err);
    free(ids);
    return status;
}

ddp_status join_alone(struct nccl_comm *n, struct ddp_err *err)
{
    n->state = nccl_step(n->state, NCCL_MET).next;
    return watch_start(n, err);
}
