/* scheduler_kubernetes.c -- pods: indexed Jobs, and PyTorchJobs of Kubeflow's training operator.
 *
 * A pod has an address of its own, so the default port is free and need not be made up.
 *
 * An indexed Job gives each pod its number and the host name JOB-NUMBER. With a headless service (subdomain: in the pod's
 * template) pod 0 is JOB-0.SERVICE.NAMESPACE.svc..., and the kubelet writes the pod's own long name into /etc/hosts, from
 * where the rest behind the first dot is taken. The number of pods is in no variable: the user says --nnodes.
 *
 * The operator speaks of pods: WORLD_SIZE is their number and RANK the number of this one. Newer ones also set torchrun's PET_*
 * variables, which are options here as there; then WORLD_SIZE counts workers and says nothing about pods. */
#include "plan/scheduler_parts.h"

#include <stdio.h>
#include <string.h>

/* "job-3" -> 3 characters of "job", or the whole when it does not end in a dash and digits. */
static int stem_of(const char *host)
{
    const size_t len = strcspn(host, ".");
    size_t at = len;
    while (at > 0 && host[at - 1] >= '0' && host[at - 1] <= '9')
        at--;
    return (int)(at < len && at > 1 && host[at - 1] == '-' ? at - 1 : len);
}

/* What stands behind "HOST." in the first long name of it in /etc/hosts; NULL when there is none. */
static const char *domain_in(const char *hosts, const char *host, size_t *len)
{
    const size_t short_len = strcspn(host, ".");
    for (const char *at = hosts; at != NULL && (at = strstr(at, host)) != NULL; at += short_len) {
        const bool whole = at > hosts && (at[-1] == ' ' || at[-1] == '\t');
        if (whole && at[short_len] == '.') {
            *len = strcspn(at + short_len + 1, " \t\r\n#");
            return *len > 0 ? at + short_len + 1 : NULL;
        }
    }
    return NULL;
}

static const char *host_of(const struct scheduler_facts *f)
{
    const char *name = scheduler_env(f, "HOSTNAME");
    return name != NULL ? name : f->host;
}

/* setHostnameAsFQDN makes the host name a long one, which needs no file. */
static void put_pod_0(struct scheduler *s, const struct scheduler_facts *f)
{
    const char *host = host_of(f), *dot = strchr(host, '.'), *domain = dot != NULL ? dot + 1 : NULL;
    char name[SCHEDULER_TEXT_MAX], first[SCHEDULER_TEXT_MAX];
    size_t len = domain != NULL ? strlen(domain) : 0;
    if (domain == NULL && f->file != NULL)
        domain = domain_in(f->file, host, &len);
    snprintf(first, sizeof(first), "%.*s-0", stem_of(host), host);
    if (domain == NULL || len + strlen(first) + 2 > sizeof(name)) {
        scheduler_note(
            s, "this pod has no long name, so it cannot tell that of pod 0: give the pods a headless service "
               "(subdomain: in their template), or say --master_addr");
        return;
    }
    snprintf(name, sizeof(name), "%.120s.%.*s", first, (int)(len < 130 ? len : 130), domain);
    scheduler_put(s, SCHEDULER_ADDRESS, name, "host name %.80s, with 0 for its number", host);
}

void scheduler_read_KUBERNETES(struct scheduler *s, const struct scheduler_facts *f)
{
    const char *host = host_of(f);
    char job[SCHEDULER_TEXT_MAX];
    const int index = scheduler_number(f, "JOB_COMPLETION_INDEX");
    if (index < 0)
        return;
    scheduler_put_number(s, SCHEDULER_NODE_RANK, index, "JOB_COMPLETION_INDEX");
    snprintf(job, sizeof(job), "%.*s", stem_of(host), host);
    scheduler_put(s, SCHEDULER_JOB, job, "host name %.80s, without its number", host);
    put_pod_0(s, f);
}

/* "mnist-worker-1" -> "mnist" */
static void put_job_name(struct scheduler *s, const char *host)
{
    static const char *const roles[] = { "-master", "-worker" };
    char job[SCHEDULER_TEXT_MAX];
    snprintf(job, sizeof(job), "%.*s", stem_of(host), host);
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        const size_t len = strlen(job), role = strlen(roles[i]);
        if (len > role && strcmp(job + len - role, roles[i]) == 0) {
            job[len - role] = '\0';
            scheduler_put(s, SCHEDULER_JOB, job, "host name %.80s, without role and number", host);
            return;
        }
    }
}

void scheduler_read_PYTORCHJOB(struct scheduler *s, const struct scheduler_facts *f)
{
    const int pods = scheduler_number(f, "WORLD_SIZE"), pod = scheduler_number(f, "RANK");
    const int port = scheduler_number(f, "MASTER_PORT");
    const bool torchruns = scheduler_env(f, "PET_NNODES") != NULL;
    if (pods > 0 && !torchruns)
        scheduler_put_number(s, SCHEDULER_NODES, pods, "WORLD_SIZE, the number of pods");
    if (pod >= 0 && !torchruns)
        scheduler_put_number(s, SCHEDULER_NODE_RANK, pod, "RANK, the number of this pod");
    if (port > 0)
        scheduler_put_number(s, SCHEDULER_PORT, port, "MASTER_PORT");
    scheduler_put(s, SCHEDULER_ADDRESS, scheduler_env(f, "MASTER_ADDR"), "MASTER_ADDR");
    put_job_name(s, host_of(f));
}
