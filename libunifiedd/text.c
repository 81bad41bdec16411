/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: words and sentences for results and reasons. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ufdi_fail(ufd_error *why, int result, uint32_t reason, const char *format, ...)
{
	int saved = errno;

	if (!why)
		return result;
	why->result = result;
	why->reason = reason;
	va_list args;
	va_start(args, format);
	int n = vsnprintf(why->text, sizeof(why->text), format, args);
	va_end(args);
	if (result == UFD_SYSTEM && n >= 0 && (size_t)n < sizeof(why->text))
		snprintf(why->text + n, sizeof(why->text) - (size_t)n, ": %s", strerror(saved));
	errno = saved;
	return result;
}

const char *ufd_strerror(int result)
{
	switch (result) {
	case UFD_AGAIN:
		return "there is nothing now, or the time is up";
	case UFD_GONE:
		return "the daemon is gone";
	case UFD_CLOSED:
		return "the daemon has closed the port";
	case UFD_REFUSED:
		return "the daemon refuses";
	case UFD_INVALID:
		return "an argument is wrong";
	case UFD_SYSTEM:
		return "a system call failed";
	case UFD_SHORT:
		return "the memory of the caller is too short";
	}
	return result < 0 ? "a result that this release does not know" : "nothing is wrong";
}

const char *ufd_reason(uint32_t reason)
{
	static const char *const words[] = {
		"none", "bad_version", "bad_message", "bad_name", "not_permitted", "busy", "no_such_flow", "bad_descriptor",
		"bad_generation", "bad_index", "bad_sequence", "over_quota", "too_slow", "closing", "gone", "too_long", "not_done",
		"over_limit", "stopped", "not_known",
	};

	return reason < sizeof(words) / sizeof(words[0]) ? words[reason] : "unknown";
}
