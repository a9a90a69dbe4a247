// Package commands implements the commands of m40-llm. It is the only package that connects
// concrete devices, the engine, the store and the routes.
package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"m40-llm/handlers/cli"
	"m40-llm/handlers/document"
)

const version = "0.1.0"

// guideName is the name of the built-in model.
const guideName = "guide"

// Main executes the command line of this process and returns its exit code.
func Main() int {
	document.Serve()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	t := &cli.Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Signals: signals, EndOnSignal: func() { signal.Stop(signals) }}
	return run(context.Background(), t, os.Args[1:])
}

type command func(ctx context.Context, t *cli.Terminal, args []string) error

var commands = map[string]command{
	"serve":      serve,
	"run":        runModel,
	"list":       listModels,
	"pull":       pullModel,
	"show":       showModel,
	"rm":         removeModel,
	"cp":         copyModel,
	"ps":         showLoaded,
	"passphrase": setPassphrase,
	"restore":    restoreChats,
	"export":     exportPerson,
	"bench":      benchmark,
	"embed":      embed,
	"rerank":     rerank,
	"perplexity": measurePerplexity,
	"tokenize":   tokenize,
	"template":   template,
	"version":    printVersion,
	"worker":     runWorker,
}

func init() { commands["completion"] = printCompletion } // it refers to commands

// flagsOf returns the flags of each command that people use.
func flagsOf() map[string]*cli.Flags {
	list := map[string]*cli.Flags{}
	for name, execute := range commands {
		if name == "worker" {
			continue
		}
		t := &cli.Terminal{Env: func(string) string { return "" }, Describe: func(f *cli.Flags) { list[name] = f }}
		execute(context.Background(), t, nil)
	}
	return list
}

// printCompletion executes the command completion.
func printCompletion(_ context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("completion", "bash|zsh|fish", `Prints a script that completes commands and flags in a shell. To load it:
  bash: source <(m40-llm completion bash)
  zsh:  source <(m40-llm completion zsh)
  fish: m40-llm completion fish | source`)
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return cli.Usagef("name the shell: bash, zsh or fish")
	}
	return cli.Completion(t.Out, rest[0], flagsOf())
}

// readsSignals names the commands that end in their own way on a signal.
var readsSignals = map[string]bool{"serve": true, "run": true, "pull": true, "rm": true, "passphrase": true, "worker": true}

// run executes the command named by the first of args, or serve if they name none, and
// returns the exit code.
func run(ctx context.Context, t *cli.Terminal, args []string) int {
	name := "serve"
	switch {
	case len(args) > 0 && (args[0] == "--version" || args[0] == "-v"):
		name, args = "version", args[1:]
	case len(args) > 1 && args[0] == "help":
		name, args = args[1], []string{"-h"}
	case len(args) > 0 && slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]):
		cli.Overview(t.Out)
		args = []string{"-h"}
	case len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		name, args = args[0], args[1:]
	}
	execute, ok := commands[name]
	if !ok {
		return t.Exit(cli.Usagef("there is no command %q%s; see m40-llm -h", name, cli.DidYouMean("", cli.Nearest(name, slices.Sorted(maps.Keys(flagsOf()))))))
	}
	t.Commands = flagsOf
	if t.EndOnSignal != nil && !readsSignals[name] {
		t.EndOnSignal()
	}
	err := execute(ctx, t, args)
	if errors.Is(err, cli.ErrHelp) {
		return cli.ExitOK
	}
	return t.Exit(err)
}

// printVersion executes the command version.
func printVersion(_ context.Context, t *cli.Terminal, args []string) error {
	if _, err := cli.NewFlags("version", "", "Prints the version of this program.").Parse(t, args, 0); err != nil {
		return err
	}
	commit := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = ", commit " + s.Value[:min(len(s.Value), 12)]
			}
		}
	}
	_, err := fmt.Fprintf(t.Out, "m40-llm %s (%s %s/%s%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, commit)
	return err
}
