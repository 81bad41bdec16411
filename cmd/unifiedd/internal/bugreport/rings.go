package bugreport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
)

// ringItems returns the files about the rings that the daemon shares with the kernel.
func ringItems(pid int) []Item {
	items := []Item{{"xdp-sockets.txt", func(_ context.Context, w io.Writer) error { return xdpSockets(w) }}}
	if pid > 0 {
		items = append(items, Item{"io-uring.txt", func(_ context.Context, w io.Writer) error { return uringStates(w, pid) }})
	}
	return items
}

// xdpSockets writes the rings of each AF_XDP socket in this network namespace, and its counters.
func xdpSockets(w io.Writer) error {
	all, err := netlink.SocketDiagXDP()
	if err != nil {
		return fmt.Errorf("ask the kernel for AF_XDP sockets: %w (the module xdp_diag may be missing)", err)
	}
	fmt.Fprintf(w, "%d AF_XDP sockets in this network namespace\n", len(all))
	for _, one := range all {
		i := one.XDPInfo
		if i == nil {
			continue
		}
		fmt.Fprintf(w, "\nsocket %d: interface %d, queue %d, user %d\n", one.XDPDiagMsg.Ino, i.Ifindex, i.QueueID, i.UID)
		fmt.Fprintf(w, "  entries: rx %d, tx %d, fill %d, completion %d\n", i.RxRingEntries, i.TxRingEntries, i.UmemFillRingEntries, i.UmemCompletionRingEntries)
		if u := i.Umem; u != nil {
			fmt.Fprintf(w, "  umem %d: %d bytes in %d pages, chunks of %d with headroom %d, zero copy %t, %d references\n",
				u.ID, u.Size, u.NumPages, u.ChunkSize, u.Headroom, u.Flags&netlink.XDP_DU_F_ZEROCOPY != 0, u.Refs)
		}
		if s := i.Stats; s != nil {
			fmt.Fprintf(w, "  counters: rx_dropped %d, rx_invalid %d, rx_full %d, fill_ring_empty %d, tx_invalid %d, tx_ring_empty %d\n",
				s.RxDropped, s.RxInvalid, s.RxFull, s.FillRingEmpty, s.TxInvalid, s.TxRingEmpty)
		}
	}
	return nil
}

// uringStates writes the state of each io_uring of a process, and how many files of each kind it has
// open. Lists of buffers are cut.
func uringStates(w io.Writer, pid int) error {
	dir := fmt.Sprintf("/proc/%d/", pid)
	entries, err := os.ReadDir(dir + "fd")
	if err != nil {
		return err
	}
	var errs []error
	kinds := make(map[string]int)
	for _, e := range entries {
		target, err := os.Readlink(dir + "fd/" + e.Name())
		if err != nil {
			continue // closed meanwhile
		}
		kind, _, _ := strings.Cut(target, ":[")
		if strings.HasPrefix(target, "/") {
			kind = "file"
		}
		if strings.HasPrefix(target, "anon_inode:") {
			kind = target
		}
		kinds[kind]++
		if target != "anon_inode:[io_uring]" {
			continue
		}
		text, err := readSome(dir+"fdinfo/"+e.Name(), 16<<10)
		errs = append(errs, err)
		fmt.Fprintf(w, "== io_uring, descriptor %s\n%s\n", e.Name(), firstLines(text, 60))
	}
	fmt.Fprintln(w, "== open descriptors")
	for _, kind := range sortedKeys(kinds) {
		fmt.Fprintf(w, "%6d %s\n", kinds[kind], kind)
	}
	return errors.Join(errs...)
}
