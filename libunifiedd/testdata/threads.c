/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads: uses two clients from many threads, each with a port, channel or state of its own, until all have done N things. It is
 * built with a sanitizer that finds data races. The daemon may be killed and started again meanwhile.
 *
 *	threads SOCKET N             done
 */
#define _POSIX_C_SOURCE 200809L
#include "unifiedd.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAUSE INT64_C(20000000)

static ufd_client *writer, *reader;
static unsigned long most;
static atomic_int busy; /* threads that have not done all */

/* job is a thread. It returns when it has done its work, or nobody needs it any more. */
struct job {
	void (*run)(const char *name);
	const char *name;
	int needed; /* it has work to finish */
};

static void die(const char *what, const char *name, int result, const char *text)
{
	fprintf(stderr, "%s %s: %s: %s\n", what, name, ufd_strerror(result), text);
	exit(1);
}

/* may_go_on ends the program after a result from which waiting does not recover. */
static void may_go_on(const char *what, const char *name, int r)
{
	if (r == UFD_REFUSED || r == UFD_INVALID || r == UFD_SYSTEM)
		die(what, name, r, "");
}

/* again waits before another attempt to open. The daemon may be gone, or its flows may not run yet. */
static void again(const char *name, const ufd_error *why)
{
	struct timespec t = {.tv_nsec = 2000000};

	if (why->result == UFD_INVALID || why->result == UFD_SYSTEM)
		die("open", name, why->result, why->text);
	nanosleep(&t, NULL);
}

static ufd_port *open_port(ufd_client *c, const char *name, uint32_t role)
{
	ufd_error why;
	ufd_port *p;

	while (!(p = ufd_open(c, name, role, 0, &why)))
		again(name, &why);
	return p;
}

static ufd_channel *open_channel(ufd_client *c, const char *name, uint32_t role)
{
	ufd_error why;
	ufd_channel *ch;

	while (!(ch = ufd_channel_open(c, name, role, &why)))
		again(name, &why);
	return ch;
}

static void write_channel(const char *name)
{
	ufd_channel *c = open_channel(writer, name, UFD_WRITE);
	uint64_t message[8];

	while (atomic_load(&busy) > 0) {
		for (int i = 0; i < 8; i++)
			message[i] = ufd_channel_next(c);
		int r = ufd_channel_write(c, message, sizeof(message), NULL);
		if (r == 0)
			r = ufd_channel_readers(c) < 0 ? UFD_GONE : 0;
		if (r < 0)
			may_go_on("write", name, ufd_channel_wait(c, PAUSE));
	}
	ufd_channel_close(c);
}

static void read_channel(const char *name)
{
	ufd_channel *c = open_channel(reader, name, UFD_FOLLOW);
	uint64_t message[512], sequence;
	uint32_t length;

	for (unsigned long got = 0; got < most;) {
		int r = ufd_channel_read(c, message, sizeof(message), &length, &sequence);
		if (r == 1 && (length != 64 || message[0] != sequence || message[7] != sequence))
			die("read", name, 0, "the message is damaged");
		if (r == 1)
			got++;
		else
			may_go_on("read", name, ufd_channel_wait(c, PAUSE));
	}
	ufd_channel_close(c);
}

static void send_messages(const char *name)
{
	ufd_port *p = open_port(writer, name, UFD_SEND);
	ufd_message got[64];

	for (unsigned long done = 0; done < most;) {
		void *frame;
		while ((frame = ufd_claim(p, NULL))) {
			memset(frame, 1, 32);
			ufd_commit(p, frame, 32, NULL);
		}
		int n = ufd_poll(p, got, 64);
		if (n > 0)
			done += (unsigned long)n;
		else
			may_go_on("send", name, ufd_wait(p, PAUSE));
	}
	ufd_close(p);
}

static void receive_messages(const char *name)
{
	ufd_port *p = open_port(reader, name, UFD_RECEIVE);
	ufd_message got[64];

	for (unsigned long done = 0; done < most;) {
		int n = ufd_poll(p, got, 64);
		if (n > 0) {
			done += (unsigned long)n;
			ufd_release(p, got, n);
		} else {
			may_go_on("receive", name, ufd_wait(p, PAUSE));
		}
	}
	ufd_close(p);
}

static void read_blocks(const char *name)
{
	ufd_port *p = open_port(reader, name, UFD_REQUEST);
	ufd_message got[64];
	uint64_t asked = 0;

	for (unsigned long done = 0; done < most;) {
		while (ufd_request(p, asked % 256 * 4096, 4096, NULL) == 0)
			asked++;
		int n = ufd_poll(p, got, 64);
		if (n > 0) {
			done += (unsigned long)n;
			ufd_release(p, got, n);
		} else {
			may_go_on("blocks", name, ufd_wait(p, PAUSE));
		}
	}
	ufd_close(p);
}

/* look_at_state opens and closes a state, and reads it in between, as long as others are busy. */
static void look_at_state(const char *name)
{
	uint8_t payload[64];
	uint32_t length;
	uint64_t at;
	ufd_error why;

	while (atomic_load(&busy) > 0) {
		ufd_state *s = ufd_state_open(reader, name, &why);
		if (!s) {
			again(name, &why);
			continue;
		}
		for (int i = 0; i < 1000; i++)
			if (ufd_state_get(s, (uint64_t)i % 16, payload, sizeof(payload), &length, NULL) == UFD_GONE || ufd_state_position(s, &at, NULL) == UFD_GONE)
				may_go_on("state", name, ufd_state_resume(s, PAUSE));
		ufd_state_close(s);
	}
}

static void *run(void *j)
{
	const struct job *job = j;

	job->run(job->name);
	if (job->needed)
		atomic_fetch_sub(&busy, 1);
	return NULL;
}

int main(int argc, char **argv)
{
	static struct job jobs[] = {
		{write_channel, "first", 0}, {write_channel, "second", 0}, {read_channel, "first", 1}, {read_channel, "second", 1},
		{send_messages, "orders", 1}, {receive_messages, "md", 1}, {read_blocks, "image", 1}, {look_at_state, "book", 0},
	};
	enum { JOBS = sizeof(jobs) / sizeof(jobs[0]) };
	pthread_t threads[JOBS];
	ufd_error why;

	if (argc != 3)
		return 2;
	most = strtoul(argv[2], NULL, 0);
	if (!(writer = ufd_attach(argv[1], "writer", 7, &why)) || !(reader = ufd_attach(argv[1], "reader", 8, &why)))
		die("attach", argv[1], why.result, why.text);
	for (int i = 0; i < JOBS; i++)
		atomic_fetch_add(&busy, jobs[i].needed);
	for (int i = 0; i < JOBS; i++)
		if (pthread_create(&threads[i], NULL, run, &jobs[i]) != 0)
			die("start", jobs[i].name, UFD_SYSTEM, "");
	for (int i = 0; i < JOBS; i++)
		pthread_join(threads[i], NULL);
	ufd_detach(writer);
	ufd_detach(reader);
	puts("done");
	return 0;
}
