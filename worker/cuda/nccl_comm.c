/* nccl_comm.c -- the NCCL backend; see nccl_watch.h for its other files. A call without data, or with buffers in host
 * memory, uses the cpu communicator, and all other calls use NCCL. The cpu communicator also helps to create NCCL's
 * communicator: it reports failed ranks, and its barrier ends the creation. */
#include "cuda/nccl_watch.h"

#include "base/clock.h"
#include "cuda/gpu.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* --- the NCCL functions of a call --------------------------------------------------------------------- */

/* Do all moves (sends and receives) of a call in one NCCL group, which is closed even after an error. */
static nccl_result move_all(const struct nccl_comm *n, const struct call *call, nccl_type type)
{
    struct nccl_move move;
    nccl_result first = n->lib.group_start();
    for (int i = 0; first == NCCL_SUCCESS && nccl_move(call, n->base.rank, n->base.world, i, &move); i++) {
        nccl_result result =
            move.send ? n->lib.send(move.from, (size_t)call->n, type, move.peer, n->nccl, n->base.stream)
                      : n->lib.recv(move.to, (size_t)call->n, type, move.peer, n->nccl, n->base.stream);
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
            first = result;
    }
    nccl_result end = n->lib.group_end();
    return first != NCCL_SUCCESS ? first : end;
}

static nccl_result call_nccl(const struct nccl_comm *n, const struct call *c)
{
    const struct nccl_plan plan = nccl_plan(c);
    const struct nccl_lib *lib = &n->lib;
    size_t count = (size_t)c->n;

    switch (plan.way) {
    case NCCL_WAY_ALL_REDUCE:
        return lib->all_reduce(c->in, c->out, count, plan.type, plan.op, n->nccl, n->base.stream);
    case NCCL_WAY_REDUCE:
        return lib->reduce(c->in, c->out, count, plan.type, plan.op, c->root, n->nccl, n->base.stream);
    case NCCL_WAY_BROADCAST:
        return lib->broadcast(c->in, c->out, count, plan.type, c->root, n->nccl, n->base.stream);
    case NCCL_WAY_ALL_GATHER:
        return lib->all_gather(c->in, c->out, count, plan.type, n->nccl, n->base.stream);
    case NCCL_WAY_REDUCE_SCATTER:
        return lib->reduce_scatter(c->in, c->out, count, plan.type, plan.op, n->nccl, n->base.stream);
    case NCCL_WAY_MOVES:
        return move_all(n, c, plan.type);
    case NCCL_WAY_NOTHING:
        break;
    }
    return NCCL_SUCCESS;
}

/* Run a call in a world of one: the result is the rank's own value. */
static ddp_status copy_alone(const struct nccl_comm *n, const struct call *call, struct ddp_err *err)
{
    cuda_error error = CUDA_SUCCESS_;
    if (call->in != call->out)
        error = n->base.gpu.call.copy_async(call->out, call->in, call_out_bytes(call, 0, 1),
                                            CUDA_COPY_DEFAULT, n->base.stream);
    return gpu_check(&n->base.gpu, error, call_rules[call->kind].word, err);
}

/* Wait until NCCL has put the call on the stream. A non-blocking communicator may first have to connect ranks.
 * watch_pause releases `lock`, so the watch thread may run and abort the communicator. */
static ddp_status wait_until_queued(struct nccl_comm *n, nccl_result *result, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    while (*result == NCCL_IN_PROGRESS && status == DDP_OK) {
        nccl_result asked = n->lib.async_error(n->nccl, result);
        if (asked != NCCL_SUCCESS)
            *result = asked;
        if (*result == NCCL_IN_PROGRESS) {
            watch_pause(n, 50);
            status = watch_alive(n, err);
        }
    }
    return status;
}

/* Check `error`. An error of CUDA makes the communicator fail, because the other ranks would wait for this rank. */
static ddp_status check_cuda(struct nccl_comm *n, cuda_error error, const char *doing, struct ddp_err *err)
{
    if (gpu_check(&n->base.gpu, error, doing, err) == DDP_OK)
        return DDP_OK;
    ddp_wrap(err, "at rank %d", n->base.rank);
    return watch_fault(n, err);
}

/* --- calls on the stream of this backend -------------------------------------------------------------- */

/* Make this backend's stream wait for the program's stream. */
static ddp_status wait_for_program(struct nccl_comm *n, void *stream, struct ddp_err *err)
{
    cuda_error error = n->base.gpu.call.event_record(n->base.before, stream);
    if (error == CUDA_SUCCESS_)
        error = n->base.gpu.call.stream_follow(n->base.stream, n->base.before, 0);
    return check_cuda(n, error, "cannot record an event before the call", err);
}

/* Report that NCCL rejected a call. NCCL returns its first error in all later calls, and other ranks may have begun
 * this call, so the communicator fails. */
static ddp_status refused(struct nccl_comm *n, nccl_result result, struct ddp_err *err)
{
    char text[CALL_TEXT];
    const char *words = n->lib.last_error != NULL ? n->lib.last_error(n->nccl) : NULL;
    call_text(text, &n->flights[n->begun % NCCL_FLIGHTS].call, n->begun);
    nccl_fail(err, n->base.rank, text, result, words);
    return watch_fault(n, err);
}

static ddp_status queue_on_stream(struct nccl_comm *n, const struct call *call, struct ddp_err *err)
{
    ddp_status status = wait_for_program(n, call->stream, err);
    if (status != DDP_OK)
        return status;
    struct nccl_flight *flight = flight_begin(n, call);
    nccl_result result = n->nccl != NULL ? call_nccl(n, call) : NCCL_SUCCESS;
    status = wait_until_queued(n, &result, err);
    if (status != DDP_OK)
        return status;
    if (result != NCCL_SUCCESS)
        return refused(n, result, err);
    if (n->nccl == NULL)
        status = copy_alone(n, call, err);
    if (status == DDP_OK)
        status = flight_queued(n, flight, err);
    return status == DDP_OK ? DDP_OK : watch_fault(n, err);
}

static ddp_status wait_for_room(struct nccl_comm *n, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    while (status == DDP_OK && !flight_has_room(n)) {
        status = flight_retire(n, err);
        if (status != DDP_OK)
            return watch_fault(n, err);
        if (!flight_has_room(n))
            watch_pause(n, 200);
        status = watch_alive(n, err);
    }
    return status;
}

static ddp_status run_on_device(struct nccl_comm *n, const struct call *call, struct ddp_err *err)
{
    pthread_mutex_lock(&n->lock);
    ddp_status status = watch_alive(n, err);
    if (status == DDP_OK) /* select the GPU in each call, because each thread has its own current device */
        status = check_cuda(n, n->base.gpu.call.set_device(n->base.gpu.device), "cannot select the GPU", err);
    if (status == DDP_OK)
        status = wait_for_room(n, err);
    if (status == DDP_OK)
        status = queue_on_stream(n, call, err);
    n->base.comm.ticket = n->begun;
    pthread_mutex_unlock(&n->lock);
    return status;
}

/* --- the library --------------------------------------------------------------------------------------- */

static const char *const places[] = { "libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                      "/usr/local/lib/libnccl.so.2", NULL };

static const struct lib_kind nccl_kind = {
    "NCCL", "DDP_NCCL_LIBRARY", places,
    "install libnccl2 from NVIDIA's repository, or `pip install nvidia-nccl-cu13` (or -cu12), which installs "
    "site-packages/nvidia/nccl/lib/libnccl.so.2"
};

static const struct lib_symbol symbols[] = {
#define X(member, symbol, needed, result, parameters) { #symbol, needed, offsetof(struct nccl_lib, member) },
    NCCL_FUNCTION_LIST(X)
#undef X
};

/* Check the version first, and then look up the functions. A library that is too old fails both checks, and the error
 * about the version is clearer. */
static ddp_status check_version(struct nccl_lib *lib, struct ddp_err *err)
{
    ddp_status status = lib_symbols(&nccl_kind, lib->handle, symbols, 1, lib, err);
    if (status != DDP_OK)
        return status;
    if (lib->get_version(&lib->version) != NCCL_SUCCESS)
        lib->version = 0;
    return nccl_check_version(lib->version, err);
}

/* Load NCCL from `path`. If `path` is "", search the usual places. Return DDP_ERR_UNSUPPORTED if NCCL is missing or too
 * old. */
static ddp_status nccl_lib_open(struct nccl_lib *lib, const char *path, struct ddp_err *err)
{
    size_t place = 0;
    *lib = (struct nccl_lib){ 0 };
    ddp_status status = lib_open(&nccl_kind, path, &place, &lib->handle, err);
    if (status == DDP_OK)
        status = check_version(lib, err);
    if (status == DDP_OK)
        status =
            lib_symbols(&nccl_kind, lib->handle, symbols, sizeof(symbols) / sizeof(symbols[0]), lib, err);
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

/* Return a number that identifies this machine: a hash (FNV-1a) of the boot id. All containers of a machine have the
 * same boot id. If the boot id cannot be read, hash the host name instead. */
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

/* Create a unique id and publish it under `key`. Each attempt creates new ids and uses other keys, because a unique id
 * contains the address of a thread in the process that created it. */
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

/* --- join the ranks ----------------------------------------------------------------------------------- */

/* Start the creation of NCCL's communicator, which the watch thread completes. */
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
static ddp_status join_all(struct nccl_comm *n, const struct comm_setup *setup, struct ddp_err *err)
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

/* Create the communicator of a world of one. */
static ddp_status join_alone(struct nccl_comm *n, struct ddp_err *err)
{
    n->state = nccl_step(n->state, NCCL_MET).next;
    return watch_start(n, err);
}

/* --- open and close ----------------------------------------------------------------------------------- */

static void free_flights(struct nccl_comm *n)
{
    for (int i = 0; i < NCCL_FLIGHTS; i++)
        if (n->flights[i].after != NULL)
            n->base.gpu.call.event_free(n->flights[i].after);
}

/* Destroy NCCL's communicator. NCCL's finalize may wait until other ranks call it, too. All ranks have passed the last
 * barrier, so all ranks call it within a short time. */
static void destroy_nccl(struct nccl_comm *n)
{
    enum { PATIENCE_MS = 5000 }; /* how long to wait for NCCL's finalize before the abort */
    uint64_t until = clock_ms() + PATIENCE_MS;
    nccl_result result = n->lib.finalize(n->nccl);
    while (result == NCCL_IN_PROGRESS && clock_ms() < until) {
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
        if (n->lib.async_error(n->nccl, &result) != NCCL_SUCCESS)
            break;
    }
    if (result == NCCL_SUCCESS)
        n->lib.destroy(n->nccl);
    else
        n->lib.abort(n->nccl);
    n->nccl = NULL;
}

/* End the communicator as the table in nccl_plan.c defines. Destroy a communicator that works, and abort a communicator
 * that is still being created. If another thread is aborting the communicator, wait for that thread. */
static void end_nccl(struct nccl_comm *n)
{
    struct ddp_err why = { 0 };
    ddp_fail(&why, DDP_ERR_ABORTED, "rank %d ended while NCCL connected the ranks", n->base.rank);
    pthread_mutex_lock(&n->lock);
    while (n->state != NCCL_CLOSED) {
        struct nccl_step step = nccl_step(n->state, NCCL_CLOSE);
        if (step.effect == NCCL_EFFECT_ABORT)
            watch_fault(n, &why);
        else if (step.effect == NCCL_EFFECT_WAIT)
            pthread_cond_wait(&n->changed, &n->lock);
        else
            n->state = step.next;
        if (step.effect == NCCL_EFFECT_DESTROY && n->nccl != NULL)
            destroy_nccl(n);
    }
    pthread_mutex_unlock(&n->lock);
}

/* Free an nccl_comm. nccl_open may have failed before all members were set. */
static void nccl_close(struct comm *comm)
{
    struct nccl_comm *n = (struct nccl_comm *)comm;
    if (n->watched)
        end_nccl(n);
    watch_stop(n);
    free_flights(n);
    gpu_comm_close(&n->base);
    pthread_cond_destroy(&n->changed);
    pthread_cond_destroy(&n->wanted);
    pthread_mutex_destroy(&n->lock);
    pthread_mutex_destroy(&n->cpu_lock);
    free(n);
}

static void make_locks(struct nccl_comm *n)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&n->changed, &monotonic);
    pthread_cond_init(&n->wanted, NULL);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&n->lock, NULL);
    pthread_mutex_init(&n->cpu_lock, NULL);
}

/* Load the libraries. Load the CUDA runtime first, because without a GPU the runtime reports a clearer error than NCCL.
 * In a world of one, do not load NCCL. */
static ddp_status nccl_load(struct nccl_comm *n, const struct comm_setup *setup, struct ddp_err *err)
{
    ddp_status status = gpu_comm_open(&n->base, setup, err);
    return status == DDP_OK && n->base.world > 1 ? nccl_lib_open(&n->lib, setup->paths.nccl, err) : status;
}

/* Open the cpu communicator and load NCCL. A rank that cannot load its libraries still opens the cpu communicator,
 * because it needs this communicator to report the failure to the other ranks. */
static ddp_status nccl_open_both(struct nccl_comm *n, const struct comm_setup *setup, struct ddp_err *err)
{
    struct ddp_err loading = { 0 };
    nccl_load(n, setup, &loading);
    ddp_status status = setup->host->cpu->open(setup, &n->base.cpu, err);
    if (status == DDP_OK && loading.code != DDP_OK)
        *err = loading;
    if (status == DDP_OK && err->code == DDP_OK)
        n->base.world > 1 ? join_all(n, setup, err) : join_alone(n, err);
    return status != DDP_OK ? status : err->code;
}

static ddp_status nccl_run_cpu(struct gpu_comm *base, const struct call *call, struct ddp_err *err)
{
    return cpu_call((struct nccl_comm *)base, call, err);
}

static ddp_status nccl_open(const struct comm_setup *setup, struct comm **out, struct ddp_err *err)
{
    struct nccl_comm *n = gpu_comm_make(sizeof(*n), &nccl_comm_ops, setup, err);
    if (n == NULL)
        return err->code;
    n->base.run_cpu = nccl_run_cpu;
    n->host = setup->host;
    n->recorder = setup->recorder;
    n->init_timeout_ms = setup->bootstrap != NULL ? setup->bootstrap->timeout_ms : 0;
    make_locks(n);
    return gpu_comm_finish_open(&n->base, nccl_open_both(n, setup, err), out, err);
}

/* --- calls -------------------------------------------------------------------------------------------- */

/* Set *device to true if the buffers are in device memory. Return DDP_ERR_ARG if only one of the two buffers is in
 * device memory. An error of CUDA makes the communicator fail. */
static ddp_status place_of(struct nccl_comm *n, const struct call *call, bool *device, struct ddp_err *err)
{
    bool has_in = call_in_bytes(call, n->base.rank, n->base.world) > 0,
         has_out = call_out_bytes(call, n->base.rank, n->base.world) > 0, in, out;
    ddp_status status = gpu_comm_place(&n->base, call, &in, &out, err);
    if (status != DDP_OK) {
        pthread_mutex_lock(&n->lock);
        status = watch_fault(n, err);
        pthread_mutex_unlock(&n->lock);
        return status;
    }
    *device = in || out;
    if (has_in && has_out && in != out)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "%s: `in` is in %s memory, but `out` is in %s memory; use one kind of memory for both",
            call_rules[call->kind].word, in ? "device" : "host", out ? "device" : "host");
    return DDP_OK;
}

/* Wait until all calls are done. CALL_FINALIZE does this before its barrier, because other ranks may end after that
 * barrier. */
static ddp_status finish_all(struct nccl_comm *n, struct ddp_err *err)
{
    pthread_mutex_lock(&n->lock);
    n->state = nccl_step(n->state, NCCL_LEFT).next;
    ddp_status status = watch_alive(n, err);
    while (status == DDP_OK && flight_oldest(n) != NULL) {
        status = flight_retire(n, err);
        if (status != DDP_OK)
            status = watch_fault(n, err);
        else if (flight_oldest(n) != NULL)
            watch_pause(n, 200);
        if (status == DDP_OK)
            status = watch_alive(n, err);
    }
    pthread_mutex_unlock(&n->lock);
    return status;
}

static ddp_status still_alive(struct nccl_comm *n, struct ddp_err *err)
{
    pthread_mutex_lock(&n->lock);
    ddp_status status = watch_alive(n, err);
    pthread_mutex_unlock(&n->lock);
    return status;
}

static ddp_status nccl_run(struct comm *comm, const struct call *call, struct ddp_err *err)
{
    struct nccl_comm *n = (struct nccl_comm *)comm;
    bool device = false;
    n->base.comm.ticket = 0;
    ddp_status status = call->kind == CALL_FINALIZE ? finish_all(n, err) : still_alive(n, err);
    if (status == DDP_OK && call_rules[call->kind].in != AT_NONE && call->n > 0)
        status = place_of(n, call, &device, err);
    if (status != DDP_OK)
        return status;
    return device ? run_on_device(n, call, err) : cpu_call(n, call, err);
}

static ddp_status nccl_follow(struct comm *comm, uint64_t ticket, void *stream, struct ddp_err *err)
{
    struct nccl_comm *n = (struct nccl_comm *)comm;
    pthread_mutex_lock(&n->lock);
    ddp_status status = watch_alive(n, err);
    if (status == DDP_OK && ticket > n->done) {
        struct CUevent_st *after = n->flights[ticket % NCCL_FLIGHTS].after;
        status = check_cuda(n, n->base.gpu.call.stream_follow(stream, after, 0),
                            "cannot make the stream wait for a collective", err);
    }
    pthread_mutex_unlock(&n->lock);
    return status;
}

/* Wait for a call. At first, poll without pauses, because most waits are short. */
static ddp_status nccl_await(struct comm *comm, uint64_t ticket, uint32_t timeout_ms, struct ddp_err *err)
{
    enum { BUSY_LOOKS = 20000 };
    struct nccl_comm *n = (struct nccl_comm *)comm;
    uint64_t until = clock_ms() + timeout_ms;
    int looks = 0;
    pthread_mutex_lock(&n->lock);
    ddp_status status = watch_alive(n, err);
    while (status == DDP_OK && n->done < ticket) {
        status = flight_retire(n, err);
        if (status != DDP_OK)
            status = watch_fault(n, err);
        else if (n->done < ticket && clock_ms() >= until)
            status = DDP_IN_PROGRESS;
        else if (n->done < ticket && ++looks > BUSY_LOOKS)
            watch_pause(n, 100);
        if (status == DDP_OK)
            status = watch_alive(n, err);
    }
    pthread_mutex_unlock(&n->lock);
    return status;
}

static ddp_status nccl_check(struct comm *comm, struct ddp_err *err)
{
    struct nccl_comm *n = (struct nccl_comm *)comm;
    ddp_status status = still_alive(n, err);
    if (status != DDP_OK)
        return status;
    pthread_mutex_lock(&n->cpu_lock);
    status = n->base.cpu->ops->check(n->base.cpu, err);
    pthread_mutex_unlock(&n->cpu_lock);
    return status;
}

const struct comm_ops nccl_comm_ops = {
    .name = "nccl",
    .blocks = false,
    .open = nccl_open,
    .run = nccl_run,
    .shared_alloc = gpu_comm_shared_alloc,
    .shared_free = gpu_comm_shared_free,
    .check = nccl_check,
    .give_up = gpu_comm_give_up,
    .close = nccl_close,
    .follow = nccl_follow,
    .await = nccl_await,
    .copy = gpu_comm_copy,
    .zero = gpu_comm_zero,
    .finish = gpu_comm_finish,
};
