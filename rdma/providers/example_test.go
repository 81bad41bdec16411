package providers_test

import (
	"errors"
	"fmt"
	"log"
	"runtime"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/msg"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// A program sends a frame by RDMA. Both ends are on one device here. Between two programs,
// package rdma/connect exchanges the parameters over TCP.
func Example() {
	runtime.LockOSThread() // the ports belong to this thread
	defer runtime.UnlockOSThread()
	region, err := umem.Open(umem.Config{Size: 64 << 20, Pages: umem.Ordinary})
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
	device, err := providers.Open("roce:eth0", roce.Config{Region: region})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	domain, err := device.NewProtectionDomain()
	if err != nil {
		log.Fatal(err)
	}
	defer domain.Close()
	memory, err := domain.Register(region, rdma.LocalWrite)
	if err != nil {
		log.Fatal(err)
	}
	defer memory.Close()

	from, to := newPort(device, domain, memory, worker), newPort(device, domain, memory, worker)
	join(device, from.QueuePairs[0].QueuePair, to.QueuePairs[0].QueuePair)
	sender, err := msg.Open(from)
	if err != nil {
		log.Fatal(err)
	}
	defer sender.Close()
	receiver, err := msg.Open(to)
	if err != nil {
		log.Fatal(err)
	}
	defer receiver.Close()

	frames := make([]umem.Frame, 2)
	if worker.Take(frames) < len(frames) {
		log.Fatal("the pool is empty")
	}
	receiver.Supply(frames[1:]) // the device owns the frame from here
	if err := receiver.Kick(); err != nil {
		log.Fatal(err)
	}
	frames[0].Len = 5
	copy(region.Bytes(frames[0]), "hello")
	if sender.Send(frames[:1]) < 1 {
		log.Fatal("there is no room to send")
	}
	if err := sender.Kick(); err != nil {
		log.Fatal(err)
	}
	for receiver.Recv(frames[1:]) == 0 {
	}
	for sender.Reap(frames[:1]) == 0 {
	}
	if err := errors.Join(frames[0].Err(), frames[1].Err()); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", region.Bytes(frames[1]))
	worker.Give(frames)
}

// newPort makes the parts of a port for messages. The port that is opened from them owns them.
func newPort(device rdma.Device, domain rdma.ProtectionDomain, memory rdma.MemoryRegion, worker *umem.Holder) msg.Config {
	c := msg.Config{Name: "example", Worker: worker, Memory: memory}
	for _, queue := range []*rdma.CompletionQueue{&c.SendCQ, &c.ReceiveCQ} {
		q, err := device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 64})
		if err != nil {
			log.Fatal(err)
		}
		*queue = q
	}
	q, err := domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: c.SendCQ, ReceiveCQ: c.ReceiveCQ, SendDepth: 16, RecvDepth: 16, SendSGEs: 1})
	if err != nil {
		log.Fatal(err)
	}
	c.QueuePairs = []msg.Peer{{QueuePair: q, Message: 4096}}
	return c
}

// join connects two queue pairs of one device.
func join(device rdma.Device, a, b rdma.QueuePair) {
	settings := connect.Defaults()
	table, err := device.GIDs(1)
	if err != nil {
		log.Fatal(err)
	}
	settings.GID = table[0]
	first, err := connect.Prepare(device, a, settings)
	if err != nil {
		log.Fatal(err)
	}
	second, err := connect.Prepare(device, b, settings)
	if err != nil {
		log.Fatal(err)
	}
	if err := connect.Lead(a, settings, first, second); err != nil {
		log.Fatal(err)
	}
	if err := connect.Lead(b, settings, second, first); err != nil {
		log.Fatal(err)
	}
}
