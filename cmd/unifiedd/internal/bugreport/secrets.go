package bugreport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
)

// mark replaces a secret.
const mark = "[secret]"

// Secrets shorter than this are not replaced where nothing else says that they are secret: they
// would be found in every other word.
const shortest = 5

// secrets are the texts that no file of a report may have.
type secrets struct {
	all      map[string]bool
	replacer *strings.Replacer // nil: made of all when it is needed
}

// add makes a text secret, in each form in which a file may have it.
func (s *secrets) add(text string) {
	text = strings.TrimSpace(text)
	if len(text) < shortest {
		return
	}
	s.replacer = nil
	s.all[text] = true
	s.all[url.QueryEscape(text)] = true
	s.all[url.PathEscape(text)] = true
	if quoted, err := json.Marshal(text); err == nil {
		s.all[strings.Trim(string(quoted), `"`)] = true
	}
	quoted := fmt.Sprintf("%q", text)
	s.all[quoted[1:len(quoted)-1]] = true
}

// addKeys makes the keys in a file secret: the lines of base64 in PEM, or the words after the name
// in a line of a file of host keys. A file that cannot be read is not in a report either.
func (s *secrets) addKeys(path string) {
	text, err := readSome(path, 1<<20)
	if err != nil {
		return
	}
	inPEM := bytes.Contains(text, []byte("-----BEGIN"))
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(fields[0], "-----"):
		case inPEM:
			s.add(line)
		default:
			for _, key := range fields[1:] {
				s.add(key)
			}
		}
	}
}

// sensitive matches names of variables and settings whose values are secret.
var sensitive = regexp.MustCompile(`(?i)pass|secret|token|key|cred|auth|cookie|dsn|private`)

// addEnvironment makes the values of sensitive variables secret.
func (s *secrets) addEnvironment(variables []string) {
	for _, v := range variables {
		if name, value, ok := strings.Cut(v, "="); ok && sensitive.MatchString(name) {
			s.add(value)
		}
	}
}

// findSecrets collects what is secret on this machine: the keys and unknown settings of the
// configuration, and variables of the environment of this process and of the daemon.
func findSecrets(o Options, pid int) *secrets {
	s := &secrets{all: make(map[string]bool)}
	s.addEnvironment(os.Environ())
	if pid > 0 {
		s.addEnvironment(environment(pid))
	}
	if o.Config == "" {
		return s
	}
	text, err := readConfig(o.Config)
	if err != nil {
		return s
	}
	c, err := readable(text)
	if err != nil {
		return s // then the report has nothing of it
	}
	for _, value := range c.masked {
		s.add(value)
	}
	for _, path := range c.keyFiles {
		s.addKeys(path)
	}
	return s
}

// Forms of secrets. The parts in the first and last group stay.
var (
	privateKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	forms      = []*regexp.Regexp{
		// Keys of NVMe hosts.
		regexp.MustCompile(`()(?:DHHC-1|NVMeTLSkey-1):[0-9A-Za-z+/=:]+()`),
		// A password in a URL.
		regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@"']*:)[^/\s@"']+(@)`),
		// Of HTTP.
		regexp.MustCompile(`(?i)(authorization["']?\s*[:=]\s*["']?)[^"'\r\n]+()`),
		regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9+/=._~-]{8,}()`),
		// A JSON Web Token.
		regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*()`),
		// A name that says so, and a value: in quotes, or a word.
		regexp.MustCompile(`(?i)([a-z0-9_.-]*(?:passw(?:or)?d|passphrase|passwd|secret|token|api_?key|apikey|private_?key|credential)s?\\?["']?\s*[:=]\s*)` +
			`(?:\\?"[^"\r\n]*?\\?"|'[^'\r\n]*'|[^\s"',;}\]\\]+)()`),
		// An option and a value.
		regexp.MustCompile(`(?i)(--?[a-z0-9-]*(?:password|passphrase|secret|token|api-?key)\s+)[^\s"'-][^\s"']*()`),
	}
)

// remove returns a text without secrets.
func (s *secrets) remove(text []byte) []byte {
	if s.replacer == nil {
		s.replacer = s.makeReplacer()
	}
	t := privateKey.ReplaceAllString(string(text), mark)
	t = s.replacer.Replace(t)
	for _, form := range forms {
		t = form.ReplaceAllString(t, "${1}"+mark+"${2}")
	}
	return []byte(t)
}

// makeReplacer returns what replaces all secrets. A secret that contains another one comes first.
func (s *secrets) makeReplacer() *strings.Replacer {
	var all []string
	for text := range s.all {
		all = append(all, text)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, text := range all {
		pairs = append(pairs, text, mark)
	}
	return strings.NewReplacer(pairs...)
}
