package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestErrorsNameFlags: capture and replay name the wrong flag, and not a setting of a file that the
// user does not have.
func TestErrorsNameFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"replay", "-i", "lo", "--mbps", "-1", "x.pcap"}, "--multiplier, --pps or --mbps: a pace of -1e+06 is not"},
		{[]string{"replay", "-i", "lo", "--ring", "5", "x.pcap"}, "--ring: "},
		{[]string{"replay", "-i", "lo", "--filter", "prot 5", "x.pcap"}, "--filter: "},
		{[]string{"capture", "-i", "lo", "--take", "--ring", "5"}, "--ring: "},
		{[]string{"capture", "-i", "lo", "--take", "--layout", "flat"}, "--layout: "},
		{[]string{"capture", "-i", "a/b"}, "-i: "},
		{[]string{"capture", "-i", "lo", "host 10.9.0.300"}, `unifiedd: filter: at byte 5: "10.9.0.300"`},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(c.args, &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), c.want) || strings.Contains(stderr.String(), "flows[0]") {
			t.Errorf("%q: status %d, %q; want one that says %q", c.args, code, stderr.String(), c.want)
		}
	}
}
