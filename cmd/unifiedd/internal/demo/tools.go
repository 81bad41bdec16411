package demo

import (
	"errors"
	"fmt"
	"os/exec"
)

// tool is a program the demo runs and the Debian package it comes in.
type tool struct{ name, pkg string }

// tools are all of them; packaging/apt-demo.txt has the packages.
var tools = []tool{
	{"trafgen", "netsniff-ng"},
	{"ping", "iputils-ping"},
	{"tshark", "tshark"},
	{"capinfos", "tshark"},
	{"tcpdump", "tcpdump"},
}

// findTools says which programs are missing and how to get them.
func findTools() error {
	var errs []error
	for _, t := range tools {
		if _, err := exec.LookPath(t.name); err != nil {
			errs = append(errs, fmt.Errorf("the demo uses %s, which is not installed: apt-get install %s", t.name, t.pkg))
		}
	}
	return errors.Join(errs...)
}
