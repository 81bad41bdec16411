package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestMain lets the test run this program as the server.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestLoad: values are put on a server, and the time of each put is counted.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	var urls [2]string
	for i := range urls {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		urls[i] = "http://" + l.Addr().String()
		l.Close()
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(self, "server", "--name", "a", "--data-dir", dir, "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
		"--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1], "--initial-cluster", "a="+urls[1], "--log-level", "error")
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := connect(ctx, urls[:1])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	took, err := put(ctx, c, 64, 50*time.Millisecond, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Get(ctx, fmt.Sprintf("%s", []byte{0, 0, 0, 0, 0, 0, 0, 1}))
	if err != nil || len(r.Kvs) != 1 || len(r.Kvs[0].Value) != 64 {
		t.Errorf("the first value is %v: %v", r, err)
	}
	for _, one := range took {
		if one <= 0 || one > time.Minute {
			t.Fatalf("a put took %v", one)
		}
	}
}
