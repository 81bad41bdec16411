//go:build verbs && cgo

#include "shim.h"

#include <time.h>

// now is the time in nanoseconds of CLOCK_MONOTONIC.
static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int ud_poll(uintptr_t handle, struct ibv_wc *wc, int n)
{
	struct ibv_cq *cq = (struct ibv_cq *)handle;

	return cq->context->ops.poll_cq(cq, n, wc);
}

// LOOKS is how often a queue is looked at between two looks at the clock, which costs
// as much as several.
enum { LOOKS = 32 };

int ud_spin(uintptr_t handle, struct ibv_wc *wc, int n, uint32_t nanoseconds)
{
	struct ibv_cq *cq = (struct ibv_cq *)handle;
	uint64_t begin = 0, t = 0;

	do {
		for (int i = 0; i < LOOKS; i++) {
			int got = cq->context->ops.poll_cq(cq, n, wc);

			if (got)
				return got;
		}
		t = now();
		if (!begin)
			begin = t;
	} while (t - begin < nanoseconds);
	return 0;
}

int ud_arm(uintptr_t handle, int solicited)
{
	struct ibv_cq *cq = (struct ibv_cq *)handle;
	int r = cq->context->ops.req_notify_cq(cq, solicited);

	return r < 0 ? -r : r;
}
