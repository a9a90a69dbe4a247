package commands

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"m40-llm/handlers/cli"
)

func TestLanSaysThatItDoesNothingWithALoopbackAddress(t *testing.T) {
	for _, c := range []struct {
		name, listen string
		args         []string
		says         bool
	}{
		{"an address of this machine alone", "127.0.0.1:0", []string{"--lan", "--addr", "127.0.0.1:0"}, true},
		{"localhost", "localhost:0", []string{"--lan", "--addr", "localhost:0"}, true},
		{"all addresses", ":0", []string{"--lan", "--addr", ":0"}, false},
		{"behind a proxy on this machine", "127.0.0.1:0", []string{"--lan", "--addr", "127.0.0.1:0", "--trusted-proxy", "127.0.0.1"}, false},
		{"without --lan", "127.0.0.1:0", []string{"--addr", "127.0.0.1:0"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var errs bytes.Buffer
			terminal := &cli.Terminal{Err: &errs, Env: func(string) string { return "" }}
			flags := addServeFlags(cli.NewFlags("serve", "", ""))
			if _, err := flags.all.Parse(terminal, append(c.args, "--data", t.TempDir()), 0); err != nil {
				t.Fatal(err)
			}
			listener, err := net.Listen("tcp", c.listen)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			flags.announce(terminal, listener, encryption{})
			if said := strings.Contains(errs.String(), "--lan does nothing with --addr "); said != c.says {
				t.Errorf("got %q", errs.String())
			}
		})
	}
}
