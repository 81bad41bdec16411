package nvme_test

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// A program receives a packet and writes it to a file from the frame where the card, or the kernel,
// put it. The frame moves from one port to the other, and the program copies no byte. The kernel
// copies the packet once without zero copy, and once more on a file system without direct I/O.
func Example_packet() {
	runtime.LockOSThread() // both ports belong to this thread
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
	disk, err := nvme.Open(nvme.Config{Worker: worker})
	if err != nil {
		log.Fatal(err)
	}
	defer disk.Close()
	path := filepath.Join(os.TempDir(), fmt.Sprintf("packet-%d", os.Getpid()))
	file, err := nvme.OpenTarget(nvme.TargetConfig{Path: path, Create: true, Size: 4096, Prepare: nvme.PrepareAllocate, Buffered: true})
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(path)
	defer file.Close()
	number, err := disk.Add(file)
	if err != nil {
		log.Fatal(err)
	}

	port := card.Ports()[0]
	frames := make([]umem.Frame, 256)
	worker.Take(frames)
	port.Supply(frames)
	if err := card.Start(); err != nil {
		log.Fatal(err)
	}
	one := frames[:1]
	for port.Recv(one) == 0 {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(port.FD()), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
			log.Fatal(err)
		}
	}
	at, n := one[0].Addr&4095, uint64(one[0].Len)
	one[0].Addr &^= 4095 // direct I/O writes whole blocks: the frame, with the packet in it
	one[0].Len = 4096
	*region.Side(one[0]) = umem.Side{Target: number, Block: 0}
	disk.Send(one)
	for disk.Reap(one) == 0 {
		if err := disk.Wait(-1); err != nil {
			log.Fatal(err)
		}
	}
	if err := one[0].Err(); err != nil {
		log.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the file has the packet:", bytes.Equal(written[at:at+n], region.Bytes(one[0])[at:at+n]))
	worker.Give(one)
}
