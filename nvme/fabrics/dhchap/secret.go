package dhchap

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// Secret is a key of a host or a controller.
type Secret struct {
	key  []byte
	hash Hash // the hash that binds it to a name
}

var errSecret = errors.New("no key as nvme gen-dhchap-key makes them, DHHC-1:00:...: (a wrong character, or part of it)")

// ParseSecret parses the form that nvme gen-dhchap-key writes: DHHC-1:HASH:BASE64:, where a CRC-32
// follows the key. The error contains nothing of the key.
func ParseSecret(s string) (Secret, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 4 || parts[0] != "DHHC-1" || parts[3] != "" || len(parts[1]) != 2 || parts[1][0] != '0' || parts[1][1] < '0' || parts[1][1] > '3' {
		return Secret{}, errSecret
	}
	b, err := base64.StdEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(b) < 4 {
		return Secret{}, errSecret
	}
	k := Secret{key: b[:len(b)-4], hash: Hash(parts[1][1] - '0')}
	if crc32.ChecksumIEEE(k.key) != binary.LittleEndian.Uint32(b[len(k.key):]) {
		return Secret{}, errSecret
	}
	switch n := len(k.key); {
	case n != 32 && n != 48 && n != 64:
		return Secret{}, fmt.Errorf("the key has %d bytes: 32, 48 and 64 are possible", n)
	case k.hash != None && n != k.hash.size():
		return Secret{}, fmt.Errorf("the key has %d bytes: that of its hash function has %d", n, k.hash.size())
	}
	return k, nil
}

// of returns the key in the form that the host or controller with that name uses.
func (k *Secret) of(name string) []byte {
	if k.hash == None {
		return k.key
	}
	return k.hash.mac(k.key, []byte(name), []byte("NVMe-over-Fabrics"))
}

// empty reports whether there is no key, as in the zero Secret.
func (k *Secret) empty() bool { return len(k.key) == 0 }

// equal reports whether two keys are the same.
func (k *Secret) equal(other *Secret) bool {
	if k == nil || other == nil {
		return k == other
	}
	return k.hash == other.hash && hmac.Equal(k.key, other.key)
}

// Equal reports whether the keys are the same.
func (k Keys) Equal(other Keys) bool {
	return k.Host.equal(&other.Host) && k.Controller.equal(other.Controller)
}

// Keys are the key of a host, and the key of its controller. The latter is nil if the host cannot
// ask the controller for a proof.
type Keys struct {
	Host       Secret
	Controller *Secret
}
