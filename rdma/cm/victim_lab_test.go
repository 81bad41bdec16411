//go:build verbs && cgo

package cm

import (
	"context"
	"io"
	"net/netip"
	"os"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// beVictim connects, and then closes nothing.
func beVictim(name string) error {
	device, err := verbs.Provider{}.Open(name)
	if err != nil {
		return err
	}
	domain, err := device.NewProtectionDomain()
	if err != nil {
		return err
	}
	cq, err := device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 4})
	if err != nil {
		return err
	}
	qp, err := domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: cq, ReceiveCQ: cq, SendDepth: 4, RecvDepth: 4})
	if err != nil {
		return err
	}
	channel, err := Open()
	if err != nil {
		return err
	}
	route, err := channel.Resolve(context.Background(), Path{To: netip.AddrPortFrom(here, port)})
	if err != nil {
		return err
	}
	if err := route.Prepare(qp, 0); err != nil {
		return err
	}
	if _, err := route.Connect(context.Background(), Defaults(qp)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
