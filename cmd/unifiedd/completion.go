package main

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/status"
)

// completionTime is how long a shell waits for the running daemon.
const completionTime = time.Second

// completeFlows completes a command's first argument with the running daemon's flows of which which is true, and then with
// other words.
func completeFlows(socket *string, which func(*status.Flow) bool, others ...string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTime)
		defer cancel()
		raw, err := control.Status(ctx, *socket)
		var s status.Daemon
		if err != nil || json.Unmarshal(raw, &s) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp // a shell has no place for an error
		}
		for i := range s.Flows {
			if f := &s.Flows[i]; which(f) {
				names = append(names, cobra.CompletionWithDesc(f.Name, f.Kind+", "+string(f.State)))
			}
		}
		return append(names, others...), cobra.ShellCompDirectiveNoFileComp
	}
}

func anyFlow(*status.Flow) bool      { return true }
func ordersFlow(f *status.Flow) bool { return f.Orders != nil }
func groupFlow(f *status.Flow) bool  { return f.Group != nil }

// completeTraces completes a command's first argument with the flows that a flight recorder's directory has, also when the
// daemon is gone.
func completeTraces(directory func() string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		files, _ := filepath.Glob(filepath.Join(directory(), "*.trace")) // only a bad pattern is an error
		for _, file := range files {
			names = append(names, strings.TrimSuffix(filepath.Base(file), ".trace"))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeInterfaces completes with the interfaces of the host, and with files if the directive says so.
func completeInterfaces(after cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		all, _ := net.Interfaces() // a shell has no place for an error
		for _, one := range all {
			names = append(names, one.Name)
		}
		return names, after
	}
}

// completeInterfaceFlag completes a flag whose value is an interface.
func completeInterfaceFlag(c *cobra.Command, flag string) {
	if err := c.RegisterFlagCompletionFunc(flag, completeInterfaces(cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was just added
	}
}
