/* SPDX-License-Identifier: Apache-2.0 */
/* side.c: what ports, channels and states do alike: wait until they are open, and learn why they have ended. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>

int ufdi_open(struct side *p)
{
	int64_t until = ufdi_now() + MEET_TIME, next;
	int r, fd;

	while ((r = ufdi_step(p, false, &fd, &next)) == UFD_AGAIN && ufdi_now() < until)
		ufdi_sleep(fd, -1, next < until ? next : until);
	if (r != UFD_AGAIN)
		return r;
	errno = ETIMEDOUT;
	pthread_mutex_lock(&p->client->mutex);
	ufdi_fail(&p->q.why, UFD_SYSTEM, UFD_REASON_NONE, "open %s", p->name);
	pthread_mutex_unlock(&p->client->mutex);
	return UFD_SYSTEM;
}

int ufdi_reopen(struct side *p, int64_t until)
{
	int64_t next;
	int fd, r;

	while ((r = ufdi_step(p, true, &fd, &next)) == UFD_AGAIN) {
		if (ufdi_now() >= until)
			return UFD_AGAIN;
		if (ufdi_sleep(fd, -1, next < until ? next : until) < 0)
			return errno == EINTR ? UFD_AGAIN : UFD_SYSTEM;
	}
	return r;
}

int ufdi_ended(const struct side *p)
{
	if (atomic_load_explicit(&p->closed, memory_order_acquire))
		return UFD_CLOSED;
	return atomic_load_explicit(&p->link->alive, memory_order_acquire) ? 0 : UFD_GONE;
}

void ufdi_why(const struct side *p, ufd_error *why)
{
	pthread_mutex_lock(&p->client->mutex);
	*why = p->q.why;
	pthread_mutex_unlock(&p->client->mutex);
}

int ufdi_check_ended(struct side *p, int64_t *looked)
{
	int over = ufdi_ended(p);

	if (over || !ufdi_tick(looked) || !ufdi_look(p))
		return over;
	return ufdi_ended(p);
}
