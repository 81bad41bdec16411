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
// has begun before: again, or for the first time, after a reload that added it.
func TestSharedOut(t *testing.T) {
	for name, reload := range map[string]bool{"again": false, "reloaded": true} {
		t.Run(name, func(t *testing.T) { sharedOut(t, reload) })
	}
}

func sharedOut(t *testing.T, reload bool) {
	l := newLab(t, testenv.PairOptions{})
	text := func(flows ...string) string {
		all := fmt.Sprintf(`
region: {size: 64MiB}
attach: {socket: %s/attach.sock, programs: [{name: writer, user: "%d", out: 4MiB}]}
flows:
`, l.dir, os.Getuid())
		for _, one := range flows {
			all += fmt.Sprintf("  - {name: %s, from: {attach: writer, message: 1KiB}, to: {file: %s/%[1]s, acknowledge: received, segment: {size: 8MiB}}}\n", one, l.dir)
		}
		return all
	}
	d := l.start(t, text("a", "b"), Options{})
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
	if reload {
		l.reloaded(t, text("c", "a", "b"))
		b, err = k.Send("c", 0)
		testenv.Must(t, err)
	} else {
		l.begin(t, fb.Start)
		testenv.Must(t, b.Wait(ctx, time.Minute))
	}
	for range 256 {
		f, err := b.Claim()
		if err != nil {
			break
		}
		copy(f.Data, "what another flow's writer writes, which is longer")
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
