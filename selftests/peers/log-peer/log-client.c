/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log-client: clients of log-server that keep records in flight.
 *
 *	log-client ADDRESS PORT CLIENTS DEPTH SIZE WARM_MS SPAN_MS
 *
 * Each of CLIENTS connections keeps DEPTH records of SIZE bytes in flight: for each acknowledged
 * record it sends the next one. One thread serves all connections. After WARM_MS it prints
 * "measuring" on standard error and starts to count. After SPAN_MS more, and at least one record,
 * it prints "measured" and waits for the records in flight. Then it prints the number of
 * acknowledged records and their times as JSON.
 */
#define _GNU_SOURCE
#include "log.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* connection is one client. */
struct connection {
	int fd;
	uint64_t sent, acknowledged;
	uint64_t *since; /* of each record in flight */
	uint32_t got;
	unsigned char answers[64 * sizeof(struct answer)];
};

static struct connection all[MOST];
static unsigned long depth, size;
static unsigned char *output; /* records to send at once */
static uint64_t counted, room;
static uint32_t *times; /* nanoseconds each */
static bool counting, ending;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* put makes record n. */
static void put(unsigned char *at, uint64_t n)
{
	unsigned char *bytes = at + sizeof(struct record);

	memcpy(bytes, &n, sizeof(n));
	struct record r = {(uint32_t)size, checksum(bytes, size)};
	memcpy(at, &r, sizeof(r));
}

/* send_records sends n more records. */
static void send_records(struct connection *c, uint64_t n)
{
	const size_t each = sizeof(struct record) + size;
	uint64_t begin = now();
	size_t length = n * each;
	unsigned char *from = output;

	for (uint64_t i = 0; i < n; i++) {
		put(output + i * each, c->sent);
		c->since[c->sent++ % depth] = begin;
	}
	while (length) {
		ssize_t sent = send(c->fd, from, length, MSG_NOSIGNAL);

		if (sent < 0 && (errno == EAGAIN || errno == EINTR))
			continue; /* the server takes them all the same */
		if (sent <= 0)
			die("send", errno);
		from += sent, length -= (size_t)sent;
	}
}

static void count(uint64_t took)
{
	if (counted == room) {
		room = room ? 2 * room : 1 << 20;
		times = realloc(times, room * sizeof(*times));
		if (!times)
			die("make room for what is counted", errno);
	}
	times[counted++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
}

/* take reads acknowledgements, and returns how many records they acknowledge. */
static uint64_t take(struct connection *c)
{
	struct answer a;
	ssize_t n = recv(c->fd, c->answers + c->got, sizeof(c->answers) - c->got, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		die("receive (has the server ended?)", n ? errno : ECONNRESET);
	c->got += (uint32_t)n;
	uint32_t whole = c->got / sizeof(a) * sizeof(a);
	if (!whole)
		return 0;
	memcpy(&a, c->answers + whole - sizeof(a), sizeof(a));
	memmove(c->answers, c->answers + whole, c->got - whole);
	c->got -= whole;
	if (a.count > c->sent || a.count < c->acknowledged)
		die("an acknowledgement of what was not sent", EPROTO);
	uint64_t at = now(), news = a.count - c->acknowledged;
	for (; c->acknowledged < a.count; c->acknowledged++) {
		if (counting)
			count(at - c->since[c->acknowledged % depth]);
	}
	return news;
}

static void connect_to(struct connection *c, const struct sockaddr_in *to)
{
	const int yes = 1;

	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	c->since = calloc(depth, sizeof(*c->since));
	if (c->fd < 0 || !c->since || connect(c->fd, (const struct sockaddr *)to, sizeof(*to)) ||
	    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) || fcntl(c->fd, F_SETFL, O_NONBLOCK))
		die("connect", errno);
}

static int by_time(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static uint32_t quantile(double share)
{
	return counted ? times[(uint64_t)((double)(counted - 1) * share)] : 0;
}

static void print(double seconds)
{
	qsort(times, counted, sizeof(*times), by_time);
	printf("{\"messages\": %lu, \"seconds\": %.6f, \"latency_ns\": {\"p50_ns\": %u, \"p99_ns\": %u}}\n", counted, seconds,
	       quantile(0.5), quantile(0.99));
}

/*
 * turn waits for acknowledgements once, and sends the next records. It returns by how many fewer
 * are in flight.
 */
static uint64_t turn(int epoll)
{
	struct epoll_event events[64];
	uint64_t rested = 0;
	int n = epoll_wait(epoll, events, 64, ending ? 10000 : 100);

	if (n == 0 && ending)
		die("wait for the last records", ETIMEDOUT);
	for (int i = 0; i < n; i++) {
		struct connection *c = events[i].data.ptr;
		uint64_t news = take(c);

		if (ending)
			rested += news;
		else if (news)
			send_records(c, news);
	}
	return rested;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET};

	if (argc != 8 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: log-client ADDRESS PORT CLIENTS DEPTH SIZE WARM_MS SPAN_MS\n");
		return 2;
	}
	to.sin_port = htons((uint16_t)number(argv[2], "port", 65535));
	unsigned long clients = number(argv[3], "clients", MOST);
	depth = number(argv[4], "depth", 4096);
	size = number(argv[5], "size", LONGEST);
	uint64_t warm = number(argv[6], "warm-up", 1000000) * 1000000, span = number(argv[7], "span", 1000000) * 1000000;
	if (!clients || !depth || size < sizeof(uint64_t)) {
		fprintf(stderr, "log-client: there must be clients, a depth, and records of 8 bytes or more\n");
		return 2;
	}
	output = calloc(depth, sizeof(struct record) + size);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0 || !output)
		die("begin", errno);
	for (unsigned long i = 0; i < clients; i++) {
		struct epoll_event e = {.events = EPOLLIN, .data.ptr = &all[i]};
		connect_to(&all[i], &to);
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &e))
			die("watch a connection", errno);
	}
	for (unsigned long i = 0; i < clients; i++)
		send_records(&all[i], depth);
	for (uint64_t end = now() + warm; now() < end;)
		turn(epoll);
	fprintf(stderr, "measuring\n");
	uint64_t begin = now();
	for (counting = true; now() < begin + span || !counted;)
		turn(epoll);
	counting = false;
	double seconds = (double)(now() - begin) / 1e9;
	fprintf(stderr, "measured\n");
	ending = true;
	for (uint64_t left = clients * depth; left;)
		left -= turn(epoll);
	print(seconds);
	return 0;
}
