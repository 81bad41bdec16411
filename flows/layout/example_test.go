package layout_test

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// A packet of 60 bytes becomes a batch of one record, written from where it
// landed.
func ExampleInPlace() {
	region, err := umem.Open(umem.Config{Size: 4 << 20, Pages: umem.Ordinary})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer region.Close()
	book := region.NewBook("example")
	defer book.Close()
	hands, err := book.NewHolder(umem.OwnerWorker, "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hands.Close()
	frames := make([]umem.Frame, 4)
	hands.Take(frames)

	var copies layout.Copies
	free := umem.NewFreeList(frames[1:])
	l := layout.NewInPlace(layout.Config{Region: region, Free: free, Limit: 64 << 10, Copies: &copies, SnapLen: &layout.SnapLen{}}, 16, 64<<10)
	packet := umem.Frame{Addr: frames[0].Addr + umem.PacketHeadroom + layout.InPlaceHeadroom, Len: 60}
	used := l.Add(0, []umem.Frame{packet})
	message := l.Seal(pcapng.Batch{Segment: pcapng.SegmentID{1}, Align: pcapng.MinAlign, Sequence: 1})
	fmt.Println(used, "frame used,", len(message), "pieces,", copies.Unaligned.Load(), "bytes copied")
	fmt.Println("the record begins in front of the packet:", message[1].Addr == packet.Addr-pcapng.PacketHeaderLen)
	l.Reset()
	l.Free(message)
	hands.Give(free.Top(free.Len()))
	// Output:
	// 1 frame used, 2 pieces, 0 bytes copied
	// the record begins in front of the packet: true
}
