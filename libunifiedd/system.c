/* SPDX-License-Identifier: Apache-2.0 */
/* system.c: the clock, descriptors to wait for, and mappings. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#define MOST_WAKES 16 /* taken at once: the other side may send them faster than they are read */

int64_t ufdi_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

uint64_t ufdi_wall(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int64_t ufdi_deadline(int64_t nanoseconds)
{
	int64_t now = ufdi_now();

	return nanoseconds < 0 || nanoseconds > INT64_MAX - now ? INT64_MAX : now + nanoseconds;
}

int ufdi_sleep(int fd, int other, int64_t until)
{
	struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = other, .events = POLLIN}};
	int64_t left = until - ufdi_now();

	if (left < 0)
		left = 0;
	struct timespec t = {.tv_sec = (time_t)(left / 1000000000), .tv_nsec = (long)(left % 1000000000)};
	int n = ppoll(fds, 2, &t, NULL);
	return n <= 0 ? n : (fds[0].revents != 0) + 2 * (fds[1].revents != 0);
}

bool ufdi_tick(int64_t *looked)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
	if (now == *looked)
		return false;
	*looked = now;
	return true;
}

int ufdi_map(struct mapping *m, int fd, uint64_t size, int protection, int flags)
{
	struct stat s;

	if (fstat(fd, &s))
		return -1;
	if (s.st_size < 0 || (uint64_t)s.st_size < size || (uint64_t)s.st_size > SIZE_MAX / 2) {
		errno = EPROTO;
		return -1;
	}
	void *b = mmap(NULL, (size_t)s.st_size, protection, MAP_SHARED | flags, fd, 0);
	if (b == MAP_FAILED)
		return -1;
	*m = (struct mapping){b, (size_t)s.st_size};
	return 0;
}

void ufdi_unmap(struct mapping *m)
{
	if (m->at)
		munmap(m->at, m->size);
	*m = (struct mapping){0};
}

int ufdi_watch(int poll, int wake, int socket)
{
	struct epoll_event e = {.events = EPOLLIN};

	if (wake >= 0 && epoll_ctl(poll, EPOLL_CTL_ADD, wake, &e))
		return -1;
	return epoll_ctl(poll, EPOLL_CTL_ADD, socket, &e) && errno != EEXIST ? -1 : 0;
}

void ufdi_drain(int wake)
{
	char b[64];

	for (int i = 0; i < MOST_WAKES && recv(wake, b, sizeof(b), MSG_DONTWAIT) >= 0; i++)
		;
}
