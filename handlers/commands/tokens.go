package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"m40-llm/handlers/cli"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/hub"
	"m40-llm/infer/readtext"
	"m40-llm/infer/tokenizer"
)

// openFile opens a model by its name or path. A file given by its path may have a vocabulary
// and no weights.
func openFile(catalog *hub.Hub, arg string) (*gguf.File, error) {
	f, _, err := catalog.Open(arg)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.CodeNotFound {
		if _, statErr := os.Stat(arg); statErr == nil {
			return gguf.Open(arg)
		}
	}
	return f, err
}

// tokenize executes the command tokenize.
func tokenize(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("tokenize", "< TEXT", "Prints the token ids of the text as a JSON array. The text is treated as a raw prompt: special tokens\nare added if the model file says so, and special tokens that the text spells out are parsed.")
	dirs := folderFlags(f)
	model := f.String("model", guideName, "NAME|FILE", "model whose tokenizer is used; a file needs no weights")
	plain := f.Bool("no-special", "add no special tokens and parse none in the text")
	jsonl := f.Bool("jsonl", "read one JSON string per line, print one array per line")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	catalog, err := dirs.catalog(t, nil)
	if err != nil {
		return err
	}
	file, err := openFile(catalog, *model)
	if err != nil {
		return err
	}
	defer file.Close()
	tok, err := tokenizer.New(file)
	if err != nil {
		return err
	}
	return cli.Tokenize(t.In, t.Out, *jsonl, func(text string) ([]int32, error) {
		return tok.Encode(ctx, text, tokenizer.Options{AddSpecial: !*plain, ParseSpecial: !*plain})
	})
}

// template executes the command template.
func template(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("template", "< REQUEST", "Prints the prompt that a chat template renders for a request: a JSON object with messages, tools\nand any other variables of the template.")
	dirs := folderFlags(f)
	model := f.String("model", "", "NAME|FILE", "model whose template is used (default "+guideName+")")
	source := f.String("template", "", "FILE", "file with a Jinja template, instead of a model")
	jsonl := f.Bool("jsonl", `read one request per line, print {"output": …} or {"error": …} for each`)
	now := f.String("now", "", "TIME", "current time for the template, such as 2025-03-14T15:09:26")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	var options chat.Options
	if *now != "" {
		var err error
		if options.Now, err = time.ParseInLocation("2006-01-02T15:04:05", *now, time.Local); err != nil {
			return cli.Usagef("--now %q is not a time such as 2025-03-14T15:09:26", *now)
		}
	}
	var parsed *chat.Template
	switch {
	case *source != "" && f.OnLine("model"): // the model of the environment or the configuration is ignored with --template
		return cli.Usagef("--model and --template exclude each other")
	case *source != "":
		text, err := readtext.File(*source, maxConstraint)
		if err != nil {
			return err
		}
		if parsed, err = chat.Parse(text); err != nil {
			return fmt.Errorf("%s: %w", *source, err)
		}
	default:
		catalog, err := dirs.catalog(t, nil)
		if err != nil {
			return err
		}
		if *model == "" {
			*model = guideName
		}
		if parsed, options.BOSToken, options.EOSToken, err = modelTemplate(catalog, *model); err != nil {
			return err
		}
	}
	return cli.Template(t.In, t.Results(), *jsonl, func(request []byte) (string, error) {
		prompt, err := parsed.RenderJSON(ctx, request, options)
		return prompt.String(), err
	})
}

// modelTemplate returns the chat template of a model and the texts of the tokens that the
// template may contain.
func modelTemplate(catalog *hub.Hub, model string) (parsed *chat.Template, bos, eos string, err error) {
	file, err := openFile(catalog, model)
	if err != nil {
		return nil, "", "", err
	}
	defer file.Close()
	source, err := file.Str("tokenizer.chat_template")
	if details, detailsErr := catalog.Details(model); detailsErr == nil && details.Template != nil {
		source, err = details.Template.Source, nil // perhaps that of a file next to the model
	}
	if err != nil {
		return nil, "", "", fmt.Errorf("model %q has no chat template: %w", model, err)
	}
	tok, err := tokenizer.New(file)
	if err != nil {
		return nil, "", "", err
	}
	if id, ok := tok.BOS(); ok {
		bos = tok.Text(id)
	}
	if id, ok := tok.EOS(); ok {
		eos = tok.Text(id)
	}
	parsed, err = chat.Parse(source)
	return parsed, bos, eos, err
}
