/* SPDX-License-Identifier: Apache-2.0 */
/* message.c: messages of the socket. What comes is checked before it is used. */
#define _GNU_SOURCE
#include "message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void ufdi_close_fds(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

int ufdi_send(int fd, uint8_t kind, const uint8_t *body, size_t length)
{
	return ufdi_send_with(fd, kind, body, length, -1);
}

int ufdi_send_with(int fd, uint8_t kind, const uint8_t *body, size_t length, int descriptor)
{
	uint8_t b[HEADER_LEN + HELLO_LEN] = {'u', 'A', 'T', 'T', VERSION, kind, (uint8_t)length, (uint8_t)(length >> 8)};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {{0}};
	struct iovec io = {.iov_base = b, .iov_len = HEADER_LEN + length};
	struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1};

	memcpy(b + HEADER_LEN, body, length);
	if (descriptor >= 0) {
		h.msg_control = control.bytes;
		h.msg_controllen = sizeof(control.bytes);
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &descriptor, sizeof(int));
	}
	return sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* fits reports whether a message is one that a daemon sends. */
static bool fits(const struct message *m, size_t n)
{
	if (n < HEADER_LEN || memcmp(m->bytes, "uATT", 4) || m->bytes[4] != VERSION || m->length != n - HEADER_LEN)
		return false;
	switch (m->kind) {
	case WELCOME:
		return m->length == WELCOME_LEN;
	case OPENED_PORT:
		return m->length == OPENED_LEN;
	case REFUSAL:
	case END:
		return m->length >= 4 && m->length <= 4 + MAX_TEXT;
	case CLOSED_PORT:
		return m->length >= 8 && m->length <= 8 + MAX_TEXT;
	default:
		return false;
	}
}

int ufdi_receive(int fd, struct message *m)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
		struct cmsghdr align;
	} control;
	struct iovec io = {.iov_base = m->bytes, .iov_len = sizeof(m->bytes)};
	struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
	ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	m->n_fds = 0;
	if (n < 0 && errno == ECONNRESET) /* the kernel says so once, and what the daemon sent before still follows */
		n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len && m->n_fds < MAX_FDS; at += sizeof(int))
			memcpy(&m->fds[m->n_fds++], (const char *)c + at, sizeof(int));
	}
	if (n == 0) {
		errno = ECONNRESET;
		return -1;
	}
	m->kind = m->bytes[5];
	m->body = m->bytes + HEADER_LEN;
	m->length = (size_t)m->bytes[6] | (size_t)m->bytes[7] << 8;
	if (fits(m, (size_t)n))
		return 1;
	ufdi_close_fds(m->fds, m->n_fds);
	errno = EPROTO;
	return -1;
}

void ufdi_refused(ufd_error *why, int result, const uint8_t *b, size_t length)
{
	char text[MAX_TEXT + 1];
	size_t n = length - 4;

	for (size_t i = 0; i < n; i++)
		text[i] = b[4 + i] < ' ' || b[4 + i] == 0x7f ? '?' : (char)b[4 + i];
	text[n] = 0;
	ufdi_fail(why, result, get32(b), "%s: %s", ufd_reason(get32(b)), text);
}
