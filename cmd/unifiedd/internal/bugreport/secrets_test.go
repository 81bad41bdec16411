package bugreport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForms: texts that have the form of a secret are replaced, and what is around them stays.
func TestForms(t *testing.T) {
	const secret = "s3cr3tValue0fTest"
	for _, c := range []struct{ text, want string }{
		{"password: " + secret + " next", "password: [secret] next"},
		{`{"password": "` + secret + ` with blanks", "next": 1}`, `{"password": [secret], "next": 1}`},
		{`msg="bad \"token\": \"` + secret + `\" here"`, `msg="bad \"token\": [secret] here"`},
		{"DB_PASSWORD=" + secret, "DB_PASSWORD=[secret]"},
		{"--dhchap-secret=" + secret + " -t rdma", "--dhchap-secret=[secret] -t rdma"},
		{"--token " + secret + " run", "--token [secret] run"},
		{"https://user:" + secret + "@example.org/x", "https://user:[secret]@example.org/x"},
		{"postgres://:" + secret + "@db", "postgres://:[secret]@db"},
		{"Authorization: Bearer " + secret + "\nnext", "Authorization: [secret]\nnext"},
		{"got bearer " + secret + " of", "got bearer [secret] of"},
		{"host DHHC-1:00:" + secret + "+/==: end", "host [secret] end"},
		{"NVMeTLSkey-1:01:" + secret + ":", "[secret]"},
		{"jwt eyJhbGciOiJIUzI1NiJ9." + secret + ".abc end", "jwt [secret] end"},
		{"a -----BEGIN EC PRIVATE KEY-----\n" + secret + "\n-----END EC PRIVATE KEY----- b", "a [secret] b"},
		{`a -----BEGIN PRIVATE KEY-----\n` + secret + `\n-----END PRIVATE KEY----- b`, "a [secret] b"},
		{"a -----BEGIN PRIVATE KEY-----\n" + secret, "a [secret]"},
		{"api_key = '" + secret + "'", "api_key = [secret]"},
		// Not secret.
		{"flow wal: tls.key names /etc/unifiedd/key.pem", "flow wal: tls.key names /etc/unifiedd/key.pem"},
		{"http://127.0.0.1:9300/metrics", "http://127.0.0.1:9300/metrics"},
		{`unifiedd_refused_total{reason="bad_session"} 3`, `unifiedd_refused_total{reason="bad_session"} 3`},
	} {
		s := &secrets{all: map[string]bool{}}
		if got := string(s.remove([]byte(c.text))); got != c.want {
			t.Errorf("%q\nbecomes %q\nwant    %q", c.text, got, c.want)
		}
	}
}

// TestNamedSecrets: what a file of keys or the environment has is replaced wherever it occurs, in any of its forms.
func TestNamedSecrets(t *testing.T) {
	dir := t.TempDir()
	pem, keys := filepath.Join(dir, "key.pem"), filepath.Join(dir, "hosts.keys")
	lines := []string{"MHcCAQEEIEXAMPLEfirstLineOfKeyMaterial0123456789abcdefgh", "secondLineOfKeyMaterial/+=="}
	for path, text := range map[string]string{
		pem:  "-----BEGIN EC PRIVATE KEY-----\n" + strings.Join(lines, "\n") + "\n-----END EC PRIVATE KEY-----\n",
		keys: "# hosts\nnqn.2014-08.org.nvmexpress:uuid:1 odd-form-of-a-key another-odd-key\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &secrets{all: map[string]bool{}}
	s.addKeys(pem)
	s.addKeys(keys)
	s.addEnvironment([]string{"SOME_TOKEN=in \"quotes\" & more", "HARMLESS=harmless value", "MY_KEY=abc"})
	for _, secret := range append(lines, "odd-form-of-a-key", "another-odd-key", `in "quotes" & more`, `in \"quotes\" & more`, `in \"quotes\" \u0026 more`, "in+%22quotes%22+%26+more") {
		if got := string(s.remove([]byte("before " + secret + " after"))); got != "before [secret] after" {
			t.Errorf("%q stays: %q", secret, got)
		}
	}
	for _, plain := range []string{"nqn.2014-08.org.nvmexpress:uuid:1", "harmless value", "abc"} {
		if got := string(s.remove([]byte(plain))); got != plain {
			t.Errorf("%q becomes %q", plain, got)
		}
	}
}
