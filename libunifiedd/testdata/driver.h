/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver's parts share. */
#ifndef DRIVER_H
#define DRIVER_H

#include "unifiedd.h"

extern ufd_client *client;
extern ufd_port *sender;		/* the port that was opened last to send */
extern uint64_t first, done, position; /* messages of the present command: the first one's sequence, receipts, the last position */

/* fail prints a result. fail_port prints that of a port. */
void fail(int result, uint32_t reason);
void fail_port(const ufd_port *p, int result);

/* now returns the time of the monotonic clock in nanoseconds. */
int64_t now(void);

/* collect takes receipts, and waits for one if there is none. */
int collect(void);

/* run_channel and run_state run a command for a channel or a state. They return 0 if it is none. */
int run_channel(const char *what, const char *a, uint64_t n, uint64_t x);
int run_state(const char *what, const char *a, const char *b, uint64_t n, uint64_t x);

/* run_given does so for a connection that the program gives. */
int run_given(const char *what, const char *a, uint64_t n, uint64_t x);

void close_given(void);
void close_channel(void);
void close_state(void);

#endif
