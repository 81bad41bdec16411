/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tick-peer: answer each tick of unified-tick-test with a plain order, over sockets of the kernel, written in the usual
 * way. It is what traders are compared with.
 *
 *	tick-peer TICK_ADDRESS TICK_PORT EXCHANGE_ADDRESS EXCHANGE_PORT spin|sleep [mold]
 *
 * It receives ticks by UDP at TICK_ADDRESS (0.0.0.0 or :: for any) and connects to the exchange, which need not be there
 * yet. With spin, it asks the socket again and again; with sleep, it waits in poll. With mold, ticks are messages of
 * MoldUDP64. When the exchange closes the connection, it prints its counters as JSON and ends.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <time.h>
#include "../xsk-peer/peer.h"

enum {
	TICK = 32,	     /* bytes of a tick, and of an order */
	MOLD = 20,	     /* bytes in front of the messages of MoldUDP64 */
	END_OF_SESSION = 0xffff,
	ROOM = 4 << 20,	     /* bytes that the kernel may keep */
	LOOKS = 256,	     /* a spinning trader looks at the connection once in so many times */
	PATIENCE = 10,	     /* seconds until the exchange must be there */
};

static struct {
	int ticks, orders; /* sockets */
	uint64_t latest;   /* tick that was answered */
	uint64_t came, repeats, refused;
} trader;

static struct addrinfo *resolve(const char *host, const char *port, int type)
{
	struct addrinfo *found, hints = { .ai_socktype = type, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	const int error = getaddrinfo(host, port, &hints, &found);

	if (error) {
		fprintf(stderr, "tick-peer: %s port %s: %s\n", host, port, gai_strerror(error));
		exit(2);
	}
	return found;
}

static void open_ticks(const char *host, const char *port)
{
	struct addrinfo *at = resolve(host, port, SOCK_DGRAM);
	const int room = ROOM;

	trader.ticks = socket(at->ai_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (trader.ticks < 0)
		die("open a socket for ticks", errno);
	if (setsockopt(trader.ticks, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)))
		setsockopt(trader.ticks, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)); /* the kernel cuts it */
	if (bind(trader.ticks, at->ai_addr, at->ai_addrlen))
		die("receive ticks", errno);
	freeaddrinfo(at);
}

static void connect_orders(const char *host, const char *port)
{
	struct addrinfo *at = resolve(host, port, SOCK_STREAM);
	const int on = 1;

	for (int tries = 0; tries < PATIENCE * 100; tries++) {
		trader.orders = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (trader.orders < 0)
			die("open a socket for orders", errno);
		if (!connect(trader.orders, at->ai_addr, at->ai_addrlen)) {
			if (setsockopt(trader.orders, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
				die("have segments leave at once", errno);
			freeaddrinfo(at);
			return;
		}
		close(trader.orders);
		usleep(10000);
	}
	die("connect to the exchange", ETIMEDOUT);
}

/* answer sends the order for a tick, which has the tick's bytes but for the first one. */
static void answer(const unsigned char *tick, size_t length)
{
	unsigned char order[TICK];
	uint64_t sequence;

	if (length < TICK || tick[0] != 'T') {
		trader.refused++;
		return;
	}
	memcpy(&sequence, tick + 8, sizeof(sequence));
	sequence = be64toh(sequence);
	trader.came++;
	if (sequence <= trader.latest) {
		trader.repeats++;
		return;
	}
	trader.latest = sequence;
	memcpy(order, tick, TICK);
	order[0] = 'O';
	for (size_t sent = 0; sent < TICK;) {
		const ssize_t n = send(trader.orders, order + sent, TICK - sent, MSG_NOSIGNAL);

		if (n >= 0)
			sent += n;
		else if (errno != EINTR)
			die("send an order", errno);
	}
}

static unsigned short_at(const unsigned char *b) { return b[0] << 8 | b[1]; }

/* answer_mold answers the messages of a packet of MoldUDP64. What lies about its lengths is refused. */
static void answer_mold(const unsigned char *packet, size_t length)
{
	if (length < MOLD) {
		trader.refused++;
		return;
	}
	const unsigned count = short_at(packet + 18);
	size_t at = MOLD;

	for (unsigned i = 0; count != END_OF_SESSION && i < count; i++) {
		if (length - at < 2 || length - at - 2 < short_at(packet + at)) {
			trader.refused++;
			return;
		}
		answer(packet + at + 2, short_at(packet + at));
		at += 2 + short_at(packet + at);
	}
}

/* ended looks at the connection without waiting. The exchange says nothing on it. */
static bool ended(void)
{
	char b;
	const ssize_t n = recv(trader.orders, &b, 1, MSG_DONTWAIT);

	if (n > 0)
		die("receive from the exchange", EPROTO);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		die("receive from the exchange", errno);
	return n == 0;
}

static void run(bool sleeps, bool mold)
{
	struct pollfd set[] = { { .fd = trader.ticks, .events = POLLIN }, { .fd = trader.orders, .events = POLLIN } };
	unsigned char packet[2048];

	for (unsigned turn = 0;; turn++) {
		const ssize_t n = recv(trader.ticks, packet, sizeof(packet), 0);

		if (n >= 0) {
			if (mold)
				answer_mold(packet, n);
			else
				answer(packet, n);
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			die("receive ticks", errno);
		if ((sleeps || turn % LOOKS == 0) && ended())
			return;
		if (sleeps)
			poll(set, 2, -1);
	}
}

int main(int argc, char **argv)
{
	const bool sleeps = argc > 5 && strcmp(argv[5], "sleep") == 0, mold = argc == 7 && strcmp(argv[6], "mold") == 0;

	if (argc < 6 || argc > 7 || (!sleeps && strcmp(argv[5], "spin") != 0) || (argc == 7 && !mold)) {
		fprintf(stderr, "Usage: tick-peer TICK_ADDRESS TICK_PORT EXCHANGE_ADDRESS EXCHANGE_PORT spin|sleep [mold]\n");
		return 2;
	}
	open_ticks(argv[1], argv[2]);
	connect_orders(argv[3], argv[4]);
	fprintf(stderr, "answering ticks\n");
	run(sleeps, mold);
	printf("{\"ticks\": %llu, \"repeats\": %llu, \"refused_packets\": %llu, \"orders\": %llu}\n", (unsigned long long)trader.came,
	       (unsigned long long)trader.repeats, (unsigned long long)trader.refused, (unsigned long long)(trader.came - trader.repeats));
	close(trader.orders);
	close(trader.ticks);
	return 0;
}
