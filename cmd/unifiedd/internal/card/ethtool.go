package card

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/genl"
)

// param is a number that ethtool shows and sets, with its word.
type param struct {
	word string
	attr uint16
	most uint16 // the attribute with the largest value; 0: there is none
	flag bool   // on or off, one byte
}

// group has the parameters of one setting, and the requests that read and set them (ethtool-netlink.rst of the kernel).
type group struct {
	get, set uint8
	params   []param
}

// header is the attribute that names the interface, the same for all requests.
const header = unix.ETHTOOL_A_RINGS_HEADER

var groups = map[Setting]group{
	Channels: {unix.ETHTOOL_MSG_CHANNELS_GET, unix.ETHTOOL_MSG_CHANNELS_SET, []param{
		{word: "combined", attr: unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT, most: unix.ETHTOOL_A_CHANNELS_COMBINED_MAX},
		{word: "rx", attr: unix.ETHTOOL_A_CHANNELS_RX_COUNT, most: unix.ETHTOOL_A_CHANNELS_RX_MAX},
	}},
	Rings: {unix.ETHTOOL_MSG_RINGS_GET, unix.ETHTOOL_MSG_RINGS_SET, []param{
		{word: "rx", attr: unix.ETHTOOL_A_RINGS_RX, most: unix.ETHTOOL_A_RINGS_RX_MAX},
	}},
	Coalescing: {unix.ETHTOOL_MSG_COALESCE_GET, unix.ETHTOOL_MSG_COALESCE_SET, []param{
		{word: "adaptive-rx", attr: unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, flag: true},
		{word: "rx-usecs", attr: unix.ETHTOOL_A_COALESCE_RX_USECS},
	}},
}

// named returns the attribute that names the interface.
func (c *Card) named() *nl.RtAttr {
	h := nl.NewRtAttr(header|unix.NLA_F_NESTED, nil)
	h.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(c.index)))
	return h
}

// ask returns the answer of the kernel for a group.
func (c *Card) ask(g group) (genl.Attributes, error) {
	return genl.Ask(unix.ETHTOOL_GENL_NAME, g.get, c.named())
}

// readGroup returns the values of a group in ethtool's words: those that the driver has.
func (c *Card) readGroup(g group) (string, error) {
	a, err := c.ask(g)
	if err != nil {
		return "", err
	}
	var words []string
	for _, p := range g.params {
		if n, is := p.of(a); is {
			words = append(words, p.word, p.text(n))
		}
	}
	if len(words) == 0 {
		return "", unix.EOPNOTSUPP
	}
	return strings.Join(words, " "), nil
}

// of returns the value of a parameter; ok is false if the driver has none.
func (p param) of(a genl.Attributes) (n uint32, ok bool) { return number(a[p.attr]) }

// number reads an attribute of one or four bytes.
func number(b []byte) (n uint32, ok bool) {
	switch len(b) {
	case 1:
		return uint32(b[0]), true
	case 4:
		return binary.NativeEndian.Uint32(b), true
	}
	return 0, false
}

func (p param) text(n uint32) string {
	switch {
	case !p.flag:
		return strconv.FormatUint(uint64(n), 10)
	case n == 0:
		return "off"
	}
	return "on"
}

// writeGroup sets what a text in ethtool's words names, and leaves the rest.
func (c *Card) writeGroup(g group, text string) error {
	request := []*nl.RtAttr{c.named()}
	words := strings.Fields(text)
	if len(words)%2 != 0 {
		return fmt.Errorf("%q: each word needs a value", text)
	}
	for ; len(words) > 0; words = words[2:] {
		a, err := g.attribute(words[0], words[1])
		if err != nil {
			return err
		}
		request = append(request, a)
	}
	return genl.Set(unix.ETHTOOL_GENL_NAME, g.set, request...)
}

// attribute returns the attribute for a word and its value.
func (g group) attribute(word, value string) (*nl.RtAttr, error) {
	for _, p := range g.params {
		if p.word != word {
			continue
		}
		if p.flag {
			return nl.NewRtAttr(int(p.attr), nl.Uint8Attr(map[string]uint8{"on": 1}[value])), nil
		}
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", word, value, err)
		}
		return nl.NewRtAttr(int(p.attr), nl.Uint32Attr(uint32(n))), nil
	}
	return nil, fmt.Errorf("%q is no word of this setting", word)
}
