package connect

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
)

// Version is the version of the protocol. Both sides must have the same.
const Version = 1

// magic begins every message.
const magic = "uRDM"

// headerBytes is the length of the magic, the version, the kind and the length of the body. They stay
// the same in every version, so that each version can refuse the others with a message.
const headerBytes = 8

// kind is the kind of a message.
type kind uint8

const (
	kindOffer  kind = 1 // the client's
	kindAnswer kind = 2 // the server's offer
	kindReady  kind = 3 // the client can receive
	kindRefuse kind = 4 // the sender refuses, with a text
	kindText   kind = 5 // of the program
	kindBye    kind = 6 // the sender closes the connection in good order
)

// maxRefuse bounds the text of a refusal in bytes.
const maxRefuse = 200

// limits is the longest body of each kind in bytes.
var limits = map[kind]int{kindOffer: maxOffer, kindAnswer: maxOffer, kindReady: 0, kindRefuse: maxRefuse, kindText: MaxHello, kindBye: 0}

// MaxMessage is the longest body of a message in bytes.
const MaxMessage = maxOffer

func (k kind) String() string {
	names := map[kind]string{kindOffer: "offer", kindAnswer: "answer", kindReady: "ready", kindRefuse: "refusal", kindText: "text", kindBye: "bye"}
	if s, ok := names[k]; ok {
		return s
	}
	return fmt.Sprintf("message of kind %d", uint8(k))
}

// writeMessage sends one message in one write.
func writeMessage(w io.Writer, k kind, body []byte) error {
	b := make([]byte, 0, headerBytes+len(body))
	b = append(b, magic...)
	b = append(b, Version, byte(k))
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	_, err := w.Write(append(b, body...))
	return err
}

// readMessage receives one message, no longer than its kind may be. Its errors have a reason, see
// reasonOf.
func readMessage(r io.Reader) (kind, []byte, error) {
	var h [headerBytes]byte
	if n, err := io.ReadFull(r, h[:]); err != nil {
		if n > 0 && !bytes.HasPrefix([]byte(magic), h[:min(n, len(magic))]) {
			return 0, nil, stranger(h[:n])
		}
		return 0, nil, err
	}
	if string(h[:len(magic)]) != magic {
		return 0, nil, stranger(h[:])
	}
	if v := h[4]; v != Version {
		return 0, nil, &versionError{v}
	}
	k, n := kind(h[5]), int(binary.BigEndian.Uint16(h[6:]))
	most, ok := limits[k]
	if !ok {
		return 0, nil, malformed("%v: there is no such kind", k)
	}
	if n > most {
		return 0, nil, malformed("%v of %d bytes is longer than %d", k, n, most)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return k, body, err
}

// perftestVersion matches the first message of perftest's programs.
var perftestVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\x00`)

// stranger returns an error that says which protocol a peer seems to use.
func stranger(begin []byte) error {
	switch {
	case begin[0] == 0x16:
		return malformed("the peer begins with a TLS handshake, and here no certificates are configured")
	case begin[0] == 0x15:
		return malformed("the peer answers with a TLS alert: it wants TLS, and here no certificates are configured")
	case bytes.HasPrefix(begin, []byte("0000:")):
		return malformed("the peer seems to be an ibv_*_pingpong, which has another format")
	case perftestVersion.Match(begin):
		return malformed("the peer seems to be a perftest program, which has another format")
	}
	return malformed("the peer begins with %q, which is not this exchange", begin)
}
