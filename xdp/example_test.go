package xdp_test

import (
	"fmt"
	"log"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// A program receives a packet, and reads it where the network card, or the kernel, wrote it.
func Example() {
	runtime.LockOSThread() // the ports belong to this thread
	defer runtime.UnlockOSThread()
	region, err := umem.Open(umem.Config{Size: 8 << 20, Pages: umem.Ordinary})
	if err != nil {
		log.Fatal(err)
	}
	defer region.Close()
	book := region.NewBook("example")
	defer book.Close()
	worker, err := book.NewHolder(umem.OwnerWorker, "example")
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close()
	card, err := xdp.Open(xdp.Config{Interface: "eth0", Holder: worker, Queues: []uint32{0}, Direction: xdp.Receive, RingSize: 256})
	if err != nil {
		log.Fatal(err)
	}
	defer card.Close()

	port := card.Ports()[0]
	frames := make([]umem.Frame, 256)
	worker.Take(frames)
	port.Supply(frames) // the kernel owns the frames now
	if err := card.Start(); err != nil {
		log.Fatal(err)
	}
	n := 0
	for n == 0 {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(port.FD()), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
			log.Fatal(err)
		}
		n = port.Recv(frames[:1])
	}
	fmt.Println("received", len(region.Bytes(frames[0])), "bytes")
	worker.Give(frames[:n])
}
