package flows

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDiskComesBack: a flow whose disk has failed starts again when the disk works again. A flow that was stopped, or that
// is never to start again, does not.
func TestDiskComesBack(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	dev := testenv.Zram(t, 64<<20)
	limit := "/sys/block/" + filepath.Base(dev) + "/mem_limit"
	d := l.open(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - {name: f, from: {generate: 1000, rate: 2000}, to: {device: %s, segment: {size: 8MiB}, flush: 20ms, durable: 50ms}}
`, dev), Options{Restart: true})
	f := d.Flows()[0]
	testenv.Must(t, f.Start())
	durable := func(s status.Flow) bool { return s.State == status.Running && s.Durable.Packets > 0 }
	await(t, f, "durable packets", durable)
	retried := func(s status.Flow) bool { return s.State == status.Failed && !s.NextStart.IsZero() }
	testenv.Must(t, os.WriteFile(limit, []byte("4096"), 0))
	s := await(t, f, "the failure", retried)
	testenv.MessageNames(t, s.Error, []string{dev, "input/output error"})
	testenv.Must(t, os.WriteFile(limit, []byte("0"), 0))
	if s := await(t, f, "durable packets again", durable); s.Restarts == 0 || !s.NextStart.IsZero() {
		t.Errorf("%+v", s)
	}

	testenv.Must(t, os.WriteFile(limit, []byte("4096"), 0))
	await(t, f, "another failure", retried)
	testenv.Must(t, f.Stop())
	if s := f.Status(); s.State != status.Stopped || !s.NextStart.IsZero() {
		t.Errorf("a flow that was stopped is %s, and starts at %v", s.State, s.NextStart)
	}
	testenv.Must(t, os.WriteFile(limit, []byte("0"), 0))
	testenv.Must(t, f.Start())
	await(t, f, "durable packets at last", durable)
	testenv.Must(t, os.WriteFile(limit, []byte("4096"), 0))
	await(t, f, "a failure before the end", retried)
	testenv.Must(t, os.WriteFile(limit, []byte("0"), 0))
}
