/* grow_keys.h -- by which keys workers and the rendezvous speak of a larger world.
 *
 * "ddprun/waiting_nodes" holds how many nodes could be taken in now, in decimal digits; without it there are none.
 * "ddprun/grow/<rank>", whatever it holds, says that this rank agrees to be started again for it. */
#ifndef BASE_GROW_KEYS_H
#define BASE_GROW_KEYS_H

#define GROW_WAITING_KEY "ddprun/waiting_nodes"
#define GROW_AGREED_KEY  "ddprun/grow/"

#endif
