/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log-server: a log over TCP, written in the usual way with epoll, direct I/O and group commit.
 *
 *	log-server PORT FILE BYTES received|durable [GATHER_MS]
 *
 * One thread serves all connections: it reads records, checks each, gives it its position and puts
 * it into the current batch. Another thread writes: as soon as it is idle and the batch has
 * records, it takes the batch, writes it with one aligned pwrite and flushes it with fdatasync.
 * The first thread fills the other batch during that time. It acknowledges a record at once
 * (received), or when the flush of its batch has ended (durable). With GATHER_MS the writer gets a
 * batch only when its first record is GATHER_MS old, or the batch is half full. The file is
 * allocated before. When it is full, the server writes from the beginning again.
 *
 * It prints "serving" on standard error when it is ready. SIGINT or SIGTERM ends it after it has
 * written all received records. Then it prints its counters as JSON.
 */
#define _GNU_SOURCE
#include "log.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	INPUT = 4 * LONGEST, /* bytes read from a connection at once */
	BATCH = 8 << 20,     /* bytes of a batch */
	EVENTS = 64,
};

/* connection is a client. It belongs to the first thread. */
struct connection {
	int fd; /* -1: none */
	uint32_t used;
	bool stalled;		   /* the batch had no room for its next record */
	uint64_t taken, filled;	   /* records in all, and of the current batch */
	uint64_t written, answered; /* up to the batch that is being written, and acknowledged */
	uint64_t last, last_written; /* positions of the last records */
	unsigned char *input;
};

/* batch has the contents of one write. */
struct batch {
	unsigned char *bytes;
	size_t used;
};

static struct connection all[MOST];
static int highest; /* highest index in use, plus one */
static struct batch batches[2], *filling = &batches[0];
static uint64_t next = 1, commits, written_bytes;
static bool durable, writing, ending;
static uint64_t gather, opened; /* milliseconds; the second: when the current batch got its first record */
static int epoll, done, log_file;
static size_t capacity, at;

/* The variables that the threads share. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static struct batch *job;

static void pwrite_all(const unsigned char *bytes, size_t length, off_t offset)
{
	while (length) {
		ssize_t n = pwrite(log_file, bytes, length, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die("write the log", n ? errno : ENOSPC);
		bytes += n, length -= (size_t)n, offset += n;
	}
}

/* write_batches is the second thread. */
static void *write_batches(void *unused)
{
	const uint64_t one = 1;

	for (;;) {
		pthread_mutex_lock(&lock);
		while (!job)
			pthread_cond_wait(&given, &lock);
		struct batch *b = job;
		job = NULL;
		pthread_mutex_unlock(&lock);

		size_t length = (b->used + BLOCK - 1) / BLOCK * BLOCK;
		memset(b->bytes + b->used, 0, length - b->used);
		if (at + length > capacity)
			at = 0;
		pwrite_all(b->bytes, length, (off_t)at);
		if (fdatasync(log_file))
			die("flush the log", errno);
		at += length;
		b->used = 0;
		commits++;
		written_bytes += length;
		if (write(done, &one, sizeof(one)) != sizeof(one))
			die("tell that a batch is written", errno);
	}
	return unused;
}

/* acknowledge sends a connection a new count of records. */
static void acknowledge(struct connection *c, uint64_t count, uint64_t position)
{
	struct answer a = {count, position};

	if (c->fd < 0 || c->answered == count)
		return;
	c->answered = count;
	ssize_t n = send(c->fd, &a, sizeof(a), MSG_NOSIGNAL);
	if (n != sizeof(a)) { /* the client does not read its answers, or is gone */
		shutdown(c->fd, SHUT_RDWR);
	}
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ripe reports whether the batch need not wait for more records. */
static bool ripe(void)
{
	return !gather || ending || filling->used > BATCH / 2 || now() - opened >= gather;
}

/* patience returns how long to wait for events: milliseconds, -1 for no limit. */
static int patience(void)
{
	if (!gather || writing || !filling->used)
		return -1;
	return ripe() ? 0 : (int)(gather - (now() - opened)) + 1;
}

/*
 * commit gives the batch to the writer, if that is idle and the batch need not wait for more
 * records.
 */
static void commit(void)
{
	if (writing || !filling->used || !ripe())
		return;
	writing = true;
	for (int i = 0; i < highest; i++) {
		all[i].written = all[i].taken;
		all[i].last_written = all[i].last;
	}
	pthread_mutex_lock(&lock);
	job = filling;
	pthread_cond_signal(&given);
	pthread_mutex_unlock(&lock);
	filling = filling == &batches[0] ? &batches[1] : &batches[0];
}

/* append adds a record to the batch, which must have room. */
static void append(struct connection *c, const struct record *r, const unsigned char *bytes)
{
	if (gather && !filling->used)
		opened = now();
	struct entry e = {.length = r->length, .checksum = r->checksum, .position = next++};

	e.guard = checksum(&e, offsetof(struct entry, guard));
	memcpy(filling->bytes + filling->used, &e, sizeof(e));
	memcpy(filling->bytes + filling->used + sizeof(e), bytes, r->length);
	filling->used += sizeof(e) + r->length;
	c->taken++;
	c->last = e.position;
}

static void leave(struct connection *c)
{
	close(c->fd);
	c->fd = -1;
}

/* take takes the complete records from a connection's input. */
static void take(struct connection *c)
{
	uint32_t from = 0;
	struct record r;

	c->stalled = false;
	while (c->used - from >= sizeof(r)) {
		memcpy(&r, c->input + from, sizeof(r));
		if (!r.length || r.length > LONGEST) {
			leave(c);
			return;
		}
		if (c->used - from < sizeof(r) + r.length)
			break;
		if (filling->used + sizeof(struct entry) + r.length > BATCH - BLOCK) {
			c->stalled = true;
			break;
		}
		if (checksum(c->input + from + sizeof(r), r.length) != r.checksum) {
			leave(c);
			return;
		}
		append(c, &r, c->input + from + sizeof(r));
		from += sizeof(r) + r.length;
	}
	memmove(c->input, c->input + from, c->used - from);
	c->used -= from;
	if (!durable)
		acknowledge(c, c->taken, c->last);
}

/* hear reads the input of a connection. */
static void hear(struct connection *c)
{
	if (c->used == INPUT || c->stalled)
		return;
	ssize_t n = recv(c->fd, c->input + c->used, INPUT - c->used, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		leave(c);
		return;
	}
	c->used += (uint32_t)n;
	take(c);
}

/* watch adds a descriptor to the epoll set. */
static void watch(int fd, uint64_t what)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = what};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e))
		die("watch a descriptor", errno);
}

static void welcome(int listener)
{
	const int yes = 1;
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), i = 0;

	if (fd < 0)
		return;
	while (i < MOST && all[i].fd >= 0)
		i++;
	if (i == MOST || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes))) {
		close(fd);
		return;
	}
	unsigned char *input = all[i].input;
	if (!input && !(input = malloc(INPUT)))
		die("make room for a connection", errno);
	all[i] = (struct connection){.fd = fd, .input = input};
	highest = i < highest ? highest : i + 1;
	watch(fd, (uint64_t)i);
}

/* settle handles the end of a write. */
static void settle(void)
{
	uint64_t n;

	if (read(done, &n, sizeof(n)) != sizeof(n))
		return;
	writing = false;
	for (int i = 0; i < highest; i++) {
		if (durable)
			acknowledge(&all[i], all[i].written, all[i].last_written);
	}
	commit();
	for (int i = 0; i < highest; i++) {
		if (all[i].fd >= 0 && all[i].stalled)
			take(&all[i]);
	}
}

static int listen_at(uint16_t port)
{
	const int yes = 1;
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ||
	    bind(fd, (struct sockaddr *)&any, sizeof(any)) || listen(fd, MOST))
		die("listen", errno);
	return fd;
}

/* signals returns a descriptor for the signals that end the program. */
static int signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL))
		die("block signals", errno);
	int fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (fd < 0)
		die("take signals", errno);
	return fd;
}

static void open_log(const char *name, size_t bytes)
{
	capacity = bytes / BLOCK * BLOCK;
	log_file = open(name, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	if (log_file < 0)
		die(name, errno);
	int error = posix_fallocate(log_file, 0, (off_t)capacity);
	if (error || (errno = 0, fsync(log_file)))
		die("allocate the log", error ? error : errno);
	for (int i = 0; i < 2; i++) {
		batches[i].bytes = mmap(NULL, BATCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (batches[i].bytes == MAP_FAILED)
			die("map batches", errno);
	}
}

enum { LISTENER = MOST, DONE, SIGNAL };

/* serve runs until a signal. */
static void serve(int listener)
{
	struct epoll_event events[EVENTS];

	while (!ending || writing || filling->used) {
		int n = epoll_wait(epoll, events, EVENTS, patience());

		for (int i = 0; i < n; i++) {
			uint64_t what = events[i].data.u64;
			if (what == LISTENER)
				welcome(listener);
			else if (what == DONE)
				settle();
			else if (what == SIGNAL)
				ending = true;
			else if (all[what].fd >= 0)
				hear(&all[what]);
		}
		commit();
	}
}

int main(int argc, char **argv)
{
	pthread_t writer;

	if (argc < 5 || argc > 6 || (strcmp(argv[4], "received") && strcmp(argv[4], "durable"))) {
		fprintf(stderr, "usage: log-server PORT FILE BYTES received|durable [GATHER_MS]\n");
		return 2;
	}
	durable = !strcmp(argv[4], "durable");
	gather = argc == 6 ? number(argv[5], "milliseconds", 1000) : 0;
	size_t bytes = number(argv[3], "bytes", 1UL << 40);
	if (bytes < BATCH) {
		fprintf(stderr, "log-server: a log of %zu bytes has no room for a batch of %d\n", bytes, BATCH);
		return 2;
	}
	open_log(argv[2], bytes);
	for (int i = 0; i < MOST; i++)
		all[i].fd = -1;
	int ends = signals();
	epoll = epoll_create1(EPOLL_CLOEXEC);
	done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (epoll < 0 || done < 0 || (errno = pthread_create(&writer, NULL, write_batches, NULL)))
		die("begin", errno);
	int listener = listen_at((uint16_t)number(argv[1], "port", 65535));
	watch(listener, LISTENER);
	watch(done, DONE);
	watch(ends, SIGNAL);
	fprintf(stderr, "serving\n");
	serve(listener);
	printf("{\"records\": %lu, \"commits\": %lu, \"bytes\": %lu}\n", next - 1, commits, written_bytes);
	return 0;
}
