package perftest

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"

	"github.com/unifiedd/unifiedd/rdma"
)

// Version is the version that we report.
const Version = "6.06"

// The versions of peers that are supported: from 5.70, and before 6.28.
const (
	firstVersion = 5.70
	tooNew       = 6.28
)

const versionBytes = 16

// Defaults of the values that both sides raise to the larger one.
const (
	cycleBuffer = 4096
	cacheLine   = 64
)

// maxCycle and maxLine are the largest values that we accept.
const (
	maxCycle = 1 << 26
	maxLine  = 1 << 16
)

// Agreed is the result of Begin.
type Agreed struct {
	PeerVersion string
	MTU         rdma.MTU
	// In bandwidth tests, messages shorter than CycleBuffer go to successive addresses, until
	// CycleBuffer bytes are used. The distance between two addresses is the message size, rounded
	// up to a multiple of CacheLine.
	CycleBuffer, CacheLine uint32
}

func encodeVersion() []byte {
	b := make([]byte, versionBytes)
	copy(b, Version)
	return b
}

// versionText matches a version and the zero byte after it. The bytes after that have no meaning.
var versionText = regexp.MustCompile(`^([0-9]+\.[0-9]+)\x00`)

// decodeVersion reads a version and refuses unsupported ones.
func decodeVersion(b []byte) (string, error) {
	found := versionText.FindSubmatch(b)
	if found == nil {
		return "", fmt.Errorf("%q is not a version of perftest's: is the peer one of its programs?", b)
	}
	text := string(found[1])
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return "", err
	case v < firstVersion:
		return "", fmt.Errorf("the peer has version %s of perftest's protocol: it must be 5.70 or later", text)
	case v >= tooNew:
		return "", fmt.Errorf("the peer has version %s of perftest's protocol: from 6.28 on (perftest 26.01) the programs speak only with their like; take 25.10 or earlier", text)
	}
	return text, nil
}

// larger reads the peer's number and returns the larger one.
func larger(what string, ours, most uint32, b []byte) (uint32, error) {
	theirs := binary.BigEndian.Uint32(b)
	if theirs > most {
		return 0, fmt.Errorf("the peer's %s of %d bytes is larger than %d", what, theirs, most)
	}
	return max(ours, theirs), nil
}

func encodeMTU(m rdma.MTU) []byte { return []byte{'0' + byte(m), 0} }

// smaller reads the peer's MTU and returns the smaller one.
func smaller(ours rdma.MTU, b []byte) (rdma.MTU, error) {
	theirs := rdma.MTU(b[0] - '0')
	if theirs.Bytes() == 0 || b[1] != 0 {
		return 0, fmt.Errorf("the peer's MTU %q is none of 1 to 5", b)
	}
	return min(ours, theirs), nil
}
