/* signal_json.c -- see signal_json.h. The members are always there, so a reader need not ask which exist. */
#include "report/signal_json.h"

#include "agent/ending.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>

enum { MEMBER_MAX = 64 };

bool json_add_signal(cJSON *o, int signal)
{
    char name[ENDING_MAX];
    signal_name(name, signal);
    return json_add_number(o, "signal", signal) && json_add_text(o, "signal_name", name);
}

static bool add_number_or_null(cJSON *o, const char *name, bool known, double value)
{
    return known ? json_add_number(o, name, value) : json_add_null(o, name);
}

bool json_add_sender(cJSON *o, const char *prefix, const struct signal_sender *sender)
{
    char pid[MEMBER_MAX], name[MEMBER_MAX], uid[MEMBER_MAX];
    const bool sent = sender != NULL && !sender->kernel;
    snprintf(pid, sizeof(pid), "%s_pid", prefix);
    snprintf(name, sizeof(name), "%s_name", prefix);
    snprintf(uid, sizeof(uid), "%s_uid", prefix);
    return add_number_or_null(o, pid, sent && sender->pid > 0, sent ? sender->pid : 0) &&
           json_add_text(o, name, sent && sender->name[0] != '\0' ? sender->name : NULL) &&
           add_number_or_null(o, uid, sent, sent ? sender->uid : 0);
}
