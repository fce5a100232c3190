/* nccl_settings.h -- what NCCL is told by its environment, and how its ranks find each other. Pure. */
#ifndef CUDA_NCCL_SETTINGS_H
#define CUDA_NCCL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

struct nccl_setting {
    char name[32], value[320];
};

enum { NCCL_SETTINGS_MAX = 16 };

struct nccl_facts {
    const char *run;   /* job and attempt, "ddp/<job>/<attempt>" */
    const char *iface; /* the interface on the way to the store, "" = unknown */
    bool share_gpu;    /* several ranks on one GPU */
    int rank;
};

/* What is to be set where the user has set nothing; returns how many. */
int nccl_settings(const struct nccl_facts *facts, struct nccl_setting out[NCCL_SETTINGS_MAX]);

/* How many unique ids `world` ranks use with NCCL `version`, and which rank makes the i-th. One rank answers at most
 * NCCL_RANKS_PER_ID others while they connect. */
enum { NCCL_RANKS_PER_ID = 128, NCCL_IDS_MAX = 1 << 13 };
int nccl_id_count(int world, int version);
int nccl_id_maker(int i, int count, int world);

/* The name of the i-th in the store, behind bootstrap's prefix of job and attempt. */
enum { NCCL_KEY = 32 };
const char *nccl_id_key(char key[NCCL_KEY], int i);

#endif
