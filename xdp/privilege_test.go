package xdp

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// without runs f on a thread without some capabilities.
func without(t *testing.T, e *testenv.End, capabilities []uint, f func()) {
	t.Helper()
	e.Do(t, func() {
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var all [2]unix.CapUserData
		testenv.Must(t, unix.Capget(&head, &all[0]))
		less := all
		for _, c := range capabilities {
			less[c/32].Effective &^= 1 << (c % 32)
		}
		testenv.Must(t, unix.Capset(&head, &less[0]))
		defer func() { testenv.Must(t, unix.Capset(&head, &all[0])) }()
		f()
	})
}

// TestUnprivileged is libxdp's xsk_non_privileged: the error names the missing capability.
func TestUnprivileged(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	c := Config{Interface: pair.B.Ifname, Holder: g.worker, RingSize: 64}
	open := func() error {
		i, err := Open(c)
		if err == nil {
			err = i.Close()
		}
		return err
	}
	without(t, &pair.B, []uint{unix.CAP_NET_RAW}, func() {
		if err := open(); !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
			t.Errorf("without CAP_NET_RAW: %v", err)
		}
	})
	without(t, &pair.B, []uint{unix.CAP_BPF, unix.CAP_SYS_ADMIN}, func() {
		if err := open(); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "CAP_BPF") {
			t.Errorf("without CAP_BPF: %v", err)
		}
	})
	without(t, &pair.B, []uint{unix.CAP_BPF, unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_IPC_LOCK}, func() {
		c.NoProgram = true
		lowMemlock(t, func() {
			if err := open(); !errors.Is(err, ErrMemlock) || !strings.Contains(err.Error(), "LimitMEMLOCK") || !strings.Contains(err.Error(), "64 KiB") {
				t.Errorf("with a low limit on locked memory: %v", err)
			}
		})
	})
	without(t, &pair.B, nil, func() {
		testenv.Checkf(t, open(), "with everything again")
	})
}

// lowMemlock runs f while the process may lock only 64 KiB.
func lowMemlock(t *testing.T, f func()) {
	t.Helper()
	var old unix.Rlimit
	testenv.Must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	low := old
	low.Cur = 64 << 10
	testenv.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low))
	defer func() { testenv.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)) }()
	f()
}
