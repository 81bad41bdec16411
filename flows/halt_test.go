package flows

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	library "github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOrdersStayStopped: what `all` stops stays so for flows that a reload renames, and for the daemon that comes back. One
// flow may go on alone.
func TestOrdersStayStopped(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	l.exchange(t)
	file := filepath.Join(t.TempDir(), "state", "orders")
	text := l.orders("")
	d := l.start(t, text, Options{Halts: file})
	r := l.trader(t)
	if got := r.send("first"); got.Err != nil {
		t.Fatal(got)
	}
	_, err := d.StopOrders(AllOrders)
	testenv.Must(t, err)
	renamed := strings.Replace(text, "name: orders", "name: trades", 1)
	reload := func(text string) *trader {
		t.Helper()
		r.client.Close()
		l.begin(t, func() error {
			_, err := d.Reload(func(*config.Config) (*config.Config, error) { return l.parsed(t, text), nil })
			return err
		})
		name := d.Flows()[0].Name()
		return l.attachTo(t, name)
	}
	if r = reload(renamed); !errors.Is(r.send("order").Err, wire.Stopped) {
		t.Error("an order of a flow with another name has left")
	}
	r.client.Close()
	testenv.Must(t, d.Close())
	d = l.start(t, renamed, Options{Halts: file})
	if r = l.attachTo(t, "trades"); !errors.Is(r.send("order").Err, wire.Stopped) {
		t.Error("an order has left after a restart of the daemon")
	}
	if _, err := d.ResumeOrders("trades"); err != nil || r.send("order").Err != nil {
		t.Errorf("an order of the flow that goes on has not left: %v", err)
	}
	if r = reload(text); !errors.Is(r.send("order").Err, wire.Stopped) {
		t.Error("an order of another flow has left")
	}
	if s := d.Status().Orders; !s.All || len(s.Flows) != 1 || s.Flows["trades"] || s.File != file || s.Error != "" {
		t.Errorf("%+v", s)
	}
	_, err = d.ResumeOrders(AllOrders)
	testenv.Must(t, err)
	if got := r.send("order"); got.Err != nil {
		t.Error(got)
	}
}

// attachTo attaches as the program trader, and opens a flow.
func (l *lab) attachTo(t *testing.T, flow string) (r *trader) {
	t.Helper()
	r = &trader{t: t}
	testenv.Wait(t, 10*time.Second, "the flow to open", func() bool {
		k, err := library.Attach(library.Config{Socket: filepath.Join(l.dir, "attach.sock"), Name: "trader"})
		if err != nil {
			return false
		}
		if r.orders, err = k.Send(flow, 0); err != nil {
			k.Close()
			return false
		}
		r.client = k
		t.Cleanup(func() { k.Close() })
		return true
	})
	return r
}

// TestHaltState: a state that cannot be read stops all orders, and says why. One that cannot be written is an error, and
// the switch is turned all the same.
func TestHaltState(t *testing.T) {
	dir := t.TempDir()
	file := HaltFile(filepath.Join(dir, "state"), "/run/unifiedd/control.sock")
	var h halts
	testenv.Must(t, h.open(file))
	if h.state.stopped("a") {
		t.Error("without a file orders are stopped")
	}
	h.turn("a", true)
	testenv.Must(t, h.keep())
	var back halts
	testenv.Must(t, back.open(file))
	if !back.state.stopped("a") || back.state.stopped("b") {
		t.Errorf("it comes back as %+v", back.state)
	}
	whole, err := os.ReadFile(file)
	testenv.Must(t, err)
	for _, damaged := range []string{"", "null", "{}", "[]", `{"all": false}`, string(whole[:len(whole)/2]), "\x00" + string(whole)} {
		testenv.Must(t, os.WriteFile(file, []byte(damaged), 0o600))
		var h halts
		if err := h.open(file); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "resume all") || !h.state.stopped("a") || !h.state.stopped("b") || h.status().Error == "" {
			t.Errorf("%q: %+v, %v", damaged, h.state, err)
		}
		h.turn(AllOrders, false)
		if err := h.keep(); err != nil || h.state.stopped("a") || h.status().Error != "" {
			t.Errorf("%q: after all resume: %+v, %v", damaged, h.state, err)
		}
	}
	testenv.Must(t, os.Remove(file), os.Mkdir(file, 0o700))
	if err := h.open(file); err == nil || !h.state.stopped("a") {
		t.Errorf("a directory: %+v, %v", h.state, err)
	}
	h.turn(AllOrders, false)
	h.turn("b", true)
	if err := h.keep(); err == nil || !strings.Contains(err.Error(), "control.state") || !h.state.stopped("b") || h.status().Error == "" {
		t.Errorf("it cannot be kept: %+v, %v", h.state, err)
	}
	if left, err := filepath.Glob(file + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
