package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// link is the channel to the host. Any goroutine may send messages; one receives.
type link struct {
	file *os.File
	in   *json.Decoder

	mu  sync.Mutex
	out *json.Encoder
}

// openLink opens the virtio-serial port of our name. It waits, since the kernel may not have found
// the port yet.
func openLink() (*link, error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, file := range names {
			text, err := os.ReadFile(file)
			if err != nil || strings.TrimSpace(string(text)) != wire.Port {
				continue
			}
			f, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(file)), os.O_RDWR, 0)
			if err != nil {
				return nil, fmt.Errorf("open the port to the host: %w", err)
			}
			return &link{file: f, in: json.NewDecoder(f), out: json.NewEncoder(f)}, nil
		}
	}
	return nil, errors.New("look for the port to the host: none has its name")
}

func (l *link) send(m wire.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.out.Encode(m); err != nil {
		return fmt.Errorf("tell the host: %w", err)
	}
	return nil
}

// problem reports an error to the host, and returns it.
func (l *link) problem(err error) error {
	return errors.Join(err, l.send(wire.Message{Problem: err.Error()}))
}

// Write sends output of a command.
func (l *link) Write(b []byte) (int, error) {
	if err := l.send(wire.Message{Output: b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (l *link) receive() (wire.Message, error) {
	var m wire.Message
	if err := l.in.Decode(&m); err != nil {
		return m, fmt.Errorf("hear from the host: %w", err)
	}
	return m, nil
}

func (l *link) Close() error { return l.file.Close() }
