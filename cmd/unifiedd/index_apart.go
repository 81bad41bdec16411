package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/internal/caps"
)

// indexApart makes an index in a process of its own, which yields to all others: a thread of this one that did so would have the
// others wait for it whenever Go stops them all.
func indexApart(ctx context.Context, path string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "index", "--idle", path)
	cmd.Args[0] = "unifiedd"
	var said bytes.Buffer
	cmd.Stderr = &said
	start := privsep.StartBare
	if self, err := caps.Self(); err == nil && self.Effective.Has(caps.DACOverride) { // for a segment that was given away
		start = (*exec.Cmd).Start
	}
	err := start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil && said.Len() > 0 {
		err = fmt.Errorf("%s", bytes.TrimSpace(said.Bytes()))
	}
	if cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}
