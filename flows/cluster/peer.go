package cluster

import (
	"fmt"
	"strings"
)

// Bounds of names. A daemon's name may be that of a host (RFC 1123), and a flow's is that of the configuration.
const (
	maxName     = 63
	maxFlowName = 32
)

// ValidName returns an error if text cannot be the name of a daemon.
func ValidName(text string) error {
	bad := func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-.", r) }
	switch {
	case text == "":
		return fmt.Errorf("the name of a daemon is needed")
	case len(text) > maxName || strings.ContainsFunc(text, bad) || strings.ContainsAny(text[:1]+text[len(text)-1:], "-."):
		return fmt.Errorf("%.80q is not the name of a daemon: up to %d of a-z, 0-9, - and ., with a letter or digit at both ends", text, maxName)
	}
	return nil
}

func validFlow(text string) bool {
	return text != "" && len(text) <= maxFlowName && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// ParsePeer splits NAME/FLOW into the name of a daemon and of a flow there.
func ParsePeer(text string) (name, flow string, err error) {
	name, flow, found := strings.Cut(text, "/")
	if !found {
		return "", "", fmt.Errorf("%.80q names no flow: say NAME/FLOW, the name of a daemon and of its flow", text)
	}
	if err := ValidName(name); err != nil {
		return "", "", err
	}
	if !validFlow(flow) {
		return "", "", fmt.Errorf("%.80q is not the name of a flow: up to %d of a-z, 0-9 and -", flow, maxFlowName)
	}
	return name, flow, nil
}
