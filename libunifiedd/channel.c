/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.c: channels. One program writes a ring that all readers map to read only; each reader has a page where it says how
 * far it has read. A slot has sequence 8, length 4, CRC-32C of both and the payload 4, and the payload. The writer sets the
 * sequence to 0 before it changes a slot, and last afterwards: a reader believes its copy if the sequence is the same behind it.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	MAX_SLOTS = 1 << 20,
	SPINS = 1000, /* looks of a writer before it sleeps */
};

#define WRITER_PAUSE INT64_C(20000) /* nothing wakes a writer */

/* ring_words is the header of a ring. The writer alone writes it, but the first line. */
struct ring_words {
	uint32_t magic, slots, slot, flags; /* do not change */
	uint8_t unused1[48];
	_Atomic uint64_t last; /* sequence of the last message */
	uint8_t unused2[56];
	_Atomic uint64_t stalls; /* messages for which the writer had to wait */
	uint8_t unused3[56];
	_Atomic uint64_t numbering; /* of the run of sequences: with another one they have begun again */
};

struct slot {
	_Atomic uint64_t sequence; /* stored with release, after the rest */
	_Atomic uint64_t second;   /* length, and the checksum above it */
	uint8_t payload[];
};

/* reader_words is the page of a reader, which it writes alone. */
struct reader_words {
	_Atomic uint64_t cursor; /* the sequence that it reads next; the writer's loads acquire */
	_Atomic uint64_t lost;
	uint8_t unused[48];
	_Atomic uint32_t asleep; /* it waits; it looks at last afterwards */
};

/* presence is the daemon's word about a reader, in its page: 0 it is not there, 1 it is, 2 the writer waits for it. */
struct presence {
	_Atomic uint32_t state;
	uint8_t unused[60];
};

_Static_assert(offsetof(struct ring_words, slots) == SLOTS_AT && offsetof(struct ring_words, slot) == SLOT_AT, "header");
_Static_assert(offsetof(struct ring_words, flags) == FLAGS_AT && offsetof(struct ring_words, last) == LAST_AT, "header");
_Static_assert(offsetof(struct ring_words, stalls) == STALLS_AT && offsetof(struct ring_words, numbering) == NUMBERING_AT, "header");
_Static_assert(offsetof(struct slot, payload) == SLOT_HEADER && offsetof(struct reader_words, cursor) == CURSOR_AT, "slot and page");
_Static_assert(offsetof(struct reader_words, lost) == LOST_AT && offsetof(struct reader_words, asleep) == SLEEPS_AT, "page");
_Static_assert(sizeof(struct presence) == READER_STRIDE && READER_STRIDE * MAX_READERS <= PAGE_LEN, "readers fit into the page");

/* reader is a reader as the writer sees it, or this program itself. */
struct reader {
	struct mapping page;
	int wake; /* the writer's end of the socket that wakes it, or its own end; -1: none */
};

/* mapped is what comes with an opening. */
struct mapped {
	struct mapping ring, present;
	struct reader readers[MAX_READERS]; /* of a reader: itself */
	unsigned n_readers;
	uint32_t slots, slot, flags;
};

struct ufd_channel {
	struct side side;
	int poll; /* an epoll descriptor of the reader's wake and the link's socket */
	bool polled;
	int64_t looked; /* coarse time of the last look at the socket */
	bool opened, broken;
	bool renumbered; /* the sequences begin again, and the daemon is about to close the port */
	struct mapped m;
	uint64_t next;	    /* sequence that is written or read next */
	uint64_t numbering; /* of these sequences */
	uint64_t lost;
	uint64_t stalled; /* sequence of the message that was counted as waiting */
};

static struct ring_words *header_of(const struct mapped *m)
{
	return m->ring.at;
}

static struct slot *slot_of(const struct mapped *m, uint64_t n)
{
	return (struct slot *)(void *)((uint8_t *)m->ring.at + RING_HEADER + (size_t)(n & (m->slots - 1)) * m->slot);
}

static uint32_t longest(const struct mapped *m)
{
	return m->slot - SLOT_HEADER;
}

static uint64_t last_of(const struct mapped *m)
{
	return atomic_load_explicit(&header_of(m)->last, memory_order_acquire);
}

static uint64_t numbering_of(const struct mapped *m)
{
	return atomic_load_explicit(&header_of(m)->numbering, memory_order_acquire);
}

/* self is the page of a reader. */
static struct reader_words *self(const ufd_channel *c)
{
	return c->m.readers[0].page.at;
}

static uint32_t slot_sum(uint64_t n, uint32_t length, const void *payload)
{
	uint8_t head[12];

	memcpy(head, &n, 8);
	memcpy(head + 8, &length, 4);
	return ufdi_crc(ufdi_crc(0, head, sizeof(head)), payload, length);
}

static void unmap(struct mapped *m)
{
	ufdi_unmap(&m->ring);
	ufdi_unmap(&m->present);
	for (unsigned i = 0; i < m->n_readers; i++) {
		ufdi_unmap(&m->readers[i].page);
		if (m->readers[i].wake >= 0)
			close(m->readers[i].wake);
	}
	memset(m, 0, sizeof(*m));
}

/* map_ring maps the ring of an answer, and checks its header. */
static int map_ring(const ufd_channel *c, const struct opened *o, struct mapped *m)
{
	int write = c->side.role == UFD_WRITE ? PROT_WRITE : 0;

	errno = EPROTO;
	if (!o->entries || o->entries > MAX_SLOTS || o->entries & (o->entries - 1))
		return -1;
	if (o->align < MIN_SLOT || o->align > MAX_SLOT || o->align % MIN_SLOT || o->longest != o->align - SLOT_HEADER)
		return -1;
	if (o->size != RING_HEADER + (uint64_t)o->entries * o->align)
		return -1;
	if (ufdi_map(&m->ring, o->fds[0], o->size, PROT_READ | write, MAP_POPULATE))
		return -1;
	const struct ring_words *h = header_of(m);
	*m = (struct mapped){.ring = m->ring, .slots = o->entries, .slot = o->align, .flags = h->flags};
	errno = EPROTO;
	return h->magic == CHANNEL_MAGIC && h->slots == m->slots && h->slot == m->slot ? 0 : -1;
}

/* map_readers maps the pages that come behind the ring. The sockets change hands. */
static int map_readers(const ufd_channel *c, struct opened *o, struct mapped *m)
{
	bool writes = c->side.role == UFD_WRITE;
	unsigned first = writes ? 2 : 1;

	if (writes && ufdi_map(&m->present, o->fds[1], PAGE_LEN, PROT_READ, MAP_POPULATE))
		return -1;
	for (unsigned i = first; i + 1 < o->n_fds; i += 2) {
		struct reader *r = &m->readers[m->n_readers++];
		r->wake = o->fds[i + 1];
		o->fds[i + 1] = -1;
		if (ufdi_map(&r->page, o->fds[i], PAGE_LEN, PROT_READ | (writes ? 0 : PROT_WRITE), MAP_POPULATE))
			return -1;
	}
	return 0;
}

/* begin_writing has the sequences go on after what this writer has written, also if the daemon has begun anew meanwhile.
 * Readers take another numbering for an end, so it comes before last. */
static int begin_writing(ufd_channel *c, const struct mapped *m)
{
	struct ring_words *h = header_of(m);

	if (c->opened && c->next - 1 > last_of(m)) {
		atomic_store_explicit(&h->numbering, c->numbering, memory_order_seq_cst);
		atomic_store_explicit(&h->last, c->next - 1, memory_order_seq_cst);
	}
	return ufdi_mapped(&c->side);
}

/* begin_reading counts what was written since the last opening as lost. */
static void begin_reading(ufd_channel *c, uint64_t next)
{
	struct reader_words *page = self(c);
	uint64_t from = !c->opened ? next : c->numbering == numbering_of(&c->m) ? c->next : 1;

	c->next = from;
	if (next > from) {
		c->lost += next - from;
		atomic_store_explicit(&page->lost, atomic_load_explicit(&page->lost, memory_order_relaxed) + next - from,
				      memory_order_relaxed);
		c->next = next;
	}
}

/* remove_descriptors has the program's descriptor not become readable any more. */
static void remove_descriptors(ufd_channel *c)
{
	if (!c->polled)
		return;
	c->polled = false;
	if (c->side.role == UFD_FOLLOW)
		epoll_ctl(c->poll, EPOLL_CTL_DEL, c->m.readers[0].wake, NULL);
	epoll_ctl(c->poll, EPOLL_CTL_DEL, c->side.link->fd, NULL);
}

/* install takes the daemon's answer over. */
static int install(ufd_channel *c)
{
	struct opened *o = &c->side.q.opened;
	struct mapped m = {0};
	ufd_error why = {0};
	bool writes = c->side.role == UFD_WRITE;

	if (map_ring(c, o, &m) || map_readers(c, o, &m) || (writes && begin_writing(c, &m)) ||
	    ufdi_watch(c->poll, writes ? -1 : m.readers[0].wake, c->side.q.asked->fd)) {
		int saved = errno;
		ufdi_fail(&why, UFD_SYSTEM, UFD_REASON_NONE, "open channel %s", c->side.name);
		unmap(&m);
		ufdi_rejected(&c->side, &why);
		errno = saved;
		return UFD_SYSTEM;
	}
	unmap(&c->m);
	c->m = m;
	c->polled = true;
	c->broken = c->renumbered = false;
	if (writes)
		c->next = last_of(&c->m) + 1;
	else
		begin_reading(c, o->next);
	c->numbering = numbering_of(&c->m);
	c->opened = true;
	for (unsigned i = 0; i < o->n_fds; i++)
		if (o->fds[i] >= 0)
			close(o->fds[i]);
	ufdi_installed(&c->side);
	return 0;
}

ufd_channel *ufd_channel_open(ufd_client *client, const char *channel, uint32_t role, ufd_error *why)
{
	int r;

	if (!channel || !*channel || strlen(channel) > MAX_NAME || (role != UFD_WRITE && role != UFD_FOLLOW)) {
		ufdi_fail(why, UFD_INVALID, UFD_REASON_NONE,
			  "open a channel: its name has 1 to %d bytes, and the role is UFD_WRITE or UFD_FOLLOW", MAX_NAME);
		return NULL;
	}
	ufd_channel *c = calloc(1, sizeof(*c));
	if (!c || (c->poll = epoll_create1(EPOLL_CLOEXEC)) < 0) {
		ufdi_fail(why, UFD_SYSTEM, UFD_REASON_NONE, "open channel %s", channel);
		free(c);
		return NULL;
	}
	c->side.client = client;
	strcpy(c->side.name, channel);
	c->side.role = role;
	ufdi_enter(&c->side);
	if ((r = ufdi_open(&c->side)) == 0 && (r = install(c)) == 0)
		return c;
	if (why)
		ufdi_why(&c->side, why);
	ufd_channel_close(c);
	return NULL;
}

void ufd_channel_close(ufd_channel *c)
{
	int saved = errno;

	if (!c)
		return;
	ufdi_leave(&c->side);
	unmap(&c->m);
	close(c->poll);
	free(c);
	errno = saved;
}

/* full reports whether a reader for which the writer waits has not read what the next message would replace. */
static bool full(const ufd_channel *c)
{
	const struct presence *there = c->m.present.at;

	for (unsigned i = 0; i < c->m.n_readers; i++) {
		const struct reader_words *r = c->m.readers[i].page.at;
		if (atomic_load_explicit(&there[i].state, memory_order_acquire) == 2 &&
		    atomic_load_explicit(&r->cursor, memory_order_acquire) + c->m.slots <= c->next)
			return true;
	}
	return false;
}

/* put writes a message into the next slot. */
static void put(ufd_channel *c, const void *message, uint32_t length)
{
	struct slot *s = slot_of(&c->m, c->next);
	uint64_t second = length;

	atomic_store_explicit(&s->sequence, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release); /* who sees a changed byte sees that the old message is gone */
	if (length > 0)
		memcpy(s->payload, message, length);
	if (c->m.flags & SUMS)
		second |= (uint64_t)slot_sum(c->next, length, message) << 32;
	atomic_store_explicit(&s->second, second, memory_order_relaxed);
	atomic_store_explicit(&s->sequence, c->next, memory_order_release);
	atomic_store_explicit(&header_of(&c->m)->last, c->next, memory_order_release);
	c->next++;
}

/* wake_readers wakes those that wait. */
static void wake_readers(const ufd_channel *c)
{
	/* A reader sets asleep and then looks at last; here last is set before asleep is read. One of both sees the other. */
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned i = 0; i < c->m.n_readers; i++) {
		const struct reader_words *r = c->m.readers[i].page.at;
		if (atomic_load_explicit(&r->asleep, memory_order_relaxed))
			send(c->m.readers[i].wake, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* EAGAIN: it is readable already */
	}
}

int ufd_channel_write(ufd_channel *c, const void *message, uint32_t length, uint64_t *sequence)
{
	if (c->side.role != UFD_WRITE || length > longest(&c->m) || (!message && length))
		return UFD_INVALID;
	if (full(c)) {
		_Atomic uint64_t *stalls = &header_of(&c->m)->stalls;
		if (c->stalled != c->next)
			atomic_store_explicit(stalls, atomic_load_explicit(stalls, memory_order_relaxed) + 1, memory_order_relaxed);
		c->stalled = c->next;
		int over = ufdi_check_ended(&c->side, &c->looked);
		return over ? over : UFD_AGAIN; /* over: nobody says which readers have ended */
	}
	if (sequence)
		*sequence = c->next;
	put(c, message, length);
	wake_readers(c);
	return 0;
}

int ufd_channel_readers(ufd_channel *c)
{
	const struct presence *there = c->m.present.at;
	int n = 0, over = ufdi_check_ended(&c->side, &c->looked);

	if (c->side.role != UFD_WRITE || over)
		return over ? over : UFD_INVALID;
	for (unsigned i = 0; i < c->m.n_readers; i++)
		n += atomic_load_explicit(&there[i].state, memory_order_acquire) != 0;
	return n;
}

/* found is what a reader finds at a sequence. */
enum found { NOT_YET, COPIED, PASSED, DAMAGED };

/* copy copies the message with a sequence, if it is there. to has room for the longest one. */
static enum found copy(const struct mapped *m, uint64_t n, void *to, uint32_t *length)
{
	struct slot *s = slot_of(m, n);

	if (atomic_load_explicit(&s->sequence, memory_order_acquire) != n)
		return NOT_YET;
	uint64_t second = atomic_load_explicit(&s->second, memory_order_relaxed);
	uint32_t have = (uint32_t)second;
	bool fits = have <= longest(m);
	if (fits && have > 0)
		memcpy(to, s->payload, have);
	atomic_thread_fence(memory_order_acquire); /* a byte of a later message comes with a changed sequence */
	if (atomic_load_explicit(&s->sequence, memory_order_relaxed) != n)
		return NOT_YET;
	if (!fits)
		return m->flags & UNORDERED ? NOT_YET : DAMAGED;
	if (m->flags & UNORDERED && slot_sum(n, have, to) != (uint32_t)(second >> 32))
		return NOT_YET;
	*length = have;
	return COPIED;
}

/* holds_older reports whether the slot of a sequence still has an older message. Then the writer has not come to n, so
 * that a reader that polls need not load last, and leaves that line to the writer. Where slots come by RDMA, a gap leaves
 * older messages behind last. */
static bool holds_older(const struct mapped *m, uint64_t n)
{
	uint64_t held = atomic_load_explicit(&slot_of(m, n)->sequence, memory_order_relaxed);

	return held != 0 && held < n && !(m->flags & UNORDERED);
}

/* get copies the message with a sequence, or tells that it is gone. */
static enum found get(const struct mapped *m, uint64_t n, void *to, uint32_t *length)
{
	enum found f = copy(m, n, to, length);

	if (f != NOT_YET || holds_older(m, n) || last_of(m) < n)
		return f;
	/* What is before the last message is there by now, or never comes. */
	f = copy(m, n, to, length);
	return f == NOT_YET ? PASSED : f;
}

/* advance says how far this reader has read. The writer may then replace what is before. */
static void advance(ufd_channel *c, uint64_t next)
{
	c->next = next;
	atomic_store_explicit(&self(c)->cursor, next, memory_order_release);
}

/* pass goes on at the oldest message that stays there for a while: a quarter of the ring is between it and the writer. */
static void pass(ufd_channel *c)
{
	uint64_t last = last_of(&c->m), keep = c->m.slots / 4 * 3;
	uint64_t oldest = last <= keep ? 1 : last - keep + 1;
	struct reader_words *page = self(c);

	if (oldest <= c->next)
		oldest = c->next + 1;
	c->lost += oldest - c->next;
	atomic_store_explicit(&page->lost, atomic_load_explicit(&page->lost, memory_order_relaxed) + oldest - c->next,
			      memory_order_relaxed);
	advance(c, oldest);
}

/* read_next copies the next message that is there. It returns 1, 0 if there is none, or a result. */
static int read_next(ufd_channel *c, void *to, uint32_t *length, uint64_t *sequence)
{
	for (;;) {
		enum found f = get(&c->m, c->next, to, length);
		if (numbering_of(&c->m) != c->numbering) { /* what is in the ring is not what this reader expects */
			c->renumbered = true;
			return UFD_CLOSED;
		}
		switch (f) {
		case NOT_YET:
			return 0;
		case COPIED:
			if (sequence)
				*sequence = c->next;
			advance(c, c->next + 1);
			return 1;
		case DAMAGED:
			c->broken = true;
			errno = EPROTO;
			return UFD_SYSTEM;
		case PASSED:
			pass(c);
		}
	}
}

int ufd_channel_read(ufd_channel *c, void *to, uint32_t room, uint32_t *length, uint64_t *sequence)
{
	if (c->side.role != UFD_FOLLOW || !to || !length || room < longest(&c->m))
		return UFD_INVALID;
	int over = ufdi_ended(&c->side), r = read_next(c, to, length, sequence); /* in this order: what came before is visible */
	if (r != 0 || over)
		return r != 0 ? r : over;
	if ((over = ufdi_check_ended(&c->side, &c->looked)) == 0)
		return 0;
	r = read_next(c, to, length, sequence);
	return r != 0 ? r : over;
}

/* ready reports whether the next call has something to do. */
static bool ready(const ufd_channel *c)
{
	if (c->side.role == UFD_WRITE)
		return !full(c);
	return !c->renumbered && (last_of(&c->m) >= c->next || numbering_of(&c->m) != c->numbering);
}

static void set_asleep(ufd_channel *c, uint32_t asleep)
{
	if (c->side.role != UFD_FOLLOW)
		return;
	atomic_store_explicit(&self(c)->asleep, asleep, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with wake_readers */
}

/* sleep_once waits until something happens. It returns 0 then. */
static int sleep_once(ufd_channel *c, int64_t until)
{
	bool writes = c->side.role == UFD_WRITE;
	int64_t latest = ufdi_now() + (writes ? WRITER_PAUSE : MOST_PAUSE);
	int r = 0;

	for (int i = 0; writes && i < SPINS; i++)
		if (ready(c))
			return 0;
	set_asleep(c, 1);
	if (!ready(c) && !ufdi_ended(&c->side)) {
		int n = ufdi_sleep(writes ? -1 : c->m.readers[0].wake, c->side.link->fd, latest < until ? latest : until);
		if (n < 0)
			r = errno == EINTR ? UFD_AGAIN : UFD_SYSTEM;
		else if (n == 0 && ufdi_now() >= until)
			r = UFD_AGAIN;
		if (n > 0 && n & 1)
			ufdi_drain(c->m.readers[0].wake);
		if (n > 0 && n & 2 && !ufdi_look(&c->side))
			ufdi_sleep(-1, -1, ufdi_now() + INT64_C(50000)); /* the thread that reads the socket is not done */
	}
	set_asleep(c, 0);
	return r;
}

/* resume opens the channel again. */
static int resume(ufd_channel *c, int64_t until)
{
	remove_descriptors(c); /* an ended connection would be readable all the time */
	int r = ufdi_reopen(&c->side, until);
	return r == 0 ? install(c) : r;
}

int ufd_channel_wait(ufd_channel *c, int64_t nanoseconds)
{
	int64_t until = ufdi_deadline(nanoseconds);

	for (;;) {
		if (c->broken) {
			errno = EPROTO;
			return UFD_SYSTEM;
		}
		int over = ufdi_ended(&c->side);
		if (ready(c) && (!over || c->side.role == UFD_FOLLOW))
			return 0;
		if (over) {
			ufd_error why;
			ufdi_why(&c->side, &why);
			if (over == UFD_CLOSED && why.reason == UFD_REASON_TOO_SLOW)
				return UFD_CLOSED; /* the program decides whether to go on */
			return resume(c, until);
		}
		int r = sleep_once(c, until);
		if (r != 0)
			return r;
	}
}

int ufd_channel_resume(ufd_channel *c, int64_t nanoseconds)
{
	ufdi_look(&c->side);
	return ufdi_ended(&c->side) || c->renumbered ? resume(c, ufdi_deadline(nanoseconds)) : 0;
}

int ufd_channel_fd(const ufd_channel *c)
{
	return c->poll;
}

int ufd_channel_arm(ufd_channel *c)
{
	set_asleep(c, 1);
	return (c->side.role == UFD_FOLLOW && ready(c)) || ufdi_ended(&c->side);
}

void ufd_channel_disarm(ufd_channel *c)
{
	set_asleep(c, 0);
	if (c->side.role == UFD_FOLLOW)
		ufdi_drain(c->m.readers[0].wake);
	ufdi_look(&c->side);
}

uint32_t ufd_channel_longest(const ufd_channel *c)
{
	return longest(&c->m);
}

uint64_t ufd_channel_next(const ufd_channel *c)
{
	return c->next;
}

uint64_t ufd_channel_lost(const ufd_channel *c)
{
	return c->lost;
}

void ufd_channel_why(const ufd_channel *c, ufd_error *why)
{
	ufdi_why(&c->side, why);
	if (c->broken)
		*why = (ufd_error){UFD_SYSTEM, UFD_REASON_NONE, "the writer of the channel broke the rules"};
	else if (c->renumbered && !ufdi_ended(&c->side))
		*why = (ufd_error){UFD_CLOSED, UFD_REASON_CLOSING, "the sequences of the channel begin again"};
}
