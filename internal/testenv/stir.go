package testenv

import (
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
)

// StirHugePages behaves like another program that uses huge pages, until r ends. It maps up to most
// pages, often pages that other processes have reserved, and releases them. Half of the time it
// first raises the kernel's counter, and lowers it while it uses its pages or afterwards. It
// changes the counter only under the lock. Otherwise it could undo additions of other processes,
// and the machine may not be used by tests only.
func StirHugePages(r io.Reader, most int) {
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, r)
		close(ended)
	}()
	for {
		n := 1 + rand.IntN(most)
		raised := rand.IntN(2) == 0 && changeCount(n)
		b, err := unix.Mmap(-1, 0, n*hugePageSize, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
		if raised && rand.IntN(2) == 0 { // while the pages are in use; otherwise later
			changeCount(-n)
			raised = false
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		if err == nil {
			unix.Munmap(b)
		}
		if raised {
			changeCount(-n)
		}
		select {
		case <-ended:
			return
		default:
		}
	}
}

// changeCount adds to the kernel's counter of reserved pages.
func changeCount(by int) bool {
	err := counted(func() error {
		reserved, _, err := hugetlb.Reservation(hugetlb.MiB2, -1)
		if err != nil {
			return err
		}
		return hugetlb.Set(hugetlb.MiB2, -1, uint64(max(0, int(reserved)+by)))
	})
	return err == nil
}

// Stir runs a program that calls StirHugePages if its environment has the setting. stop ends it.
func Stir(t testing.TB, program, setting string) (stop func()) {
	t.Helper()
	Root(t)
	cmd := exec.Command(program)
	cmd.Env, cmd.Stderr = append(os.Environ(), setting), os.Stderr
	in, err := cmd.StdinPipe()
	Must(t, err)
	Must(t, cmd.Start())
	return func() {
		in.Close()
		Checkf(t, cmd.Wait(), "the program that takes huge pages")
	}
}
