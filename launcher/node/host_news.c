/* host_news.c -- findings that travel between the hosts of `ddprun --hosts` without the store. The relays that have
 * started the nodes carry these findings, because a node may be unable to reach the store. Such a node cannot show its
 * finding to the user, because every node except node 0 runs with --quiet. */
#include "base/clock.h"
#include "base/log.h"
#include "base/exit_codes.h"
#include "node/effects.h"
#include "node/node.h"
#include "tables/text.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* How long to wait for a finding about a lost host. The starter (the ddprun with --hosts) detects the end of a remote
 * shell within this time. */
enum { AWAIT_MS = 1000 };

/* Return true if NEWS_FD is the socket of a relay. The user may have started this process with another open file as
 * descriptor 3. */
static bool is_socket_of_relay(void)
{
    int domain = 0, type = 0;
    socklen_t size = sizeof(type);
    return getsockopt(NEWS_FD, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET &&
           getsockopt(NEWS_FD, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

/* --- from other hosts --------------------------------------------------------------------------------------- */

/* Print the finding like a finding of the store. `words` is "HOST reports: SENTENCE". */
static void print_news(struct node *n, const struct news *news, const char *words)
{
    struct buf text = { 0 };
    cJSON *push = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(push, "findings");
    cJSON *row = cJSON_CreateObject();
    const enum finding_code code = finding_by_name(news->code);
    const bool ok = json_add_text(row, "code", news->code) && json_add_text(row, "subject", news->host) &&
                    json_add_text(row, "grade", code != FINDING_NONE ? finding_grade_name(code) : "error") &&
                    json_add_text(row, "sentence", words) && json_add_text(row, "advice", news->advice) &&
                    buf_printf(&text, "%s", words) &&
                    (news->advice[0] == '\0' || buf_printf(&text, "\n  try      %s", news->advice)) &&
                    buf_printf(&text, FINDING_CODE_MARK "%s", news->code) && buf_append(&text, "", 1);
    json_append(list, row);
    if (ok && (!n->plan->cli->quiet || n->plan->cli->json))
        announce_findings(&n->out.announce, (const char *)text.data, push);
    cJSON_Delete(push);
    buf_free(&text);
}

/* Log why another node has ended. End this node, too, because the job cannot begin without the other node. If the
 * finding's sentence does not begin with the other host's name, log this name first. */
static void end_by_news(struct node *n, const struct news *news)
{
    const char *semicolon = news->advice[0] != '\0' ? "; " : "";
    const bool is_about = strncmp(news->sentence, news->host, strlen(news->host)) == 0;
    log_error("this node cannot join the job: %s%s%s%s%s [%s]", is_about ? "" : news->host,
              is_about ? "" : " reports: ", news->sentence, semicolon, news->advice, news->code);
    log_explain(news->code);
    node_finish(n, EXIT_CODE_DDPRUN);
}

/* Return true if the cause of the job's end is known: a stop by the user, a lost host, or a failed worker on any node.
 * Ignore the failure of a worker that only lost a peer, and a failure of an earlier attempt. */
static bool has_reason(const struct node *n)
{
    const enum agent_state state = agent_state(n->agent);
    const bool is_over = state == AGENT_BACKING_OFF || state == AGENT_GATHERING;
    return agent_stop_signal(n->agent) != 0 || node_has_lost_host(n) ||
           (n->run.cause.rank >= 0 && !n->run.cause.victim && !is_over);
}

/* Keep the finding as the cause of the job's end if no earlier cause is known. The relay sends SIGTERM to this process
 * next, and the finding is the reason for this signal. */
static void keep_reason(struct node *n, const struct news *news)
{
    struct failure *c = &n->run.cause;
    if (has_reason(n))
        return;
    *c = (struct failure){ .node_rank = -1, .rank = -1, .local_rank = -1 };
    c->after_ms = n->run.attempt_started_ms != 0 ? clock_ms() - n->run.attempt_started_ms : 0;
    snprintf(c->why, sizeof(c->why), "%s", FAILURE_HOST_LOST);
    snprintf(c->code, sizeof(c->code), "%.39s", news->code);
    snprintf(c->host, sizeof(c->host), "%s", news->host);
    text_copy(c->words, sizeof(c->words), news->sentence);
    agent_lose_host(n->agent);
}

/* Handle a finding of another host.
 *
 *   - If the finding ends the job, keep it as the cause.
 *   - If the finding has no code, delete the earlier finding of that host.
 *   - If the finding reports that ddprun on that host has ended, end this node if it still waits for the first round.
 *     Otherwise ignore the finding.
 *   - Keep and print any other finding, because it explains why the node of the other host is missing. */
static void receive_news(struct node *n, const struct news *news)
{
    const bool waits = n->meet.round == NULL && agent_state(n->agent) == AGENT_GATHERING;
    char words[FINDING_TEXT_MAX];
    if (news->stops) {
        keep_reason(n, news);
    } else if (news->code[0] == '\0') {
        if (strcmp(n->meet.news.host, news->host) == 0)
            n->meet.news.host[0] = '\0';
    } else if (news->ends && waits && agent_stop_signal(n->agent) == 0) {
        end_by_news(n, news);
    } else if (!news->ends) {
        n->meet.news = *news;
        snprintf(words, sizeof(words), "%.60s reports: %.560s", news->host, news->sentence);
        print_news(n, news, words);
    }
}

void node_read_news(struct node *n)
{
    char line[NEWS_MAX + 1];
    struct news news;
    ssize_t size = 0;
    while (n->meet.has_news_socket && !n->ended &&
           (size = recv(NEWS_FD, line, sizeof(line), MSG_DONTWAIT)) > 0)
        if (decode_news(slice_of(line, (size_t)size), &news))
            receive_news(n, &news);
    if (n->meet.has_news_socket && size == 0) { /* the relay has ended */
        uv_close((uv_handle_t *)&n->meet.news_poll, NULL);
        n->meet.has_news_socket = false;
    }
}

void node_await_news(struct node *n)
{
    struct pollfd news = { .fd = NEWS_FD, .events = POLLIN };
    const bool is_lost = agent_lost_store(n->agent) || strcmp(n->run.cause.why, "node_lost") == 0;
    const uint64_t until_ms = clock_ms() + AWAIT_MS;
    for (uint64_t now = clock_ms();
         is_lost && n->meet.has_news_socket && !n->ended && !has_reason(n) && now < until_ms;
         now = clock_ms())
        if (poll(&news, 1, (int)(until_ms - now)) > 0)
            node_read_news(n);
}

static void on_news(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    node_read_news(poll->data);
}

bool node_explain_absence(const struct node *n, const char *host, char *out, size_t size)
{
    const struct news *news = &n->meet.news;
    const bool has = news->host[0] != '\0' && (host == NULL || strcmp(host, news->host) == 0);
    out[0] = '\0';
    if (has)
        snprintf(out, size, "%.60s reports: %.300s  [%.40s]", news->host, news->sentence, news->code);
    return has;
}

/* --- to other hosts ----------------------------------------------------------------------------------------- */

/* A finding travels to the relay that has started the node, and then to the ddprun that the user has started. That
 * ddprun sends the first finding about an ended node to all other hosts, and other findings to node 0, which prints
 * them. */

/* Send a finding to the relay without waiting. If the socket is full, the message is lost. */
static void send_news(struct node *n, struct news *news)
{
    struct buf line = { 0 };
    snprintf(news->host, sizeof(news->host), "%.63s", n->plan->facts->host);
    if (n->meet.has_news_socket && encode_news(news, &line))
        (void)!send(NEWS_FD, line.data, line.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    buf_free(&line);
}

void node_send_end(struct node *n, const char *code, const char *words)
{
    struct news news = { .ends = true };
    failure_split(words, news.sentence, news.advice);
    snprintf(news.code, sizeof(news.code), "%s", code != NULL ? code : finding_code_name(FINDING_HOST_ENDED));
    send_news(n, &news);
}

void node_send_wait(struct node *n, const char *words)
{
    const char *code = finding_named_in(words);
    struct news news = { .ends = false };
    if (code == NULL)
        return;
    failure_split(words, news.sentence, news.advice);
    char *limit = strstr(news.sentence, "; giving up in ");
    if (limit != NULL) /* cut off "; giving up in 60 s", because only this node has this limit */
        *limit = '\0';
    snprintf(news.code, sizeof(news.code), "%s", code);
    n->meet.has_sent_news = true;
    send_news(n, &news);
}

void node_send_no_wait(struct node *n)
{
    struct news news = { .ends = false };
    if (n->meet.has_sent_news)
        send_news(n, &news);
    n->meet.has_sent_news = false;
}

void node_open_news(struct node *n)
{
    n->meet.has_news_socket = n->plan->cli->one_console && is_socket_of_relay() &&
                              fcntl(NEWS_FD, F_SETFD, FD_CLOEXEC) == 0 &&
                              uv_poll_init(&n->loop, &n->meet.news_poll, NEWS_FD) == 0;
    if (!n->meet.has_news_socket)
        return;
    n->meet.news_poll.data = n;
    uv_poll_start(&n->meet.news_poll, UV_READABLE, on_news);
}
