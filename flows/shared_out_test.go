package flows

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	library "github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestSharedOut: a message that waits to be sent again stays as the program wrote it, though another flow of the program
// has begun again before.
func TestSharedOut(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	d := l.start(t, fmt.Sprintf(`
region: {size: 64MiB}
attach: {socket: %s/attach.sock, programs: [{name: writer, user: "%d", out: 1MiB}]}
flows:
  - {name: a, from: {attach: writer, message: 1KiB}, to: {file: %[1]s/a, acknowledge: received, segment: {size: 8MiB}}}
  - {name: b, from: {attach: writer, message: 1KiB}, to: {file: %[1]s/b, acknowledge: received, segment: {size: 8MiB}}}
`, l.dir, os.Getuid()), Options{})
	k, err := library.Attach(library.Config{Socket: filepath.Join(l.dir, "attach.sock"), Name: "writer"})
	testenv.Must(t, err)
	defer k.Close()
	a, err := k.Send("a", 0)
	testenv.Must(t, err)
	b, err := k.Send("b", 0)
	testenv.Must(t, err)
	fa, fb := d.Flows()[0], d.Flows()[1]
	testenv.Must(t, fb.Stop(), fa.Stop())
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
	defer cancel()
	n := 0
	for ; n < 200; n++ { // into the rings of the port that has ended
		f, err := a.Claim()
		if err != nil {
			break
		}
		_, err = a.Commit(f, copy(f.Data, fmt.Sprintf("message %d of a", n)))
		testenv.Must(t, err)
	}
	l.begin(t, fb.Start)
	testenv.Must(t, b.Wait(ctx, time.Minute))
	for range 256 {
		f, err := b.Claim()
		if err != nil {
			break
		}
		copy(f.Data, "what b writes, which is longer")
	}
	l.begin(t, fa.Start)
	for a.Unfinished() > 0 {
		var got [64]library.Receipt
		if k, _ := a.Poll(got[:]); k == 0 {
			testenv.Must(t, a.Wait(ctx, time.Second))
		}
	}
	testenv.Must(t, fa.Stop())
	log, err := journal.Open(filepath.Join(l.dir, "a"))
	testenv.Must(t, err)
	defer log.Close()
	r := log.Reader(1)
	defer r.Close()
	wrong := 0
	for i := range n {
		one, err := r.Next()
		testenv.Must(t, err)
		if string(one.Payload) != fmt.Sprintf("message %d of a", i) {
			if wrong++; wrong < 3 {
				t.Errorf("record %d is %q", i, one.Payload)
			}
		}
	}
	t.Logf("%d of %d records are not what the program wrote", wrong, n)
}
