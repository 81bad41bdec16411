package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

// MaxFile is the largest size of a file, in bytes.
const MaxFile = 1 << 20

// Options add checks. The zero value adds none.
type Options struct {
	// CheckFilter, unless nil, returns an error if a filter expression is invalid for packets of a
	// link type. If errors.As finds an error with a method Offset() int, the caret points at that byte
	// of the expression.
	CheckFilter func(expr string, of linktype.Type) error
	// FindInterface, unless nil, looks up a network interface. If it finds the interface, the Config
	// has the first name; see [Flow.Named]. If not, the Config keeps the name from the file, and the
	// link type counts as Ethernet.
	FindInterface func(name string) (netdev.Device, error)
	// CheckObject, unless nil, checks a program in an ELF object. It returns the [Object.Digest], or
	// an error.
	CheckObject func(file, program string) (digest string, err error)
	// Running, unless nil, is the configuration of a running daemon. A change to a setting that cannot
	// change while the daemon runs is a mistake.
	Running *Config
}

// Load reads and checks the configuration in a file. If it returns an error, there is no Config.
// The error is an [*Errors], unless the file could not be read.
func Load(path string, o Options) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data, o)
}

// Parse reads and checks a configuration. name is the file's name in messages and positions. If
// Parse returns an error, there is no Config. The error is always an [*Errors].
func Parse(name string, data []byte, o Options) (*Config, error) {
	text := strings.TrimPrefix(string(data), "\ufeff")
	r := newReport(newSource(name, text[:min(len(text), MaxFile)]))
	c := Default()
	if root := compose(r, text); root != nil {
		d := newDecoder(r)
		d.config(root, c)
		if c.Region.Extents == 0 && o.Running != nil {
			c.Region.Extents = o.Running.Region.Extents
		}
		c.Complete()
		if d.left >= 0 {
			validate(r, c, o)
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// compose parses a text of one document into a tree, or reports why it cannot.
func compose(r *report, text string) *yaml.Node {
	switch at := invalidUTF8(text); {
	case len(text) > MaxFile:
		r.add(r.src.at(1, 1), "", fmt.Errorf("the file is larger than 1 MiB"))
		return nil
	case at >= 0:
		before := newSource("", text[:at])
		last := len(before.lines) - 1
		r.add(r.src.at(last+1, before.width[last]+1), "", fmt.Errorf("the text is not UTF-8"))
		return nil
	}
	return documents(r, text)
}

// documents parses the first document into a tree and refuses any other document.
func documents(r *report, text string) *yaml.Node {
	l, err := yaml.NewLoader(bytes.NewReader([]byte(text)))
	if err != nil {
		r.add(r.src.at(1, 1), "", err)
		return nil
	}
	var first, second yaml.Node
	switch err := l.Load(&first); {
	case errors.Is(err, io.EOF):
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: 1, Column: 1}
	case err != nil:
		r.syntax(err)
		return nil
	}
	switch err := l.Load(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		r.syntax(err)
	default:
		r.add(r.src.at(second.Line, second.Column), "", fmt.Errorf("a second document begins; only one is read"))
	}
	if first.Kind == yaml.DocumentNode {
		return first.Content[0]
	}
	return &first
}

// syntax reports an error of the YAML parser.
func (r *report) syntax(err error) {
	e := (*yaml.LoadError)(nil)
	if !errors.As(err, &e) {
		r.add(r.src.at(1, 1), "", fmt.Errorf("not YAML: %w", err))
		return
	}
	mark := e.Mark
	if mark.Line == 0 {
		mark = e.ContextMark
	}
	message := e.Message
	if e.ContextMsg != "" && e.ContextMark.Line > 0 {
		message = fmt.Sprintf("%s from line %d on: %s", e.ContextMsg, e.ContextMark.Line, message)
	}
	at, hint := r.src.at(mark.Line, mark.Column), ""
	if strings.HasPrefix(r.src.from(at), "\t") {
		hint = "indent with spaces, not tabs"
	}
	r.add(at, "", wrong(hint, "not YAML: %s", message))
}

// invalidUTF8 returns the offset of the first byte that is not valid UTF-8, or -1.
func invalidUTF8(text string) int {
	for i, c := range text {
		if c != utf8.RuneError {
			continue
		}
		if _, n := utf8.DecodeRuneInString(text[i:]); n == 1 {
			return i
		}
	}
	return -1
}

// ParseFilter parses a filter expression for packets of a link type. An empty text matches every
// packet; the returned expression is then nil.
func ParseFilter(text string, link linktype.Type) (*filter.Expr, error) {
	if text == "" {
		return nil, nil
	}
	expr, err := filter.ParseFor(link, text)
	if err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, err)
	}
	return expr, nil
}
