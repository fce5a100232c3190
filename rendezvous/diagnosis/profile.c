/* profile.c -- see profile.h. The event loop of the store calls profile_add for each sample (hub/stacks.c). So the work
 * for a sample must be linear in the number of ranks. Only a rank with much evidence is compared with all others. */
#include "diagnosis/profile.h"

#include "diagnosis/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The constants that profile.h explains. equal_share is below 1, because a rank that is only a little slower than the
 * other ranks must not be reported. false_report is the maximum probability of a false report about the job in a
 * window. */
static const double slow_share = 0.1, equal_share = 0.85, false_report = 0.02;

/* A slow rank waits in a smaller fraction of the samples than the other ranks. If the difference of the two fractions
 * is below this limit, the rank is not reported. */
static const double least_loss = 0.05;

/* Lower limit of a rank's evidence. Each sample in which the rank waits divides the evidence by 8.5. Without this
 * limit, many earlier waits of a rank could hide that it has become slow. */
static const double least_evidence = 1e-6;

/* The activity of a rank in one sample. A rank with STAND_UNKNOWN is left out of the sample. If a rank has
 * STAND_IMPORTS, because it imports a library, the whole sample is left out. */
enum stand { STAND_UNKNOWN, STAND_IMPORTS, STAND_WORKS, STAND_WAITS };

/* Create a profile of `n` ranks. If this function fails, the profile is empty, and profile_add ignores all samples. */
bool profile_begin(struct profile *p, uint32_t n)
{
    profile_free(p);
    p->ranks = n > 0 && n <= PROFILE_RANKS_MAX ? calloc(n, sizeof(*p->ranks)) : NULL;
    p->n = p->ranks != NULL ? n : 0;
    for (uint32_t i = 0; i < p->n; i++)
        p->ranks[i].evidence = 1;
    return p->ranks != NULL;
}

void profile_free(struct profile *p)
{
    free(p->ranks);
    *p = (struct profile){ 0 };
}

/* Return the activity of a rank, from its stack or from the steps that libddp records. Some stacks do not show whether
 * the rank waits for other ranks or for a lock (struct spot). Such a rank counts as waiting, because a wait in
 * Work.wait() is more likely than a wait for a lock. */
static enum stand stand_of(const struct spot *spot, const struct snapshot_rank *f)
{
    if (f->exited)
        return STAND_UNKNOWN;
    if (spot->imports)
        return STAND_IMPORTS;
    /* In a frame with idle_only, such as backward(), a running thread computes, and a sleeping thread waits for other
     * ranks. */
    if (spot->frames != NULL && spot->call != NULL)
        return spot->idle_only && strncmp(spot->does, "running", 7) == 0 ? STAND_WORKS : STAND_WAITS;
    if (f->has_steps)
        return f->call[0] != '\0' ? STAND_WAITS : STAND_WORKS;
    /* The rank probably waits in Work.wait(), and not for a lock. */
    if (spot->may_wait)
        return STAND_WAITS;
    return spot->frames != NULL ? STAND_WORKS : STAND_UNKNOWN;
}

/* Hash functions for places and steps. A collision only gives a wrong count, so the hash need not resist attacks. */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return hash_bytes(hash, &value, sizeof(value));
}

/* Hash the text with its NUL, so that "ab" and "c" have another hash than "a" and "bc". */
static uint64_t mix_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text) + 1);
}

/* Add 1 to the count of the function in which a rank is. The entry of the function also stores the source line of this
 * sample. A function without an entry replaces the entry with the smallest count, so that frequent functions keep their
 * entries. */
static void count_place(struct profile_rank *r, const struct spot *spot)
{
    const cJSON *frame = spot->user != NULL ? spot->user : spot->frames->child;
    const uint64_t hash = mix_text(mix_text(1, spot_text(frame, "file")), spot_text(frame, "function"));
    struct profile_place *place = &r->places[0];
    for (int i = 0; i < PROFILE_PLACES; i++) {
        if (r->places[i].hash == hash) {
            place = &r->places[i];
            break;
        }
        if (r->places[i].n < place->n)
            place = &r->places[i];
    }
    place->n = place->hash == hash ? place->n + 1 : 1;
    place->hash = hash;
    (void)spot_place(place->words, spot);
}

/* Return the place with the highest count. The count of a rare place may be too low, because a place that has lost its
 * entry starts again at 1. This is harmless, because frequent places keep their entries (count_place). */
const char *profile_place(const struct profile_rank *r)
{
    const struct profile_place *most = &r->places[0];
    for (int i = 1; i < PROFILE_PLACES; i++)
        if (r->places[i].n > most->n)
            most = &r->places[i];
    return most->words;
}

/* Begin a new window with new counts. Keep only whether a rank was slow in the window that has ended. A rank that is
 * slow in several consecutive windows is then reported only in the first window. */
static void begin_window(struct profile *p)
{
    p->samples = 0;
    for (uint32_t i = 0; i < p->n; i++)
        p->ranks[i] = (struct profile_rank){ .evidence = 1, .was_slow = p->ranks[i].is_slow };
}

/* Return waits / seen, or 0 for a rank without samples. */
static double share(uint64_t waits, uint64_t seen)
{
    return seen > 0 ? (double)waits / (double)seen : 0;
}

/* Return the fraction of samples with a wait, from 0 to 1. Count the samples of all ranks other than `rank`. */
static double share_of_others(const struct profile *p, uint32_t rank)
{
    uint64_t waits = 0, seen = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        waits += i != rank ? p->ranks[i].waits : 0;
        seen += i != rank ? p->ranks[i].seen : 0;
    }
    return share(waits, seen);
}

/* Return true if the rank is slow. Its evidence must reach n / false_report, because n ranks are tested at once. Then
 * the probability of any false report is at most false_report (Bonferroni's correction). The rank must also wait in a
 * smaller fraction of the samples than the other ranks. The two fractions must differ by at least least_loss. */
static bool is_slow(const struct profile *p, uint32_t rank)
{
    const struct profile_rank *r = &p->ranks[rank];
    return r->evidence * false_report >= p->n &&
           share_of_others(p, rank) - share(r->waits, r->seen) >= least_loss;
}

/* Multiply the evidence of a rank by the likelihood ratio of a sample. `part` is the fraction of the ranks that wait in
 * this sample, above 0 and below 1. A slow rank waits with probability slow_share * part. Any other rank waits with
 * probability equal_share * part. */
static void weigh(struct profile_rank *r, bool waits, double part)
{
    r->evidence *= waits ? slow_share / equal_share : (1 - slow_share * part) / (1 - equal_share * part);
    if (r->evidence < least_evidence)
        r->evidence = least_evidence;
}

/* Return true if a wait begins with this sample: some ranks wait, and others do not. Later samples of the same wait are
 * no new evidence. A wait ends when the job has moved, no rank waits, or all ranks wait. */
static bool is_evidence(struct profile *p, uint64_t moves, uint32_t seen, uint32_t waits)
{
    const bool is_split = waits > 0 && waits < seen, is_new = moves != p->moves || !p->in_wait;
    p->moves = moves;
    p->in_wait = is_split;
    return is_split && is_new;
}

/* Count a sample of all ranks. If a wait begins in this sample, use the sample as evidence, too (is_evidence). Return
 * true if some rank has become slow and was not slow in the previous window. */
static bool count_sample(struct profile *p, const enum stand *stands, uint64_t moves)
{
    uint32_t seen = 0, waits = 0;
    bool news = false;
    for (uint32_t i = 0; i < p->n; i++) {
        seen += stands[i] != STAND_UNKNOWN;
        waits += stands[i] == STAND_WAITS;
        p->ranks[i].seen += stands[i] != STAND_UNKNOWN;
        p->ranks[i].waits += stands[i] == STAND_WAITS;
    }
    const bool counts = is_evidence(p, moves, seen, waits);
    for (uint32_t i = 0; counts && i < p->n; i++) {
        struct profile_rank *r = &p->ranks[i];
        if (stands[i] != STAND_UNKNOWN)
            weigh(r, stands[i] == STAND_WAITS, (double)waits / seen);
        if (r->is_slow || !is_slow(p, i))
            continue;
        r->is_slow = true;
        news = news || !r->was_slow;
    }
    return news;
}

/* Count a sample. Compute `moves`, a digest of moved_ms and of the steps and calls of all ranks. If this digest differs
 * from the digest of the last sample, the job has moved. Ranks that wait in this sample have then begun a new wait. */
bool profile_add(struct profile *p, const cJSON *rows, const struct snapshot_rank *facts, uint64_t moved_ms)
{
    struct spot *spots = calloc((size_t)p->n + 1, sizeof(*spots));
    enum stand *stands = calloc((size_t)p->n + 1, sizeof(*stands));
    const char *note = NULL;
    uint64_t moves = mix(1, moved_ms);
    bool counts = spots != NULL && stands != NULL; /* if memory is short, the sample is left out */
    bool news = false;
    if (counts)
        (void)spots_read(rows, spots, p->n, &note);
    for (uint32_t i = 0; counts && i < p->n; i++) {
        stands[i] = stand_of(&spots[i], &facts[i]);
        moves = mix(mix(moves, (uint64_t)facts[i].step), facts[i].call_seq);
        counts = stands[i] != STAND_IMPORTS;
    }
    if (counts) {
        if (p->samples == PROFILE_WINDOW)
            begin_window(p);
        p->samples++;
        for (uint32_t i = 0; i < p->n; i++)
            if (stands[i] == STAND_WORKS && spots[i].frames != NULL)
                count_place(&p->ranks[i], &spots[i]);
        news = count_sample(p, stands, moves);
    }
    free(spots);
    free(stands);
    return news;
}

/* --- words ------------------------------------------------------------------------------------------------ */

/* Return the fraction of a rank's samples at the place `hash`. */
static double part_in(const struct profile_rank *r, uint64_t hash)
{
    for (int i = 0; i < PROFILE_PLACES; i++)
        if (r->places[i].n > 0 && r->places[i].hash == hash)
            return share(r->places[i].n, r->seen);
    return 0;
}

/* Compare the places at which this rank is more often than the other ranks, and return the place with the largest
 * difference. The difference is this rank's share of samples at the place, minus the average share of the other ranks.
 * Return "" if there is no such place. A place explains nothing if all ranks are there equally often. */
static const char *place_instead(const struct profile *p, uint32_t rank)
{
    const struct profile_rank *r = &p->ranks[rank];
    const char *instead = "";
    double most = 0;
    for (int i = 0; i < PROFILE_PLACES; i++) {
        double others = 0;
        for (uint32_t k = 0; k < p->n; k++)
            others += k != rank ? part_in(&p->ranks[k], r->places[i].hash) : 0;
        const double more = share(r->places[i].n, r->seen) - others / (p->n - 1);
        if (r->places[i].n > 0 && more > most) {
            most = more;
            instead = r->places[i].words;
        }
    }
    return instead;
}

static bool is_marked(const void *of, uint32_t rank)
{
    const struct profile *p = of;
    return p->ranks[rank].is_slow;
}

/* Report all slow ranks in one finding, because slow ranks on one machine usually have one cause. The finding compares
 * the first slow rank with all other ranks, including other slow ranks. It contains the percentages of samples with a
 * wait. The finding also names a place in the program at which the first slow rank is more often than the other ranks,
 * if there is such a place. */
void diagnose_slow(struct diagnosis *d, const struct snapshot *s)
{
    const struct profile *p = s->profile;
    struct buf who = { 0 };
    words subject, own, others, rank, time, where = "";
    uint32_t first = 0, n = 0;
    for (uint32_t i = p != NULL ? p->n : 0; i-- > 0;) {
        n += p->ranks[i].is_slow;
        first = p->ranks[i].is_slow ? i : first;
    }
    struct finding *slot = n > 0 ? diagnosis_slot(d, FINDING_RANK_SLOW) : NULL;
    if (slot == NULL)
        return;
    const struct profile_rank *r = &p->ranks[first];
    const struct snapshot_rank *f = first < s->n_ranks ? &s->ranks[first] : NULL;
    const char *place = place_instead(p, first);
    buf_printf(&who, n == 1 ? "rank " : "ranks ");
    append_ranges(&who, p, p->n, is_marked);
    snprintf(subject, sizeof(subject), "%.*s", (int)who.len, who.data != NULL ? (const char *)who.data : "");
    if (n == 1 && f != NULL && f->host != NULL)
        snprintf(subject, sizeof(subject), "rank %u (%.100s, pid %d)", first, f->host, f->pid);
    snprintf(rank, sizeof(rank), "rank %u", first);
    if (place[0] != '\0')
        snprintf(where, sizeof(where), "; %.40s spends extra time in %.150s", rank, place);
    finding_make(slot, FINDING_RANK_SLOW, subject, "is", n == 1 ? "is" : "are", "rank", rank, "time",
                 duration(time, (uint64_t)r->seen * PROFILE_EVERY_MS), "own",
                 number(own, (uint64_t)(100 * share(r->waits, r->seen) + 0.5)), "others",
                 number(others, (uint64_t)(100 * share_of_others(p, first) + 0.5)), "where", where, NULL);
    buf_free(&who);
}
