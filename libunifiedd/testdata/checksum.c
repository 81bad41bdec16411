/* SPDX-License-Identifier: Apache-2.0 */
/* checksum: the checksums of the instructions and of the tables are those of RFC 3720, and alike. It includes what it tests. */
#include "../checksum.c"

#include <stdio.h>

/* known has the examples of RFC 3720, B.4. */
static const struct {
	int begin, step;
	uint32_t sum;
} known[] = {{0, 0, 0x8a9136aa}, {0xff, 0, 0x62a8ab43}, {0, 1, 0x46dd794e}, {31, -1, 0x113fdb5c}};

int main(void)
{
	uint8_t b[300];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		for (int k = 0; k < 32; k++)
			b[k] = (uint8_t)(known[i].begin + known[i].step * k);
		if (ufdi_crc(0, b, 32) != known[i].sum || ~with_tables(~0u, b, 32) != known[i].sum || ufdi_crc(ufdi_crc(0, b, 13), b + 13, 19) != known[i].sum) {
			fprintf(stderr, "example %zu: %08x\n", i, ufdi_crc(0, b, 32));
			return 1;
		}
	}
	for (size_t n = 0; n < sizeof(b); n++) {
		b[n] = (uint8_t)(n * n);
		if (ufdi_crc(0, b, n) != ~with_tables(~0u, b, n)) {
			fprintf(stderr, "%zu bytes differ\n", n);
			return 1;
		}
	}
	printf("checksums: with %s\n", update == with_tables ? "tables" : "instructions");
	return 0;
}
