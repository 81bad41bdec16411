package demo

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/vishvananda/netns"
)

// reading has the packet count of one independent reader over all files. If the reader complains
// about a file, that is an error.
type reading struct {
	reader  string
	packets uint64
}

// reader counts the packets of one file with an independent program.
type reader struct {
	name  string
	count func(ctx context.Context, r *result, file string) (uint64, error)
}

var readers = []reader{{"tshark", countTshark}, {"capinfos", countCapinfos}, {"tcpdump", countTcpdump}}

// readBack makes every reader read every file.
func (r *result) readBack(ctx context.Context) error {
	return onThread(netns.None(), func() error {
		for _, one := range readers {
			found := reading{reader: one.name}
			for _, file := range r.files {
				n, err := one.count(ctx, r, file)
				if err != nil {
					return fmt.Errorf("read %s back: %w", file, err)
				}
				found.packets += n
			}
			r.readings = append(r.readings, found)
		}
		return nil
	})
}

// tsharkCount matches the one line of tshark's statistics: | 0.000 <> 3.000 | 90000 | 64560000 |.
var tsharkCount = regexp.MustCompile(`<>[^|]*\|\s*(\d+) \|`)

// countTshark counts the packets that tshark dissects as the ones that were sent.
func countTshark(ctx context.Context, _ *result, file string) (uint64, error) {
	out, err := runProgram(ctx, "tshark", "-n", "-q", "-r", file, "-z", "io,stat,0,udp.dstport=="+strconv.Itoa(port))
	if err != nil {
		return 0, err
	}
	return number(out, tsharkCount, 1)
}

// countCapinfos also adds up bytes and finds the first and the last time.
func countCapinfos(ctx context.Context, r *result, file string) (uint64, error) {
	out, err := runProgram(ctx, "capinfos", "-T", "-r", "-M", "-N", "-c", "-d", "-S", "-a", "-e", file)
	if err != nil {
		return 0, err
	}
	return r.noteInfos(out)
}

// noteInfos reads a line of capinfos: name, packets, bytes, start, end.
func (r *result) noteInfos(line string) (uint64, error) {
	f := strings.Split(strings.TrimSpace(line), "\t")
	if len(f) != 5 {
		return 0, fmt.Errorf("capinfos printed %q", line)
	}
	n, err1 := strconv.ParseUint(f[1], 10, 64)
	bytes, err2 := strconv.ParseUint(f[2], 10, 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("capinfos printed %q", line)
	}
	r.fileBytes += bytes
	if n == 0 {
		return 0, nil // no times either
	}
	first, err1 := strconv.ParseFloat(f[3], 64)
	last, err2 := strconv.ParseFloat(f[4], 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("capinfos printed %q", line)
	}
	if r.first == 0 || first < r.first {
		r.first = first
	}
	r.last = max(r.last, last)
	return n, nil
}

var tcpdumpCount = regexp.MustCompile(`(?m)^(\d+) packets?$`)

func countTcpdump(ctx context.Context, _ *result, file string) (uint64, error) {
	out, err := runProgram(ctx, "tcpdump", "-n", "--count", "-r", file, filterText)
	if err != nil {
		return 0, err
	}
	return number(out, tcpdumpCount, 1)
}
