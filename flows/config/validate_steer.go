package config

import "github.com/unifiedd/unifiedd/bpf/filter"

// steer checks what goes with rules in the card, which come from the filter and lead to the queues.
func (v *validator) steer(path string, f *From) {
	at := join(path, "steer")
	if !v.given(at, string(f.Steer)) || v.explained(at) {
		return
	}
	v.checkErr(at, member(f.Steer, allSteers))
	switch {
	case f.Mirror != "":
		v.refuse(at, wrong("remove it, or mirror", "copies do not come by the queues of the card"))
		return
	case f.Rules != nil || f.Object.File != "":
		v.refuse(at, wrong("remove it, or give one expression as filter", "cards take rules that one expression is made of, and here are several rules or a program"))
	case f.Filter == "" && !v.explained(join(path, "filter")):
		v.refuse(at, wrong("remove it, or say filter:", "there is no filter that says which packets the card is to steer"))
	}
	if f.Queues == nil && !v.explained(join(path, "queues")) {
		v.refuse(at, wrong("say queues:, such as [1]", "all queues are bound, so that there are none to steer to"))
	}
	if f.Filter != "" {
		v.steered(join(path, "filter"), f.Filter)
	}
}

// steered refuses an expression that cards have no words for.
func (v *validator) steered(path, text string) {
	if v.explained(path) {
		return
	}
	expr, err := filter.Parse(text)
	if err != nil {
		return // which is for the hook to say
	}
	if _, err := expr.Tuples(); err != nil {
		at, err := v.filterPlace(path, text, err)
		v.add(at, path, wrong("simplify it, or remove steer", "cannot be put into rules of a card: %v", err))
	}
}
