package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOrders: one command stops the orders of all flows, or of one, and another lets them leave again. Status says so. A
// flow that sends no orders, and one that is not there, are refused.
func TestOrders(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	testenv.HugePages(t, 40<<20)
	pair := testenv.NewPair(t, testenv.PairOptions{})
	s := serve(t, pair, func(dir string) string {
		return fmt.Sprintf(`
region: {size: 32MiB, extents: 4}
control: {state: %s/state}
attach: {socket: %[1]s/attach.sock, programs: [{name: trader, user: "%d", out: 2MiB}]}
flows:
  - {name: orders, from: {attach: trader}, to: {order: {connect: "%s:4001", interface: %s}}}
  - {name: idle, from: {generate: 64, rate: 1}, to: {discard: true}}
`, dir, os.Getuid(), pair.A.IP, pair.B.Ifname)
	})
	s.start(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"orders", "stop", "all"}, 0, "flow orders: orders are stopped; held so far: 0\n"},
		{[]string{"status", "-o", "wide"}, 0, "unifiedd orders resume orders"},
		{[]string{"orders", "status"}, 0, "orders of all flows, and of those to come: stopped\nflow orders: stopped\nkept in "},
		{[]string{"orders", "resume", "orders"}, 0, "may leave again"},
		{[]string{"orders", "status"}, 0, "those to come: stopped\nflow orders: leave\n"},
		{[]string{"orders", "stop", "orders"}, 0, "are stopped"},
		{[]string{"stop", "orders"}, 0, ""},
		{[]string{"orders", "resume", "orders"}, 0, "flow orders: orders may leave again; held meanwhile: 0\n"},
		{[]string{"orders", "status"}, 0, "those to come: stopped\nflow orders: leave\n"},
		{[]string{"orders", "resume", "all"}, 0, "may leave again"},
		{[]string{"orders", "status"}, 0, "those to come: leave\nflow orders: leave\n"},
		{[]string{"orders", "stop", "idle"}, exitFailed, "orders of idle: flow idle sends no orders"},
		{[]string{"orders", "resume", "none"}, exitFailed, `orders of none: there is no flow "none"`},
		{[]string{"orders", "stop"}, exitUsage, "an argument is missing"},
	} {
		var out, errs bytes.Buffer
		if code := run(append(c.args, "--socket", s.socket), &out, &errs); code != c.code || !strings.Contains(out.String()+errs.String(), c.says) {
			t.Errorf("%v ends with %d: %s%s", c.args, code, out.String(), errs.String())
		}
	}
}
