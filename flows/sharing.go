package flows

import (
	"context"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/internal/index"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// sharing is what a flow needs to know beyond its own configuration.
type sharing struct {
	config      *config.Config       // of all flows
	interfaces  *device.Interfaces   // that flows take packets from
	frames      int                  // its share of the region's frames
	extents     int                  // its share of the extents
	node        int                  // NUMA node of the region; numa.Unknown: of several
	limit       uint64               // packets after which it is done; 0: none
	application string               // who writes, for capture files
	stream      io.Writer            // where packets go instead of a disk; nil: to the disk
	index       index.Maker          // makes indexes; nil: here
	complete    func(path string)    // told of files that are complete; nil: nobody is
	notes       string               // directory where it is noted which rules in cards are ours
	context     context.Context      // ends what opening waits for; nil: nothing does
	credentials *connect.Credentials // of RDMA connections; nil: they are plain
}

// kernel is the operating system's name and release, for capture files.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "Linux"
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// machine is the processor's name, for capture files; empty where it is not told.
func machine() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
