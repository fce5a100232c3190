/* meeting.h -- the ranks learn which of them share a host, and those of one host find their control page. */
#ifndef WORKER_CPU_MEETING_H
#define WORKER_CPU_MEETING_H

#include "core/bootstrap.h"
#include "cpu/shm.h"

enum { SHM_NONCE = 16 };

struct meeting {
    struct segment segment;   /* control page and slots, pids and ranks filled in */
    uint16_t *host_of;        /* of each rank of the world; hosts are numbered by their lowest rank */
    int hosts, host;          /* how many, and ours */
    int local_rank, locals;   /* our number among the ranks of this host, and how many they are */
    uint8_t nonce[SHM_NONCE]; /* by chance, the same on all ranks: this run, no other */
};

/* Collective, through the store. DDP_OK: close *out with shm_meeting_close when the page is no longer needed. */
ddp_status meeting_join(const struct bootstrap *bootstrap, struct meeting *out, struct ddp_err *err);
void meeting_close(struct meeting *meeting);

/* All ranks are known to have met: take back what was needed for it. */
ddp_status meeting_over(const struct bootstrap *bootstrap, struct meeting *meeting, struct ddp_err *err);

/* This rank gives up before all have the page. Its maker, before it closes it, lets those who come late know why; the
 * others find that in the page itself. */
void meeting_refuse(const struct bootstrap *bootstrap, const struct meeting *meeting,
                    const struct ddp_err *reason);

#endif
