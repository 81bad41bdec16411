package dhchap

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

const (
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a01"
	subNQN  = "nqn.2026-01.com.example:one"
	// Keys as nvme gen-dhchap-key writes them, of bytes that are not secret.
	plainKey  = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"
	hashedKey = "DHHC-1:02:uPEmKh5OpHMnnLO9vj3XcVWUqLCUGvLP1XumVQm4vlwvLaBw+QjEC1aBp9/vuIW3KlkvKQ==:"
)

// TestPrimes: the groups' primes equal those of OpenSSL, by the SHA-256 of their bytes.
func TestPrimes(t *testing.T) {
	for g, want := range map[Group]string{
		FFDHE2048: "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
		FFDHE3072: "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
		FFDHE4096: "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
		FFDHE6144: "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7",
		FFDHE8192: "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833",
	} {
		if got := hex.EncodeToString(SHA256.sum(g.prime().Bytes())); got != want || len(g.prime().Bytes()) != g.size() {
			t.Errorf("%v: %x", g, g.prime())
		}
		if back, err := GroupOf(g.String()); back != g || err != nil {
			t.Errorf("%v: %v, %v", g, back, err)
		}
	}
	if g, err := GroupOf("ffdhe1024"); err == nil {
		t.Error(g)
	}
}

func secret(t testing.TB, text string) Secret {
	t.Helper()
	k, err := ParseSecret(text)
	testenv.Must(t, err)
	return k
}

func TestSecrets(t *testing.T) {
	k := secret(t, plainKey)
	if len(k.key) != 32 || k.key[31] != 31 || k.hash != None || !bytes.Equal(k.of(hostNQN), k.key) {
		t.Errorf("%+v", k)
	}
	if k = secret(t, hashedKey); len(k.key) != 48 || k.hash != SHA384 || bytes.Equal(k.of(hostNQN), k.key) || bytes.Equal(k.of(hostNQN), k.of(subNQN)) {
		t.Errorf("%+v", k)
	}
	for _, wrong := range []string{"", "DHHC-1:00::", plainKey[:len(plainKey)-1], strings.Replace(plainKey, "AAEC", "AAED", 1), strings.Replace(plainKey, ":00:", ":04:", 1),
		strings.Replace(plainKey, ":00:", ":0x:", 1), strings.Replace(plainKey, ":00:", ":03:", 1), strings.Replace(plainKey, "AAEC", "A-EC", 1), "DHHC-1:00:AAAAAA==:"} {
		if _, err := ParseSecret(wrong); err == nil || len(wrong) > 20 && strings.Contains(err.Error(), wrong[12:20]) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
