// Generate writes the profile of system calls for containers to a file.
package main

import (
	"fmt"
	"os"

	"github.com/unifiedd/unifiedd/internal/seccomp"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate FILE")
		os.Exit(2)
	}
	text, err := seccomp.Profile()
	if err == nil {
		err = os.WriteFile(os.Args[1], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}
