package filter

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestNames parses every kind of name that can stand in place of a number or an address.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		testenv.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	before := []string{protocolsFile, networksFile, ethersFile}
	t.Cleanup(func() { protocolsFile, networksFile, ethersFile = before[0], before[1], before[2] })
	protocolsFile = write("protocols", "# comment\nip\t0\tIP\neigrp 88 EIGRP # Cisco\nbroken\nfar 256\n")
	networksFile = write("networks", "lab-net 10.9.0.0 lab\nshort 10.8\nbad x\n")
	ethersFile = write("ethers", "02:00:00:00:00:07 printer\n2:0:0:0:0:8 scanner.example # old\n")
	for text, want := range map[string]string{
		"portrange ftp-data-ssh": "tcp src or dst portrange 20-22", "portrange 20-ssh": "src or dst portrange 20-22", "portrange ftp-data-22": "src or dst portrange 20-22",
		"portrange ftp-data-ftp": "tcp src or dst portrange 20-21", "portrange ssh-ftp": "tcp src or dst portrange 21-22", "portrange 90-80": "src or dst portrange 80-90",
		"src portrange domain-http": "src portrange 53-80", "udp portrange 1-domain": "udp src or dst portrange 1-53", "sctp portrange 1-ssh": "sctp src or dst portrange 1-22",
		"port ftp-data": "tcp src or dst port 20", "portrange ftp-data": "tcp src or dst port 20", `port \http`: "tcp src or dst port 80",
		"proto eigrp": "proto 88", "ip proto EIGRP": "ip proto 88", `proto \ip`: "proto 0", "ip6 protochain eigrp": "ip6 protochain 88",
		"net lab-net": "src or dst host 10.9.0.0", "src net lab": "src host 10.9.0.0", "net short": "src or dst host 10.8.0.0",
		"ether host printer": "ether src or dst host 02:00:00:00:00:07", "ether src scanner.example": "ether src host 02:00:00:00:00:08",
		"host localhost": "src or dst host 127.0.0.1", "ip host localhost and port 80": "ip src or dst host 127.0.0.1 and src or dst port 80",
	} {
		e, err := Parse(text)
		if err != nil {
			t.Errorf("Parse(%q): %v", text, err)
			continue
		}
		got := e.String()
		if got != want && text != "host localhost" { // also ::1, if the machine's hosts file has it
			t.Errorf("Parse(%q) prints %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"proto far", "proto broken", "net bad", "net nowhere", "ether host nobody", "udp portrange ftp-ssh", "portrange ftp-nothing-here", "portrange -ssh", "ether proto eigrp", "iso proto eigrp"} {
		if e, err := Parse(text); err == nil {
			t.Errorf("%q is read as %q", text, e)
		}
	}
}
