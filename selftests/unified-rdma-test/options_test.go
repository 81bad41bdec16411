package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestMistakes: a mistake in a command line ends the program with status 2. The program names the
// mistake and touches no device.
func TestMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"":                                   "name IFACE, RDMA_DEV, BLOCK_DEV",
		"eth0 rxe0 -":                        "name IFACE, RDMA_DEV, BLOCK_DEV",
		"-nonsense eth0 rxe0 - 10.0.0.1":     "-help lists the options",
		"-transport XX eth0 rxe0 - 10.0.0.1": "RC, UC or UD",
		"-test all eth0 rxe0 - 10.0.0.1":     "want storage, verify, latency or bandwidth",
		"-test verify -op jump e r - h":      "want send, send-immediate",
		"-test verify -op read -transport UC e r - h": "UC does not have it",
		"-test verify -op send e r /dev/x h":          "needs no disk",
		"-test storage -op write e r - h":             "is done with SEND over RC",
		"-size 5000 e r - h":                          "a power of two",
		"-test verify -size 2000000000 e r - h":       "to 1073741824",
		"-test verify -n -1 e r - h":                  "-n -1",
		"-test verify -depth 5000 e r - h":            "-depth 5000",
		"-test verify -inline 70000 e r - h":          "-inline 70000",
		"-test latency -op write -size 0 e r - h":     "shows in its last byte",
		"-test latency -beyond e r - h":               "-beyond goes with -test verify",
		"-qp-timeout 32 e r - h":                      "-qp-timeout 32",
		"-test verify e roce:f - h":                   "name roce:e, or another IFACE",
		"-receive 100 e roce:e - server":              "-receive 100: it must be a power of two",
		"-receive 128 e rxe0 - server":                "-receive goes with a device roce:IFACE",
		"e roce: - server":                            "name roce:e",
		"-cert a e r - h":                             "go together",
		"-op write e r - server":                      "is the client's to say",
		"-beyond e r - server":                        "is the client's to say",
		"-R e r - server":                             "is the client's to say",
		"-R -test verify -transport UD e r - h":       "rdma_cm connects RC queue pairs, not UD",
		"-R -peer pingpong e r - h":                   "-R and -peer pingpong do not go together",
		"-peer rping -size 65536 e r - h":             "rping has pings of 28 to 65535 bytes",
		"-peer rping -op read e r - h":                "-op and -peer do not go together",
		"-peer netperf e r - h":                       "want pingpong or rping",
		"-peer pingpong -op write e r - h":            "-op and -peer do not go together",
		"-peer pingpong -beyond e r - h":              "do not go together",
		"-peer pingpong e r /dev/x h":                 "-peer needs no disk",
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), strings.Fields(line), &out, &errs); status != 2 || !strings.Contains(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%q: status %d, %q does not say %q; %s", line, status, &errs, want, &out)
		}
	}
}

// TestHelp: -help is not a mistake. It lists the options.
func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"-help"}, &out, &errs); status != 0 || !strings.Contains(errs.String(), "-beyond") {
		t.Errorf("status %d, %s%s", status, &out, &errs)
	}
}

// TestDefaults: the defaults fit the test.
func TestDefaults(t *testing.T) {
	for line, want := range map[string]job{
		"":                                {Test: storageTest, Op: "send", Size: 65536, Count: 100, Depth: 32},
		"-size 16777216":                  {Test: storageTest, Op: "send", Size: 16 << 20, Count: 100, Depth: 1},
		"-test verify -size 0":            {Test: verifyTest, Op: "send", Count: 100, Depth: 128},
		"-test latency":                   {Test: latencyTest, Op: "send", Size: 2, Count: 1000, Depth: 1, Inline: 220},
		"-test latency -op read":          {Test: latencyTest, Op: "read", Size: 2, Count: 1000, Depth: 1},
		"-test bandwidth -op fetch-add":   {Test: bandwidthTest, Op: "fetch-add", Size: 8, Count: 1000, Depth: 128},
		"-test bandwidth -op write -n 50": {Test: bandwidthTest, Op: "write", Size: 65536, Count: 50, Depth: 128},
	} {
		o, err := parse(append(strings.Fields(line), "e", "r", noDisk, "h"), new(bytes.Buffer))
		want.Transport, want.Seed = o.Transport, 1
		if err != nil || o.job != want {
			t.Errorf("%q: %+v, %v; want %+v", line, o.job, err, want)
		}
	}
}

// TestHello: a server decodes its client's job, and refuses a job beyond the limits.
func TestHello(t *testing.T) {
	o, err := parse([]string{"-test", "verify", "-op", "write", "e", "r", noDisk, "h"}, new(bytes.Buffer))
	testenv.Must(t, err)
	b, err := o.encode()
	testenv.Must(t, err)
	if j, err := decode(b); err != nil || j != o.job {
		t.Errorf("%+v, %v; want %+v", j, err, o.job)
	}
	for _, hostile := range []string{"", "{", "[]", `{}`, `{"Size":-1}`, strings.Replace(string(b), `"Count":100`, `"Count":999999999999`, 1),
		strings.Replace(string(b), `"Size":4096`, `"Size":99999999999`, 1), strings.Replace(string(b), `"Depth":128`, `"Depth":0`, 1)} {
		if _, err := decode([]byte(hostile)); err == nil {
			t.Errorf("%s is taken", hostile)
		}
	}
}

// TestTakes: a server refuses a job that its device cannot do, or that needs a disk it does not have.
func TestTakes(t *testing.T) {
	for _, c := range []struct {
		device, disk string
		job          job
		want         string
	}{
		{"rxe0", noDisk, job{Test: storageTest}, "name BLOCK_DEV"},
		{"rxe0", noDisk, job{Test: verifyTest, Manager: true}, ""},
		{"roce:e", "/d", job{Test: storageTest}, ""},
	} {
		o := options{device: c.device, disk: c.disk}
		if err := o.takes(&c.job); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, not %q", c, err, c.want)
		}
	}
}

// FuzzHello: no hello of a client crashes a server.
func FuzzHello(f *testing.F) {
	f.Add([]byte(`{"Test":"verify","Transport":"RC","Op":"write","Size":4096,"Count":100,"Depth":128,"Inline":0,"Seed":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if j, err := decode(b); err == nil && (j.Count < 1 || j.Depth < 1 || j.Depth > maxDepth || j.Size > maxSize) {
			t.Errorf("%+v is taken", j)
		}
	})
}
