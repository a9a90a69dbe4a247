package infer

import (
	"context"
	"fmt"

	"m40-llm/infer/chat"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/placement"
	"m40-llm/infer/sample"
)

// ModelInfo describes a model that requests can name.
type ModelInfo struct {
	Name         string             `json:"name"`                   // name in requests
	Path         string             `json:"path,omitempty"`         // path of the file; empty for the built-in model
	Size         int64              `json:"size"`                   // bytes
	ModifiedUnix int64              `json:"modified,omitempty"`     // seconds
	Architecture string             `json:"architecture,omitempty"` // general.architecture
	Quant        string             `json:"quant,omitempty"`        // type of most weights, such as Q8_0
	Parameters   int64              `json:"parameters,omitempty"`
	Experts      int                `json:"experts,omitempty"`       // of a layer; 0: the model is dense
	ExpertsUsed  int                `json:"experts_used,omitempty"`  // active experts of a layer for each token, without shared ones
	ContextTrain int                `json:"context_train,omitempty"` // positions it was trained on
	License      string             `json:"license,omitempty"`
	Sampling     *sample.Suggestion `json:"sampling,omitempty"`    // the sampler settings that its file suggests; nil: none
	Embedding    int                `json:"embedding,omitempty"`   // width of the embeddings that it computes; 0: it computes none
	Ranks        bool               `json:"ranks,omitempty"`       // it scores documents for a query, and writes no text
	Companion    string             `json:"-"`                     // path of the file with which it reads pictures, which no client learns; empty: none
	Vision       bool               `json:"vision,omitempty"`      // it reads pictures
	Continues    bool               `json:"continues,omitempty"`   // it has no chat template, and continues text
	Demo         bool               `json:"demo,omitempty"`        // the built-in model: small, for trying the controls
	Error        string             `json:"error,omitempty"`       // why the file cannot be used; empty if it can
	Unsupported  bool               `json:"unsupported,omitempty"` // Error is that Architecture is not supported

	TemplateProblem string `json:"template_problem,omitempty"` // why a chat template of the file cannot be used, as a sentence; empty: all can, or it has none

	Upstream *Upstream `json:"upstream,omitempty"` // where it runs, if another engine runs it; nil: this one does

	ChatTemplate string `json:"-"` // replaces the templates of the file, in this process; empty: it has none

	LoadS float64 `json:"load_s,omitempty"` // seconds that a load is expected to take, as in Queued; 0: not known, or it is loaded

	Shape *placement.Shape `json:"-"`             // nil: unknown
	Fit   *placement.Fit   `json:"fit,omitempty"` // nil: unknown
}

// Upstream says where a model runs that another engine runs, and what that cannot do.
type Upstream struct {
	Servers       []string          `json:"servers"`                  // HOST:PORT of each that has it
	Engine        string            `json:"engine,omitempty"`         // as it names itself; empty: it does not
	Exact         bool              `json:"exact,omitempty"`          // it is another m40-llm: tokens, candidates and seeds are as they would be here
	ContextLength int               `json:"context_length,omitempty"` // 0: unknown
	TemplateVars  []string          `json:"template_vars,omitempty"`  // as in Status
	Tools         bool              `json:"tools,omitempty"`          // it can be given tools
	Lacks         map[string]string `json:"lacks,omitempty"`          // by setting: why it has no effect, or another one than here, as the rest of a sentence about the server
	Problem       string            `json:"problem,omitempty"`        // why each of Servers is taken for dead; empty: one is not
}

// UpstreamServer is the state of a server with models of another engine.
type UpstreamServer struct {
	Address string `json:"address"`           // HOST:PORT
	Engine  string `json:"engine,omitempty"`  // as it names itself
	Problem string `json:"problem,omitempty"` // why others with the same models are preferred; empty: they are not
	Models  int    `json:"models"`
	Running int    `json:"running"` // answers that it writes for this server
	Answers int64  `json:"answers"` // that it has completed since this server started
	Failed  int64  `json:"failed"`  // requests to it that failed since then
}

// Writes reports whether the model writes text.
func (m *ModelInfo) Writes() bool { return m.Embedding == 0 && !m.Ranks }

// TakesTools reports whether the model can be given tools. All that write text here can: where a chat template shows none, they are
// described in the system prompt.
func (m *ModelInfo) TakesTools() bool { return m.Writes() && (m.Upstream == nil || m.Upstream.Tools) }

// ExpertsInWords returns "8 of 128 experts", or "" for a dense model.
func (m ModelInfo) ExpertsInWords() string {
	if m.Experts == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d experts", m.ExpertsUsed, m.Experts)
}

// Catalog finds the models of an engine.
type Catalog interface {
	// Models lists the models, including files that cannot be used, with Error set.
	Models(ctx context.Context) ([]ModelInfo, error)

	// Open opens the model called name. The error is a *fault.Error with fault.CodeNotFound for an
	// unknown name, and with fault.CodeModelFile for a file that cannot be used. The caller closes
	// the file; it may open the model again before.
	Open(name string) (*gguf.File, ModelInfo, error)

	// OwnTemplate returns the chat template that a model that was opened would have as ModelInfo.ChatTemplate if it
	// were opened now. It is called for each request.
	OwnTemplate(m ModelInfo) (source string, err error)
}

// State is the state of the engine's model.
type State string

const (
	StateLoading State = "loading"
	StateReady   State = "ready"
	StateFailed  State = "failed"

	// StateUnloaded is the state after a model was unloaded because it had not been used for a while.
	// The next request loads it again.
	StateUnloaded State = "unloaded"

	// StateRestarting is the state after the engine's process has ended, until the next process
	// is ready.
	StateRestarting State = "restarting"
)

// CacheTypes are the formats of KV caches among which people choose. Keys and values can have others, as in f16/q8_0.
var CacheTypes = []string{"f16", "auto", "q8_0", "q8_0/q4_0", "q4_0", "f32"}

// Setup is how models are loaded. A field that is 0 or empty means the default.
type Setup struct {
	ContextLength int    `json:"context_length"` // requested; 0: the model's own, or as much as fits
	CacheType     string `json:"cache_type"`     // format of the KV cache, as f16, q8_0, q8_0/q4_0 (keys and values) or auto
	Threads       int    `json:"threads"`        // of the CPU; 0: one for each core
	Draft         string `json:"draft"`          // what drafts the next tokens: auto, off, lookup, mtp, or the name of a model
}

// Status is a snapshot of the engine.
type Status struct {
	State         State        `json:"state"`
	Model         ModelInfo    `json:"model"`
	Loading       Loading      `json:"loading"`                 // while State is loading
	Error         *fault.Error `json:"error,omitempty"`         // while State is failed
	Notice        string       `json:"notice,omitempty"`        // a sentence for the user about the model, such as that it has no chat template
	TemplateVars  []string     `json:"template_vars,omitempty"` // variables for reasoning that the chat template reads: enable_thinking, thinking, reasoning_effort
	Trouble       string       `json:"trouble,omitempty"`       // the last failure of the engine's process or its device, and what was done about it
	Device        device.Info  `json:"device"`
	CacheType     string       `json:"cache_type"`     // format of the loaded model's KV cache: f16, f32, q8_0, q4_0, or two for keys and values
	ContextLength int          `json:"context_length"` // maximum positions of an answer, its prompt included
	Cache         Cache        `json:"cache"`
	LoadMS        float64      `json:"load_ms"`
	Packing       Packing      `json:"packing,omitzero"`
	Setup         Setup        `json:"setup"`                  // with which models are loaded
	Reload        *Setup       `json:"reload,omitempty"`       // with which the model is loaded again when the running answers have ended; nil: it is not
	SetupNotice   string       `json:"setup_notice,omitempty"` // why the last change of the setup was undone
	KeepAliveS    float64      `json:"keep_alive_s,omitempty"` // seconds without a request after which the model is unloaded; 0: it is not
	UnloadUnix    int64        `json:"unload_at,omitempty"`    // when that is, in seconds; 0: it is used, or stays
	Running       int          `json:"running"`                // running answers
	Queued        int          `json:"queued"`                 // waiting requests
	WaitS         float64      `json:"wait_s"`                 // expected seconds until the last of them begins, as in Queued; 0: none waits, or unknown
	EndS          float64      `json:"end_s,omitempty"`        // expected seconds until all answers that have started have ended, as in Queued; 0: none has, or unknown
	Decode        float64      `json:"decode_tok_s"`           // decode speed of the last steps, all sequences together; 0 when idle
	Step          Step         `json:"step"`
	Reads         Reads        `json:"reads"`
	Ahead         Ahead        `json:"ahead,omitzero"`

	// Memory is what the model takes of each device that it is on, as planned; nil: it is not loaded.
	Memory []MemoryUse `json:"memory,omitempty"`

	Pinned   bool  `json:"pinned,omitempty"`  // the model is not unloaded for another one
	UsedUnix int64 `json:"used_at,omitempty"` // when the model was used last, in seconds; 0: not known, or never

	// Models are all models that are loaded or being loaded, the one used last first: the status of each, without the fields from
	// here on. The fields above are those of the one that wrote last. nil: the engine has one model at most.
	Models    []Status `json:"models,omitempty"`
	Evictions int64    `json:"evictions,omitempty"` // models that were unloaded to make room for others since the server started
	Devices   []Memory `json:"devices,omitempty"`   // the memory of each device that models may take

	Upstreams []UpstreamServer `json:"upstreams,omitempty"` // other engines
	Remote    []ModelInfo      `json:"remote,omitempty"`    // the models that they run
}

// MemoryUse is what a model takes of a device, in bytes.
type MemoryUse struct {
	Device   string `json:"device"`             // its name
	Kind     string `json:"kind"`               // as in device.Info
	Weights  int64  `json:"weights"`            // 0: they stay in the file
	Cache    int64  `json:"cache"`              // at most; see Cache
	Work     int64  `json:"work"`               // activations, logits and workspace
	Pictures int64  `json:"pictures,omitempty"` // the companion file with its activations and workspace, as soon as a picture is encoded; 0: it is not on this device
	Free     int64  `json:"free,omitempty"`     // of the device, before the model was loaded; 0: not known
}

// Total returns all that the model takes.
func (u MemoryUse) Total() int64 { return u.Weights + u.Cache + u.Work + u.Pictures }

// Memory is the memory of a device that models may take, in bytes.
type Memory struct {
	Device string `json:"device"`
	Kind   string `json:"kind"`
	Total  int64  `json:"total"`           // of all models together; 0: not known
	Other  int64  `json:"other,omitempty"` // taken by other programs and this one, of main memory; 0: not known
	Taken  int64  `json:"taken"`           // by the loaded ones, as planned
}

// Loaded returns the status of each model that is loaded or being loaded.
func (s *Status) Loaded() []Status {
	if s.Models != nil || s.State == StateFailed || s.State == StateUnloaded || s.Model.Name == "" {
		return s.Models
	}
	return []Status{*s}
}

// Of returns the status of the model called name; nil if it is neither loaded nor being loaded.
func (s *Status) Of(name string) *Status {
	for _, one := range s.Loaded() {
		if one.Model.Name == name {
			return &one
		}
	}
	return nil
}

// RemoteModel returns the model called name if another engine runs it; nil if not.
func (s *Status) RemoteModel(name string) *ModelInfo {
	for i := range s.Remote {
		if s.Remote[i].Name == name {
			return &s.Remote[i]
		}
	}
	return nil
}

// Context returns the most positions of an answer of the model called name; 0 if that is not known because
// it is not loaded, or the engine that runs it does not say.
func (s *Status) Context(name string) int {
	if name == s.Model.Name {
		return s.ContextLength
	}
	if loaded := s.Of(name); loaded != nil {
		return loaded.ContextLength
	}
	if remote := s.RemoteModel(name); remote != nil {
		return remote.Upstream.ContextLength
	}
	return 0
}

// Cache is the memory of the KV cache in bytes. In main memory the cache grows with answers, and keeps
// their blocks for later prompts with the same beginning. On a GPU it is allocated when a model is
// loaded.
type Cache struct {
	Planned int64 `json:"planned"` // maximum
	Used    int64 `json:"used"`    // current

	// State is the memory of recurrent state and its snapshots, for models that have it: it does not
	// grow with answers.
	State int64 `json:"state,omitempty"`

	Key   string `json:"key,omitempty"`   // identifies the KV caches in files that can be used: model, devices, format; empty: none are stored
	Saves int    `json:"saves,omitempty"` // how often a KV cache was written to a file since the engine started
}

// Packing is the progress of copying weights into a layout that is faster to read, between steps of a model that is
// ready: answers are slower until then. Zero: there is nothing to copy.
type Packing struct {
	Done  int64 `json:"done"`  // bytes
	Total int64 `json:"total"` // bytes
}

// Reads counts what decode steps have read from the device's memory since the model was loaded: weights once
// a step, and the KV cache of each answer in it. Steps that also read prompts, and those of several answers of
// a mixture of experts, are not counted.
type Reads struct {
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"`             // that these steps took
	Bandwidth float64 `json:"bandwidth,omitempty"` // read bandwidth of the memory, bytes per second; measured once for each device, when the engine is idle after an answer; 0: not known
}

// Ahead counts the tokens that the device drew itself, to compute the steps after them before the host had sampled.
// They count if the host draws the same ones.
type Ahead struct {
	On      bool  `json:"on"`      // the device of the loaded model computes steps ahead
	Tokens  int64 `json:"tokens"`  // computed ahead since the model was loaded
	Missed  int64 `json:"missed"`  // of Tokens, those for which the host drew another one: their rows were computed again
	Dropped int64 `json:"dropped"` // of Tokens, those of answers that had ended, or had another token before
}

// MissShare returns the share of the tokens that were not the host's; 0 if there are none.
func (a Ahead) MissShare() float64 {
	return float64(a.Missed) / float64(max(1, a.Tokens-a.Dropped))
}

// Step shows whether the engine makes progress.
type Step struct {
	Rows      int     `json:"rows"`       // tokens of the running step; 0: none is running
	ForMS     float64 `json:"for_ms"`     // time since the running step began, in ms
	LongestMS float64 `json:"longest_ms"` // duration of the longest completed step since the model was loaded, in ms; 0: none completed
}

// Rendered is a request as the model receives it.
type Rendered struct {
	Prompt string  `json:"prompt"`
	Tokens []int32 `json:"tokens"`
	Notice string  `json:"notice,omitempty"`

	Pictures []int           `json:"pictures,omitempty"`        // how many of Tokens belong to each picture of the input
	Grids    []PictureGrid   `json:"picture_grids,omitempty"`   // of each of them
	Details  []PictureTokens `json:"picture_details,omitempty"` // how many would belong to each of them in each detail

	Notes []string `json:"notes,omitempty"` // how the prompt differs from the conversation: see PromptNotes

	Largest       fault.Part `json:"largest,omitempty"` // of a prompt that leaves no room for an answer
	LargestTokens int        `json:"largest_tokens,omitempty"`

	Continued *chat.Message `json:"begun,omitempty"` // what Request.ContinuedTokens spells, which need not be the message that is continued; nil: it has none, or they are not the model's, or complete a stop string
}

// PictureTokens is how many tokens a picture has by its chat.Detail.
type PictureTokens struct {
	Low    int `json:"low"`
	Medium int `json:"medium"`
	Full   int `json:"full"`
}

// PictureGrid says where the tokens of a picture lie in it: in rows and columns. Of one that is cut into tiles, those of the overview
// are not counted.
type PictureGrid struct {
	Rows    int `json:"rows"`
	Columns int `json:"columns"`
}
