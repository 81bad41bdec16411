/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver: runs one command per line of standard input, and prints one line for each. selftests/attach has the same commands
 * for the Go library, and runs one table of cases against both.
 *
 *	attach SOCKET NAME SESSION   attached
 *	send FLOW DEPTH              opened NEXT
 *	receive FLOW DEPTH           opened 0
 *	claim N                      claimed N: frames, which append fills first
 *	append N LENGTH              done FIRST LAST POSITION: N messages have receipts; their sequences, the last position
 *	take N MS                    took N POSITION GAPS SUM: of N messages, the sum of all bytes
 *	hold N MS                    as take, but keeps the messages
 *	releaseall                   released N
 *	writer CHANNEL               opened NEXT
 *	follow CHANNEL               following
 *	put N LENGTH                 put FIRST LAST: N messages, waiting for readers
 *	tryput LENGTH                put N: one message, without waiting
 *	readers                      readers N
 *	get N MS                     got N SEQUENCE LOST: of N messages, the sequence of the last one and all losses
 *	resume                       resumed: the channel that was opened last
 *	close                        closed: all ports
 *	detach                       detached
 *
 * What fails prints: error RESULT REASON.
 */
#define _POSIX_C_SOURCE 200809L
#include "unifiedd.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PORTS = 16, HELD = 4096, BATCH = 64 };

static ufd_client *client;
static ufd_port *ports[PORTS], *sender, *receiver;
static int n_ports;
static ufd_channel *channel; /* the one that is open */
static ufd_message held[HELD];
static int n_held;
static void *claimed[HELD];
static int n_claimed;
static uint64_t first, done, position; /* of the messages of append */

static void fail(int result, uint32_t reason)
{
	static const char *const words[] = {"none", "again", "gone", "closed", "refused", "invalid", "system"};

	printf("error %s %s\n", words[-result], ufd_reason(reason));
}

static void fail_port(const ufd_port *p, int result)
{
	ufd_error why = {0};

	ufd_why(p, &why);
	fail(result, result == UFD_INVALID ? UFD_REASON_NONE : why.reason);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* pause_on waits for a port of which ufd_poll has returned polled: with ufd_wait, or every other time with its descriptor. */
static int pause_on(ufd_port *p, int polled, int64_t most)
{
	static unsigned turn;
	struct pollfd fd = {.fd = ufd_fd(p), .events = POLLIN};

	if (polled < 0 || turn++ % 2)
		return ufd_wait(p, most); /* attaches again if the daemon is gone */
	if (ufd_arm(p) == 0)
		poll(&fd, 1, (int)(most / 1000000));
	ufd_disarm(p);
	return 0;
}

/* collect takes receipts, and waits for one if there is none. */
static int collect(void)
{
	ufd_message got[BATCH];
	int n = ufd_poll(sender, got, BATCH);

	for (int i = 0; i < n; i++) {
		if (got[i].status != UFD_REASON_NONE || got[i].sequence != first + done) {
			fprintf(stderr, "receipt of %" PRIu64 " instead of %" PRIu64 ": %s\n", got[i].sequence, first + done,
				ufd_reason(got[i].status));
			exit(1);
		}
		done++;
		position = got[i].position;
	}
	if (n > 0)
		return 0;
	n = pause_on(sender, n, INT64_C(1000000000));
	return n == UFD_AGAIN ? 0 : n;
}

static int fill_and_commit(void *frame, uint32_t length)
{
	uint64_t sequence = ufd_next(sender);

	for (uint32_t i = 0; i < length; i++)
		((uint8_t *)frame)[i] = (uint8_t)(i + sequence);
	return ufd_commit(sender, frame, length, NULL);
}

static void append(uint64_t n, uint32_t length)
{
	int r = 0;

	first = ufd_next(sender);
	done = position = 0;
	while (r == 0 && (n > 0 || first + done < ufd_next(sender))) {
		uint32_t room = 0;
		void *frame = NULL;
		if (n > 0)
			frame = n_claimed ? claimed[--n_claimed] : ufd_claim(sender, &room);
		if (!frame) {
			r = collect();
		} else if (room && length > room) { /* a commit of that length is refused, and the frame must not be overrun */
			r = ufd_commit(sender, frame, length, NULL);
			ufd_discard(sender, frame);
		} else {
			r = fill_and_commit(frame, length);
			n--;
		}
	}
	if (r < 0)
		fail_port(sender, r);
	else
		printf("done %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", first, first + done - 1, position);
}

static void claim(int n)
{
	for (; n_claimed < n && n_claimed < HELD; n_claimed++)
		if (!(claimed[n_claimed] = ufd_claim(sender, NULL)))
			break;
	printf("claimed %d\n", n_claimed);
}

static void take(uint64_t n, int64_t ms, int keep)
{
	int64_t until = now() + ms * 1000000;
	uint64_t took = 0, gaps = 0, last = 0;
	uint32_t sum = 0;
	int r = 0;

	while (took < n && (r >= 0 || r == UFD_AGAIN)) {
		uint64_t most = n - took < BATCH ? n - took : BATCH;
		if (keep && most > (uint64_t)(HELD - n_held))
			break;
		ufd_message *got = held + (keep ? n_held : HELD - BATCH);
		int k = ufd_poll(receiver, got, (int)most);
		for (int i = 0; i < k; i++) {
			if (last && got[i].position > last + 1)
				gaps += got[i].position - last - 1;
			last = got[i].position;
			for (uint32_t j = 0; j < got[i].length; j++)
				sum += ((const uint8_t *)got[i].data)[j];
		}
		if (k > 0) {
			took += (uint64_t)k;
			n_held += keep ? k : 0;
			r = keep ? 0 : ufd_release(receiver, got, k);
		} else if (now() >= until) {
			break;
		} else {
			r = pause_on(receiver, k, until - now());
		}
	}
	if (r < 0 && r != UFD_AGAIN)
		fail_port(receiver, r);
	else
		printf("took %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32 "\n", took, last, gaps, sum);
}

static void open_port(const char *flow, uint32_t role, uint32_t depth)
{
	ufd_error why = {0};
	ufd_port *p = n_ports < PORTS ? ufd_open(client, flow, role, depth, &why) : NULL;

	if (!p) {
		fail(why.result, why.reason);
		return;
	}
	ports[n_ports++] = p;
	printf("opened %" PRIu64 "\n", ufd_next(p));
	*(role == UFD_RECEIVE ? &receiver : &sender) = p;
}

static void fail_channel(int result)
{
	ufd_error why = {0};

	if (result != UFD_AGAIN && result != UFD_INVALID)
		ufd_channel_why(channel, &why);
	fail(result, why.reason);
}

static void open_channel(const char *name, uint32_t role)
{
	ufd_error why = {0};

	ufd_channel_close(channel);
	channel = ufd_channel_open(client, name, role, &why);
	if (!channel)
		fail(why.result, why.reason);
	else if (role == UFD_FOLLOW)
		puts("following");
	else
		printf("opened %" PRIu64 "\n", ufd_channel_next(channel));
}

/* put writes n messages, or returns what is wrong. */
static int put(uint64_t n, uint32_t length, int wait)
{
	static uint8_t message[1 << 16];
	int r = 0;

	while (n > 0 && r == 0) {
		for (uint32_t i = 0; i < length; i++)
			message[i] = (uint8_t)(i + ufd_channel_next(channel));
		r = ufd_channel_write(channel, message, length, NULL);
		n -= r == 0;
		if (wait && (r == UFD_AGAIN || r == UFD_GONE || r == UFD_CLOSED))
			r = ufd_channel_wait(channel, UFD_FOREVER);
	}
	return r;
}

static void put_messages(uint64_t n, uint32_t length, int wait)
{
	uint64_t from = ufd_channel_next(channel);
	int r = put(n, length, wait);

	if (r < 0)
		fail_channel(r);
	else if (wait)
		printf("put %" PRIu64 " %" PRIu64 "\n", from, ufd_channel_next(channel) - 1);
	else
		printf("put %" PRIu64 "\n", from);
}

/* pause_channel waits with ufd_channel_wait, or every other time with its descriptor. */
static int pause_channel(int got, int64_t most)
{
	static unsigned turn;
	struct pollfd fd = {.fd = ufd_channel_fd(channel), .events = POLLIN};

	if (got < 0 || turn++ % 2)
		return ufd_channel_wait(channel, most);
	if (ufd_channel_arm(channel) == 0)
		poll(&fd, 1, (int)(most / 1000000));
	ufd_channel_disarm(channel);
	return 0;
}

static void get_messages(uint64_t n, int64_t ms)
{
	static uint8_t message[1 << 16];
	int64_t until = now() + ms * 1000000;
	uint64_t got = 0, sequence = 0;
	uint32_t length = 0;
	int r = 0;

	while (got < n && (r >= 0 || r == UFD_AGAIN)) {
		r = ufd_channel_read(channel, message, sizeof(message), &length, &sequence);
		for (uint32_t i = 0; r == 1 && i < length; i++) {
			if (message[i] != (uint8_t)(i + sequence)) {
				fprintf(stderr, "message %" PRIu64 " is damaged at byte %" PRIu32 "\n", sequence, i);
				exit(1);
			}
		}
		if (r == 1)
			got++;
		else if (now() >= until)
			break;
		else
			r = pause_channel(r, until - now());
	}
	if (r < 0 && r != UFD_AGAIN)
		fail_channel(r);
	else
		printf("got %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", got, sequence, ufd_channel_lost(channel));
}

/* run_channel runs a command for a channel. */
static int run_channel(const char *what, const char *a, uint64_t n, uint64_t x)
{
	int r;

	if (!strcmp(what, "writer") && client) {
		open_channel(a, UFD_WRITE);
	} else if (!strcmp(what, "follow") && client) {
		open_channel(a, UFD_FOLLOW);
	} else if (!channel) {
		return 0;
	} else if (!strcmp(what, "put")) {
		put_messages(n, (uint32_t)x, 1);
	} else if (!strcmp(what, "tryput")) {
		put_messages(1, (uint32_t)n, 0);
	} else if (!strcmp(what, "get")) {
		get_messages(n, (int64_t)x);
	} else if (!strcmp(what, "readers")) {
		if ((r = ufd_channel_readers(channel)) < 0)
			fail_channel(r);
		else
			printf("readers %d\n", r);
	} else if (!strcmp(what, "resume")) {
		struct pollfd fd = {.fd = ufd_channel_fd(channel), .events = POLLIN};
		if (ufd_channel_arm(channel) == 0) /* the word that it has ended is under way */
			poll(&fd, 1, 1000);
		ufd_channel_disarm(channel);
		if ((r = ufd_channel_resume(channel, UFD_FOREVER)) < 0)
			fail_channel(r);
		else
			puts("resumed");
	} else {
		return 0;
	}
	return 1;
}

static void close_all(void)
{
	ufd_channel_close(channel);
	channel = NULL;
	while (n_ports > 0)
		ufd_close(ports[--n_ports]);
	sender = receiver = NULL;
	n_held = n_claimed = 0;
}

static void run(const char *what, const char *a, const char *b, const char *c)
{
	unsigned long long x = strtoull(b, NULL, 0), n = strtoull(a, NULL, 0);

	if (!strcmp(what, "attach")) {
		ufd_error why = {0};
		client = ufd_attach(a, b, strtoull(c, NULL, 0), &why);
		if (client)
			puts("attached");
		else
			fail(why.result, why.reason);
	} else if (!strcmp(what, "send") && client) {
		open_port(a, UFD_SEND, (uint32_t)x);
	} else if (!strcmp(what, "receive") && client) {
		open_port(a, UFD_RECEIVE, (uint32_t)x);
	} else if (!strcmp(what, "append") && sender) {
		append(n, (uint32_t)x);
	} else if (!strcmp(what, "claim") && sender) {
		claim((int)n);
	} else if ((!strcmp(what, "take") || !strcmp(what, "hold")) && receiver) {
		take(n, (int64_t)x, *what == 'h');
	} else if (!strcmp(what, "releaseall") && receiver) {
		int r = ufd_release(receiver, held, n_held);
		if (r < 0)
			fail_port(receiver, r);
		else
			printf("released %d\n", n_held);
		n_held = 0;
	} else if (!strcmp(what, "close")) {
		close_all();
		puts("closed");
	} else if (!strcmp(what, "detach")) {
		close_all();
		ufd_detach(client);
		client = NULL;
		puts("detached");
	} else if (!run_channel(what, a, n, x)) {
		puts("error unknown none");
	}
}

int main(void)
{
	char line[512], word[4][256];

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		memset(word, 0, sizeof(word));
		if (sscanf(line, "%255s %255s %255s %255s", word[0], word[1], word[2], word[3]) > 0)
			run(word[0], word[1], word[2], word[3]);
	}
	close_all();
	ufd_detach(client);
	return 0;
}
