/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c: the connection to the daemon. Nothing here blocks: a thread that waits for an answer polls the socket and
 * then reads whatever has come, also for ports of other threads.
 */
#define _GNU_SOURCE
#include "message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* permanent reports whether another attempt is in vain. */
static bool permanent(const ufd_error *why)
{
	return why->result == UFD_REFUSED &&
	       (why->reason == UFD_REASON_BAD_VERSION || why->reason == UFD_REASON_BAD_NAME || why->reason == UFD_REASON_NOT_PERMITTED);
}

/* longer returns the pause after a failed attempt. */
static int64_t longer(int64_t pause)
{
	if (pause < LEAST_PAUSE / 2)
		return LEAST_PAUSE;
	return pause > MOST_PAUSE / 2 ? MOST_PAUSE : 2 * pause;
}

void ufdi_use(ufd_client *c, struct memory *m)
{
	pthread_mutex_lock(&c->mutex);
	m->refs++;
	pthread_mutex_unlock(&c->mutex);
}

/* unuse is ufdi_unuse under the mutex. */
static void unuse(struct memory *m)
{
	if (!m || --m->refs > 0)
		return;
	if (m->in)
		munmap((void *)(uintptr_t)m->in, (size_t)m->in_size);
	if (m->out)
		munmap(m->out, (size_t)m->out_size);
	free(m);
}

void ufdi_unuse(ufd_client *c, struct memory *m)
{
	pthread_mutex_lock(&c->mutex);
	unuse(m);
	pthread_mutex_unlock(&c->mutex);
}

static void unref(struct link *l)
{
	if (!l || --l->refs > 0)
		return;
	close(l->fd);
	unuse(l->memory);
	free(l);
}

/* end notes that a connection has ended. errno says why, unless the daemon has. */
static void end(ufd_client *c, struct link *l)
{
	if (!atomic_load_explicit(&l->alive, memory_order_relaxed))
		return;
	if (!l->why.result)
		ufdi_fail(&l->why, UFD_GONE, UFD_REASON_NONE, "the connection has ended: %s", strerror(errno));
	atomic_store_explicit(&l->alive, false, memory_order_release);
	shutdown(l->fd, SHUT_RDWR); /* the daemon notices at once if it was this side that ended */
	for (struct side *p = c->ports; p; p = p->q.after)
		if (p->link == l)
			p->q.why = l->why;
}

static bool alive(const struct link *l)
{
	return l && atomic_load_explicit(&l->alive, memory_order_acquire);
}

/* send_close tells the daemon that a port is not used any more. */
static void send_close(ufd_client *c, struct link *l, uint32_t number)
{
	uint8_t b[CLOSE_LEN];

	put32(b, number);
	/* EAGAIN: the daemon has left so many messages unread that it must not believe the port to be in use */
	if (alive(l) && ufdi_send(l->fd, CLOSE, b, sizeof(b)))
		end(c, l);
}

/* unask forgets the question of a port, and the answer. */
static void unask(struct side *p)
{
	struct link *l = p->q.asked;

	if (!l)
		return;
	for (unsigned i = 0; i < MAX_ASKED; i++)
		if (l->asked[i] == p)
			l->asked[i] = NULL;
	if (p->q.answer == OPENED)
		ufdi_close_fds(p->q.opened.fds, p->q.opened.n_fds);
	p->q.answer = NO_ANSWER;
	p->q.asked = NULL;
	unref(l);
}

/* fds_fit reports whether an answer has as many descriptors as a port with that role has. */
static bool fds_fit(uint32_t role, unsigned n)
{
	switch (role) {
	case UFD_WRITE: /* the ring, who is there, and a page and a socket of each reader */
		return n >= 2 && n <= 2 + 2 * MAX_READERS && n % 2 == 0;
	case UFD_FOLLOW: /* the ring, the reader's page and a socket */
		return n == 3;
	case LOOK: /* the memory of the state */
		return n == 1;
	case GIVE:
		return n == 0;
	default: /* the rings and a socket */
		return n == 2;
	}
}

/* take_opened passes an answer with descriptors to the port that asked. It returns false if nobody asked. */
static bool take_opened(ufd_client *c, struct link *l, struct message *m)
{
	uint32_t number = get32(m->body);

	struct side *p = l->asked[l->first_asked];
	if (!l->n_asked || (p && !fds_fit(p->role, m->n_fds)))
		return false;
	l->asked[l->first_asked] = NULL;
	l->first_asked = (l->first_asked + 1) % MAX_ASKED;
	l->n_asked--;
	if (!p) { /* the program has not waited for it */
		ufdi_close_fds(m->fds, m->n_fds);
		send_close(c, l, number);
		return true;
	}
	p->q.answer = OPENED;
	p->q.opened = (struct opened){.number = number,
				      .entries = get32(m->body + 4),
				      .next = get64(m->body + 8),
				      .size = get64(m->body + 16),
				      .align = get32(m->body + 24),
				      .longest = get32(m->body + 28),
				      .n_fds = m->n_fds};
	memcpy(p->q.opened.fds, m->fds, m->n_fds * sizeof(*m->fds));
	for (unsigned i = 0; i < MAX_EARLY; i++) {
		if (l->early[i].port == number) {
			p->q.why = l->early[i].why;
			p->q.opened.closed = true;
		}
	}
	return true;
}

static bool take_refusal(struct link *l, struct message *m)
{
	if (!l->n_asked)
		return false;
	struct side *p = l->asked[l->first_asked];
	l->asked[l->first_asked] = NULL;
	l->first_asked = (l->first_asked + 1) % MAX_ASKED;
	l->n_asked--;
	if (p) {
		p->q.answer = REFUSED;
		ufdi_refused(&p->q.why, UFD_REFUSED, m->body, m->length);
	}
	return true;
}

/* take_closed notes that the daemon has closed a port. */
static void take_closed(ufd_client *c, struct link *l, struct message *m)
{
	uint32_t number = get32(m->body);
	ufd_error why = {0};

	ufdi_refused(&why, UFD_CLOSED, m->body + 4, m->length - 4);
	for (struct side *p = c->ports; p; p = p->q.after) {
		if (p->q.asked == l && p->q.answer == OPENED && p->q.opened.number == number)
			p->q.opened.closed = true;
		else if (p->link == l && p->q.number == number)
			atomic_store_explicit(&p->closed, true, memory_order_release);
		else
			continue;
		p->q.why = why;
		return;
	}
	/* With reason none the daemon answers a Close. Otherwise it may have closed a port that it is about to open. */
	if (why.reason != UFD_REASON_NONE) {
		l->early[l->next_early] = (struct closed){number, why};
		l->next_early = (l->next_early + 1) % MAX_EARLY;
	}
}

/* look reads the messages that have come. */
static void look(ufd_client *c, struct link *l)
{
	struct message m;

	while (alive(l)) {
		int n = ufdi_receive(l->fd, &m);
		if (n == 0)
			return;
		if (n < 0) {
			end(c, l);
			return;
		}
		bool expected = true;
		switch (m.kind) {
		case OPENED_PORT:
			if ((expected = take_opened(c, l, &m)))
				continue; /* the descriptors are the port's */
			break;
		case REFUSAL:
			expected = take_refusal(l, &m);
			break;
		case CLOSED_PORT:
			take_closed(c, l, &m);
			break;
		case END:
			ufdi_refused(&l->why, UFD_GONE, m.body, m.length);
			end(c, l);
			break;
		default:
			expected = false;
		}
		ufdi_close_fds(m.fds, m.n_fds);
		if (!expected) {
			errno = EPROTO;
			end(c, l);
		}
	}
}

bool ufdi_look(struct side *p)
{
	if (pthread_mutex_trylock(&p->client->mutex))
		return false;
	look(p->client, p->link);
	pthread_mutex_unlock(&p->client->mutex);
	return true;
}

/* identify checks that a memfd has at least size bytes. An access behind its end would be fatal. */
static int identify(int fd, uint64_t size, struct file *file)
{
	struct stat s;

	if (fstat(fd, &s))
		return -1;
	if (size > SIZE_MAX / 2 || s.st_size < 0 || (uint64_t)s.st_size < size) {
		errno = EPROTO;
		return -1;
	}
	*file = (struct file){s.st_dev, s.st_ino};
	return 0;
}

static bool same(const struct file *a, const struct file *b)
{
	return a->device == b->device && a->inode == b->inode;
}

/* map_memory maps the memory that comes with a welcome, or returns that of the present connection if it is the same. It
 * returns NULL with errno. */
static struct memory *map_memory(ufd_client *c, const struct message *m)
{
	struct memory *had = c->link ? c->link->memory : NULL;
	struct memory want = {.in_size = get64(m->body + 8), .out_size = get64(m->body + 16), .frame = get32(m->body + 24), .refs = 1};
	unsigned out = want.in_size > 0; /* number of its descriptor */

	if (m->n_fds != out + (want.out_size > 0) || !want.frame || want.frame & (want.frame - 1) || want.out_size % want.frame ||
	    want.out_size / want.frame > UINT32_MAX) {
		errno = EPROTO;
		return NULL;
	}
	if ((want.in_size && identify(m->fds[0], want.in_size, &want.in_file)) ||
	    (want.out_size && identify(m->fds[out], want.out_size, &want.out_file)))
		return NULL;
	if (had && had->frame == want.frame && had->in_size == want.in_size && had->out_size == want.out_size &&
	    same(&had->in_file, &want.in_file) && same(&had->out_file, &want.out_file)) {
		had->refs++;
		return had;
	}
	struct memory *now = malloc(sizeof(*now));
	if (!now)
		return NULL;
	*now = want;
	if (want.in_size) {
		void *b = mmap(NULL, (size_t)want.in_size, PROT_READ, MAP_SHARED, m->fds[0], 0);
		now->in = b == MAP_FAILED ? NULL : b;
	}
	if (want.out_size) {
		void *b = mmap(NULL, (size_t)want.out_size, PROT_READ | PROT_WRITE, MAP_SHARED, m->fds[out], 0);
		now->out = b == MAP_FAILED ? NULL : b;
	}
	if ((want.in_size && !now->in) || (want.out_size && !now->out)) {
		int saved = errno;
		unuse(now);
		errno = saved;
		return NULL;
	}
	return now;
}

/* join connects to the daemon and says hello. If that fails, it returns -1 and c->last says why. */
static int join(ufd_client *c, int64_t now)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	uint8_t hello[HELLO_LEN] = {0};
	struct link *l = calloc(1, sizeof(*l));

	_Static_assert(sizeof(to.sun_path) == sizeof(c->socket), "a path of a socket fits");
	memcpy(to.sun_path, c->socket, sizeof(c->socket));
	memcpy(hello, c->name, NAME_LEN);
	put64(hello + NAME_LEN, c->session);
	if (!l) {
		ufdi_fail(&c->last, UFD_SYSTEM, UFD_REASON_NONE, "attach to %s", c->socket);
		return -1;
	}
	l->refs = 1;
	l->since = now;
	l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0 || connect(l->fd, (struct sockaddr *)&to, sizeof(to)) || ufdi_send(l->fd, HELLO, hello, sizeof(hello))) {
		/* EAGAIN: as many wait as the kernel keeps for the daemon */
		ufdi_fail(&c->last, errno == EAGAIN ? UFD_AGAIN : UFD_SYSTEM, UFD_REASON_NONE, "attach to %s", c->socket);
		if (l->fd >= 0)
			close(l->fd);
		free(l);
		return -1;
	}
	atomic_init(&l->alive, true);
	c->joining = l;
	return 0;
}

/* welcome reads the answer to the hello. It returns UFD_AGAIN if there is none yet, 0 if c->link is the new connection, or
 * the result in c->last. */
static int welcome(ufd_client *c, int64_t now)
{
	struct link *l = c->joining;
	struct message m;
	int n = ufdi_receive(l->fd, &m);

	if (n == 0) {
		if (now - l->since < MEET_TIME)
			return UFD_AGAIN;
		errno = ETIMEDOUT;
		return ufdi_fail(&c->last, UFD_SYSTEM, UFD_REASON_NONE, "attach to %s", c->socket);
	}
	if (n < 0)
		return ufdi_fail(&c->last, errno == ECONNRESET ? UFD_GONE : UFD_SYSTEM, UFD_REASON_NONE, "attach to %s", c->socket);
	if (m.kind == WELCOME && (l->memory = map_memory(c, &m))) {
		ufdi_close_fds(m.fds, m.n_fds);
		unref(c->link); /* ports may still use it */
		c->link = l;
		c->joining = NULL;
		c->pause = 0;
		c->last.result = 0;
		return 0;
	}
	if (m.kind == REFUSAL || m.kind == END) {
		ufdi_refused(&c->last, m.kind == END ? UFD_GONE : UFD_REFUSED, m.body, m.length);
	} else {
		if (m.kind != WELCOME)
			errno = EPROTO;
		ufdi_fail(&c->last, UFD_SYSTEM, UFD_REASON_NONE, "map the memory of %s", c->socket);
	}
	ufdi_close_fds(m.fds, m.n_fds);
	return c->last.result;
}

/* attach makes the next step to attach. It returns 0 once c->link goes on, or UFD_AGAIN, or UFD_REFUSED if another attempt is
 * in vain. */
static int attach(ufd_client *c, int64_t now, int *fd, int64_t *until)
{
	if (!c->joining && now < c->next) {
		*until = c->next;
		return permanent(&c->last) ? UFD_REFUSED : UFD_AGAIN;
	}
	if (c->joining || join(c, now) == 0) {
		int r = welcome(c, now);
		if (r == UFD_AGAIN)
			*fd = c->joining->fd;
		if (r == UFD_AGAIN || r == 0)
			return r;
		unref(c->joining);
		c->joining = NULL;
	}
	c->pause = longer(c->pause);
	c->next = *until = now + c->pause;
	return permanent(&c->last) ? UFD_REFUSED : UFD_AGAIN;
}

/* ask sends the question for a port over the newest connection. */
static int ask(struct side *p)
{
	struct link *l = p->client->link;
	uint8_t b[OPEN_LEN] = {0};

	if (l->n_asked == MAX_ASKED) {
		errno = EAGAIN;
		return -1;
	}
	memcpy(b, p->name, NAME_LEN);
	put32(b + NAME_LEN, p->role);
	put32(b + NAME_LEN + 4, p->depth);
	put64(b + NAME_LEN + 8, p->from);
	if (ufdi_send_with(l->fd, OPEN, b, sizeof(b), p->role == GIVE ? p->give : -1)) {
		if (errno != EAGAIN && errno != EBADF) /* EBADF: the program's descriptor */
			end(p->client, l);
		return -1;
	}
	l->asked[(l->first_asked + l->n_asked++) % MAX_ASKED] = p;
	l->refs++;
	p->q.asked = l;
	p->q.answer = NO_ANSWER;
	return 0;
}

/* open_port makes the next step to open a port over the newest connection. */
static int open_port(struct side *p, bool again, int64_t now, int *fd, int64_t *until)
{
	if (!p->q.asked) {
		if (now < p->q.next) {
			*until = p->q.next;
			return UFD_AGAIN;
		}
		if (ask(p))
			return UFD_AGAIN;
	}
	struct link *l = p->q.asked;
	look(p->client, l);
	switch (p->q.answer) {
	case OPENED:
		return 0;
	case REFUSED:
		unask(p);
		p->q.pause = longer(p->q.pause);
		p->q.next = *until = now + p->q.pause;
		return !again || permanent(&p->q.why) ? UFD_REFUSED : UFD_AGAIN;
	default:
		*fd = l->fd;
		return UFD_AGAIN;
	}
}

int ufdi_step(struct side *p, bool again, int *fd, int64_t *until)
{
	ufd_client *c = p->client;
	int64_t now = ufdi_now();
	int r = 0;

	*fd = -1;
	*until = now + LOOK_TIME;
	pthread_mutex_lock(&c->mutex);
	if (p->q.asked && !alive(p->q.asked))
		unask(p);
	if (!alive(c->link) && !again) {
		p->q.why = c->link->why;
		r = UFD_GONE;
	} else if (!alive(c->link) && (r = attach(c, now, fd, until)) != 0) {
		p->q.why = c->last.result ? c->last : p->q.why;
	} else {
		r = open_port(p, again, now, fd, until);
	}
	pthread_mutex_unlock(&c->mutex);
	return r;
}

void ufdi_ask_back(struct side *p)
{
	pthread_mutex_lock(&p->client->mutex);
	if (!atomic_load_explicit(&p->closed, memory_order_relaxed))
		send_close(p->client, p->link, p->q.number);
	pthread_mutex_unlock(&p->client->mutex);
}

int ufdi_mapped(struct side *p)
{
	uint8_t b[CLOSE_LEN];
	struct link *l = p->q.asked;

	put32(b, p->q.opened.number);
	return ufdi_send(l->fd, MAPPED, b, sizeof(b));
}

void ufdi_installed(struct side *p)
{
	struct link *old = p->link;

	pthread_mutex_lock(&p->client->mutex);
	p->link = p->q.asked;
	p->q.number = p->q.opened.number;
	atomic_store_explicit(&p->closed, p->q.opened.closed, memory_order_relaxed);
	p->q.asked = NULL;
	p->q.answer = NO_ANSWER;
	p->q.next = p->q.pause = 0;
	unref(old);
	pthread_mutex_unlock(&p->client->mutex);
}

void ufdi_rejected(struct side *p, const ufd_error *why)
{
	pthread_mutex_lock(&p->client->mutex);
	send_close(p->client, p->q.asked, p->q.opened.number);
	unask(p);
	p->q.why = *why;
	p->q.pause = longer(p->q.pause);
	p->q.next = ufdi_now() + p->q.pause;
	pthread_mutex_unlock(&p->client->mutex);
}

void ufdi_enter(struct side *p)
{
	ufd_client *c = p->client;

	pthread_mutex_lock(&c->mutex);
	p->q.after = c->ports;
	if (c->ports)
		c->ports->q.before = p;
	c->ports = p;
	pthread_mutex_unlock(&c->mutex);
}

void ufdi_leave(struct side *p)
{
	ufd_client *c = p->client;

	pthread_mutex_lock(&c->mutex);
	if (p->q.answer == OPENED)
		send_close(c, p->q.asked, p->q.opened.number);
	if (p->link && !atomic_load_explicit(&p->closed, memory_order_relaxed))
		send_close(c, p->link, p->q.number);
	unask(p);
	unref(p->link);
	p->link = NULL;
	if (p->q.after)
		p->q.after->q.before = p->q.before;
	*(p->q.before ? &p->q.before->q.after : &c->ports) = p->q.after;
	pthread_mutex_unlock(&c->mutex);
}

ufd_client *ufd_attach(const char *socket, const char *name, uint64_t session, ufd_error *why)
{
	if (!socket)
		socket = UFD_DEFAULT_SOCKET;
	ufd_client *c = calloc(1, sizeof(*c));
	if (!c) {
		ufdi_fail(why, UFD_SYSTEM, UFD_REASON_NONE, "attach to %s", socket);
		return NULL;
	}
	if (!name || !*name || strlen(name) > MAX_NAME || !*socket || strlen(socket) >= sizeof(c->socket)) {
		ufdi_fail(why, UFD_INVALID, UFD_REASON_NONE, "attach to %s: a name has 1 to %d bytes, and a path at most %zu", socket,
			  MAX_NAME, sizeof(c->socket) - 1);
		free(c);
		return NULL;
	}
	strcpy(c->socket, socket);
	strcpy(c->name, name);
	pthread_mutex_init(&c->mutex, NULL);
	for (c->session = session; c->session == 0;)
		if (getrandom(&c->session, sizeof(c->session), 0) != sizeof(c->session) && errno != EINTR)
			break;
	int fd = -1, r = UFD_SYSTEM;
	if (c->session) {
		int64_t latest = ufdi_now() + MEET_TIME, until = latest;
		while ((r = attach(c, ufdi_now(), &fd, &until)) == UFD_AGAIN && (!c->last.result || (c->last.result == UFD_AGAIN && ufdi_now() < latest)))
			ufdi_sleep(fd, -1, c->last.result ? until : latest);
	} else {
		ufdi_fail(&c->last, UFD_SYSTEM, UFD_REASON_NONE, "draw a session");
	}
	if (r == 0)
		return c;
	if (why)
		*why = c->last;
	ufd_detach(c);
	return NULL;
}

static void close_side(struct side *p)
{
	switch (p->role) {
	case UFD_WRITE:
	case UFD_FOLLOW:
		ufd_channel_close((ufd_channel *)p);
		break;
	case LOOK:
		ufd_state_close((ufd_state *)p);
		break;
	case GIVE:
		ufd_given_end((ufd_given *)p);
		break;
	default:
		ufd_close((ufd_port *)p);
	}
}

void ufd_detach(ufd_client *c)
{
	int saved = errno;

	if (!c)
		return;
	while (c->ports)
		close_side(c->ports);
	unref(c->joining);
	unref(c->link);
	pthread_mutex_destroy(&c->mutex);
	free(c);
	errno = saved;
}

uint64_t ufd_session(const ufd_client *c)
{
	return c->session;
}
