// Sweep undoes what killed tests have left on the machine (huge pages, network namespaces, mounts,
// block devices), as the next test would.
package main

import (
	"fmt"
	"os"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func main() {
	if err := testenv.Sweep(); err != nil {
		fmt.Fprintln(os.Stderr, "sweep:", err)
		os.Exit(1)
	}
}
