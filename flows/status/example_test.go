package status_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/unifiedd/unifiedd/flows/status"
)

// A program reads what `unifiedd status -o json` prints.
func Example() {
	text := `{"version": "1.0", "flows": [{"name": "feed", "state": "waiting", "error": "the interface is down", "offered": 7, "dropped": {}}]}`
	var d status.Daemon
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&d); err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range d.Flows {
		fmt.Printf("%s runs: %v, %s, %d packets\n", f.Name, f.State.Up(), f.Error, f.Offered)
	}
	// Output: feed runs: true, the interface is down, 7 packets
}
