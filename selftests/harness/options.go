package harness

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// Pages is the option for the kind of page of a region. It implements [flag.Value].
type Pages umem.PageSize

// PagesHelp is the help text of that option.
const PagesHelp = "`KIND` of the region's memory: auto (huge pages if there are enough), 2m, 1g or ordinary"

var pageNames = map[umem.PageSize]string{umem.Auto: "auto", umem.Huge2M: "2m", umem.Huge1G: "1g", umem.Ordinary: "ordinary"}

// String returns the kind in the form that Set accepts.
func (p *Pages) String() string { return pageNames[umem.PageSize(*p)] }

// Set accepts auto, 2m, 1g or ordinary, in upper or lower case.
func (p *Pages) Set(text string) error {
	for kind, name := range pageNames {
		if strings.EqualFold(text, name) {
			*p = Pages(kind)
			return nil
		}
	}
	return errors.New("want auto, 2m, 1g or ordinary")
}

// ReserveHelp is the help text of the option to reserve huge pages.
const ReserveHelp = "reserve huge pages that are missing, and give them back at the end (root)"

// oneOf is an option that is one of some words.
type oneOf struct {
	word  *string
	words []string
}

// OneOf defines an option that is one of some words, or the default that p has.
func OneOf(fs *flag.FlagSet, p *string, name, help string, words ...string) {
	fs.Var(oneOf{p, words}, name, help)
}

func (o oneOf) String() string {
	if o.word == nil { // package flag asks the zero value
		return ""
	}
	return *o.word
}

func (o oneOf) Set(text string) error {
	if !slices.Contains(o.words, text) {
		return fmt.Errorf("want %s or %s", strings.Join(o.words[:len(o.words)-1], ", "), o.words[len(o.words)-1])
	}
	*o.word = text
	return nil
}

// Within returns an error if the value of an option is beyond its limits.
func Within[T int | uint | uint64 | float64 | time.Duration](option string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("-%s %v: it must be from %v to %v", option, v, least, most)
	}
	return nil
}

// Command is one of a program's commands.
type Command struct{ Name, Does string }

// Choose returns the number of the command that the first argument names. For -h, and without arguments, it prints
// usage and the commands.
func Choose(usage string, commands []Command, args []string, stderr io.Writer) (int, error) {
	if len(args) == 0 || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		fmt.Fprint(stderr, usage)
		for _, c := range commands {
			fmt.Fprintf(stderr, "  %-8s %s\n", c.Name, c.Does)
		}
		if len(args) == 0 {
			return 0, errors.New("name a command")
		}
		return 0, flag.ErrHelp
	}
	var names []string
	for i, c := range commands {
		if c.Name == args[0] {
			return i, nil
		}
		names = append(names, c.Name)
	}
	return 0, fmt.Errorf("there is no command %q (there is: %s)", args[0], strings.Join(names, ", "))
}

// Parse is Parse for the options of a command, which has no other arguments. It returns the options that were given.
func (c *Command) Parse(program string, args []string, stderr io.Writer, define func(*flag.FlagSet)) (map[string]bool, error) {
	name := program + " " + c.Name
	fs, err := Parse(name, "usage: "+name+" [options]\n"+c.Does+"\n\n", args, stderr, define)
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("%q is left over (--help lists the options)", fs.Arg(0))
	}
	return Given(fs), err
}
