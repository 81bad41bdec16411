package tune

import (
	"context"
	"fmt"
	"strings"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/card"
)

// Outside are settings of a card. They are outside the configuration, so runs change the card itself. A nil Outside has
// none.
type Outside struct {
	Card   *card.Card
	Before card.Settings // of Probe, at the beginning
	Absent []card.Absent // also of Probe
}

// Change says what became of a card's settings.
type Change struct {
	Name     string        `json:"name"`
	Driver   string        `json:"driver,omitempty"`
	Settings []Changed     `json:"settings"`
	Absent   []card.Absent `json:"absent,omitempty"`
}

// Changed is a setting before and after. Set and Undo are shell commands; both are empty if the setting is as before.
type Changed struct {
	Setting card.Setting `json:"setting"`
	Before  string       `json:"before"`
	After   string       `json:"after"`
	Set     []string     `json:"set,omitempty"`
	Undo    []string     `json:"undo,omitempty"`
}

// settings returns the settings to try, with the present values first.
func (o *Outside) settings() (all []setting, err error) {
	if o == nil {
		return nil, nil
	}
	choices, err := o.Card.Choices(o.Before, card.Processors())
	for _, c := range choices {
		all = append(all, setting{string(c.Setting), append([]string{c.Now}, c.Others...)})
	}
	return all, err
}

// of returns the card's part of a choice.
func (o *Outside) of(c choice) card.Settings {
	if o == nil {
		return nil
	}
	out := card.Settings{}
	for which := range o.Before {
		out[which] = c[string(which)]
	}
	lists := out[card.Affinity]
	if out[card.Channels] != o.Before[card.Channels] && lists == o.Before[card.Affinity] && strings.Contains(lists, " ") {
		delete(out, card.Affinity) // these lists are for as many interrupts as there were
	}
	return out
}

// arrange gives the card the settings of a choice, and waits for its link if it changed any.
func (o *Outside) arrange(ctx context.Context, c choice) error {
	if o == nil {
		return nil
	}
	changed, err := o.Card.Set(o.of(c))
	if err == nil && changed {
		err = o.Card.Settle(ctx)
	}
	return err
}

// inPlace returns an error if the card has not the settings of a choice after a run.
func (o *Outside) inPlace(c choice) error {
	if o == nil {
		return nil
	}
	return o.Card.Verify(o.of(c))
}

// leave gives the card the settings that it has from now on.
func (o *Outside) leave(c choice) error {
	if o == nil {
		return nil
	}
	if _, err := o.Card.Set(o.of(c)); err != nil {
		return fmt.Errorf("leave the card as it was: %w", err)
	}
	return nil
}

// changes says what is different from before.
func (o *Outside) changes(c choice) *Change {
	if o == nil {
		return nil
	}
	out := &Change{Name: o.Card.Name, Driver: o.Card.Driver, Absent: o.Absent}
	after := o.of(c)
	for _, which := range card.Order() {
		before, is := o.Before[which]
		if !is {
			continue
		}
		one := Changed{Setting: which, Before: before, After: after[which]}
		if one.Before != one.After {
			one.Set, one.Undo = o.Card.Commands(which, one.After), o.Card.Commands(which, one.Before)
		}
		out.Settings = append(out.Settings, one)
	}
	return out
}
