package providers

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/rdma/roce"
)

func TestSoft(t *testing.T) {
	for name, want := range map[string]string{"roce:eth1": "eth1", "roce:": ""} {
		if iface, is := Soft(name); iface != want || !is {
			t.Errorf("Soft(%q) = %q, %v", name, iface, is)
		}
	}
	if _, is := Soft("rxe0"); is {
		t.Error("rxe0 is a device of software")
	}
}

// TestNoInterface: Open refuses a name without an interface, and the error shows the right form.
func TestNoInterface(t *testing.T) {
	if _, err := Open("roce:", roce.Config{}); err == nil || !strings.Contains(err.Error(), "roce:eth1") {
		t.Errorf("the error is %v", err)
	}
}
