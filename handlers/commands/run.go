package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"unicode"

	"m40-llm/handlers/cli"
	"m40-llm/infer"
	"m40-llm/infer/engine"
	"m40-llm/infer/hub"
)

// runModel is the command run.
func runModel(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("run", "[MODEL] [PROMPT]", "Chats in the terminal. With a prompt, or with text piped in, it writes one answer and exits.")
	flags := addEngineFlags(f)
	readRequest := addRequestFlags(f)
	system := f.String("system", "", "TEXT", "system prompt")
	raw := f.Bool("raw", "write the answer as it is, escape sequences included; for files and pipes only")
	rest, err := f.Parse(t, args, 2)
	if err != nil {
		return err
	}
	request, err := readRequest()
	if err != nil {
		return err
	}
	if *raw && cli.IsTerminal(t.Out) {
		return cli.Usagef("--raw writes to files and pipes only: on a terminal, a model could send it escape sequences")
	}
	catalog, err := flags.models(t)
	if err != nil {
		return err
	}
	flags.noteMissing(t)
	model, prompt, once, err := readQuestion(ctx, t, catalog, rest)
	if err != nil {
		return err
	}
	options, err := flags.options(catalog, model, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	engine, err := engine.Open(options)
	if err != nil {
		return err
	}
	defer engine.Close()
	request.Model = options.Model
	conversation := &cli.Chat{Engine: engine, Request: request, System: *system, Raw: *raw, Terminal: t, Notice: func() string { return engine.Status().Notice }}
	if !once {
		return conversation.Loop(ctx)
	}
	err = conversation.Once(ctx, prompt)
	if e, ok := errors.AsType[*infer.Error](err); ok && e.Code == infer.CodeInvalid {
		return cli.Usagef("%s; see m40-llm run -h", e.Message)
	}
	return err
}

// addRequestFlags declares the flags about how to answer. Once they are parsed, read
// returns a request with what they say.
func addRequestFlags(f *cli.Flags) (read func() (infer.Request, error)) {
	request := infer.DefaultRequest()
	p := &request.Params
	sampling := f.Sampling(p)
	seed := f.Int64("seed", p.Seed, "seed of the choices, the same gives the same answer; -1: a new one each time")
	maxTokens := f.Int("max-tokens", request.MaxTokens, "longest answer; -1: until the context is full")
	schema := f.String("json-schema", "", "FILE", "JSON Schema that answers are held to")
	grammar := f.String("grammar", "", "FILE", "grammar in GBNF that answers are held to")
	return func() (infer.Request, error) {
		if err := sampling(); err != nil {
			return request, err
		}
		if *maxTokens < -1 || *maxTokens == 0 {
			return request, cli.Usagef("--max-tokens %d must be at least 1, or -1: until the context is full", *maxTokens)
		}
		p.Seed = *seed
		request.MaxTokens = *maxTokens
		return request, readForm(&request, *schema, *grammar)
	}
}

// readQuestion takes the arguments of run apart, and reads what is piped in. once is false
// where a person sits at the terminal and has not asked yet.
func readQuestion(ctx context.Context, t *cli.Terminal, catalog *hub.Hub, args []string) (model, prompt string, once bool, err error) {
	model = guideName
	question := false
	if len(args) == 1 {
		if question, err = isQuestion(ctx, catalog, args[0]); err != nil {
			return "", "", false, err
		}
	}
	asked := args
	if len(args) > 0 && !question {
		model, asked = args[0], args[1:]
	}
	once = len(asked) > 0 || !cli.IsTerminal(t.In)
	if len(args) < 2 && !cli.IsTerminal(t.In) {
		text, err := io.ReadAll(t.In)
		if err != nil {
			return "", "", false, fmt.Errorf("failed to read the prompt: %w", err)
		}
		if piped := strings.TrimRight(string(text), "\r\n"); piped != "" {
			asked = append(asked, piped) // what a question is about
		}
	}
	return model, strings.Join(asked, "\n\n"), once, nil
}

// isQuestion reports whether arg, the only argument of run, is no model but a question to
// the model that is built in. The error is that of a name which looks like a model's and is
// none: it tells the nearest ones.
func isQuestion(ctx context.Context, catalog *hub.Hub, arg string) (bool, error) {
	_, missing := catalog.Name(arg)
	if missing == nil {
		return false, nil
	}
	if strings.ContainsFunc(arg, unicode.IsSpace) {
		return true, nil
	}
	models, err := catalog.Models(ctx)
	if err != nil {
		return false, err
	}
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Name
	}
	near := cli.Nearest(arg, names)
	if len(near) == 0 && !strings.ContainsAny(arg, "0123456789:/\\_") && !strings.HasSuffix(strings.ToLower(arg), ".gguf") {
		return true, nil
	}
	hint := ""
	if len(near) > 0 {
		hint = " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return false, cli.Usagef("%s%s. A question goes behind the model: m40-llm run %s %q", missing, hint, guideName, arg)
}

// readForm reads what the answer is held to from files; "" for none.
func readForm(r *infer.Request, schema, grammar string) error {
	if schema != "" {
		text, err := os.ReadFile(schema)
		if err != nil {
			return fmt.Errorf("failed to read the schema: %w", err)
		}
		r.JSONSchema = text
	}
	if grammar != "" {
		text, err := os.ReadFile(grammar)
		if err != nil {
			return fmt.Errorf("failed to read the grammar: %w", err)
		}
		r.Grammar = string(text)
	}
	return nil
}
