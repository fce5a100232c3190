/* ctl_flight.h -- `ddpctl flight`: flight records of ranks in, who is behind out. Needs no store. */
#ifndef RENDEZVOUS_CTL_FLIGHT_H
#define RENDEZVOUS_CTL_FLIGHT_H

#include "ctl/ctl_options.h"

/* The answer, yours (cJSON_Delete). NULL: what went wrong has been logged. */
cJSON *ctl_flight(const struct ctl_options *options);

#endif
