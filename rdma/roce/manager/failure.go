package manager

import (
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma/cm"
)

// failure is an answer as an error of the step that waited for another one.
func (a *answer) failure(step string) error {
	err := &cm.Error{Step: step, Event: a.event, Kind: cm.ErrUnreachable, Private: a.said.private}
	if a.silent {
		err.Errno = unix.ETIMEDOUT
	}
	switch a.event {
	case cm.Rejected:
		err.Kind, err.Reason = cm.ErrRejected, a.reason
	case cm.Disconnected:
		err.Kind = cm.ErrDisconnected
	}
	return err
}
