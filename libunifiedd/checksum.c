/* SPDX-License-Identifier: Apache-2.0 */
/* checksum.c: CRC-32C, with the instructions of the processor if it has them, and otherwise with tables. */
#include "internal.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words in shared memory are little-endian");

#define POLYNOMIAL 0x82f63b78u /* with its bits reversed */

/* table[k][b] is the checksum of byte b with k zeros behind it, without the inversions. */
static uint32_t table[8][256];

static void fill_table(void)
{
	for (uint32_t b = 0; b < 256; b++) {
		uint32_t sum = b;
		for (int i = 0; i < 8; i++)
			sum = sum >> 1 ^ (sum & 1 ? POLYNOMIAL : 0);
		table[0][b] = sum;
	}
	for (int k = 1; k < 8; k++)
		for (int b = 0; b < 256; b++)
			table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 0xff];
}

/* with_tables continues a checksum without the inversions, eight bytes at a time. */
static uint32_t with_tables(uint32_t sum, const uint8_t *b, size_t n)
{
	for (; n >= 8; n -= 8, b += 8) {
		uint32_t r = 0;
		uint64_t v;
		memcpy(&v, b, 8);
		v ^= sum;
		for (int k = 0; k < 8; k++)
			r ^= table[7 - k][v >> 8 * k & 0xff];
		sum = r;
	}
	for (; n > 0; n--, b++)
		sum = table[0][(sum ^ *b) & 0xff] ^ sum >> 8;
	return sum;
}

#if defined(__x86_64__)

#define HAS_INSTRUCTIONS (__builtin_cpu_init(), __builtin_cpu_supports("sse4.2"))

__attribute__((target("sse4.2"))) static uint32_t with_instructions(uint32_t sum, const uint8_t *b, size_t n)
{
	uint64_t v;

	for (; n >= 8; n -= 8, b += 8) {
		memcpy(&v, b, 8);
		sum = (uint32_t)_mm_crc32_u64(sum, v);
	}
	for (; n > 0; n--, b++)
		sum = _mm_crc32_u8(sum, *b);
	return sum;
}

#elif defined(__aarch64__)

#define HAS_INSTRUCTIONS (getauxval(AT_HWCAP) & 1 << 7) /* HWCAP_CRC32 */

__attribute__((target("+crc"))) static uint32_t with_instructions(uint32_t sum, const uint8_t *b, size_t n)
{
	uint64_t v;

	for (; n >= 8; n -= 8, b += 8) {
		memcpy(&v, b, 8);
		sum = __crc32cd(sum, v);
	}
	for (; n > 0; n--, b++)
		sum = __crc32cb(sum, *b);
	return sum;
}

#else
#define HAS_INSTRUCTIONS 0
#define with_instructions with_tables
#endif

static uint32_t (*update)(uint32_t sum, const uint8_t *b, size_t n);
static pthread_once_t chosen = PTHREAD_ONCE_INIT;

static void choose(void)
{
	fill_table();
	update = HAS_INSTRUCTIONS ? with_instructions : with_tables;
}

uint32_t ufdi_crc(uint32_t sum, const void *bytes, size_t n)
{
	pthread_once(&chosen, choose);
	return ~update(~sum, bytes, n);
}
