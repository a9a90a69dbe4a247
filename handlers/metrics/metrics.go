// Package metrics counts what an engine generates and how long that takes, for Prometheus. It knows
// no texts and no people.
//
// Every metric has the labels model and device, with the names that the status of the engine has; never
// names that clients send, of which there could be any number. answers_total has the label reason too. Metrics
// of other engines have the label upstream alone, with the address that the owner gave.
package metrics

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"m40-llm/infer"
)

// Generate is the method of an engine that generates answers.
type Generate = func(context.Context, infer.Request) iter.Seq2[infer.Event, error]

// Engine is the part of an engine that this package uses.
type Engine interface{ Status() infer.Status }

// Service has the metrics of one engine. It is safe for concurrent use.
type Service struct {
	engine   Engine
	registry *prometheus.Registry

	answers                   *prometheus.CounterVec
	prompt, cached, generated *prometheus.CounterVec
	drafted, accepted         *prometheus.CounterVec
	queue, first, between     *prometheus.HistogramVec
}

var labels = []string{"model", "device"}

const namespace = "m40_llm"

// New returns the metrics of engine.
func New(engine Engine) *Service {
	s := &Service{engine: engine, registry: prometheus.NewRegistry()}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, append(labels[:2:2], more...))
		s.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
		s.registry.MustRegister(h)
		return h
	}
	s.answers = counter("answers_total", "Answers that ended, by reason: as finish_reason, or cancelled or error.", "reason")
	s.prompt = counter("prompt_tokens_total", "Tokens of prompts, those found in the KV cache included.")
	s.cached = counter("cached_tokens_total", "Tokens of prompts that were found in the KV cache.")
	s.generated = counter("generated_tokens_total", "Tokens of answers.")
	s.drafted = counter("drafted_tokens_total", "Tokens that were drafted, by prompt lookup or a draft model.")
	s.accepted = counter("accepted_tokens_total", "Tokens that were drafted, and drawn.")
	s.queue = histogram("queue_seconds", "Time that an answer waited in the queue.", prometheus.ExponentialBuckets(0.001, 4, 10))
	s.first = histogram("first_token_seconds", "Time from a request to its first token.", prometheus.ExponentialBuckets(0.01, 3, 10))
	s.between = histogram("token_seconds", "Mean time between the tokens of an answer.", prometheus.ExponentialBuckets(0.001, 2, 13))
	return s
}

// ServeHTTP writes the metrics in Prometheus' text format.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := prometheus.NewRegistry()
	now.MustRegister(gauges{s.engine.Status()}) // read here: a panic in a collector would end the process
	promhttp.HandlerFor(prometheus.Gatherers{s.registry, now}, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, r)
}

// Observe returns a function like generate whose answers are counted.
func (s *Service) Observe(generate Generate) Generate {
	return func(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			ended := false
			defer func() {
				if !ended {
					s.end("cancelled", r.Model)
				}
			}()
			for e, err := range generate(ctx, r) {
				switch {
				case err != nil:
					ended = true
					s.end(failed(err), r.Model)
				case e.Type == infer.EventDone:
					ended = true
					s.done(e.Done)
				}
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// failed returns the reason for an answer that ended with err.
func failed(err error) string {
	if errors.Is(err, context.Canceled) {
		return "cancelled"
	}
	return "error"
}

// end counts an answer without a record, of the model that the request named.
func (s *Service) end(reason, asked string) {
	status := s.engine.Status()
	model, device := status.Model.Name, status.Device.Name
	if one := status.Of(asked); one != nil {
		model, device = one.Model.Name, one.Device.Name
	}
	if remote := status.RemoteModel(asked); remote != nil {
		model, device = remote.Name, remote.Upstream.Servers[0]
	}
	s.answers.WithLabelValues(model, device, reason).Inc()
}

// done counts a complete answer.
func (s *Service) done(done *infer.Done) {
	status := s.engine.Status()
	model, device := cmp.Or(done.Receipt.Model, status.Model.Name), cmp.Or(done.Receipt.Device, status.Device.Name)
	if remote := status.RemoteModel(model); remote != nil {
		device = remote.Upstream.Servers[0] // what a receipt of there says could be anything
	}
	s.answers.WithLabelValues(model, device, string(done.Reason)).Inc()
	u, t := done.Usage, done.Timings
	s.prompt.WithLabelValues(model, device).Add(float64(u.PromptTokens))
	s.cached.WithLabelValues(model, device).Add(float64(u.CachedTokens))
	s.generated.WithLabelValues(model, device).Add(float64(u.CompletionTokens))
	s.drafted.WithLabelValues(model, device).Add(float64(done.Lookup.Drafted))
	s.accepted.WithLabelValues(model, device).Add(float64(done.Lookup.Accepted))
	s.queue.WithLabelValues(model, device).Observe(t.Queue.Seconds())
	s.first.WithLabelValues(model, device).Observe(t.First.Seconds())
	if u.CompletionTokens > 1 {
		s.between.WithLabelValues(model, device).Observe(t.Decode.Seconds() / float64(u.CompletionTokens-1))
	}
}

// gauges are the numbers of a status of the engine.
type gauges struct{ status infer.Status }

// gauge is a number of the status.
type gauge struct {
	description *prometheus.Desc
	value       func(infer.Status) float64
}

func describe(name, help string, value func(infer.Status) float64) gauge {
	return gauge{prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil), value}
}

var numbers = []gauge{
	describe("ready", "1 while requests can be answered, else 0.", func(s infer.Status) float64 {
		if s.State == infer.StateReady || s.State == infer.StateUnloaded {
			return 1
		}
		return 0
	}),
	describe("running_answers", "Answers that are generated: the batch.", func(s infer.Status) float64 { return float64(s.Running) }),
	describe("queued_answers", "Requests that wait in the queue.", func(s infer.Status) float64 { return float64(s.Queued) }),
	describe("step_rows", "Tokens of the step that is computed, 0 if none is.", func(s infer.Status) float64 { return float64(s.Step.Rows) }),
	describe("longest_step_seconds", "Duration of the longest step since the model was loaded.", func(s infer.Status) float64 { return s.Step.LongestMS / 1000 }),
	describe("ahead_tokens", "Tokens that the device drew itself to compute steps ahead, since the model was loaded.", func(s infer.Status) float64 { return float64(s.Ahead.Tokens) }),
	describe("ahead_missed_tokens", "Of them, those for which the host drew another one: their rows were computed again.", func(s infer.Status) float64 { return float64(s.Ahead.Missed) }),
	describe("decode_tokens_per_second", "Speed of the last steps, all answers together.", func(s infer.Status) float64 { return s.Decode }),
	describe("kv_cache_used_bytes", "Memory of the KV cache in use.", func(s infer.Status) float64 { return float64(s.Cache.Used) }),
	describe("kv_cache_planned_bytes", "Most memory that the KV cache may use.", func(s infer.Status) float64 { return float64(s.Cache.Planned) }),
	describe("memory_planned_bytes", "Memory of all devices that the model takes at most, by its plan.", func(s infer.Status) (total float64) {
		for _, use := range s.Memory {
			total += float64(use.Total())
		}
		return total
	}),
	describe("context_tokens", "Most tokens of a prompt and its answer.", func(s infer.Status) float64 { return float64(s.ContextLength) }),
	describe("load_seconds", "Time that loading the model took.", func(s infer.Status) float64 { return s.LoadMS / 1000 }),
}

// upstreamGauge is a number of the status of another engine.
type upstreamGauge struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
	value       func(infer.UpstreamServer) float64
}

func describeUpstream(name, help string, kind prometheus.ValueType, value func(infer.UpstreamServer) float64) upstreamGauge {
	return upstreamGauge{prometheus.NewDesc(prometheus.BuildFQName(namespace, "upstream", name), help, []string{"upstream"}, nil), kind, value}
}

var upstreamNumbers = []upstreamGauge{
	describeUpstream("ready", "1 while requests can be sent there, else 0.", prometheus.GaugeValue, func(s infer.UpstreamServer) float64 {
		if s.Problem == "" {
			return 1
		}
		return 0
	}),
	describeUpstream("running_answers", "Answers that it writes for this server.", prometheus.GaugeValue, func(s infer.UpstreamServer) float64 { return float64(s.Running) }),
	describeUpstream("answers_total", "Answers that it completed.", prometheus.CounterValue, func(s infer.UpstreamServer) float64 { return float64(s.Answers) }),
	describeUpstream("failed_requests_total", "Requests to it that failed, those that were sent again included.", prometheus.CounterValue, func(s infer.UpstreamServer) float64 { return float64(s.Failed) }),
}

var evictions = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "model_evictions_total"), "Models that were unloaded to make room for others.", nil, nil)

// Describe implements prometheus.Collector.
func (g gauges) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- evictions
	for _, n := range numbers {
		descriptions <- n.description
	}
	for _, n := range upstreamNumbers {
		descriptions <- n.description
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(metrics chan<- prometheus.Metric) {
	s := g.status
	loaded := s.Loaded()
	if s.Of(s.Model.Name) == nil {
		loaded = append(slices.Clip(loaded), s) // it is not in memory
	}
	for _, one := range loaded {
		for _, n := range numbers {
			metrics <- prometheus.MustNewConstMetric(n.description, prometheus.GaugeValue, n.value(one), one.Model.Name, one.Device.Name)
		}
	}
	metrics <- prometheus.MustNewConstMetric(evictions, prometheus.CounterValue, float64(s.Evictions))
	for _, server := range s.Upstreams {
		for _, n := range upstreamNumbers {
			metrics <- prometheus.MustNewConstMetric(n.description, n.kind, n.value(server), server.Address)
		}
	}
}
