package web

import (
	"cmp"
	"context"
	"net/url"
	"slices"

	"m40-llm/web/lang"
)

// Models is the page about the models on this machine.
type Models struct {
	Manages     bool // who looks at it may download and delete models
	Engine      Engine
	Picker      Picker
	Rows        []ModelRow
	Downloads   []Download
	Shown       *ModelDetails // alongside the list
	Open        bool          // on a small screen Shown is open over the list
	Find        Find
	Problem     string // why the requested change failed
	Suggestions []Suggestion
	Setup       *Setup // how models are loaded; nil: it cannot be changed by who looks at it
	Folder      string // where models are downloaded to
	Taken       string // "26.1 GB in 6 files"
	Free        string // "212 GB free"

	Memory []DeviceMemory // that models may take
}

// DeviceMemory is the memory of a device with the models that take of it.
type DeviceMemory struct {
	Device string
	Taken  string         // "12.3 GB of 24 GB are taken or promised, 11.7 GB are free"
	Parts  []MemoryPart   // of the bar, from the left; what is left is free
	Models []LoadedMemory // that take of it
}

// MemoryPart is a part of the bar of a device's memory.
type MemoryPart struct {
	Kind  string // weights, cache, work, other; gap: between two models
	From  float64
	Share float64 // of the whole, as From
	Title string  // "qwen3-8b: 4.7 GB of weights"
}

// memoryKey explains the colours of the parts of memory.
var memoryKey = []MemoryPart{
	{Kind: "weights", Title: lang.Key("weights")},
	{Kind: "cache", Title: lang.Key("KV cache, at most")},
	{Kind: "work", Title: lang.Key("workspace")},
	{Kind: "other", Title: lang.Key("other programs")},
	{Kind: "bg", Title: lang.Key("free")},
}

// LoadedMemory is what a loaded model takes of a device, in words.
type LoadedMemory struct {
	Name  string
	Facts string // "4.7 GB of weights, up to 1.1 GB of KV cache, 210 MB of workspace"
}

// Suggestion is a model that suits this machine.
type Suggestion struct {
	Name  string // to look it up
	Title string
	Facts string // family, parameters, quantisation, size, licence
	Fits  string // with which context, and where
}

// Setup is how models are loaded. An empty field means the default.
type Setup struct {
	Context   string
	Cache     string // format of the KV cache, one of Caches
	Caches    []string
	Threads   string
	Draft     string // what drafts tokens: auto, off, lookup, mtp, or the name of a model
	Now       string // what the loaded model has
	KeepAlive string // when models are unloaded
	Warning   string // what a change does to running answers; empty: none run
	Problem   string // why the last change was undone
}

// Picker is the menu of models in the top bar. Version changes with the list.
type Picker struct {
	Version   int64
	Chat      string // chat whose model is chosen; empty: the one that begins here
	Chosen    string // by name; empty: Loaded
	Loaded    string // name of the model that is loaded
	Preferred string // name of the model that a person chose last, for new chats; empty: Loaded
	Rows      []ModelRow
	Lacks     []Lacks // of the engines in Rows
	Problem   string  // why the list cannot be read
}

// NameOf returns what the page calls the model called name: that, so that it can be found everywhere else.
func NameOf(ctx context.Context, name string) string { return cmp.Or(name, lang.T(ctx, "No model")) }

// row is that of the chosen model; empty if there is none.
func (p Picker) row() ModelRow {
	if i := slices.IndexFunc(p.Rows, func(row ModelRow) bool { return row.Name == p.Chosen }); i >= 0 {
		return p.Rows[i]
	}
	return ModelRow{}
}

// label is what the chosen model is called.
func (p Picker) label(ctx context.Context) string { return NameOf(ctx, p.Chosen) }

// elsewhere reports whether a model is chosen that is not the loaded one.
func (p Picker) elsewhere(e Engine) bool { return p.Chosen != "" && p.Chosen != e.ID }

// answers is what the model is called that writes the next answers.
func (p Picker) answers(ctx context.Context, e Engine) string {
	if p.elsewhere(e) {
		return p.label(ctx)
	}
	return e.Name
}

// continues reports whether the model of a new chat has no chat template: the chat is raw then.
func (p Picker) continues(e Engine) bool {
	name := cmp.Or(p.Chosen, e.ID)
	return slices.ContainsFunc(p.Rows, func(row ModelRow) bool { return row.Name == name && row.Continues })
}

// ownFirst reports whether the list of models comes before what finds others: there are more than the built-in one, and none is
// looked up.
func (m Models) ownFirst() bool { return len(m.Rows) > 1 && m.Find.Query == "" }

// caption names the list of models.
func (m Models) caption(ctx context.Context) string {
	if slices.ContainsFunc(m.Rows, func(row ModelRow) bool { return row.Where != "" }) {
		return lang.T(ctx, "Models on this machine, and of other engines")
	}
	return lang.T(ctx, "Models on this machine")
}

// AddLacks returns the number of l in Lacks, counted from 1, where it is added unless it is in it; 0 if it
// is empty.
func (p *Picker) AddLacks(l Lacks) int {
	if len(l.Reasons) == 0 {
		return 0
	}
	for i, other := range p.Lacks {
		if slices.Equal(l.Settings, other.Settings) && slices.Equal(l.Reasons, other.Reasons) {
			return i + 1
		}
	}
	p.Lacks = append(p.Lacks, l)
	return len(p.Lacks)
}

// where is where the chosen model runs; empty: on this machine.
func (p Picker) where() string { return p.row().Where }

// note is what is said alongside the name of the chosen model. picker.js has these texts too.
func (p Picker) note(ctx context.Context) string {
	switch where := p.where(); {
	case p.missing():
		return lang.T(ctx, "not on this machine")
	case where != "":
		return lang.T(ctx, "at %s", where)
	}
	return lang.T(ctx, notes[p.row().State])
}

// notes are what note says of a model of this machine, by its state.
var notes = map[string]string{
	"":         lang.Key("loads with the next message"),
	"built in": lang.Key("loads with the next message"),
	"loading":  lang.Key("is being loaded"),
	"loaded":   lang.Key("loaded"),
	"in use":   lang.Key("loaded"),
}

// inMemory reports whether the chosen model is loaded on this machine.
func (p Picker) inMemory() bool {
	row := p.row()
	return row.Where == "" && (row.State == "loaded" || row.State == "in use")
}

// loads says when the chosen model is loaded, or where it runs.
func (p Picker) loads(ctx context.Context) string {
	if where := p.where(); where != "" {
		return lang.T(ctx, "It runs at %s.", where)
	}
	if p.inMemory() {
		return lang.T(ctx, "It is in memory.")
	}
	return lang.T(ctx, "It is loaded when the first message is sent.")
}

// good says what the chosen model is good at.
func (p Picker) good() string { return p.row().Good }

// Offers reports whether a model of this name can be chosen.
func (p Picker) Offers(name string) bool {
	return slices.ContainsFunc(p.Rows, func(row ModelRow) bool { return row.Name == name && row.Chats() })
}

// Chats reports whether the model can answer in a chat.
func (m ModelRow) Chats() bool { return m.Error == "" && !m.Embeds && !m.Ranks }

// kind says in words what the model does for programs instead of writing text; empty: it writes text.
func (m ModelRow) kind(ctx context.Context) string {
	switch {
	case m.Embeds:
		return lang.T(ctx, "computes embeddings for programs")
	case m.Ranks:
		return lang.T(ctx, "ranks documents for programs")
	}
	return ""
}

// missing reports whether the chosen model is not on this machine, or cannot be used.
func (p Picker) missing() bool {
	return p.Chosen != "" && p.Chosen != p.Loaded && p.Problem == "" && !p.Offers(p.Chosen)
}

// pressed reports whether a model is the one that answers next.
func (p Picker) pressed(name string) bool { return name == cmp.Or(p.Chosen, p.Loaded) }

// action is where the form of the menu leads.
func (p Picker) action() string {
	if p.Chat == "" {
		return "/"
	}
	return "/c/" + p.Chat + "/model"
}

// ModelRow is a model in a list.
type ModelRow struct {
	Name       string // what a request says
	Family     string // "qwen3moe"
	Experts    string // "8 of 128 experts"; empty: it is dense
	Parameters string // "8.0 B"
	Quant      string
	Size       string // "4.92 GB"
	Context    string // "131,072"
	State      string // loading, loaded, in use, or Idle
	Idle       string // state while it is not in memory: built in; empty: nothing to say
	Error      string // why it cannot be used, if so
	Continues  bool   // it has no chat template, and continues text
	Sight      string // "true": it reads pictures; "maybe": the engine that runs it does not say; empty: it reads none
	Embeds     bool   // it computes embeddings for programs, and writes no text
	Ranks      bool   // it ranks documents for programs, and writes no text
	InMemory   bool   // it is loaded, or being loaded
	Pinned     bool   // it stays in memory
	Deletable  bool   // who looks at the page may delete it
	Loads      string // how long a load is expected to take; empty: not known, or it is loaded
	Good       string // what it is good at, in a sentence; empty: not known

	Where    string // HOST:PORT of the other engine that runs it; empty: this machine does
	Engine   string // as that names itself
	Problem  string // why that cannot be asked now, or, of a model here, why its chat template cannot be used; empty: it can
	Thinking string // as in Engine, of a model that another engine runs
	Lacks    int    // of Picker.Lacks, counted from 1; 0: it lacks nothing
}

// Lacks is what the engine that runs a model cannot do.
type Lacks struct {
	Settings []string // keys of settings without effect
	Reasons  []string // sentences
}

// engine is what the engine that runs the model calls itself.
func (m ModelRow) engine(ctx context.Context) string {
	return cmp.Or(m.Engine, lang.T(ctx, "does not say"))
}

// context is the context of a model that another engine runs.
func (m ModelRow) context(ctx context.Context) string {
	if m.Context == "" {
		return lang.T(ctx, "does not say")
	}
	return lang.T(ctx, "%s tokens", m.Context)
}

func (m ModelRow) facts(ctx context.Context) string {
	where := ""
	if m.Where != "" {
		where = lang.T(ctx, "at %s", m.Where)
	}
	kind := m.kind(ctx)
	if m.Continues {
		kind = lang.T(ctx, "continues text")
	}
	sees := ""
	if m.Sight == "true" {
		sees = lang.T(ctx, "sees pictures")
	}
	return joinFacts(where, m.Family, m.Experts, m.Parameters, m.Quant, m.Size, kind, sees, m.Loads)
}

func joinFacts(parts ...string) string {
	text := ""
	for _, part := range parts {
		switch {
		case part == "":
		case text == "":
			text = part
		default:
			text += " · " + part
		}
	}
	return text
}

// ModelDetails is all about one model.
type ModelDetails struct {
	ModelRow
	Facts    []Fact
	Types    []TensorType
	Metadata []Fact
	Template bool   // its chat template can be previewed and edited
	Locked   string // why it cannot be deleted; empty: it can
	Loads    bool   // the person can load it, unload it and pin it
	Deleting bool   // the person is asked whether to delete it

}

// Fact is a line of a list of facts.
type Fact struct{ Name, Value string }

// TensorType counts tensors of one format.
type TensorType struct{ Type, Tensors, Weights, Size string }

// exampleModel is a name that a newcomer can look up with a click.
const exampleModel = "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0"

// Find is the result of looking up a name in the registry.
type Find struct {
	Query   string
	Problem string // why there is nothing to download
	Found   *Found
}

// Found is the file that a name refers to.
type Found struct {
	Name     string
	File     string // without its folders
	Quant    string
	Size     string
	Bytes    string // of the file, as a number
	Partial  string // what is here of it already; empty: nothing
	Here     string // name of the model, if it is here already
	Running  bool   // it is being downloaded
	Sums     []Sum
	Verdict  string // fits, does not fit, is not known to fit, cannot be used
	Fits     bool
	Off      string // why it cannot be downloaded; empty: it can
	Notice   string
	Works    []string       // names to look up instead
	Choices  []Quantisation // quantisations of the repository
	All      string         // repository whose quantisations can be compared; empty: they are, or there is none
	Verified bool           // there is a SHA-256 to check it by
}

// Quantisation is one of the quantisations of a repository.
type Quantisation struct {
	Name    string // to look it up
	Quant   string
	Size    string
	Context string // the longest that fits; empty: none
	On      string // devices that it would be on
	Speed   string // "about 12"
	Problem string // why it cannot be used, or does not fit
	Chosen  bool
}

// facts is what the columns say that a phone has no room for.
func (q Quantisation) facts(ctx context.Context) string {
	fits, speed := "", ""
	if q.Context != "" {
		fits = lang.T(ctx, "context %s", q.Context)
	}
	if q.Speed != "" {
		speed = q.Speed + " tok/s"
	}
	return joinFacts(q.Size, fits, q.On, speed)
}

// Sum compares what a download needs with what is free.
type Sum struct {
	Of    string // memory, disk
	Needs string
	Free  string
	Over  bool
	Share float64 // of what is free, in percent; at most 100
}

// Download is the state of a download. It is also sent over the websocket; the scripts copy each
// field into the elements with its name in data-field.
type Download struct {
	File   string  `json:"file"`   // names it
	State  string  `json:"state"`  // running, paused, failed, done
	Share  float64 `json:"share"`  // percent
	Phase  string  `json:"phase"`  // "reading what is here", "waiting: …", "paused"
	Amount string  `json:"amount"` // "5.57 of 8.99 GB"
	Rate   string  `json:"rate"`   // "11.4 MB/s"
	Left   string  `json:"left"`   // "5 min left"

	Title string `json:"-"`
	Quant string `json:"-"`
	Error string `json:"-"` // why it failed
	Model string `json:"-"` // name of the model that is loaded now
	Note  string `json:"-"` // what was checked, and what is wrong with the model
}

// News is what open pages show about models.
type News struct {
	Version   int64      `json:"version"`
	Downloads []Download `json:"downloads"`
}

func (m Models) summary(ctx context.Context) string {
	text := lang.N(ctx, len(m.Rows), "%s model on this machine", "%s models on this machine", lang.Count(ctx, len(m.Rows)))
	running := 0
	for _, d := range m.Downloads {
		if d.State == "running" {
			running++
		}
	}
	if running > 0 {
		text += " · " + lang.T(ctx, "%s downloading", lang.Count(ctx, running))
	}
	return text
}

func showAddress(name string) string   { return "/models?show=" + url.QueryEscape(name) }
func deleteAddress(name string) string { return showAddress(name) + "&delete=1" }
func useAddress(name string) string    { return "/?model=" + url.QueryEscape(name) }
