/* SPDX-License-Identifier: Apache-2.0 */
/* checksum.c: CRC-32C, with the processor's instructions where the compiler may use them, and otherwise with tables. */
#include "internal.h"

#include <string.h>

#if defined(__SSE4_2__) && defined(__x86_64__)
#include <nmmintrin.h>
#define STEP8(sum, v) ((uint32_t)_mm_crc32_u64(sum, v))
#define STEP1(sum, v) _mm_crc32_u8(sum, v)
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define STEP8(sum, v) __crc32cd(sum, v)
#define STEP1(sum, v) __crc32cb(sum, v)
#else

#define POLYNOMIAL 0x82f63b78u /* with its bits reversed */

/* table[k][b] is the checksum of byte b with k zeros behind it, without the inversions. */
static uint32_t table[8][256];
static pthread_once_t filled = PTHREAD_ONCE_INIT;

static void fill(void)
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

static uint32_t step8(uint32_t sum, uint64_t v)
{
	uint32_t r = 0;

	v ^= sum;
	for (int k = 0; k < 8; k++)
		r ^= table[7 - k][v >> 8 * k & 0xff];
	return r;
}

#define STEP8(sum, v) step8(sum, v)
#define STEP1(sum, v) (table[0][((sum) ^ (v)) & 0xff] ^ (sum) >> 8)
#define NEEDS_TABLE
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words in shared memory are little-endian");

uint32_t ufdi_crc(uint32_t sum, const void *bytes, size_t n)
{
	const uint8_t *b = bytes;
	uint64_t v;

#ifdef NEEDS_TABLE
	pthread_once(&filled, fill);
#endif
	sum = ~sum;
	for (; n >= 8; n -= 8, b += 8) {
		memcpy(&v, b, 8);
		sum = STEP8(sum, v);
	}
	for (; n > 0; n--, b++)
		sum = STEP1(sum, *b);
	return ~sum;
}
