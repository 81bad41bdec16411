package rdma

import "fmt"

// Work is what both programs do.
type Work struct {
	Op        string // of unified-rdma-test: send, write, read or fetch-add
	Size      int    // bytes of a message
	Count     int    // messages
	Bandwidth bool   // and not latency
}

// Place is where both ends run: a device with an address.
type Place struct {
	Card    string // network interface
	Device  string // its RDMA device
	Address string // of the card
	GID     int    // place of that address in the device's GID table
	MTU     int    // of the path
}

// depth is how many requests are in flight in a bandwidth test, the default of both programs.
const depth = 128

// Name is the name for people.
func (w Work) Name() string {
	what := "latency"
	if w.Bandwidth {
		what = "bandwidth"
	}
	return fmt.Sprintf("%s, %s of %s", what, w.Op, size(w.Size))
}

func size(n int) string {
	if n >= 1024 {
		return fmt.Sprintf("%d KiB", n/1024)
	}
	return fmt.Sprintf("%d B", n)
}

// Works returns the cases: latency tests of a number of messages, and bandwidth tests of a number
// of bytes.
func Works(messages, bytes int) (all []Work) {
	for _, op := range []string{"send", "write", "read"} {
		all = append(all, Work{Op: op, Size: 2, Count: messages})
	}
	all = append(all, Work{Op: "fetch-add", Size: 8, Count: messages})
	for _, size := range []int{4096, 65536} {
		for _, op := range []string{"send", "write", "read"} {
			all = append(all, Work{Op: op, Size: size, Count: max(bytes/size, depth), Bandwidth: true})
		}
	}
	return all
}
