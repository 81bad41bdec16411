//go:build verbs && cgo

#include "shim.h"

#include <time.h>

// relax tells the processor that this is a loop that waits.
static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

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

int ud_spin(uintptr_t handle, struct ibv_wc *wc, int n, uint32_t nanoseconds)
{
	struct ibv_cq *cq = (struct ibv_cq *)handle;
	const uint64_t end = now() + nanoseconds;

	do {
		for (int i = 0; i < 8; i++) {
			int got = cq->context->ops.poll_cq(cq, n, wc);

			if (got)
				return got;
			relax();
		}
	} while (now() < end);
	return 0;
}

int ud_arm(uintptr_t handle, int solicited)
{
	struct ibv_cq *cq = (struct ibv_cq *)handle;
	int r = cq->context->ops.req_notify_cq(cq, solicited);

	return r < 0 ? -r : r;
}
