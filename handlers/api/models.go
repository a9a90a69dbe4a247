package api

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/gate"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

type modelList struct {
	Object string      `json:"object"`
	Data   []modelBody `json:"data"`
}

type modelBody struct {
	ID      string    `json:"id"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	OwnedBy string    `json:"owned_by"`
	Status  *loadedAs `json:"status,omitempty"` // nil: another engine runs it
	Meta    modelMeta `json:"meta"`
}

// loadedAs says whether a model is in memory; value has llama-server's name.
type loadedAs struct {
	Value  string `json:"value"` // loaded, loading or unloaded
	Pinned bool   `json:"pinned,omitempty"`
}

// newLoadedAs returns whether the model called name is in memory.
func newLoadedAs(s infer.Status, name string) *loadedAs {
	one := s.Of(name)
	switch {
	case one == nil:
		return &loadedAs{Value: "unloaded"}
	case one.State == infer.StateReady:
		return &loadedAs{"loaded", one.Pinned}
	}
	return &loadedAs{"loading", one.Pinned}
}

// modelMeta has llama-server's names.
type modelMeta struct {
	Context      int    `json:"n_ctx,omitempty"` // of the loaded model
	ContextTrain int    `json:"n_ctx_train,omitempty"`
	Parameters   int64  `json:"n_params,omitempty"`
	Size         int64  `json:"size,omitempty"` // bytes; absent: another engine does not say it
	Architecture string `json:"architecture,omitempty"`
	Quant        string `json:"quant,omitempty"`
	License      string `json:"license,omitempty"`
	Embedding    int    `json:"embedding,omitempty"` // width of the embeddings that it computes; 0: it computes none
	Ranks        bool   `json:"ranks,omitempty"`     // it scores documents for a query
	Vision       bool   `json:"vision,omitempty"`    // it reads pictures
	Tools        bool   `json:"tools,omitempty"`     // it can be given tools
	Demo         bool   `json:"demo,omitempty"`
	Upstream     string `json:"upstream,omitempty"` // HOST:PORT of another engine that runs it
}

// Models answers GET /v1/models with the models that can be used. It does not reveal the paths
// of their files.
func (api *API) Models(c echo.Context) error {
	infos, err := api.list.List(c.Request().Context())
	if err != nil {
		return err
	}
	if gate.IsAnthropics(c.Request()) {
		return c.JSON(http.StatusOK, anthropicModels(infos))
	}
	list := modelList{Object: "list", Data: []modelBody{}}
	for _, info := range infos {
		if info.Error == "" {
			list.Data = append(list.Data, api.describeModel(info))
		}
	}
	return c.JSON(http.StatusOK, list)
}

// model answers GET /v1/models/{id}; the id may hold slashes and colons.
func (api *API) model(c echo.Context) error {
	info, err := api.find(c, c.Param("*"))
	if err != nil {
		return err
	}
	if gate.IsAnthropics(c.Request()) {
		return c.JSON(http.StatusOK, anthropicModel(info))
	}
	return c.JSON(http.StatusOK, api.describeModel(info))
}

// find returns the usable model called name, or pulled by that name.
func (api *API) find(c echo.Context, name string) (infer.ModelInfo, error) {
	infos, err := api.list.List(c.Request().Context())
	if err != nil {
		return infer.ModelInfo{}, err
	}
	index := func(name string) int {
		return slices.IndexFunc(infos, func(info infer.ModelInfo) bool { return info.Name == name && info.Error == "" })
	}
	i := index(name)
	if i < 0 {
		if details, err := api.list.Details(name); err == nil {
			i = index(details.Name)
		}
	}
	if i < 0 {
		return infer.ModelInfo{}, &fault.Error{Code: fault.CodeNotFound, Param: "model",
			Message: "there is no model called \"" + httpio.Shorten(name) + "\"; GET /v1/models lists those there are"}
	}
	return infos[i], nil
}

// describeModel describes a model. The context length is known of the loaded one, and of those for which other
// engines say it.
func (api *API) describeModel(info infer.ModelInfo) modelBody {
	s, owner, upstream := api.engine.Status(), "m40-llm", ""
	context := s.Context(info.Name)
	status := newLoadedAs(s, info.Name)
	if info.Upstream != nil {
		status = nil
		owner, upstream = cmp.Or(info.Upstream.Engine, "upstream"), info.Upstream.Servers[0]
	}
	return modelBody{
		ID:      info.Name,
		Object:  "model",
		Created: info.ModifiedUnix,
		OwnedBy: owner,
		Status:  status,
		Meta: modelMeta{
			Context:      context,
			ContextTrain: info.ContextTrain,
			Parameters:   info.Parameters,
			Size:         info.Size,
			Architecture: info.Architecture,
			Quant:        info.Quant,
			License:      info.License,
			Embedding:    info.Embedding,
			Ranks:        info.Ranks,
			Vision:       info.Vision,
			Tools:        info.TakesTools(),
			Demo:         info.Demo,
			Upstream:     upstream,
		},
	}
}
