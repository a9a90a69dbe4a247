package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

// OllamaShown is the response to POST /api/show.
type OllamaShown struct {
	Modelfile    string         `json:"modelfile"`
	Parameters   string         `json:"parameters,omitempty"` // a line each, none of them empty: clients parse them
	Template     string         `json:"template"`
	License      string         `json:"license,omitempty"`
	Details      OllamaDetails  `json:"details"`
	ModelInfo    map[string]any `json:"model_info"`
	Capabilities []string       `json:"capabilities"`
	ModifiedAt   time.Time      `json:"modified_at"`
	ollamaRemote
}

// ollamaShow answers POST /api/show.
func (api *API) ollamaShow(c echo.Context) (err error) {
	var body ollamaModel
	defer func() { err = ollamaErr(err, body.name()) }()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	if body.name() == "" {
		return fault.Invalid("model", "model is missing: it is the name of the model to show")
	}
	info, err := api.find(c, body.name())
	if err != nil {
		return err
	}
	details := infer.ModelDetails{ModelInfo: info}
	if info.Upstream == nil {
		if found, err := api.list.Details(info.Name); err == nil { // else it is a server without a models folder
			details = found
		}
	}
	shown := OllamaShown{
		Modelfile:  "# " + whereIs(info) + "\nFROM " + info.Name,
		Parameters: ollamaParameters(api.contextOf(info), info.Sampling),
		License:    info.License, Details: ollamaDetails(info), ModelInfo: modelInfo(details),
		Capabilities: capabilities(info), ModifiedAt: modifiedAt(info), ollamaRemote: remoteOf(info),
	}
	if details.Template != nil && info.Writes() {
		shown.Template = details.Template.Source
		if thinks(details.Template.Source) {
			shown.Capabilities = append(shown.Capabilities, "thinking")
		}
	}
	if info.Writes() && api.fillsIn(c.Request().Context(), info.Name) {
		shown.Capabilities = append(shown.Capabilities, "insert")
	}
	return c.JSON(http.StatusOK, shown)
}

// whereIs says in a sentence where a model is.
func whereIs(info infer.ModelInfo) string {
	if up := info.Upstream; up != nil {
		return "This model runs at " + strings.Join(up.Servers, ", ") + " (" + cmp.Or(up.Engine, "an engine without a name") + "): there is no file of it here"
	}
	return "This model is the file " + info.Name + ".gguf"
}

// contextOf returns the context of the loaded model, of another one the positions that it was
// trained on.
func (api *API) contextOf(info infer.ModelInfo) int {
	now := api.engine.Status()
	if s := now.Of(info.Name); s != nil && s.ContextLength > 0 {
		return s.ContextLength
	}
	return longestContext(info)
}

// ollamaParameters returns lines as those of a Modelfile, without the word PARAMETER.
func ollamaParameters(context int, suggested *sample.Suggestion) string {
	lines := []string{}
	if context > 0 {
		lines = append(lines, fmt.Sprintf("%-30s %d", "num_ctx", context))
	}
	if suggested != nil {
		if data, err := json.Marshal(suggested); err == nil {
			var values map[string]any
			_ = json.Unmarshal(data, &values)
			for _, name := range sample.SuggestionNames() {
				if v, ok := values[name].(float64); ok {
					lines = append(lines, fmt.Sprintf("%-30s %v", name, v))
				}
			}
		}
	}
	return strings.Join(lines, "\n")
}

// modelInfo returns the metadata of a model's file. Lists and long texts, as vocabularies are, are
// omitted.
func modelInfo(d infer.ModelDetails) map[string]any {
	values := map[string]any{"general.architecture": family(d.ModelInfo)}
	if d.Parameters > 0 {
		values["general.parameter_count"] = d.Parameters
	}
	if d.Embedding > 0 {
		values[family(d.ModelInfo)+".embedding_length"] = d.Embedding
	}
	if n := longestContext(d.ModelInfo); n > 0 {
		values[family(d.ModelInfo)+".context_length"] = n
	}
	for _, m := range d.Metadata {
		if _, there := values[m.Key]; there || strings.HasPrefix(m.Value, "[") || strings.HasSuffix(m.Value, "…") {
			continue
		}
		values[m.Key] = metadataValue(m.Value)
	}
	return values
}

// metadataValue returns a value that was formatted for people as a number or bool if it is one.
func metadataValue(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f == f && f-f == 0 {
		return f
	}
	if b, err := strconv.ParseBool(text); err == nil && len(text) > 1 {
		return b
	}
	return text
}

// thinks reports whether a chat template has reasoning.
func thinks(source string) bool {
	t, err := chat.Parse(source)
	return err == nil && (t.Uses("enable_thinking") || t.Uses("thinking") || t.Uses("reasoning_effort") || strings.Contains(source, "<think>"))
}
