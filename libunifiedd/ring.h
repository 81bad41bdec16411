/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h: the rings of ports. Four lie in shared memory, one behind the other, each with one producer and one consumer. The
 * daemon may write anything into that memory at any time, so the indices of this side are kept in struct ring, and an entry is
 * copied once, before it is checked.
 */
#ifndef UNIFIEDD_RING_H
#define UNIFIEDD_RING_H

#include "internal.h"

#include <sys/socket.h>

#if ATOMIC_LLONG_LOCK_FREE != 2
#error "the rings need atomic accesses of 64 bits"
#endif

/* words is a ring as it lies in shared memory. */
struct words {
	_Atomic uint32_t magic, entries; /* written by the daemon before the port opens */
	uint8_t unused1[56];
	_Atomic uint64_t head; /* entries that the producer has added; pairs with the load in waiting */
	uint8_t unused2[56];
	_Atomic uint64_t tail;	 /* entries that the consumer has taken */
	_Atomic uint32_t asleep; /* set by the consumer, which then looks at head; pairs with publish */
	uint8_t unused3[116];
	struct {
		_Atomic uint64_t words[RING_ENTRY_LEN / 8];
	} entry[];
};

_Static_assert(offsetof(struct words, entries) == RING_ENTRIES_AT && offsetof(struct words, head) == RING_HEAD_AT, "header");
_Static_assert(offsetof(struct words, tail) == RING_TAIL_AT && offsetof(struct words, asleep) == RING_ASLEEP_AT, "header");
_Static_assert(offsetof(struct words, entry) == RING_LEN, "entries");
_Static_assert(sizeof(_Atomic uint64_t) == 8 && sizeof(_Atomic uint32_t) == 4, "atomics are plain words");

static inline size_t ring_size(uint32_t entries)
{
	return sizeof(struct words) + (size_t)entries * RING_ENTRY_LEN;
}

/* waiting returns how many entries wait for the consumer of a ring: more than it has if the daemon broke the protocol. */
static inline uint64_t waiting(const struct ring *r)
{
	return atomic_load_explicit(&r->shared->head, memory_order_acquire) - r->own;
}

/* copy copies the consumer's next entry. */
static inline void copy(const ufd_port *p, const struct ring *r, struct entry *e)
{
	_Atomic uint64_t *w = r->shared->entry[r->own & p->mask].words;
	uint64_t v[6];

	for (int i = 0; i < 6; i++)
		v[i] = atomic_load_explicit(&w[i], memory_order_relaxed);
	*e = (struct entry){v[0], (uint32_t)v[1], (uint32_t)(v[1] >> 32), v[2], v[3], v[4], (uint32_t)v[5]};
}

/* advance gives the places of copied entries back to the producer. */
static inline void advance(const struct ring *r)
{
	atomic_store_explicit(&r->shared->tail, r->own, memory_order_release);
}

/* put writes the producer's next entry. publish makes it visible. */
static inline void put(const ufd_port *p, struct ring *r, const struct entry *e)
{
	_Atomic uint64_t *w = r->shared->entry[r->own & p->mask].words;
	uint64_t v[6] = {e->offset, (uint64_t)e->generation << 32 | e->length, e->sequence, e->position, e->stamp};

	for (int i = 0; i < 6; i++)
		atomic_store_explicit(&w[i], v[i], memory_order_relaxed);
	r->own++;
}

/* publish makes the entries visible, and wakes the daemon if it waits for them. */
static inline void publish(const ufd_port *p, const struct ring *r)
{
	atomic_store_explicit(&r->shared->head, r->own, memory_order_release);
	/* The daemon sets asleep and then looks at head; here head is set before asleep is read. One of both sees the other. */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&r->shared->asleep, memory_order_relaxed))
		send(p->wake, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* EAGAIN: the daemon's end is readable already */
}

/* ufdi_broken notes that the daemon broke the protocol. The port passes nothing any more. It returns UFD_SYSTEM. */
int ufdi_broken(ufd_port *p);

/* ufdi_over returns why nothing more comes over a port, or 0. What came before is visible afterwards. */
int ufdi_over(const ufd_port *p);

#endif
