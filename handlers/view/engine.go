// Package view describes the state of the engine, of downloads and of answers for the page, both
// as it is served and in the events that update it.
package view

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"m40-llm/handlers/disk"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/live"
	"m40-llm/infer"
	"m40-llm/infer/units"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// Space returns a warning if the disk is nearly full or cannot be checked, else "". The free
// space is rounded, so that open pages are not updated with every message that is stored.
func Space(ctx context.Context, s disk.Space) string {
	if s.Missing != nil {
		return failure.Sentence(ctx, s.Missing.Error())
	}
	if !s.Scarce {
		return ""
	}
	const step = 10_000_000
	return lang.T(ctx, "The disk of the data folder is nearly full: %s left. Chats that are there go on, but a new one cannot begin before there is room.",
		lang.Size(ctx, s.Free/step*step))
}

// hardware names the kinds of device.
var hardware = map[string]string{"cpu": "CPU", "cuda": "GPU", "ref": lang.Key("CPU, reference")}

// Engine describes the engine's status for the page.
func Engine(ctx context.Context, s infer.Status) web.Engine {
	name := web.NameOf(ctx, s.Model.Name)
	e := web.Engine{
		State:    string(s.State),
		ID:       s.Model.Name,
		Name:     name,
		Demo:     s.Model.Demo,
		Tag:      s.Model.Quant,
		Model:    Joined(", ", name, parameters(ctx, s.Model.Parameters), s.Model.Quant),
		Device:   s.Device.Name,
		Hardware: lang.T(ctx, hardware[s.Device.Kind]),

		DeviceNotice: failure.Sentence(ctx, s.Device.Notice),

		Context: s.ContextLength,
		Notice:  failure.Sentence(ctx, s.Notice),
		Trouble: failure.Sentence(ctx, s.Trouble),
		Queue:   queue(ctx, s),
		Cache:   cacheText(ctx, s.Cache),
		Saves:   s.Cache.Saves,

		RecurrentState: stateText(ctx, s.Cache),
		Decode:         string(s.Device.Decode),
		Packing:        packingText(s.Packing),
		Ahead:          aheadText(ctx, s.Ahead),
	}
	for _, one := range s.Loaded() {
		if state := MemoryState(&one); state != "" {
			e.Loaded += state + "\t" + one.Model.Name + "\n"
		}
	}
	larger := s.ContextLength < s.Model.ContextTrain
	e.TooLongFirst, e.TooLong = failure.TooLong(ctx, true, larger), failure.TooLong(ctx, false, larger)
	e.Thinking = ThinkingKinds(s.TemplateVars)
	if s.Model.Demo {
		e.Tag = lang.T(ctx, "demo")
	}
	if e.Hardware == "" {
		e.Hardware = s.Device.Kind
	}
	switch s.State {
	case infer.StateLoading:
		describeLoading(ctx, &e, s.Loading)
	case infer.StateRestarting:
		e.StateText, e.Ready, e.Headline = lang.T(ctx, "restarting"), lang.T(ctx, "The engine is being restarted."), lang.T(ctx, "%s will be back in a moment", name)
		e.Intro = lang.T(ctx, "A message sent now is kept, and answered as soon as the engine is there.")
	case infer.StateUnloaded:
		e.StateText, e.Ready, e.Headline = lang.T(ctx, "not in memory"), lang.T(ctx, "It is loaded with the next message."), lang.T(ctx, "%s is loaded with the next message", name)
		e.Intro = lang.T(ctx, "Nobody had used it for a while, so its memory was freed.")
	case infer.StateFailed:
		e.StateText, e.Ready, e.Headline = lang.T(ctx, "failed"), lang.T(ctx, "Not ready."), lang.T(ctx, "No model is loaded")
		e.Intro = lang.T(ctx, "Choose another one, or download one. Until then nothing can be answered.")
		if s.Error != nil {
			e.Error = failure.For(ctx, s.Error).Text
		}
	default:
		describeReady(ctx, &e, s)
	}
	e.Summary = Joined(" · ", name, e.Tag, e.StateText)
	return e
}

// MemoryState says whether a model is in memory: loading, loaded, in use; empty: it is not.
func MemoryState(s *infer.Status) string {
	switch {
	case s.State == infer.StateLoading:
		return "loading"
	case s.State == infer.StateReady && s.Running > 0:
		return "in use"
	case s.State == infer.StateReady:
		return "loaded"
	}
	return ""
}

// packingText says how much of the weights is packed; "": all of them.
func packingText(p infer.Packing) string {
	if p.Total == 0 {
		return ""
	}
	return fmt.Sprintf("%d %%", 100*p.Done/p.Total)
}

// aheadText says how many tokens the device drew itself, and how many of them were wrong.
func aheadText(ctx context.Context, a infer.Ahead) string {
	if !a.On {
		return ""
	}
	if a.Tokens == 0 {
		return lang.T(ctx, "none yet")
	}
	return lang.N(ctx, int(a.Tokens), "%s token, %.1f %% wrong", "%s tokens, %.1f %% wrong", lang.Count(ctx, int(a.Tokens)), 100*a.MissShare())
}

// ThinkingKinds returns which controls of reasoning a page offers, by the variables that the
// model's template reads: "switch", "effort", both with a space between them, or "".
func ThinkingKinds(variables []string) string {
	var kinds []string
	if slices.Contains(variables, "enable_thinking") || slices.Contains(variables, "thinking") {
		kinds = append(kinds, "switch")
	}
	if slices.Contains(variables, "reasoning_effort") {
		kinds = append(kinds, "effort")
	}
	return strings.Join(kinds, " ")
}

func describeLoading(ctx context.Context, e *web.Engine, l infer.Loading) {
	e.StateText = lang.T(ctx, "loading")
	if l.Total > 0 {
		e.Loading = float64(1000*l.Done/l.Total) / 10
		e.StateText = lang.T(ctx, "loading, %.0f %%", e.Loading)
		e.Amount = lang.T(ctx, "%s of %s", lang.Size(ctx, l.Done), lang.Size(ctx, l.Total))
	}
	if l.KernelsTotal > 0 {
		e.Loading = float64(1000*l.Kernels/l.KernelsTotal) / 10
		e.StateText = lang.T(ctx, "compiling kernels")
		e.Amount = lang.T(ctx, "compiling kernels for this GPU, %d of %d; the driver keeps them for the next start", l.Kernels, l.KernelsTotal)
	}
	e.Ready = lang.T(ctx, "Loading the model.")
	e.Headline = lang.T(ctx, "Loading %s", e.Name)
	e.Intro = lang.T(ctx, "A message sent now is kept, and answered as soon as the model is there.")
}

func describeReady(ctx context.Context, e *web.Engine, s infer.Status) {
	e.StateText, e.Ready, e.Headline = lang.T(ctx, "ready"), lang.T(ctx, "Ready."), e.Name
	if s.LoadMS > 0 {
		e.Ready = lang.T(ctx, "Ready in %.1f s.", max(0.1, s.LoadMS/1000))
	}
	if s.Running > 0 {
		e.State, e.StateText = "writing", lang.T(ctx, "writing")
		if s.Decode > 0 {
			e.Rate = lang.Figure(ctx, units.TokenRate(s.Decode))
		}
	}
	e.Intro = GoodAt(ctx, s.Model)
	if s.Model.Demo {
		e.Ready += " " + lang.T(ctx, "No download needed.")
	}
}

// GoodAt says in a sentence or two what a model is good at, as far as its size and template tell.
func GoodAt(ctx context.Context, m infer.ModelInfo) string {
	const million, billion = 1e6, 1e9
	switch n := float64(m.Parameters); {
	case m.Demo && n >= million:
		return lang.T(ctx, "A tiny model with %.0f million parameters, here so that you can try the controls. It is good at short stories and jokes, and often wrong about facts.", n/million)
	case m.Demo:
		return lang.T(ctx, "A tiny model, here so that you can try the controls. It is often wrong.")
	case m.Continues:
		return lang.T(ctx, "Continues a text. It was not trained to answer questions: begin a sentence and let it go on.")
	case n == 0:
		return ""
	case n < 3*billion:
		return lang.T(ctx, "Quick. Good at rewriting and short texts; often wrong about facts and sums.")
	case n < 12*billion:
		return lang.T(ctx, "Good at explaining, rewriting and short code. Check its facts and long sums.")
	default:
		return lang.T(ctx, "Good at explaining, longer texts and code. Check its facts.")
	}
}

// queue says how many wait and run, and how long the last of them waits, if that is known.
func queue(ctx context.Context, s infer.Status) string {
	switch {
	case s.Queued == 0 && s.Running == 0:
		return lang.T(ctx, "empty")
	case s.Queued == 0:
		return lang.T(ctx, "%d running", s.Running)
	case s.WaitS > 0:
		return lang.T(ctx, "%d waiting about %s, %d running", s.Queued, units.Roughly(s.WaitS), s.Running)
	}
	return lang.T(ctx, "%d waiting, %d running", s.Queued, s.Running)
}

// Wait says how long an answer is expected to wait in the queue, as the end of a sentence; nothing if
// that is not known.
func Wait(ctx context.Context, q infer.Queued) string {
	return about(ctx, q.WaitS)
}

// LoadTime says how long a load is expected to take still, as Wait does.
func LoadTime(ctx context.Context, l infer.Loading) string { return about(ctx, l.LeftS) }

func about(ctx context.Context, seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return lang.T(ctx, ", about %s", units.Roughly(seconds))
}

// cacheText describes how much of the planned KV cache is used; "" before a model is loaded.
func cacheText(ctx context.Context, c infer.Cache) string {
	if c.Planned == 0 {
		return ""
	}
	return lang.T(ctx, "%s of %s used", lang.Size(ctx, c.Used), lang.Size(ctx, c.Planned))
}

// stateText describes the memory of recurrent state; "" if the model has none.
func stateText(ctx context.Context, c infer.Cache) string {
	if c.State == 0 {
		return ""
	}
	return lang.Size(ctx, c.State)
}

// parameters returns a number of parameters such as "14.2 M parameters"; "" if it is unknown.
func parameters(ctx context.Context, n int64) string {
	if n == 0 {
		return ""
	}
	return lang.T(ctx, "%s parameters", Quantity(ctx, n))
}

// Speaker returns the display name of the model that wrote an answer; "" if a person did.
func Speaker(ctx context.Context, a *live.Answer) string {
	if a.Rewritten || a.Receipt.Model == "" {
		return ""
	}
	return web.NameOf(ctx, a.Receipt.Model)
}

// Joined joins the parts that are not empty, with separator between them.
func Joined(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return part == "" }), separator)
}
