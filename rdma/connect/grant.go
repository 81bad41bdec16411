package connect

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// Limits of an offer. A receiver refuses a longer message by its length.
const (
	MaxGrants    = 64
	MaxGrantName = 63   // bytes
	MaxHello     = 4096 // bytes, also of Conn.Send
)

// Grant is memory of one side that the other may access.
type Grant struct {
	Name   string // known to both programs: printable ASCII without spaces
	RKey   uint32
	Addr   uint64 // first address of the rkey
	Length uint64
	Access rdma.Access // of rdma.Remote
}

// Offer is everything that one side announces.
type Offer struct {
	Parameters Parameters
	Grants     []Grant
	Hello      []byte // of the program, at most MaxHello bytes
}

// Grant finds a grant by name.
func (o *Offer) Grant(name string) (Grant, error) {
	for _, g := range o.Grants {
		if g.Name == name {
			return g, nil
		}
	}
	return Grant{}, fmt.Errorf("the peer grants no %q: it grants %v", name, o.names())
}

func (o *Offer) names() (names []string) {
	for _, g := range o.Grants {
		names = append(names, g.Name)
	}
	return names
}

// Check returns what is wrong with the offer.
func (o *Offer) Check() error {
	if err := o.Parameters.Check(); err != nil {
		return err
	}
	if len(o.Hello) > MaxHello {
		return fmt.Errorf("hello of %d bytes is longer than %d", len(o.Hello), MaxHello)
	}
	if len(o.Grants) > MaxGrants {
		return fmt.Errorf("%d grants are more than %d", len(o.Grants), MaxGrants)
	}
	seen := make(map[string]bool)
	for i := range o.Grants {
		g := &o.Grants[i]
		if err := g.check(); err != nil {
			return fmt.Errorf("grant %q: %w", g.Name, err)
		}
		if seen[g.Name] {
			return fmt.Errorf("there are two grants %q", g.Name)
		}
		seen[g.Name] = true
	}
	return nil
}

func (g *Grant) check() error {
	switch {
	case g.Name == "" || len(g.Name) > MaxGrantName:
		return fmt.Errorf("a name has 1 to %d bytes", MaxGrantName)
	case g.Length == 0 || g.Addr+g.Length < g.Addr:
		return fmt.Errorf("%d bytes from 0x%x is no memory", g.Length, g.Addr)
	case g.Access == 0 || g.Access&^rdma.Remote != 0:
		return fmt.Errorf("rights 0x%x are not those of a peer", uint32(g.Access))
	}
	for i := range len(g.Name) {
		if c := g.Name[i]; c <= ' ' || c > '~' {
			return fmt.Errorf("a name is printable ASCII without spaces")
		}
	}
	return nil
}
