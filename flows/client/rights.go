package client

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/rdma/providers"
)

// softRights are the capabilities that RoCE in software takes: for AF_XDP sockets, XDP programs and locked memory.
const softRights = caps.NetRaw | caps.NetAdmin | caps.BPF | caps.Perfmon | caps.IPCLock

// explainRights adds all capabilities that the process lacks, and not only the one of the first operation that failed.
func (k *Client) explainRights(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOMEM) {
		return err
	}
	need, why := caps.IPCLock, "a client locks memory, which takes"
	if _, soft := providers.Soft(k.config.Device); soft {
		need, why = softRights, "RoCE in software takes"
	}
	self, serr := caps.Thread()
	if serr != nil || need.Minus(self.Effective) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s %v, and this process lacks %v: run it as root, or setcap %s+ep PROGRAM)",
		err, why, need, need.Minus(self.Effective), strings.ToLower(strings.Join(need.Names(), ",")))
}
