package demo

import (
	"errors"
	"fmt"
	"os/exec"
)

// tool is a program that the demo runs, and its Debian package.
type tool struct{ name, pkg string }

// tools has all of them; scripts/apt-demo.txt lists the packages.
var tools = []tool{
	{"trafgen", "netsniff-ng"},
	{"ping", "iputils-ping"},
	{"tshark", "tshark"},
	{"capinfos", "tshark"},
	{"tcpdump", "tcpdump"},
}

// findTools returns an error that names the missing programs and how to install them.
func findTools() error {
	var errs []error
	for _, t := range tools {
		if _, err := exec.LookPath(t.name); err != nil {
			errs = append(errs, fmt.Errorf("the demo uses %s, which is not installed: apt-get install %s", t.name, t.pkg))
		}
	}
	return errors.Join(errs...)
}
