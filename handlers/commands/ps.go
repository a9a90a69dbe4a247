package commands

import (
	"context"
	"time"

	"m40-llm/handlers/cli"
)

// showLoaded executes the command ps.
func showLoaded(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("ps", "", "Shows which models a server on this machine has loaded, where they run, who uses them, and until when they stay.")
	addr := f.String("addr", defaultAddr, "HOST:PORT", "address on which the server listens")
	key := f.String("api-key", "", "K", "key of the server")
	asJSON := f.Bool("json", "print a JSON object instead of a table")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	loaded, err := cli.AskLoaded(ctx, *addr, *key)
	if err != nil {
		return err
	}
	return cli.PrintLoaded(t.Results(), loaded, time.Now(), *asJSON)
}
