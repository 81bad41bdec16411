/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hotpath: counts what the library allocates while messages pass. The linker passes calls of malloc and the like to the functions
 * here, those of the library too.
 *
 *	hotpath SOCKET               done
 *
 * It is linked with the sources of the library and -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap
 */
#define _POSIX_C_SOURCE 200809L
#include "unifiedd.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

enum { MESSAGES = 20000, BATCH = 64 };

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset);

static unsigned long allocations;

void *__wrap_malloc(size_t size)
{
	allocations++;
	return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	allocations++;
	return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	allocations++;
	return __real_realloc(p, size);
}

void *__wrap_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	allocations++;
	return __real_mmap(at, length, protection, flags, fd, offset);
}

static void die(const char *what, int result, const char *text)
{
	fprintf(stderr, "%s: %s: %s\n", what, ufd_strerror(result), text);
	exit(1);
}

static void pause_briefly(void)
{
	struct timespec t = {.tv_nsec = 20000};

	nanosleep(&t, NULL);
}

static ufd_client *attach(const char *socket, const char *name)
{
	ufd_error why;
	ufd_client *c = ufd_attach(socket, name, 0, &why);

	if (!c)
		die(name, why.result, why.text);
	return c;
}

static ufd_port *open_port(ufd_client *c, const char *flow, uint32_t role)
{
	ufd_error why;
	ufd_port *p = ufd_open(c, flow, role, 0, &why);

	if (!p)
		die(flow, why.result, why.text);
	return p;
}

static ufd_channel *open_channel(ufd_client *c, const char *name, uint32_t role)
{
	ufd_error why;
	ufd_channel *ch;

	while (!(ch = ufd_channel_open(c, name, role, &why))) {
		if (why.reason != UFD_REASON_BUSY) /* the daemon has not sealed the ring yet */
			die(name, why.result, why.text);
		pause_briefly();
	}
	return ch;
}

/* update sends an update of the state, waits for its receipt, and reads it. */
static void update(ufd_port *p, ufd_state *s, uint64_t n)
{
	uint32_t room, length;
	uint64_t got;
	ufd_message receipt;
	void *frame = ufd_claim(p, &room);
	int r = ufd_commit(p, frame, (uint32_t)ufd_put_object(frame, room, n % 16, &n, sizeof(n)), NULL);

	while (r == 0 && (r = ufd_poll(p, &receipt, 1)) == 0)
		r = ufd_wait(p, UFD_FOREVER);
	if (r < 0)
		die("update", r, "");
	if (ufd_state_get(s, n % 16, &got, sizeof(got), &length, NULL) != 1 || got != n)
		die("get", 0, "the object is another one");
}

static void receive(ufd_port *p)
{
	ufd_message got[BATCH];

	for (int taken = 0; taken < MESSAGES;) {
		int n = ufd_poll(p, got, BATCH);
		if (n > 0) {
			taken += n;
			ufd_release(p, got, n);
		} else if (n < 0 || (n = ufd_wait(p, UFD_FOREVER)) < 0) {
			die("receive", n, "");
		}
	}
}

static void request(ufd_port *p)
{
	ufd_message got[BATCH];
	uint64_t asked = 0;

	for (int taken = 0; taken < MESSAGES / 10;) {
		while (ufd_request(p, asked % 256 * 4096, 4096, NULL) == 0)
			asked++;
		int n = ufd_poll(p, got, BATCH);
		if (n > 0) {
			taken += n;
			ufd_release(p, got, n);
		} else if (n < 0 || (n = ufd_wait(p, UFD_FOREVER)) < 0) {
			die("request", n, "");
		}
	}
}

static void pass(ufd_channel *writer, ufd_channel *reader, uint64_t n)
{
	static uint8_t message[1 << 16];
	uint64_t sequence;
	uint32_t length;

	memcpy(message, &n, sizeof(n));
	int r = ufd_channel_write(writer, message, 64, NULL);
	if (r < 0 || (r = ufd_channel_read(reader, message, sizeof(message), &length, &sequence)) != 1 || length != 64)
		die("pass", r, "");
}

/* expect reports a step that has allocated. */
static void expect(const char *what, unsigned long before)
{
	if (allocations != before) {
		fprintf(stderr, "%s: %lu allocations\n", what, allocations - before);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	ufd_error why;
	ufd_client *writer = attach(argv[1], "writer"), *reader = attach(argv[1], "reader");
	ufd_port *sends = open_port(writer, "books", UFD_SEND), *receives = open_port(reader, "md", UFD_RECEIVE);
	ufd_port *requests = open_port(reader, "image", UFD_REQUEST);
	ufd_channel *to = open_channel(writer, "first", UFD_WRITE), *from = open_channel(reader, "first", UFD_FOLLOW);
	ufd_state *state = ufd_state_open(reader, "book", &why);
	if (!state)
		die("book", why.result, why.text);
	unsigned long before = allocations;
	if (before == 0)
		die("count", 0, "nothing is counted");
	for (uint64_t n = 0; n < MESSAGES / 10; n++)
		update(sends, state, n);
	expect("updates", before);
	receive(receives);
	expect("messages", before);
	request(requests);
	expect("blocks", before);
	for (uint64_t n = 0; n < MESSAGES; n++)
		pass(to, from, n);
	expect("a channel", before);
	ufd_detach(writer);
	ufd_detach(reader);
	puts("done");
	return 0;
}
