package main

import (
	"errors"

	"github.com/unifiedd/unifiedd/flows/config"
)

// commentFlags are the comments in a capture's file.
type commentFlags struct {
	file       string   // --capture-comment, as dumpcap has it
	interfaces []string // --ifcomment, of the interface with the same number
}

// of makes a text the comment of the interface that was named last.
func (f *commentFlags) of(ifaces []string, text string) error {
	if len(ifaces) == 0 {
		return errors.New("it is about the -i in front of it, and there is none")
	}
	f.interfaces = append(f.interfaces, make([]string, len(ifaces)-len(f.interfaces))...)
	f.interfaces[len(ifaces)-1] = text
	return nil
}

// comments says what the file tells of itself and of its interfaces.
func (f *captureFlags) comments(one *config.Flow) error {
	said := &f.said
	if f.file == "" && (said.file != "" || said.interfaces != nil) {
		return errors.New("--capture-comment and --ifcomment are in a file: name it by -w")
	}
	one.To.Comment = said.file
	switch {
	case said.interfaces == nil:
	case len(f.ifaces) == 1:
		one.From.Comment = said.interfaces[0]
	default:
		one.From.Comments = append(said.interfaces, make([]string, len(f.ifaces)-len(said.interfaces))...)
	}
	return nil
}
