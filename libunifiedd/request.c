/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: requests for blocks of a file or device. They go over the ring of submitted entries; answers come as messages do. */
#define _GNU_SOURCE
#include "ring.h"

int ufd_request(ufd_port *p, uint64_t offset, uint32_t length, uint64_t *sequence)
{
	struct ring *r = &p->ring[SUBMITTED];
	int over = ufdi_over(p);

	if (p->side.role != UFD_REQUEST)
		return UFD_INVALID;
	if (p->broken)
		return ufdi_broken(p);
	if (over)
		return over;
	uint64_t queued = r->own - atomic_load_explicit(&r->shared->tail, memory_order_acquire);
	if (queued > p->entries)
		return ufdi_broken(p);
	if (queued == p->entries || p->asked == p->entries)
		return UFD_AGAIN;
	put(p, r, &(struct entry){.length = length, .sequence = ++p->last, .position = offset});
	p->asked++;
	publish(p, r);
	if (sequence)
		*sequence = p->last;
	return 0;
}

uint64_t ufd_size(const ufd_port *p)
{
	return p->size;
}

uint32_t ufd_align(const ufd_port *p)
{
	return p->align;
}

uint32_t ufd_longest(const ufd_port *p)
{
	return p->side.role == UFD_RECEIVE ? 0 : p->room;
}
