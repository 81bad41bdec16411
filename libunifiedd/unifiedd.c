/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unifiedd.c: ports. A port is four rings in shared memory, each with one producer and one consumer. Received frames come
 * over one and go back over another; frames to fill come over the fourth and are submitted over the third.
 */
#define _GNU_SOURCE
#include "ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* incoming is the ring over which something comes for the program. */
static struct ring *incoming(ufd_port *p)
{
	return &p->ring[p->side.role == UFD_SEND ? DONE : RECEIVED];
}

static struct sent *sent_at(const ufd_port *p, uint32_t i)
{
	return &p->sent[(p->first_sent + i) % p->sent_size];
}

/* done_before reports whether the oldest message was done when the port was opened, or nobody knows that, so that its receipt
 * does not come. */
static bool done_before(const ufd_port *p)
{
	return p->n_sent > 0 && sent_at(p, 0)->sequence < p->done;
}

/* has_events reports whether ufd_poll has something to return. */
static bool has_events(ufd_port *p)
{
	return done_before(p) || waiting(incoming(p)) > 0;
}

int ufdi_over(const ufd_port *p)
{
	return ufdi_ended(&p->side);
}

int ufdi_broken(ufd_port *p)
{
	p->broken = true;
	errno = EPROTO;
	return UFD_SYSTEM;
}

/* accept_entry checks an entry that was received, and counts what it changes. It returns false if the daemon broke the protocol. */
static bool accept_entry(ufd_port *p, const struct entry *e)
{
	const struct memory *memory = p->space->memory;
	bool answers = p->side.role == UFD_REQUEST;

	if (answers && p->asked == 0)
		return false;
	if (!answers || e->status == UFD_REASON_NONE) { /* a request that was not done has no memory */
		if (e->offset > memory->in_size || e->length > memory->in_size - e->offset || p->held == p->entries)
			return false;
		p->held++;
	}
	p->asked -= answers;
	return true;
}

/* take copies received messages' entries. */
static int take(ufd_port *p, ufd_message *m, int most)
{
	struct ring *r = &p->ring[RECEIVED];
	const struct memory *memory = p->space->memory;
	uint64_t n = waiting(r);
	struct entry e;
	int i = 0;

	if (n > p->entries)
		return ufdi_broken(p);
	for (; i < most && (uint64_t)i < n; i++) {
		copy(p, r, &e);
		if (!accept_entry(p, &e)) {
			ufdi_broken(p);
			break;
		}
		bool done = p->side.role == UFD_RECEIVE || e.status == UFD_REASON_NONE;
		m[i] = (ufd_message){.data = done ? memory->in + e.offset : NULL,
				     .length = done ? e.length : 0,
				     .status = done ? UFD_REASON_NONE : e.status,
				     .sequence = e.sequence,
				     .position = e.position,
				     .stamp = e.stamp,
				     .offset = e.offset,
				     .generation = e.generation,
				     .opening = p->opening};
		r->own++;
	}
	if (i > 0)
		advance(r);
	return i > 0 || !p->broken ? i : UFD_SYSTEM;
}

static uint8_t *bytes_of(const struct space *s, uint32_t frame)
{
	return s->memory->out + (uint64_t)frame * s->memory->frame;
}

/* free_frame makes a frame free, if the daemon has given it over this connection. */
static void free_frame(ufd_port *p, struct space *s, uint32_t frame)
{
	struct frame *f = &s->frames[frame];

	f->state = NOT_OURS;
	if (s == p->space && f->opening == p->opening) {
		f->state = FREE;
		p->free[p->n_free++] = frame;
	}
}

/* submit puts messages into the ring that are not there yet, in order. One that lies where the daemon does not take it over
 * this connection is copied first. It stops if no frame is free for that. */
static void submit(ufd_port *p)
{
	struct ring *r = &p->ring[SUBMITTED];
	uint64_t before = r->own, tail = atomic_load_explicit(&r->shared->tail, memory_order_acquire);

	if (r->own - tail > p->entries)
		ufdi_broken(p);
	while (p->submitted < p->n_sent && r->own - tail < p->entries) {
		struct sent *s = sent_at(p, p->submitted);
		struct frame *f = &s->space->frames[s->frame];
		if (s->space != p->space || f->opening != p->opening) {
			if (!p->n_free)
				break;
			uint32_t to = p->free[--p->n_free];
			memcpy(bytes_of(p->space, to), bytes_of(s->space, s->frame), s->length);
			f->state = NOT_OURS;
			s->space = p->space;
			s->frame = to;
			f = &p->space->frames[to];
			f->state = SENT;
		}
		put(p, r, &(struct entry){.offset = (uint64_t)s->frame * p->space->memory->frame,
					  .length = s->length,
					  .generation = f->generation,
					  .sequence = s->sequence,
					  .position = s->decided,
					  .stamp = s->stamp});
		p->submitted++;
	}
	if (r->own != before)
		publish(p, r);
}

/* take_frame takes a frame from the daemon that comes without a receipt: after an opening. A frame that the program had before
 * keeps its state. It returns false if the daemon must not give it. */
static bool take_frame(ufd_port *p, uint32_t frame, uint32_t generation)
{
	struct frame *f = &p->space->frames[frame];

	if (f->opening == p->opening || p->given == p->entries)
		return false;
	p->given++;
	f->generation = generation;
	f->opening = p->opening;
	if (f->state == NOT_OURS)
		free_frame(p, p->space, frame);
	return true;
}

/* take_receipt takes a frame back with the receipt of the oldest message. */
static bool take_receipt(ufd_port *p, uint32_t frame, const struct entry *e)
{
	struct sent *s = sent_at(p, 0);

	if (!p->submitted || s->sequence != e->sequence || s->space != p->space || s->frame != frame)
		return false;
	s->space->frames[frame].generation = e->generation;
	free_frame(p, s->space, frame);
	return true;
}

static void drop_first(ufd_port *p)
{
	p->first_sent = (p->first_sent + 1) % p->sent_size;
	p->n_sent--;
	p->submitted--;
}

/* collect takes frames back and fills m with receipts, at most most. Others stay in the ring. */
static int collect(ufd_port *p, ufd_message *m, int most)
{
	struct ring *r = &p->ring[DONE];
	const struct memory *memory = p->space->memory;
	uint64_t n = waiting(r), before = r->own;
	struct entry e;
	int i = 0;

	for (; i < most && done_before(p); i++) {
		m[i] = (ufd_message){.sequence = sent_at(p, 0)->sequence,
				     .status = p->once ? UFD_REASON_NOT_KNOWN : UFD_REASON_NONE,
				     .opening = p->opening};
		free_frame(p, sent_at(p, 0)->space, sent_at(p, 0)->frame);
		drop_first(p);
	}
	if (n > p->entries)
		return i > 0 ? i : ufdi_broken(p);
	for (; n > 0; n--) {
		copy(p, r, &e);
		if (e.offset >= memory->out_size || e.offset % memory->frame) {
			ufdi_broken(p);
			break;
		}
		uint32_t frame = (uint32_t)(e.offset / memory->frame);
		if (e.sequence == 0) {
			if (!take_frame(p, frame, e.generation)) {
				ufdi_broken(p);
				break;
			}
		} else if (i == most) {
			break;
		} else if (!take_receipt(p, frame, &e)) {
			ufdi_broken(p);
			break;
		} else {
			m[i++] = (ufd_message){.sequence = e.sequence, .position = e.position, .status = e.status, .opening = p->opening};
			drop_first(p);
		}
		r->own++;
	}
	if (r->own != before)
		advance(r);
	if (p->submitted < p->n_sent)
		submit(p);
	return i > 0 || !p->broken ? i : UFD_SYSTEM;
}

/* prepared is what an opening needs, before it replaces what the port has. */
struct prepared {
	void *rings;
	size_t size;
	struct space *space; /* NULL: the port goes on with its memory */
	uint32_t *free;
	struct sent *sent;
	uint32_t sent_size;
};

static void release_space(ufd_client *c, struct space *s)
{
	if (!s)
		return;
	ufdi_unuse(c, s->memory);
	free(s->frames);
	free(s);
}

static void unprepare(ufd_port *p, struct prepared *n)
{
	if (n->rings)
		munmap(n->rings, n->size);
	release_space(p->side.client, n->space);
	free(n->free);
	free(n->sent);
}

static struct words *ring_in(void *rings, uint32_t entries, int n)
{
	return (struct words *)(void *)((uint8_t *)rings + (size_t)n * ring_size(entries));
}

/* map_rings maps the rings of an opening. */
static int map_rings(ufd_port *p, const struct opened *o, struct prepared *n)
{
	struct stat s;
	const struct memory *memory = p->side.q.asked->memory;
	uint64_t have = p->side.role == UFD_SEND ? memory->out_size : memory->in_size;

	errno = EPROTO;
	if (!o->entries || o->entries > MAX_ENTRIES || o->entries & (o->entries - 1) || !have)
		return -1;
	if (p->side.role == UFD_SEND && (!o->next || !o->longest))
		return -1;
	n->size = RINGS * ring_size(o->entries);
	if (fstat(o->fds[0], &s))
		return -1;
	if (s.st_size < 0 || (uint64_t)s.st_size < n->size)
		return -1;
	n->rings = mmap(NULL, n->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, o->fds[0], 0);
	if (n->rings == MAP_FAILED) {
		n->rings = NULL;
		return -1;
	}
	for (int i = 0; i < RINGS; i++) {
		struct words *w = ring_in(n->rings, o->entries, i);
		if (atomic_load(&w->magic) != RING_MAGIC || atomic_load(&w->entries) != o->entries) {
			errno = EPROTO;
			return -1;
		}
	}
	return 0;
}

/* allocate allocates what an opening needs. */
static int allocate(ufd_port *p, const struct opened *o, struct prepared *n)
{
	struct memory *memory = p->side.q.asked->memory;

	if (!p->space || p->space->memory != memory) {
		if (!(n->space = calloc(1, sizeof(*n->space))))
			return -1;
		ufdi_use(p->side.client, memory);
		n->space->memory = memory;
		/* Pages of the table that describe frames of other flows stay untouched. */
		if (p->side.role == UFD_SEND && !(n->space->frames = calloc((size_t)(memory->out_size / memory->frame), sizeof(struct frame))))
			return -1;
	}
	if (p->side.role != UFD_SEND)
		return 0;
	n->sent_size = p->n_sent + p->n_claimed + o->entries;
	n->free = calloc(o->entries, sizeof(*n->free));
	n->sent = calloc(n->sent_size, sizeof(*n->sent));
	return n->free && n->sent ? 0 : -1;
}

static void remove_descriptors(ufd_port *p)
{
	if (!p->polled)
		return;
	p->polled = false;
	epoll_ctl(p->poll, EPOLL_CTL_DEL, p->wake, NULL);
	epoll_ctl(p->poll, EPOLL_CTL_DEL, p->side.link->fd, NULL);
}

/* room_of returns the longest message of an opening. */
static uint32_t room_of(const ufd_port *p, const struct opened *o)
{
	uint32_t frame = p->side.q.asked->memory->frame;

	return o->longest < frame ? o->longest : frame;
}

/* oldest_sent returns the sequence of the oldest message that is not known to be done, or else of the next one. */
static uint64_t oldest_sent(const ufd_port *p)
{
	uint64_t oldest = p->last + 1;

	for (uint32_t i = p->n_sent; i-- > 0 && sent_at(p, i)->sequence >= p->done;)
		oldest = sent_at(p, i)->sequence;
	return oldest;
}

/* unacceptable returns why a port which was open before cannot go on with an opening, or 0. */
static int unacceptable(const ufd_port *p, const struct opened *o, ufd_error *why)
{
	if (p->side.role != UFD_SEND || !p->opening)
		return 0;
	for (uint32_t i = p->n_sent; i-- > 0 && sent_at(p, i)->sequence >= p->done;) {
		const struct sent *m = sent_at(p, i);
		if (m->sequence >= o->next && m->length > room_of(p, o))
			return ufdi_fail(why, UFD_REFUSED, UFD_REASON_TOO_LONG,
					 "flow %s: message %llu has %u bytes; the flow takes %u now", p->side.name,
					 (unsigned long long)m->sequence, m->length, room_of(p, o));
	}
	if (o->next < oldest_sent(p) || (o->align == ONCE && o->next <= p->last))
		return ufdi_fail(why, UFD_REFUSED, UFD_REASON_BAD_SEQUENCE,
				 "flow %s: it expects message %llu of the session, which was sent (open a new port)",
				 p->side.name, (unsigned long long)o->next);
	return 0;
}

/* queue_sent moves the messages without a receipt to a new queue. Those before p->done count as submitted. */
static void queue_sent(ufd_port *p, struct prepared *n)
{
	uint32_t submitted = 0;

	for (uint32_t i = 0; i < p->n_sent; i++) {
		n->sent[i] = *sent_at(p, i);
		submitted += n->sent[i].sequence < p->done;
	}
	free(p->sent);
	p->sent = n->sent;
	p->sent_size = n->sent_size;
	p->first_sent = 0;
	p->submitted = submitted;
}

/* forget_spaces unmaps memory that nobody may use any more: all but the present and the last one, unless messages without a
 * receipt lie there. */
static void forget_spaces(ufd_port *p)
{
	for (struct space **at = p->space->older ? &p->space->older->older : NULL; at && *at;) {
		struct space *s = *at;
		bool used = false;
		for (uint32_t i = 0; i < p->n_sent; i++)
			used = used || sent_at(p, i)->space == s;
		if (used) {
			at = &s->older;
			continue;
		}
		*at = s->older;
		p->n_claimed -= s->n_claimed;
		release_space(p->side.client, s);
	}
}

/* go_on has the port use a prepared opening. It cannot fail. */
static void go_on(ufd_port *p, const struct opened *o, struct prepared *n)
{
	for (uint32_t i = 0; i < p->n_free; i++)
		p->space->frames[p->free[i]].state = NOT_OURS;
	if (p->rings_memory) {
		munmap(p->rings_memory, p->rings_size);
		close(p->wake);
	}
	p->rings_memory = n->rings;
	p->rings_size = n->size;
	p->wake = o->fds[1];
	p->polled = true;
	p->entries = o->entries;
	p->mask = o->entries - 1;
	for (int i = 0; i < RINGS; i++)
		p->ring[i] = (struct ring){ring_in(n->rings, o->entries, i), 0};
	p->room = room_of(p, o);
	p->given = 0;
	p->opening++;
	p->held = 0;
	p->asked = 0;
	if (p->side.role == UFD_REQUEST) {
		p->size = o->size;
		p->align = o->align;
		p->last = 0;
	}
	if (p->side.role == UFD_SEND) {
		p->done = o->next;
		p->once = o->align == ONCE;
		if (p->last < o->next - 1)
			p->last = o->next - 1;
		free(p->free);
		p->free = n->free;
		p->n_free = 0;
		queue_sent(p, n);
	}
	if (n->space) {
		n->space->older = p->space;
		p->space = n->space;
		forget_spaces(p);
	}
}

/* install takes the daemon's answer over. */
static int install(ufd_port *p)
{
	struct opened *o = &p->side.q.opened;
	struct prepared n = {0};
	ufd_error why = {0};
	int r = unacceptable(p, o, &why);

	if (!r && (map_rings(p, o, &n) || allocate(p, o, &n) || ufdi_watch(p->poll, o->fds[1], p->side.q.asked->fd)))
		r = ufdi_fail(&why, UFD_SYSTEM, UFD_REASON_NONE, "open flow %s", p->side.name);
	if (r) {
		int saved = errno;
		unprepare(p, &n);
		ufdi_rejected(&p->side, &why);
		errno = saved;
		return r;
	}
	go_on(p, o, &n);
	close(o->fds[0]);
	ufdi_installed(&p->side);
	if (p->side.role == UFD_SEND)
		collect(p, NULL, 0); /* the frames to fill, and messages to send again */
	return p->broken ? ufdi_broken(p) : 0;
}

ufd_port *ufd_open(ufd_client *c, const char *flow, uint32_t role, uint32_t depth, ufd_error *why)
{
	int r;

	if (!flow || !*flow || strlen(flow) > MAX_NAME || role < UFD_RECEIVE || role > UFD_REQUEST) {
		ufdi_fail(why, UFD_INVALID, UFD_REASON_NONE,
			  "open a flow: its name has 1 to %d bytes, and the role is UFD_RECEIVE, UFD_SEND or UFD_REQUEST",
			  MAX_NAME);
		return NULL;
	}
	ufd_port *p = calloc(1, sizeof(*p));
	if (!p || (p->poll = epoll_create1(EPOLL_CLOEXEC)) < 0) {
		ufdi_fail(why, UFD_SYSTEM, UFD_REASON_NONE, "open flow %s", flow);
		free(p);
		return NULL;
	}
	p->side.client = c;
	strcpy(p->side.name, flow);
	p->side.role = role;
	p->side.depth = depth;
	p->wake = -1;
	ufdi_enter(&p->side);
	if ((r = ufdi_open(&p->side)) == 0 && (r = install(p)) == 0)
		return p;
	ufd_error said = {0};
	ufd_why(p, &said);
	ufd_close(p);
	if (why)
		*why = said;
	return NULL;
}

void ufd_close(ufd_port *p)
{
	int saved = errno;

	if (!p)
		return;
	ufdi_leave(&p->side);
	if (p->rings_memory)
		munmap(p->rings_memory, p->rings_size);
	if (p->wake >= 0)
		close(p->wake);
	close(p->poll);
	for (struct space *s = p->space, *older; s; s = older) {
		older = s->older;
		release_space(p->side.client, s);
	}
	free(p->free);
	free(p->sent);
	free(p);
	errno = saved;
}

void *ufd_claim(ufd_port *p, uint32_t *room)
{
	if (p->side.role != UFD_SEND || p->broken)
		return NULL;
	if (!p->n_free || p->submitted < p->n_sent)
		collect(p, NULL, 0);
	/* Messages that wait for a frame come first. Each claimed frame has a place in the queue. */
	if (!p->n_free || p->submitted < p->n_sent || p->n_sent + p->n_claimed >= p->sent_size)
		return NULL;
	uint32_t frame = p->free[--p->n_free];
	p->space->frames[frame].state = CLAIMED;
	p->space->n_claimed++;
	p->n_claimed++;
	if (room)
		*room = p->room;
	return bytes_of(p->space, frame);
}

/* unclaim takes a claimed frame from the program, if length bytes fit. */
static struct space *unclaim(ufd_port *p, const void *frame, uint32_t length, uint32_t *number)
{
	for (struct space *s = p->space; s && p->side.role == UFD_SEND; s = s->older) {
		uintptr_t offset = (uintptr_t)frame - (uintptr_t)s->memory->out;
		if ((uintptr_t)frame < (uintptr_t)s->memory->out || offset >= s->memory->out_size || offset % s->memory->frame)
			continue;
		*number = (uint32_t)(offset / s->memory->frame);
		if (s->frames[*number].state != CLAIMED || length > s->memory->frame)
			return NULL;
		s->frames[*number].state = NOT_OURS;
		s->n_claimed--;
		p->n_claimed--;
		return s;
	}
	return NULL;
}

void ufd_discard(ufd_port *p, void *frame)
{
	uint32_t number;
	struct space *s = unclaim(p, frame, 0, &number);

	if (s)
		free_frame(p, s, number);
}

static int commit(ufd_port *p, void *frame, uint32_t length, uint64_t stamp, uint64_t decided, uint64_t *sequence)
{
	uint32_t number;

	if (length == 0 || length > p->room)
		return UFD_INVALID;
	struct space *s = unclaim(p, frame, length, &number);
	if (!s)
		return UFD_INVALID;
	s->frames[number].state = SENT;
	p->n_sent++;
	*sent_at(p, p->n_sent - 1) = (struct sent){++p->last, s, number, length, stamp, decided};
	submit(p);
	if (sequence)
		*sequence = p->last;
	return 0;
}

int ufd_commit(ufd_port *p, void *frame, uint32_t length, uint64_t *sequence)
{
	return commit(p, frame, length, 0, 0, sequence);
}

int ufd_commit_answer(ufd_port *p, void *frame, uint32_t length, uint64_t stamp, uint64_t *sequence)
{
	return commit(p, frame, length, stamp, ufdi_wall(), sequence);
}

/* next_messages returns messages or receipts. */
static int next_messages(ufd_port *p, ufd_message *m, int most)
{
	if (p->broken)
		return ufdi_broken(p);
	return p->side.role == UFD_SEND ? collect(p, m, most) : take(p, m, most);
}

int ufd_poll(ufd_port *p, ufd_message *m, int most)
{
	if (most <= 0 || !m)
		return most == 0 ? 0 : UFD_INVALID;
	int over = ufdi_over(p), n = next_messages(p, m, most); /* in this order: what came before the end is visible */
	if (n != 0 || over)
		return n != 0 ? n : over;
	if (!ufdi_tick(&p->looked) || !ufdi_look(&p->side))
		return 0;
	if ((over = ufdi_over(p)) == 0)
		return 0;
	n = next_messages(p, m, most);
	return n != 0 ? n : over;
}

int ufd_release(ufd_port *p, const ufd_message *m, int n)
{
	struct ring *r = &p->ring[RELEASED];
	uint64_t present = 0;

	if (p->side.role == UFD_SEND || n < 0)
		return UFD_INVALID;
	for (int i = 0; i < n; i++)
		present += m[i].data && m[i].opening == p->opening;
	if (present > p->held)
		return UFD_INVALID;
	for (int i = 0; i < n; i++)
		if (m[i].data && m[i].opening == p->opening)
			put(p, r, &(struct entry){.offset = m[i].offset, .length = m[i].length, .generation = m[i].generation});
	p->held -= present;
	if (present > 0)
		publish(p, r);
	return 0;
}

/* set_asleep says that the program waits for its ring. It must look at the ring afterwards. */
static void set_asleep(ufd_port *p, uint32_t asleep)
{
	atomic_store_explicit(&incoming(p)->shared->asleep, asleep, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with publish */
}

/* sleep_once waits until something happens. It returns 0 then. */
static int sleep_once(ufd_port *p, int64_t until)
{
	int r = 0;

	set_asleep(p, 1);
	if (!has_events(p) && !ufdi_over(p)) {
		int64_t latest = ufdi_now() + MOST_PAUSE; /* as long as a missed event may go unnoticed */
		int n = ufdi_sleep(p->wake, p->side.link->fd, latest < until ? latest : until);
		if (n < 0)
			r = errno == EINTR ? UFD_AGAIN : UFD_SYSTEM;
		else if (n == 0 && ufdi_now() >= until)
			r = UFD_AGAIN;
		if (n > 0 && n & 1)
			ufdi_drain(p->wake);
		if (n > 0 && n & 2 && !ufdi_look(&p->side))
			ufdi_sleep(-1, -1, ufdi_now() + INT64_C(50000)); /* the thread that reads the socket is not done */
	}
	set_asleep(p, 0);
	return r;
}

/* reopen attaches again if necessary, and opens the port anew. */
static int reopen(ufd_port *p, int64_t until)
{
	remove_descriptors(p); /* an ended connection would be readable all the time */
	p->side.from = p->side.role != UFD_SEND ? 0 : p->once ? p->last + 1 : oldest_sent(p);
	int r = ufdi_reopen(&p->side, until);
	return r == 0 ? install(p) : r;
}

int ufd_wait(ufd_port *p, int64_t nanoseconds)
{
	int64_t until = ufdi_deadline(nanoseconds);

	for (;;) {
		if (p->broken)
			return ufdi_broken(p);
		int over = ufdi_over(p);
		if (has_events(p))
			return 0;
		if (over)
			return reopen(p, until);
		int r = sleep_once(p, until);
		if (r != 0)
			return r;
	}
}

int ufd_fd(const ufd_port *p)
{
	return p->poll;
}

int ufd_arm(ufd_port *p)
{
	set_asleep(p, 1);
	return p->broken || has_events(p) || ufdi_over(p);
}

void ufd_disarm(ufd_port *p)
{
	set_asleep(p, 0);
	ufdi_drain(p->wake);
	ufdi_look(&p->side);
}

uint64_t ufd_next(const ufd_port *p)
{
	return p->side.role == UFD_RECEIVE ? 0 : p->last + 1;
}

void ufd_why(const ufd_port *p, ufd_error *why)
{
	ufdi_why(&p->side, why);
	if (p->broken)
		*why = (ufd_error){UFD_SYSTEM, UFD_REASON_NONE, "the daemon broke the protocol"};
}
