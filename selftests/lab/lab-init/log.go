package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// kernelLog reads /dev/kmsg (Documentation/ABI/testing/dev-kmsg): each read gives
// one record, "priority,sequence,microseconds,flags;text".
type kernelLog struct {
	fd  int
	buf []byte
}

// openLog begins with the oldest record the kernel has.
func openLog() (*kernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's log: %w", err)
	}
	return &kernelLog{fd: fd, buf: make([]byte, 16<<10)}, nil
}

// drain returns the records since the last call. It notes records that the kernel overwrote before
// they were read.
func (k *kernelLog) drain() (lines []wire.LogLine) {
	for {
		n, err := unix.Read(k.fd, k.buf)
		switch {
		case err == nil:
			if l, ok := parseRecord(string(k.buf[:n])); ok {
				lines = append(lines, l)
			}
		case errors.Is(err, unix.EPIPE):
			lines = append(lines, wire.LogLine{Level: 4, Text: "lab-init: records of the kernel's log are lost here"})
		case !errors.Is(err, unix.EINTR):
			return lines
		}
	}
}

// parseRecord returns level and text. ok is false if the text is not a record. The priority has the
// facility above the three bits of the level.
func parseRecord(record string) (wire.LogLine, bool) {
	head, text, ok := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(head, ",")
	n, err := strconv.Atoi(priority)
	if !ok || err != nil {
		return wire.LogLine{}, false
	}
	text, _, _ = strings.Cut(text, "\n")
	return wire.LogLine{Level: n & 7, Text: text}, true
}
