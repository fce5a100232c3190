/* nccl_watch.c -- see nccl_watch.h. If a peer fails, the program's thread may wait in a CUDA function that never
 * returns. So a second thread, the watch thread, checks the calls in progress and the creation of the communicator. */
#include "cuda/nccl_watch.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/timed_call.h"

#include <stdio.h>
#include <string.h>

static struct nccl_flight *flight_of(struct nccl_comm *n, uint64_t number)
{
    return &n->flights[number % NCCL_FLIGHTS];
}

struct nccl_flight *flight_begin(struct nccl_comm *n, const struct call *call)
{
    struct nccl_flight *flight = flight_of(n, ++n->begun);
    flight->call = *call;
    flight->queued = false;
    flight->since_ms = clock_ms();
    flight->timeout_ms = call->timeout_ms ? call->timeout_ms : n->base.step_timeout_ms;
    pthread_cond_signal(&n->wanted);
    return flight;
}

ddp_status flight_queued(struct nccl_comm *n, struct nccl_flight *flight, struct ddp_err *err)
{
    const struct cudart *call = &n->base.gpu.call;
    cuda_error error = CUDA_SUCCESS_;
    if (flight->after == NULL)
        error = call->event_make(&flight->after, CUDA_EVENT_NO_TIMING);
    if (error == CUDA_SUCCESS_)
        error = call->event_record(flight->after, n->base.stream);
    if (gpu_check(&n->base.gpu, error, "cannot record an event after the call", err) != DDP_OK)
        return ddp_wrap(err, "at rank %d", n->base.rank);
    flight->queued = true;
    return DDP_OK;
}

const struct nccl_flight *flight_oldest(const struct nccl_comm *n)
{
    return n->done < n->begun ? &n->flights[(n->done + 1) % NCCL_FLIGHTS] : NULL;
}

/* Return the text of the oldest call in progress, or the text of CALL_INIT if no call is in progress. */
static const char *flight_text(const struct nccl_comm *n, char text[CALL_TEXT])
{
    const struct nccl_flight *oldest = flight_oldest(n);
    const struct call none = { .kind = CALL_INIT };
    return call_text(text, oldest != NULL ? &oldest->call : &none, n->done + 1);
}

/* Mark the oldest call as done. The next call could not begin earlier, so its timeout starts now. */
static void retire_one(struct nccl_comm *n)
{
    n->done++;
    n->host->complete(n->recorder, n->done);
    flight_of(n, n->done + 1)->since_ms = clock_ms();
}

ddp_status flight_retire(struct nccl_comm *n, struct ddp_err *err)
{
    uint64_t before = n->done;
    cuda_error error = CUDA_SUCCESS_;
    while (n->done < n->begun && flight_of(n, n->done + 1)->queued) {
        error = gpu_query(&n->base.gpu, flight_of(n, n->done + 1)->after);
        if (error != CUDA_SUCCESS_)
            break;
        retire_one(n);
    }
    if (n->done != before)
        pthread_cond_broadcast(&n->changed);
    if (error == CUDA_SUCCESS_ || error == CUDA_NOT_READY)
        return DDP_OK;
    char text[CALL_TEXT], doing[CALL_TEXT + 64];
    snprintf(doing, sizeof(doing), "at rank %d: %s on the GPU", n->base.rank, flight_text(n, text));
    return gpu_fail(&n->base.gpu, error, doing, err);
}

bool flight_has_room(const struct nccl_comm *n)
{
    return n->begun - n->done < NCCL_FLIGHTS - 1;
}

/* --- the cpu communicator ----------------------------------------------------------------------------- */

ddp_status cpu_call(struct nccl_comm *n, const struct call *call, struct ddp_err *err)
{
    pthread_mutex_lock(&n->cpu_lock);
    ddp_status status = n->base.cpu->ops->run(n->base.cpu, call, err);
    pthread_mutex_unlock(&n->cpu_lock);
    return status;
}

/* --- the watch ---------------------------------------------------------------------------------------- */

/* CHECK_MS: time between two checks of a call in progress. SUSPECT_MS: delay of the report of NCCL's error,
 * because the cause may be a dead peer. */
enum { CHECK_MS = 50, SUSPECT_MS = 400 };

/* --- failing ------------------------------------------------------------------------------------------ */

/* ncclCommAbort is allowed only while no other thread is in a function of NCCL. So all such functions are called
 * under `lock`; they do not wait, because the communicator is non-blocking. */

/* Publish the error first, because the other ranks wait for it. Then abort NCCL. Release `lock` meanwhile, because
 * `lock` is not needed in the state FAILING. */
static void publish_and_abort(struct nccl_comm *n, struct ddp_err *err)
{
    struct ncclComm *nccl = n->nccl;
    pthread_mutex_unlock(&n->lock);
    n->base.cpu->ops->give_up(n->base.cpu, err);
    pthread_mutex_lock(&n->lock);
    n->failed = *err;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    if (nccl != NULL)
        n->lib.abort(nccl);
    pthread_mutex_lock(&n->lock);
    n->nccl = NULL;
}

static void wait_for_failure(struct nccl_comm *n)
{
    while (n->failed.code == DDP_OK)
        pthread_cond_wait(&n->changed, &n->lock);
}

ddp_status watch_fault(struct nccl_comm *n, struct ddp_err *err)
{
    struct nccl_step step = nccl_step(n->state, NCCL_FAULT);
    if (err->code == DDP_ERR_NOMEM && n->state != NCCL_CREATING)
        err->code = DDP_ERR_CUDA; /* use DDP_ERR_CUDA, which makes later calls fail, too, because the ranks
                                   * may be at different calls */
    n->state = step.next;
    if (step.effect == NCCL_EFFECT_ABORT) {
        publish_and_abort(n, err);
        n->state = nccl_step(n->state, NCCL_GONE).next;
        pthread_cond_broadcast(&n->changed);
    }
    return watch_alive(n, err);
}

ddp_status watch_alive(struct nccl_comm *n, struct ddp_err *err)
{
    if (n->state != NCCL_FAILING && n->state != NCCL_ABORTED)
        return DDP_OK;
    wait_for_failure(n);
    *err = n->failed;
    return err->code;
}

void watch_pause(struct nccl_comm *n, uint32_t us)
{
    const struct timespec until = clock_after_us(us);
    pthread_cond_timedwait(&n->changed, &n->lock, &until);
}

/* --- checks ------------------------------------------------------------------------------------------- */

/* The watch thread makes the communicator fail if one of these functions finds a reason:
 *
 *     check_peers     a peer has died, or a rank has given up
 *     check_nccl      ncclCommGetAsyncError reports an error; check_clock returns this error after SUSPECT_MS
 *     flight_retire   CUDA reports an error for the event of a call
 *     check_clock     a call or the creation of the communicator has exceeded its timeout */

/* Check the peers. If another thread runs a call of the cpu communicator, do nothing, because that call checks the
 * peers, too. */
static ddp_status check_peers(struct nccl_comm *n, struct ddp_err *err)
{
    if (pthread_mutex_trylock(&n->cpu_lock) != 0)
        return DDP_OK;
    ddp_status status = n->base.cpu->ops->check(n->base.cpu, err);
    pthread_mutex_unlock(&n->cpu_lock);
    return status;
}

static const char *reason_of_nccl(const struct nccl_comm *n)
{
    return n->lib.last_error != NULL ? n->lib.last_error(n->nccl) : NULL;
}

/* Keep the first error of NCCL. check_clock reports this error after SUSPECT_MS if no better reason is found before. */
static void note_suspect(struct nccl_comm *n, nccl_result result)
{
    char text[CALL_TEXT] = "cannot connect the ranks";
    if (n->suspect.code != DDP_OK)
        return;
    if (n->state != NCCL_CREATING)
        flight_text(n, text);
    nccl_fail(&n->suspect, n->base.rank, text, result, reason_of_nccl(n));
    n->suspect_since_ms = clock_ms();
}

/* Check NCCL's state. The first success completes the creation of the communicator. */
static void check_nccl(struct nccl_comm *n)
{
    nccl_result asked, result = NCCL_IN_PROGRESS;
    if (n->nccl == NULL)
        return;
    asked = n->lib.async_error(n->nccl, &result);
    if (asked != NCCL_SUCCESS)
        result = asked;
    if (result == NCCL_SUCCESS && n->state == NCCL_CREATING) {
        n->state = nccl_step(n->state, NCCL_MET).next;
        pthread_cond_broadcast(&n->changed);
    } else if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        note_suspect(n, result);
    }
}

static ddp_status check_clock(const struct nccl_comm *n, struct ddp_err *err)
{
    uint64_t now = clock_ms();
    const struct nccl_flight *oldest = flight_oldest(n);
    char text[CALL_TEXT];

    if (n->suspect.code != DDP_OK && now >= n->suspect_since_ms + SUSPECT_MS) {
        *err = n->suspect;
        return err->code;
    }
    if (n->state == NCCL_CREATING)
        return now < n->creating_until_ms ? DDP_OK
                                          : nccl_init_late(err, n->base.world, n->init_timeout_ms, n->iface);
    if (oldest == NULL || now < oldest->since_ms + oldest->timeout_ms)
        return DDP_OK;
    const struct nccl_progress progress = { n->done, n->begun };
    return nccl_late(err, n->base.rank, flight_text(n, text), oldest->timeout_ms, &progress);
}

static void watch_check(struct nccl_comm *n)
{
    struct ddp_err err = { 0 };
    ddp_status status = flight_retire(n, &err);
    if (status == DDP_OK)
        check_nccl(n);
    if (status == DDP_OK)
        status = check_peers(n, &err);
    if (status == DDP_OK)
        status = check_clock(n, &err);
    if (status != DDP_OK)
        watch_fault(n, &err);
}

/* --- the thread --------------------------------------------------------------------------------------- */

static bool has_work(const struct nccl_comm *n)
{
    return n->state == NCCL_CREATING ||
           ((n->state == NCCL_READY || n->state == NCCL_LEAVING) && flight_oldest(n) != NULL);
}

static void *watch_run(void *user)
{
    struct nccl_comm *n = user;
    n->base.gpu.call.set_device(n->base.gpu.device); /* without this call, a new thread uses device 0 */
    pthread_mutex_lock(&n->lock);
    while (!n->closing) {
        if (!has_work(n)) {
            pthread_cond_wait(&n->wanted, &n->lock);
            continue;
        }
        watch_check(n);
        if (has_work(n) && !n->closing)
            watch_pause(n, n->state == NCCL_CREATING ? 2000 : CHECK_MS * 1000);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

ddp_status watch_start(struct nccl_comm *n, struct ddp_err *err)
{
    char limit[RLIMIT_TEXT_MAX];
    int error = thread_start(&n->watch, watch_run, n);
    if (error != 0)
        return ddp_fail(err, DDP_ERR_LIMIT,
                        "cannot start the thread that watches NCCL: %s; check `ulimit -u` (%s)",
                        strerror(error), rlimit_text(RLIMIT_NPROC, limit));
    n->watched = true;
    return DDP_OK;
}

void watch_stop(struct nccl_comm *n)
{
    if (!n->watched)
        return;
    pthread_mutex_lock(&n->lock);
    n->closing = true;
    pthread_cond_signal(&n->wanted);
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    pthread_join(n->watch, NULL);
    n->watched = false;
}
