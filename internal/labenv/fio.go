package labenv

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Verifying starts fio with more options. fio writes and verifies until end is called. It must see no error.
func Verifying(t testing.TB, options ...string) (end func()) {
	t.Helper()
	var said bytes.Buffer
	fio := exec.Command(testenv.Tool(t, "fio"), append(options, "--loops=1000000", "--rw=randwrite", "--direct=1", "--ioengine=libaio", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1")...)
	fio.Stdout, fio.Stderr = &said, &said
	testenv.Must(t, fio.Start())
	ended := make(chan error, 1)
	go func() { ended <- fio.Wait() }()
	t.Cleanup(func() { _ = fio.Process.Kill() })
	return func() {
		t.Helper()
		select {
		case err := <-ended:
			t.Fatalf("fio ended: %v\n%s", err, &said)
		default:
		}
		testenv.Check(t, fio.Process.Signal(syscall.SIGINT))
		<-ended
		if text := said.String(); strings.Contains(text, "verify:") || !strings.Contains(text, "err= 0") {
			t.Errorf("fio says:\n%s", text)
		}
	}
}
