/* SPDX-License-Identifier: Apache-2.0 */
/*
 * given.c: TCP connections that the program gives to a flow. The daemon sends on them, and the program reads. While the daemon
 * tells the kernel of an order, for some microseconds, the socket is in repair mode, and a read fails with EPERM: it is tried
 * again.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct ufd_given {
	struct side side;
	int64_t looked; /* coarse time of the last look at the socket */
};

ufd_given *ufd_give(ufd_client *client, const char *flow, int fd, ufd_error *why)
{
	if (!flow || !*flow || strlen(flow) > MAX_NAME || fd < 0) {
		ufdi_fail(why, UFD_INVALID, UFD_REASON_NONE, "give a connection: a flow's name has 1 to %d bytes, and a descriptor is not negative",
			  MAX_NAME);
		return NULL;
	}
	ufd_given *g = calloc(1, sizeof(*g));
	if (!g) {
		ufdi_fail(why, UFD_SYSTEM, UFD_REASON_NONE, "give a connection to %s", flow);
		return NULL;
	}
	g->side.client = client;
	strcpy(g->side.name, flow);
	g->side.role = GIVE;
	g->side.give = fd;
	ufdi_enter(&g->side);
	if (ufdi_open(&g->side) == 0) {
		ufdi_installed(&g->side);
		return g;
	}
	if (why)
		ufdi_why(&g->side, why);
	ufdi_leave(&g->side);
	free(g);
	return NULL;
}

int ufd_given_read(ufd_given *g, void *to, uint32_t room, uint32_t *length)
{
	ssize_t n;

	if (room == 0)
		return UFD_INVALID;
	while ((n = recv(g->side.give, to, room, MSG_DONTWAIT)) < 0 && (errno == EPERM || errno == EINTR))
		sched_yield();
	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : UFD_SYSTEM;
	*length = (uint32_t)n;
	return 1;
}

int ufd_given_check(ufd_given *g)
{
	return ufdi_check_ended(&g->side, &g->looked);
}

int ufd_given_end(ufd_given *g)
{
	int64_t until = ufdi_now() + MEET_TIME;
	int saved = errno, r;

	if (!g)
		return 0;
	ufdi_ask_back(&g->side);
	while ((r = ufdi_ended(&g->side)) == 0 && ufdi_now() < until) {
		ufdi_look(&g->side);
		if (ufdi_ended(&g->side) == 0)
			ufdi_sleep(g->side.link->fd, -1, ufdi_now() + LOOK_TIME);
	}
	ufdi_leave(&g->side);
	free(g);
	errno = saved;
	return r == UFD_CLOSED ? 0 : r == 0 ? UFD_AGAIN : r;
}

void ufd_given_why(const ufd_given *g, ufd_error *why)
{
	ufdi_why(&g->side, why);
}
