package flows

import (
	"errors"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/flows/sink/peers"
	"github.com/unifiedd/unifiedd/flows/source/packet"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/xdp"
)

// causeOf returns the kind of an error for which a flow waits, or because of which it failed. Unlike the error it names
// no file, address or device, so anybody may see it.
func causeOf(err error) status.Cause {
	if is[*peers.PeerError](err) {
		return status.PeerAway // whatever its own cause is
	}
	switch {
	case segment.NoSpace(err):
		return status.DiskFull
	case is[*pipeline.SilentError](err), is[*nvme.StuckError](err):
		return status.DiskSilent
	case errors.Is(err, xdp.ErrInterfaceDown), errors.Is(err, packet.ErrInterfaceDown):
		return status.InterfaceDown
	case errors.Is(err, xdp.ErrInterfaceGone), errors.Is(err, packet.ErrInterfaceGone), errors.Is(err, netdev.ErrNotFound):
		return status.InterfaceGone
	}
	return ""
}

// is reports whether an error, or one in it, is of a type.
func is[E error](err error) bool {
	_, found := errors.AsType[E](err)
	return found
}
