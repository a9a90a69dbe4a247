package infer

import (
	"context"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/placement"
)

// ModelInfo describes a model that can be asked for.
type ModelInfo struct {
	Name         string `json:"name"`                   // what a request says
	Path         string `json:"path,omitempty"`         // where the file lies; empty for the built-in model
	Size         int64  `json:"size"`                   // bytes
	ModifiedUnix int64  `json:"modified,omitempty"`     // seconds
	Architecture string `json:"architecture,omitempty"` // general.architecture
	Quant        string `json:"quant,omitempty"`        // type of most of its weights, such as Q8_0
	Parameters   int64  `json:"parameters,omitempty"`
	ContextTrain int    `json:"context_train,omitempty"` // positions it was trained on
	License      string `json:"license,omitempty"`
	Demo         bool   `json:"demo,omitempty"`  // the built-in model: small, for trying the controls
	Error        string `json:"error,omitempty"` // why the file cannot be used, if so

	Shape *placement.Shape `json:"-"`             // nil: not known
	Fit   *placement.Fit   `json:"fit,omitempty"` // nil: not known
}

// Catalog is where the engine finds models.
type Catalog interface {
	// Models lists what is there, broken files included (with Error set).
	Models(ctx context.Context) ([]ModelInfo, error)
	// Open opens the model called name. An unknown name is an *Error with
	// CodeNotFound; a broken file one with CodeModelFile. The caller closes the
	// file; it may open it again before.
	Open(name string) (*gguf.File, ModelInfo, error)
}

// State says what the engine is doing with its model.
type State string

const (
	StateLoading State = "loading"
	StateReady   State = "ready"
	StateFailed  State = "failed"

	// StateRestarting is that of an engine whose process has ended, until the next one
	// answers.
	StateRestarting State = "restarting"
)

// Status is a snapshot of the engine.
type Status struct {
	State         State       `json:"state"`
	Model         ModelInfo   `json:"model"`
	Loading       Loading     `json:"loading"`                 // while State is loading
	Error         *Error      `json:"error,omitempty"`         // while State is failed
	Notice        string      `json:"notice,omitempty"`        // what a person should know about the model, e.g. that it has no chat template
	TemplateVars  []string    `json:"template_vars,omitempty"` // what the model's chat template reads about thinking: enable_thinking, thinking, reasoning_effort
	Trouble       string      `json:"trouble,omitempty"`       // what befell the engine's process or its device, and what was done about it
	Device        device.Info `json:"device"`
	CacheType     string      `json:"cache_type"`
	ContextLength int         `json:"context_length"` // positions one answer can use
	Cache         Cache       `json:"cache"`
	LoadMS        float64     `json:"load_ms"`
	Running       int         `json:"running"`      // answers being written
	Queued        int         `json:"queued"`       // requests waiting
	WaitS         float64     `json:"wait_s"`       // expected seconds until the last of them begins, as in Queued; 0: none waits, or not known
	Decode        float64     `json:"decode_tok_s"` // of the last steps, all sequences together; 0 when idle
	Step          Step        `json:"step"`
}

// Cache is what the KV cache takes, in bytes. In main memory it grows as answers do, and what
// they leave is kept for those that begin alike; that of a GPU is taken when a model is loaded.
type Cache struct {
	Planned int64 `json:"planned"` // the most that it may take
	Used    int64 `json:"used"`    // what it takes now
}

// Step says whether the engine gets on.
type Step struct {
	Rows      int     `json:"rows"`       // tokens of the step that is being computed; 0: none is
	ForMS     float64 `json:"for_ms"`     // how long it has taken until now
	LongestMS float64 `json:"longest_ms"` // what the longest step took that has ended since the model was loaded; 0: none has
}

// Rendered is a request as the model gets it.
type Rendered struct {
	Prompt string  `json:"prompt"`
	Tokens []int32 `json:"tokens"`
	Notice string  `json:"notice,omitempty"`
}
