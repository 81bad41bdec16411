package powercut

const mib = 1 << 20

// Part is a partition, in bytes.
type Part struct{ Offset, Length int64 }

// parts are the disk's partitions: one with a file system, two for rings, and one for markers.
var parts = [4]Part{
	{1 * mib, 96 * mib},
	{97 * mib, 8 * mib},
	{105 * mib, 8 * mib},
	{113 * mib, 1 * mib},
}

// diskBytes is the size of the disk.
const diskBytes = 115 * mib

// Of returns the partition's part of a disk.
func (p Part) Of(image []byte) []byte { return image[p.Offset:][:p.Length:p.Length] }

const sector = 512

// table returns the first sector of the disk: a master boot record with the partitions.
func table() []byte {
	b := make([]byte, sector)
	for n, p := range parts {
		entry := b[446+16*n:][:16]
		entry[4] = 0x83 // type Linux: systems do not use it by themselves
		le.PutUint32(entry[8:], uint32(p.Offset/sector))
		le.PutUint32(entry[12:], uint32(p.Length/sector))
	}
	b[510], b[511] = 0x55, 0xaa
	return b
}
