package main

import (
	"testing"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

func TestParseRecord(t *testing.T) {
	for record, want := range map[string]wire.LogLine{
		"6,339,5140900,-;NET: Registered PF_XDP\n":                                {Level: 6, Text: "NET: Registered PF_XDP"},
		"4,1,0,-;WARNING: CPU: 0; PID: 1\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00\n": {Level: 4, Text: "WARNING: CPU: 0; PID: 1"},
		"30,7,1,-;from a program\n":                                               {Level: 6, Text: "from a program"},
		"0,7,1,c;a part":                                                          {Level: 0, Text: "a part"},
	} {
		if got, ok := parseRecord(record); !ok || got != want {
			t.Errorf("%q is %+v, %v", record, got, ok)
		}
	}
	for _, record := range []string{"", "nothing", "x,1,2,-;text", ";"} {
		if got, ok := parseRecord(record); ok {
			t.Errorf("%q is taken for a record: %+v", record, got)
		}
	}
}
