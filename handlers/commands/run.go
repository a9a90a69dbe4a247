package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"m40-llm/handlers/cli"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/hub"
	"m40-llm/infer/readtext"
)

// runModel executes the command run.
func runModel(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("run", "[MODEL] [PROMPT]", "Chats in the terminal. With a prompt, or with text piped in, it writes one answer and exits.")
	flags := addEngineFlags(f)
	readRequest := addRequestFlags(f)
	system := f.String("system", "", "TEXT", "system prompt")
	image := f.String("image", "", "FILE", "picture that the first message is about: PNG, JPEG, WebP, GIF or BMP; the model needs a companion file, see --mmproj")
	detail := f.String("detail", "full", "LEVEL", "in how much detail pictures are read: low, medium or full; less takes fewer tokens, in families that allow it")
	raw := f.Bool("raw", "write the answer unfiltered, with any escape sequences in it; for files and pipes only")
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
	pictures, err := readPictures(*image)
	if err != nil {
		return err
	}
	read, err := cli.ParseDetail(*detail)
	if err != nil {
		return err
	}
	catalog, err := flags.models(t)
	if err != nil {
		return err
	}
	flags.noteMissingFolder(t)
	model, prompt, once, err := readQuestion(ctx, t, catalog, rest)
	if err != nil {
		return err
	}
	engine, model, err := flags.open(catalog, model)
	if err != nil {
		return err
	}
	defer engine.Close()
	request.Model = model
	details, err := catalog.Details(model)
	if err != nil {
		return err
	}
	if details.Continues && len(pictures) > 0 {
		return cli.Usagef("--image needs a model with a chat template, and %s has none", model)
	}
	conversation := &cli.Chat{Engine: engine, Request: request, System: *system, Raw: *raw, Pictures: pictures, Detail: read, Continue: details.Continues, Terminal: t, Notice: func() string { return engine.Status().Notice }}
	if !once {
		return conversation.Loop(ctx)
	}
	err = conversation.Once(ctx, prompt)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.CodeInvalid {
		return cli.Usagef("%s; see m40-llm run -h", e.Message)
	}
	return err
}

// readPictures reads the picture of --image, none if file is empty.
func readPictures(file string) ([][]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := cli.ReadPicture(file)
	if err != nil {
		return nil, cli.Usagef("--image %s cannot be read: %v", file, err)
	}
	return [][]byte{data}, nil
}

// addRequestFlags declares the flags of a request. Once they are parsed, read returns a
// request with their values.
func addRequestFlags(f *cli.Flags) (read func() (infer.Request, error)) {
	request := infer.DefaultRequest()
	p := &request.Params
	sampling := f.Sampling(p)
	seed := f.Int64("seed", p.Seed, "seed of the random choices: the same seed gives the same answer; -1: a new seed for each answer")
	maxTokens := f.Int("max-tokens", request.MaxTokens, "longest answer in tokens; -1: until the context is full")
	schema := f.String("json-schema", "", "FILE", "constrain answers to this JSON Schema")
	grammar := f.String("grammar", "", "FILE", "constrain answers to this grammar in GBNF")
	return func() (infer.Request, error) {
		var err error
		if request.Unset, err = sampling(); err != nil {
			return request, err
		}
		if *maxTokens < -1 || *maxTokens == 0 {
			return request, cli.Usagef("--max-tokens %d must be at least 1, or -1: until the context is full", *maxTokens)
		}
		p.Seed = *seed
		request.MaxTokens = *maxTokens
		return request, readConstraint(&request, *schema, *grammar)
	}
}

// readQuestion splits the arguments of run into model and prompt, and appends text piped
// into the standard input to the prompt. once is false if there is no prompt and the input
// is a terminal: then a chat begins.
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
		if piped := strings.TrimRight(readtext.Trim(string(text)), "\r\n"); piped != "" {
			asked = append(asked, piped) // after the question, as the text that it is about
		}
	}
	return model, strings.Join(asked, "\n\n"), once, nil
}

// isQuestion reports whether arg, the only argument of run, is a question to the built-in
// model rather than the name of a model. If arg looks like a name but no model has it, the
// error suggests similar names.
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
	return false, cli.Usagef("%s%s. If this is a question, put the name of a model before it: m40-llm run %s %q", missing, hint, guideName, arg)
}

// maxConstraint is the longest file with a schema or grammar in bytes.
const maxConstraint = 16 << 20

// readConstraint reads the JSON Schema and the grammar of r from files; "": none.
func readConstraint(r *infer.Request, schema, grammar string) error {
	if schema != "" {
		text, err := readtext.File(schema, maxConstraint)
		if err != nil {
			return fmt.Errorf("failed to read the schema: %w", err)
		}
		r.JSONSchema = json.RawMessage(text)
	}
	if grammar != "" {
		text, err := readtext.File(grammar, maxConstraint)
		if err != nil {
			return fmt.Errorf("failed to read the grammar: %w", err)
		}
		r.Grammar = text
	}
	return nil
}
