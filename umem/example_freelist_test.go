package umem_test

import (
	"fmt"

	"github.com/unifiedd/unifiedd/umem"
)

// A device takes some of the free frames. The others stay in the list.
func ExampleFreeList() {
	free := umem.NewFreeList([]umem.Frame{{Addr: 0}, {Addr: 4096}, {Addr: 8192}})
	offered := free.Top(2)
	taken := 1 // what the device's Supply returned
	free.Drop(len(offered), taken)
	fmt.Println(free.Len(), "frames are free")

	next := make([]umem.Frame, 1)
	fmt.Println(free.Pop(next), next[0].Addr)
	// Output:
	// 2 frames are free
	// true 8192
}

// A packet of 5000 bytes has two frames.
func ExamplePacketLen() {
	frames := []umem.Frame{{Len: 4096, Options: umem.More}, {Len: 904}, {Len: 60}}
	fmt.Println(umem.PacketLen(frames))
	// Output: 2 5000
}
