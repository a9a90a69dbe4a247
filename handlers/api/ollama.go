package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// This file and the others with this prefix are Ollama's API, below /api. Bodies and errors have
// Ollama's shape; what is generated goes through the same requests and events as everywhere.

// ollamaVersion is the version of Ollama whose API these routes follow. Some clients use no feature
// that is newer than the version that they are told.
const ollamaVersion = "0.12.11"

// ollamaRoutes adds the routes of Ollama's API to e.
func (api *API) ollamaRoutes(e *echo.Echo) {
	getOrHead := []string{http.MethodGet, http.MethodHead}
	e.Match(getOrHead, OllamaRoot, api.ollamaRoot)
	e.Match(getOrHead, "/api/version", api.ollamaVersion)
	e.Match(getOrHead, "/api/tags", api.ollamaTags)
	e.Match(getOrHead, "/api/ps", api.ollamaRunning)
	e.POST("/api/show", api.ollamaShow)
	e.POST("/api/chat", api.ollamaChat)
	e.POST("/api/generate", api.ollamaGenerate)
	e.POST("/api/embed", api.ollamaEmbed)
	e.POST("/api/embeddings", api.ollamaEmbedding)
	e.POST("/api/pull", api.ollamaPull)
	e.POST("/api/copy", api.ollamaCopy)
	e.DELETE("/api/delete", api.ollamaDelete)
}

// OllamaRoot is the route that says that Ollama is running. On Ollama's own port it is at / too.
const OllamaRoot = "/api"

func (api *API) ollamaRoot(c echo.Context) error {
	return c.String(http.StatusOK, "Ollama is running")
}

func (api *API) ollamaVersion(c echo.Context) error {
	return c.JSON(http.StatusOK, OllamaVersion{Version: ollamaVersion, Server: api.fingerprint()})
}

// OllamaVersion is the response to GET /api/version.
type OllamaVersion struct {
	Version string `json:"version"` // of Ollama's API
	Server  string `json:"server"`
}

// ollamaModel names the model of a request. Ollama's clients write it into either field.
type ollamaModel struct {
	Model string `json:"model"`
	Name  string `json:"name"`
}

// name returns the requested name, without the tag that Ollama's clients add to names without one.
func (m ollamaModel) name() string { return untagged(cmp.Or(m.Model, m.Name)) }

func untagged(name string) string { return strings.TrimSuffix(name, ":latest") }

// ollamaErr replaces the text about an unknown model by Ollama's, which its clients search for.
func ollamaErr(err error, model string) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != fault.CodeNotFound || e.Param != "model" {
		return err
	}
	named := *e
	named.Message = fmt.Sprintf("model '%s' not found: %s", httpio.Shorten(model), e.Message)
	return &named
}

// mayManage returns an error unless the person of c may change the models of this server.
func mayManage(c echo.Context) error {
	return access.Authorize(access.PrincipalOf(c.Request().Context()), access.ActionManage, access.Object{Kind: access.KindModel})
}

// OllamaTags is the response to GET /api/tags.
type OllamaTags struct {
	Models []OllamaListed `json:"models"`
}

// OllamaListed is a model in a list.
type OllamaListed struct {
	Name         string        `json:"name"`
	Model        string        `json:"model"`
	ModifiedAt   time.Time     `json:"modified_at"`
	Size         int64         `json:"size,omitempty"` // bytes; absent: another engine does not say it
	Digest       string        `json:"digest"`         // changes with the name, size and time of the file
	Details      OllamaDetails `json:"details"`
	Capabilities []string      `json:"capabilities"`
	ollamaRemote
}

// ollamaRemote says of a model of another engine where that is. Ollama's program says it, and writes no size.
type ollamaRemote struct {
	Model string `json:"remote_model,omitempty"`
	Host  string `json:"remote_host,omitempty"`
}

func remoteOf(info infer.ModelInfo) (r ollamaRemote) {
	if up := info.Upstream; up != nil {
		r.Model, r.Host = info.Name, strings.Join(up.Servers, ", ")
	}
	return r
}

// OllamaDetails are properties of a model.
type OllamaDetails struct {
	ParentModel   string   `json:"parent_model"`
	Format        string   `json:"format"`
	Family        string   `json:"family"`
	Families      []string `json:"families"`
	Parameters    string   `json:"parameter_size"`
	Quant         string   `json:"quantization_level"`
	ContextLength int      `json:"context_length,omitempty"`
}

func ollamaDetails(info infer.ModelInfo) OllamaDetails {
	d := OllamaDetails{
		Format: "gguf", Family: family(info), Families: []string{family(info)},
		Parameters: parameterSize(info.Parameters), Quant: info.Quant, ContextLength: longestContext(info),
	}
	if up := info.Upstream; up != nil && !up.Exact && !strings.HasPrefix(up.Engine, "llama-server") {
		d.Format = unknownFamily
	}
	return d
}

// unknownFamily replaces what an engine elsewhere does not say of its model. Clients look for a family, and for the
// context by its name.
const unknownFamily = "unknown"

func family(info infer.ModelInfo) string { return cmp.Or(info.Architecture, unknownFamily) }

// longestContext returns the context that another engine runs the model with, else the positions that it was trained on.
func longestContext(info infer.ModelInfo) int {
	if up := info.Upstream; up != nil && up.ContextLength > 0 {
		return up.ContextLength
	}
	return info.ContextTrain
}

// parameterSize returns a number of weights as Ollama writes it: 494.03M or 7.6B; empty if it is not known.
func parameterSize(n int64) string {
	switch {
	case n == 0:
		return ""
	case n >= 1e9:
		return fmt.Sprintf("%.1fB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2fK", float64(n)/1e3)
}

// fileDigest identifies a state of a model's file. It is not a hash of its content, which would take
// minutes to compute. What another engine says about the time of its model is left out.
func fileDigest(info infer.ModelInfo) string {
	if info.Upstream != nil && !info.Upstream.Exact {
		info.ModifiedUnix = 0
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d", info.Name, info.Size, info.ModifiedUnix))
	return hex.EncodeToString(sum[:])
}

func ollamaListed(info infer.ModelInfo) OllamaListed {
	return OllamaListed{
		Name: info.Name, Model: info.Name, ModifiedAt: modifiedAt(info), Size: info.Size,
		Digest: fileDigest(info), Details: ollamaDetails(info), Capabilities: capabilities(info), ollamaRemote: remoteOf(info),
	}
}

// modifiedAt returns the time of a model's file. A built-in model has none, and an engine elsewhere need not say it: then it is
// Go's zero time, which Ollama's clients write as never.
func modifiedAt(info infer.ModelInfo) time.Time {
	if info.ModifiedUnix == 0 {
		return time.Time{}
	}
	return time.Unix(info.ModifiedUnix, 0).UTC()
}

// capabilities returns Ollama's words for what a model does, as far as its name is enough to know.
func capabilities(info infer.ModelInfo) []string {
	switch {
	case info.Ranks:
		return []string{"rerank"}
	case info.Embedding > 0:
		return []string{"embedding"}
	}
	list := []string{"completion"}
	if info.Vision {
		list = append(list, "vision")
	}
	if info.TakesTools() {
		list = append(list, "tools")
	}
	if up := info.Upstream; up != nil && len(up.TemplateVars) > 0 {
		list = append(list, "thinking")
	}
	return list
}

// ollamaTags answers GET /api/tags with the models that can be used.
func (api *API) ollamaTags(c echo.Context) error {
	infos, err := api.list.List(c.Request().Context())
	if err != nil {
		return err
	}
	tags := OllamaTags{Models: []OllamaListed{}}
	for _, info := range infos {
		if info.Error == "" {
			tags.Models = append(tags.Models, ollamaListed(info))
		}
	}
	return c.JSON(http.StatusOK, tags)
}

// OllamaProcesses is the response to GET /api/ps.
type OllamaProcesses struct {
	Models []OllamaProcess `json:"models"`
}

// OllamaProcess is a loaded model.
type OllamaProcess struct {
	Name          string        `json:"name"`
	Model         string        `json:"model"`
	Size          int64         `json:"size"`
	Digest        string        `json:"digest"`
	Details       OllamaDetails `json:"details"`
	ExpiresAt     string        `json:"expires_at"`
	SizeVRAM      int64         `json:"size_vram"`
	ContextLength int           `json:"context_length"`
}

// forever is the expiry of a model that stays until its memory is needed for another one. It has an offset
// instead of Z, which older versions of Python cannot parse.
const forever = "2318-01-01T00:00:00+00:00"

// expiry returns when the loaded model is unloaded, if it is not used from now on.
func expiry(s infer.Status, now time.Time) string {
	at := now.Add(time.Duration(s.KeepAliveS * float64(time.Second)))
	switch {
	case s.KeepAliveS == 0:
		return forever
	case s.UnloadUnix > 0:
		at = time.Unix(s.UnloadUnix, 0)
	}
	return at.UTC().Format("2006-01-02T15:04:05+00:00")
}

// ollamaRunning answers GET /api/ps with the models that are loaded.
func (api *API) ollamaRunning(c echo.Context) error {
	running := OllamaProcesses{Models: []OllamaProcess{}}
	status := api.engine.Status()
	for _, s := range status.Loaded() {
		if s.State != infer.StateReady {
			continue
		}
		p := OllamaProcess{
			Name: s.Model.Name, Model: s.Model.Name, Size: s.Model.Size, Digest: fileDigest(s.Model),
			Details: ollamaDetails(s.Model), ExpiresAt: expiry(s, time.Now()), ContextLength: s.ContextLength,
		}
		if s.Device.Kind == "cuda" {
			p.SizeVRAM = s.Model.Size
		}
		running.Models = append(running.Models, p)
	}
	return c.JSON(http.StatusOK, running)
}
