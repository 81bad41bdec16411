package log

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"strings"
)

// verifyOurs runs unifiedd to verify a log, which must have all records from the first to the last.
func verifyOurs(unifiedd, path string, last uint64) error {
	said, err := exec.Command(unifiedd, "log", "verify", path).CombinedOutput()
	want := fmt.Sprintf("%d records, ", last)
	if err == nil && !strings.Contains(string(said), "\n"+want) {
		err = fmt.Errorf("%d records were acknowledged", last)
	}
	if err != nil {
		err = fmt.Errorf("verify the log of unifiedd: %w\n%s", err, said)
	}
	return err
}

// verifyTheirs returns an error if a file of log-server lacks records that the server claims. The file was
// not written to its end.
func verifyTheirs(path, said string) error {
	var did struct{ Records, Bytes uint64 }
	if err := json.Unmarshal([]byte(said), &did); err != nil {
		return fmt.Errorf("log-server said %q: %w", said, err)
	}
	file, err := head(path, did.Bytes)
	if err != nil {
		return err
	}
	found := uint64(0)
	for at := uint64(0); at < did.Bytes; {
		n, err := entry(file[at:], found+1)
		if err != nil {
			return fmt.Errorf("log-server's file at %d: %w", at, err)
		}
		if n == 0 { // the rest of a block
			at = (at/block + 1) * block
			continue
		}
		at += n
		found++
	}
	if found != did.Records || found == 0 {
		return fmt.Errorf("log-server's file has %d records of %d", found, did.Records)
	}
	return nil
}

// head is the first n bytes of a file.
func head(path string, n uint64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(f, b)
	return b, errors.Join(err, f.Close())
}

// The length of the header of a log-server record, and the unit of its writes:
// selftests/peers/log-peer/log.h.
const (
	entryLen = 24
	block    = 4096
)

// entry checks a record, and returns its length; 0 if there is none.
func entry(b []byte, position uint64) (uint64, error) {
	if len(b) < entryLen || binary.LittleEndian.Uint32(b) == 0 {
		return 0, nil
	}
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	length := uint64(binary.LittleEndian.Uint32(b))
	switch {
	case crc32.Checksum(b[:16], castagnoli) != binary.LittleEndian.Uint32(b[16:]):
		return 0, errors.New("the header's checksum does not fit")
	case binary.LittleEndian.Uint64(b[8:]) != position:
		return 0, fmt.Errorf("position %d instead of %d", binary.LittleEndian.Uint64(b[8:]), position)
	case entryLen+length > uint64(len(b)):
		return 0, fmt.Errorf("%d bytes are cut short", length)
	case crc32.Checksum(b[entryLen:entryLen+length], castagnoli) != binary.LittleEndian.Uint32(b[4:]):
		return 0, errors.New("the checksum of the bytes does not fit")
	}
	return entryLen + length, nil
}
