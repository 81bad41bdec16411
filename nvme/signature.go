package nvme

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// signature is bytes at an offset that give away what is on a device. A
// negative offset counts from the end.
type signature struct {
	offset int64
	magic  string
	name   string
}

// knownSignatures are the ones looked for without help; blkid(8), where it is
// installed, knows many more. From the on-disk formats' own documents.
var knownSignatures = []signature{
	{0x438, "\x53\xef", "an ext2, ext3 or ext4 file system"},
	{0, "XFSB", "an XFS file system"},
	{0x10040, "_BHRfS_M", "a Btrfs file system"},
	{0x400, "\x10\x20\xf5\xf2", "an F2FS file system"},
	{3, "NTFS    ", "an NTFS file system"},
	{3, "EXFAT   ", "an exFAT file system"},
	{54, "FAT1", "a FAT file system"},
	{82, "FAT32", "a FAT file system"},
	{0, "hsqs", "a SquashFS file system"},
	{32769, "CD001", "an ISO 9660 file system"},
	{4096 - 10, "SWAPSPACE2", "swap space"},
	{16384 - 10, "SWAPSPACE2", "swap space"},
	{65536 - 10, "SWAPSPACE2", "swap space"},
	{512, "EFI PART", "a GPT partition table"},
	{4096, "EFI PART", "a GPT partition table"},
	{-512, "EFI PART", "a GPT partition table"},
	{-4096, "EFI PART", "a GPT partition table"},
	{510, "\x55\xaa", "an MBR partition table or boot sector"},
	{0, "LABELONE", "an LVM physical volume"},
	{512, "LABELONE", "an LVM physical volume"},
	{1024, "LABELONE", "an LVM physical volume"},
	{1536, "LABELONE", "an LVM physical volume"},
	{0, "LUKS\xba\xbe", "a LUKS volume"},
	{16384, "SKUL\xba\xbe", "a LUKS volume"},
	{0, "\xfc\x4e\x2b\xa9", "a member of an md array"},
	{4096, "\xfc\x4e\x2b\xa9", "a member of an md array"},
}

// signatures lists what is on a device of size bytes.
func signatures(path string, size uint64) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("look for what is on it: %w", err)
	}
	defer f.Close()
	var found []string
	for _, s := range append(knownSignatures, tailSignatures(size)...) {
		there, err := s.on(f, int64(size))
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", s.name, err)
		}
		if there && !slices.Contains(found, s.name) {
			found = append(found, s.name)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return blkid(path)
}

// tailSignatures are those of md's formats 0.90 and 1.0, whose place depends on
// the size: include/uapi/linux/raid/md_p.h.
func tailSignatures(size uint64) []signature {
	const md = "\xfc\x4e\x2b\xa9"
	if size < 128<<10 {
		return nil
	}
	return []signature{
		{int64(size&^0xffff - 0x10000), md, "a member of an md array"},
		{int64((size>>9 - 16) &^ 7 << 9), md, "a member of an md array"},
	}
}

// on reports whether a device of size bytes has the signature.
func (s signature) on(f io.ReaderAt, size int64) (bool, error) {
	off := s.offset
	if off < 0 {
		off += size
	}
	if off < 0 || off+int64(len(s.magic)) > size {
		return false, nil
	}
	b := make([]byte, len(s.magic))
	if _, err := f.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(b, []byte(s.magic)), nil
}
