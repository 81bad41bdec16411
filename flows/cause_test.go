package flows

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/sink/peers"
	"github.com/unifiedd/unifiedd/flows/source/packet"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/xdp"
)

// TestCauseOf: the kinds of errors, also of those that are joined or wrapped.
func TestCauseOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want status.Cause
	}{
		{nil, ""},
		{errors.New("something"), ""},
		{fmt.Errorf("write /disk: %w", unix.ENOSPC), status.DiskFull},
		{fmt.Errorf("write /disk: %w", unix.EIO), ""},
		{&pipeline.SilentError{Disk: "/disk", Quiet: 7 * time.Second}, status.DiskSilent},
		{&nvme.StuckError{Operations: 1}, status.DiskSilent},
		{fmt.Errorf("check eth1: %w", xdp.ErrInterfaceDown), status.InterfaceDown},
		{packet.ErrInterfaceDown, status.InterfaceDown},
		{errors.Join(errors.New("other"), xdp.ErrInterfaceGone), status.InterfaceGone},
		{packet.ErrInterfaceGone, status.InterfaceGone},
		{netdev.ErrNotFound, status.InterfaceGone},
		{&peers.PeerError{Name: "desk", Cause: "no space left on device"}, status.PeerAway},
	} {
		if got := causeOf(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
