package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Status returns the daemon's status document, JSON of a [status.Daemon].
//
// [status.Daemon]: https://pkg.go.dev/github.com/unifiedd/unifiedd/flows/status#Daemon
func Status(ctx context.Context, socket string) ([]byte, error) {
	return request(ctx, socket, http.MethodGet, statusPath, nil)
}

// statusPath is of the request that each release knows.
const statusPath = "/status"

// StartFlow makes the daemon start a flow, unless it runs. Other flows are not affected. It returns what came of it.
func StartFlow(ctx context.Context, socket, flow string) (done string, err error) {
	return flowRequest(ctx, socket, flow, "start")
}

// StopFlow makes the daemon stop a flow, if it runs. It returns, with what came of it, when the flow has written and flushed
// everything. This takes as long as the disk needs.
func StopFlow(ctx context.Context, socket, flow string) (done string, err error) {
	return flowRequest(ctx, socket, flow, "stop")
}

// RestartFlow is StopFlow and then StartFlow.
func RestartFlow(ctx context.Context, socket, flow string) (done string, err error) {
	return flowRequest(ctx, socket, flow, "restart")
}

func flowRequest(ctx context.Context, socket, flow, verb string) (done string, err error) {
	text, err := request(ctx, socket, http.MethodPost, "/flows/"+url.PathEscape(flow)+"/"+verb, nil)
	return strings.TrimSpace(string(text)), err
}

// TransferGroup makes another member lead the group of a flow. It returns when that one leads.
func TransferGroup(ctx context.Context, socket, flow, to string) error {
	return group(ctx, socket, flow, url.Values{"transfer": {to}})
}

// ChangeGroup makes a member a voter in the group of a flow, and makes another one leave. A name may be empty.
// It returns when that is done.
func ChangeGroup(ctx context.Context, socket, flow, add, remove string) error {
	return group(ctx, socket, flow, url.Values{"add": {add}, "remove": {remove}})
}

// GroupMembers returns the members of the group of a flow as its leader knows them, as JSON of a status.Members.
func GroupMembers(ctx context.Context, socket, flow string) ([]byte, error) {
	return request(ctx, socket, http.MethodGet, "/flows/"+url.PathEscape(flow)+"/group", nil)
}

func group(ctx context.Context, socket, flow string, what url.Values) error {
	_, err := request(ctx, socket, http.MethodPost, "/flows/"+url.PathEscape(flow)+"/group?"+what.Encode(), nil)
	return err
}

// StopOrders stops the orders of a flow, or of all flows, and returns JSON of a list of status.OrderStop. When it
// returns, no order leaves any more.
func StopOrders(ctx context.Context, socket, flow string) ([]byte, error) {
	return request(ctx, socket, http.MethodPost, "/orders/"+url.PathEscape(flow)+"/stop", nil)
}

// ResumeOrders lets the orders of a flow, or of all flows, leave again. It answers as StopOrders does.
func ResumeOrders(ctx context.Context, socket, flow string) ([]byte, error) {
	return request(ctx, socket, http.MethodPost, "/orders/"+url.PathEscape(flow)+"/resume", nil)
}

// Registry returns all daemons of the cluster, as JSON of a status.Registry.
func Registry(ctx context.Context, socket string) ([]byte, error) {
	return request(ctx, socket, http.MethodGet, "/cluster", nil)
}

// Reload makes the daemon read its configuration again, and returns JSON of a status.Reload.
func Reload(ctx context.Context, socket string) ([]byte, error) {
	return request(ctx, socket, http.MethodPost, "/reload", nil)
}

// Plan returns the effects of a reload as JSON of a config.Plan. It plans a reload of the daemon's
// own file, or of the text of the file of that name.
func Plan(ctx context.Context, socket, file string, text io.Reader) ([]byte, error) {
	path := "/plan"
	if file != "" {
		path += "?file=" + url.QueryEscape(file)
	}
	return request(ctx, socket, http.MethodPost, path, text)
}

// Events calls each with the documents of the daemon's status page, as they come, until ctx ends, each returns an
// error, or the daemon ends. each must not keep the bytes.
func Events(ctx context.Context, socket string, each func(document []byte) error) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://unifiedd/events", nil)
	if err != nil {
		return err
	}
	answer, err := newClient(socket).Do(r)
	if err != nil {
		return asking(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096)) // what of it came
		return refused(ctx, socket, "/events", answer.StatusCode, strings.TrimSpace(string(text)))
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if document, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			if err := each(document); err != nil {
				return err
			}
		}
	}
	return cmp.Or(lines.Err(), errors.New("the daemon has ended"))
}

// newClient returns a client of the control socket.
func newClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}

// asking is the error of a daemon that cannot be asked.
func asking(err error) error {
	if e, is := errors.AsType[*url.Error](err); is {
		err = e.Err // its URL says nothing of the socket, which err names
	}
	return fmt.Errorf("ask the daemon: %w (does it run, and with this control.socket?)", err)
}

// request sends a request to the daemon and returns its answer. If the daemon refuses, the error is
// the daemon's own text.
func request(ctx context.Context, socket, method, path string, body io.Reader) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://unifiedd"+path, body)
	if err != nil {
		return nil, err
	}
	answer, err := newClient(socket).Do(r)
	if err != nil {
		return nil, asking(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	if err != nil || answer.StatusCode == http.StatusOK {
		return raw, err
	}
	return nil, refused(ctx, socket, path, answer.StatusCode, strings.TrimSpace(string(raw)))
}

// refused returns the error of a request that the daemon has answered with that status and text.
func refused(ctx context.Context, socket, path string, code int, text string) error {
	unknown := code == http.StatusMethodNotAllowed || text == "404 page not found" // http.ServeMux answers so, and no handler
	switch {
	case code == http.StatusUnprocessableEntity:
		return ConfigErrors(text)
	case !unknown || path == statusPath:
		return errors.New(text)
	}
	var s struct{ Version string }
	if raw, err := Status(ctx, socket); err != nil || json.Unmarshal(raw, &s) != nil || s.Version == "" {
		return errors.New(text)
	}
	return &UnknownError{s.Version}
}

// UnknownError means that the daemon is of a release that does not know a request.
type UnknownError struct {
	Version string // the daemon's
}

// Error implements error.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("the daemon is of version %s, which does not know this request: use the program of that version, or restart the daemon", e.Version)
}

// ConfigErrors is the text of the mistakes that the daemon found in a configuration, one on each
// line, as config.Errors prints them.
type ConfigErrors string

// Error implements error.
func (e ConfigErrors) Error() string { return string(e) }

// Page returns a page of the control socket, such as /metrics. If the status of the answer is not
// that of success, the error has the page's text.
func Page(ctx context.Context, socket, path string) ([]byte, error) {
	return request(ctx, socket, http.MethodGet, path, nil)
}
