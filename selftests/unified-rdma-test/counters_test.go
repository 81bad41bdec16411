package main

import (
	"maps"
	"strings"
	"testing"
)

func TestCounts(t *testing.T) {
	before := counts{"sent_pkts": 10, "rcvd_pkts": 5, "reset": 7, "same": 3}
	rose := counts{"sent_pkts": 12, "rcvd_pkts": 6, "reset": 1, "same": 3, "new": 1}.since(before)
	if want := (counts{"sent_pkts": 2, "rcvd_pkts": 1, "new": 1}); !maps.Equal(rose, want) {
		t.Errorf("%v, not %v", rose, want)
	}
	var out strings.Builder
	counted{"rxe0", rose}.print(&out)
	counted{}.print(&out)
	if out.String() != "meanwhile rxe0 counted: new 1, rcvd_pkts 1, sent_pkts 2\n" {
		t.Errorf("%q", out.String())
	}
}
