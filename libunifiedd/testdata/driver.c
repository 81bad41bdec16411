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
 *	order N LENGTH               orders DONE UNKNOWN: of N messages, those with a receipt, and those of which nobody knows
 *	take N MS                    took N POSITION GAPS SUM: of N messages, the sum of all bytes
 *	hold N MS                    as take, but keeps the messages
 *	releaseall                   released N
 *	writer CHANNEL               opened NEXT
 *	follow CHANNEL               following
 *	put N LENGTH                 put FIRST LAST: N messages, waiting for readers
 *	tryput LENGTH                put N: one message, without waiting
 *	readers                      readers N
 *	get N MS                     got N SEQUENCE LOST: of N messages, the sequence of the last one and all losses
 *	state STATE                  state OBJECTS ROOM, or words N
 *	putobject N LENGTH           updated POSITION
 *	deleteobject N               updated POSITION
 *	putkey KEY VALUE             updated POSITION
 *	deletekey KEY                updated POSITION
 *	getobject N ROOM             object LENGTH VERSION SUM, or no object VERSION
 *	getkey KEY ROOM              key VALUE, or no key
 *	getword N                    word VALUE
 *	position                     position N same, or other: whether the run is that of the last time
 *	churn N WHAT                 churned N: so many updates at full rate, of 16 objects or 1000 keys, WHAT
 *	verify N WHAT                sound N: so many reads of what churn writes, none of them of a mixture
 *	blocks FLOW DEPTH            blocks SIZE LONGEST
 *	fetch N LENGTH               fetched N REFUSED: N requests, one behind the other, whose bytes are as selftests/attach wrote them
 *	connect HOST PORT            connected: a TCP connection
 *	say TEXT                     said: by the program itself, on the connection
 *	hear N                       heard N SUM: of N bytes that came over it
 *	give FLOW                    given: the connection
 *	check                        in use: the daemon sends on it
 *	takeback                     back: the connection
 *	resume                       resumed: the channel or state that was opened last
 *	close                        closed: all ports
 *	detach                       detached
 *
 * What fails prints: error RESULT REASON.
 */
#define _POSIX_C_SOURCE 200809L
#include "driver.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PORTS = 16, HELD = 4096, BATCH = 64, MOST_REQUESTS = 1 << 20 };

ufd_client *client;
ufd_port *sender;
static ufd_port *ports[PORTS], *receiver, *blocks;
static int n_ports;
static ufd_message held[HELD];
static int n_held;
static void *claimed[HELD];
static int n_claimed;
uint64_t first, done, position;

void fail(int result, uint32_t reason)
{
	static const char *const words[] = {"none", "again", "gone", "closed", "refused", "invalid", "system", "short"};

	printf("error %s %s\n", words[-result], ufd_reason(reason));
}

void fail_port(const ufd_port *p, int result)
{
	ufd_error why = {0};

	ufd_why(p, &why);
	fail(result, result == UFD_INVALID ? UFD_REASON_NONE : why.reason);
}

int64_t now(void)
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

int collect(void)
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

/* fill_and_commit says of every other message that it answers something, which arrived a millisecond before. */
static int fill_and_commit(void *frame, uint32_t length)
{
	uint64_t sequence = ufd_next(sender), stamp;
	struct timespec t;

	for (uint32_t i = 0; i < length; i++)
		((uint8_t *)frame)[i] = (uint8_t)(i + sequence);
	if (sequence % 2)
		return ufd_commit(sender, frame, length, NULL);
	clock_gettime(CLOCK_REALTIME, &t);
	stamp = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec - 1000000;
	return ufd_commit_answer(sender, frame, length, stamp, NULL);
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

static void order(uint64_t n, uint32_t length)
{
	uint64_t sent = 0, ok = 0, unknown = 0;
	int r = 0;

	while ((r == 0 || r == UFD_AGAIN) && ok + unknown < n) {
		ufd_message got[BATCH];
		void *frame = sent < n ? ufd_claim(sender, NULL) : NULL;
		if (frame) {
			r = fill_and_commit(frame, length);
			sent++;
			continue;
		}
		int k = ufd_poll(sender, got, BATCH);
		for (int i = 0; i < k; i++) {
			ok += got[i].status == UFD_REASON_NONE;
			unknown += got[i].status == UFD_REASON_NOT_KNOWN;
		}
		r = k > 0 ? 0 : pause_on(sender, k, INT64_C(1000000000));
	}
	if (r < 0 && r != UFD_AGAIN)
		fail_port(sender, r);
	else
		printf("orders %" PRIu64 " %" PRIu64 "\n", ok, unknown);
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

/* Requests of fetch, by number. */
enum { TO_ASK, ASKED, ANSWERED };
static uint8_t requests[MOST_REQUESTS];

/* ask requests what is to be asked, from *next on. */
static int ask(uint64_t *next, uint64_t n, uint32_t length)
{
	int r = 0;

	for (; *next < n; ++*next) {
		if (requests[*next] != TO_ASK)
			continue;
		if ((r = ufd_request(blocks, *next * length, length, NULL)) != 0)
			return r;
		requests[*next] = ASKED;
	}
	return r;
}

/* take_answers checks answers and releases them. It returns how many there were, or a result. */
static int take_answers(uint64_t n, uint32_t length, uint64_t *refused)
{
	ufd_message got[BATCH];
	int k = ufd_poll(blocks, got, BATCH);

	for (int i = 0; i < k; i++) {
		uint64_t at = got[i].position / length;
		int bad = at >= n || requests[at] != ASKED || (got[i].data && got[i].length != length) || (!got[i].data && got[i].status == 0);
		for (uint64_t o = got[i].position; !bad && o < got[i].position + got[i].length; o++)
			bad = ((const uint8_t *)got[i].data)[o - got[i].position] != (uint8_t)(o + o / 4096);
		if (bad) {
			fprintf(stderr, "the answer at %" PRIu64 " is wrong\n", got[i].position);
			exit(1);
		}
		requests[at] = ANSWERED;
		*refused += got[i].data == NULL;
	}
	int r = k > 0 ? ufd_release(blocks, got, k) : 0;
	return r < 0 ? r : k;
}

static void fetch(uint64_t n, uint32_t length)
{
	uint64_t next = 0, answered = 0, refused = 0;
	int r = 0;

	memset(requests, TO_ASK, sizeof(requests));
	while (answered < n && r == 0) {
		ask(&next, n, length); /* ufd_poll says what is wrong */
		int k = take_answers(n, length, &refused);
		answered += k > 0 ? (uint64_t)k : 0;
		r = k > 0 ? 0 : pause_on(blocks, k, INT64_C(1000000000));
		if (r == UFD_AGAIN)
			r = 0;
		if (r < 0 || ufd_next(blocks) > 1)
			continue;
		for (next = n; next-- > 0;) /* it is open again */
			if (requests[next] == ASKED)
				requests[next] = TO_ASK;
		next = 0;
	}
	if (r < 0)
		fail_port(blocks, r);
	else
		printf("fetched %" PRIu64 " %" PRIu64 "\n", n, refused);
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
	if (role == UFD_REQUEST)
		printf("blocks %" PRIu64 " %" PRIu32 "\n", ufd_size(p), ufd_longest(p));
	else
		printf("opened %" PRIu64 "\n", ufd_next(p));
	*(role == UFD_RECEIVE ? &receiver : role == UFD_SEND ? &sender : &blocks) = p;
}

static void close_all(void)
{
	close_channel();
	close_state();
	while (n_ports > 0)
		ufd_close(ports[--n_ports]);
	sender = receiver = blocks = NULL;
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
	} else if (!strcmp(what, "blocks") && client) {
		open_port(a, UFD_REQUEST, (uint32_t)x);
	} else if (!strcmp(what, "fetch") && blocks && n <= MOST_REQUESTS && x > 0) {
		fetch(n, (uint32_t)x);
	} else if (!strcmp(what, "append") && sender) {
		append(n, (uint32_t)x);
	} else if (!strcmp(what, "order") && sender) {
		order(n, (uint32_t)x);
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
		close_given();
		ufd_detach(client);
		client = NULL;
		puts("detached");
	} else if (!run_channel(what, a, n, x) && !run_state(what, a, b, n, x) && !run_given(what, a, n, x)) {
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
	close_given();
	ufd_detach(client);
	return 0;
}
