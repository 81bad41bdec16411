package pipeline

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// Server has the methods of a Flow that has no end, no disk, and nothing to drain: peers know what they did not get. A
// flow embeds it, and has methods of its own for what it does have.
type Server struct{}

func (Server) Done() bool                            { return false }
func (Server) Trouble() error                        { return nil }
func (Server) StopReceiving() error                  { return nil }
func (Server) Drain(time.Time, uint64) (bool, error) { return true, nil }
func (Server) Diagnose(err error) error              { return err }
func (Server) Pending() int                          { return 0 }
func (Server) CloseQueue() error                     { return nil }
func (Server) CountLost(*status.Flow)                {}
