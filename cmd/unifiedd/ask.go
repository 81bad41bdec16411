package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/unifiedd/unifiedd/flows/config"
)

// addSocket adds the flag that says where the daemon listens.
func addSocket(c *cobra.Command, socket *string) {
	c.Flags().StringVar(socket, "socket", config.DefaultSocket, "control `SOCKET` of the daemon")
}

// ask makes a request to the daemon and returns its answer. What the daemon refuses is
// an error in the daemon's words.
func ask(ctx context.Context, socket, method, path string) ([]byte, error) {
	return askWith(ctx, socket, method, path, nil)
}

// askWith is ask with something for the daemon to read.
func askWith(ctx context.Context, socket, method, path string, body io.Reader) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://unifiedd"+path, body)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the daemon: %w (does it run, and with this control.socket?)", err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	if err != nil || answer.StatusCode == http.StatusOK {
		return raw, err
	}
	said := strings.TrimSpace(string(raw))
	if answer.StatusCode == http.StatusUnprocessableEntity {
		return nil, mistakes(said)
	}
	return nil, errors.New(said)
}

// mistakes are those the daemon found in a configuration, as it printed them.
type mistakes string

func (m mistakes) Error() string { return string(m) }
