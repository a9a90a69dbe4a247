// Clients runs openai-go against a server, as handlers/testdata/clients/clients.mjs does the clients of
// npm, and prints lines of the same form. It is a module of its own, so that the server does not
// depend on its packages.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

const question = "What is a token?"

func client(base string) openai.Client {
	return openai.NewClient(option.WithBaseURL(base+"/v1/"), option.WithAPIKey("any"), option.WithMaxRetries(0))
}

var (
	real, scripted = client(os.Getenv("SERVER")), client(os.Getenv("SCRIPTED"))
	embedder       = client(os.Getenv("EMBEDDER"))
	ctx            = context.Background()

	parameters = map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}}
	colours    = map[string]any{"type": "object", "properties": map[string]any{"colour": map[string]any{"enum": []string{"red", "green"}}}, "required": []string{"colour"}, "additionalProperties": false}
)

func chat() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: "guide", MaxCompletionTokens: openai.Int(8), Temperature: openai.Float(0),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
	}
}

func respond() responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "guide", MaxOutputTokens: openai.Int(16), Temperature: openai.Float(0),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(question)},
	}
}

var features = []struct {
	client, name string
	run          func() error
}{
	{"openai-go chat", "chat", func() error {
		answer, err := real.Chat.Completions.New(ctx, chat())
		return expect(err, func() bool { return answer.Choices[0].Message.Content != "" }, answer)
	}},
	{"openai-go chat", "stream", func() error {
		stream := real.Chat.Completions.NewStreaming(ctx, chat())
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			all.AddChunk(stream.Current())
		}
		return expect(stream.Err(), func() bool { return all.Choices[0].Message.Content != "" }, all)
	}},
	{"openai-go chat", "usage", func() error {
		answer, err := real.Chat.Completions.New(ctx, chat())
		return expect(err, func() bool { return answer.Usage.CompletionTokens == 8 }, answer)
	}},
	{"openai-go chat", "abort", func() error {
		within, cancel := context.WithCancel(ctx)
		defer cancel()
		stream := scripted.Chat.Completions.NewStreaming(within, chat())
		for n := 0; stream.Next(); n++ {
			if n == 2 {
				cancel()
			}
		}
		if !errors.Is(stream.Err(), context.Canceled) {
			return fmt.Errorf("got %v", stream.Err())
		}
		return idle()
	}},
	{"openai-go chat", "tools", func() error {
		answer, err := scripted.Chat.Completions.New(ctx, withTool(chat()))
		return expect(err, func() bool { return answer.Choices[0].Message.ToolCalls[0].Function.Arguments == `{"city":"Rome"}` }, answer)
	}},
	{"openai-go chat", "results", func() error {
		p := withTool(chat())
		answer, err := scripted.Chat.Completions.New(ctx, p)
		if err != nil {
			return err
		}
		said := answer.Choices[0].Message
		p.Messages = append(p.Messages, said.ToParam(), openai.ToolMessage("20", said.ToolCalls[0].ID))
		answer, err = scripted.Chat.Completions.New(ctx, p)
		return expect(err, func() bool { return answer.Choices[0].Message.Content == "It is 20" }, answer)
	}},
	{"openai-go chat", "json_schema", func() error {
		p := chat()
		p.MaxCompletionTokens = openai.Int(40)
		p.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "c", Schema: colours, Strict: openai.Bool(true)}}}
		answer, err := real.Chat.Completions.New(ctx, p)
		return expect(err, func() bool { return isColour(answer.Choices[0].Message.Content) }, answer)
	}},
	{"openai-go chat", "errors", func() error {
		p := chat()
		p.Model = "none"
		_, err := real.Chat.Completions.New(ctx, p)
		return isError(err, 404, "model_not_found")
	}},
	{"openai-go chat", "embeddings", func() error {
		list, err := embedder.Embeddings.New(ctx, openai.EmbeddingNewParams{
			Model: "tiny-embed", Dimensions: openai.Int(16),
			Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"hello world", "another text"}},
		})
		return expect(err, func() bool { return len(list.Data) == 2 && len(list.Data[1].Embedding) == 16 }, list)
	}},
	{"openai-go responses", "chat", func() error {
		r, err := real.Responses.New(ctx, respond())
		return expect(err, func() bool { return r.OutputText() != "" }, r)
	}},
	{"openai-go responses", "stream", func() error {
		stream := real.Responses.NewStreaming(ctx, respond())
		text, last := "", responses.ResponseStreamEventUnion{}
		for stream.Next() {
			if last = stream.Current(); last.Type == "response.output_text.delta" {
				text += last.Delta
			}
		}
		return expect(stream.Err(), func() bool { return text != "" && last.Response.OutputText() == text }, last)
	}},
	{"openai-go responses", "usage", func() error {
		r, err := real.Responses.New(ctx, respond())
		return expect(err, func() bool { return r.Usage.OutputTokens == 16 }, r)
	}},
	{"openai-go responses", "tools", func() error {
		p := respond()
		p.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("weather", parameters, true)}
		r, err := scripted.Responses.New(ctx, p)
		return expect(err, func() bool { return r.Output[0].AsFunctionCall().Arguments == `{"city":"Rome"}` }, r)
	}},
	{"openai-go responses", "errors", func() error {
		p := respond()
		p.PreviousResponseID = openai.String("resp_1")
		_, err := real.Responses.New(ctx, p)
		return isError(err, 400, "invalid_request")
	}},
}

func withTool(p openai.ChatCompletionNewParams) openai.ChatCompletionNewParams {
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "weather", Parameters: parameters})}
	return p
}

// expect returns err, or one that shows got if ok is false.
func expect(err error, ok func() bool, got any) error {
	if err == nil && !ok() {
		return fmt.Errorf("got %+v", got)
	}
	return err
}

func isColour(text string) bool {
	var c struct{ Colour string }
	return json.Unmarshal([]byte(text), &c) == nil && (c.Colour == "red" || c.Colour == "green")
}

func isError(err error, status int, code string) error {
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status || e.Code != code {
		return fmt.Errorf("got %v", err)
	}
	return nil
}

// idle waits until the server generates no answer any more.
func idle() error {
	for range 600 {
		var status struct{ Running, Queued int }
		if err := scripted.Get(ctx, "status", nil, &status); err != nil {
			return err
		}
		if status.Running+status.Queued == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("the answer goes on after its client has left")
}

func main() {
	for _, f := range features {
		line := map[string]string{"client": f.client, "version": "3.96.0", "feature": f.name, "error": ""}
		if err := run(f.run); err != nil {
			line["error"] = err.Error()
		}
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// run returns a panic of f as its error.
func run(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f()
}
