package upstream

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/live"
	chatsetting "m40-llm/handlers/setting"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// pageSettings are the settings of the page by what is set: each at its least, default and greatest, with what it depends on.
func pageSettings() map[string]chatsetting.Settings {
	list := map[string]chatsetting.Settings{"the defaults": chatsetting.Default()}
	add := func(name string, change func(s *chatsetting.Settings)) {
		s := chatsetting.Default()
		change(&s)
		list[name] = s
	}
	numbers := map[string]sample.Number{}
	for _, n := range sample.Numbers() {
		numbers[n.Name] = n
	}
	usual := sample.DefaultParams()
	for _, n := range sample.Numbers() {
		for word, value := range map[string]float64{"least": n.Min, "greatest": n.Max, "default": n.Get(&usual)} {
			add(n.Name+" at its "+word, func(s *chatsetting.Settings) {
				if n.DependsOn != "" {
					on := numbers[n.DependsOn]
					on.Set(&s.Params, on.Max)
				}
				if n.Name == "repeat_last_n" {
					s.RepeatPenalty = 1.1
				}
				n.Set(&s.Params, value)
			})
		}
	}
	for word, choose := range map[string]func(n sample.Number) float64{"least": func(n sample.Number) float64 { return n.Min }, "greatest": func(n sample.Number) float64 { return n.Max }} {
		add("every number at its "+word, func(s *chatsetting.Settings) {
			for _, n := range sample.Numbers() {
				n.Set(&s.Params, choose(n))
			}
		})
	}
	for _, n := range []int{1, 512, -1, 2047, 2048, chatsetting.MaxTokens} {
		add(fmt.Sprint("a limit of ", n), func(s *chatsetting.Settings) { s.MaxTokens = n })
	}
	for _, seed := range []int64{-1, 0, math.MaxUint32, chatsetting.MaxSeed} {
		add(fmt.Sprint("the seed ", seed), func(s *chatsetting.Settings) { s.Seed = seed })
	}
	add("no breaker of DRY", func(s *chatsetting.Settings) { s.DryMultiplier, s.DryBreakers = 1, nil })
	add("the most breakers of DRY", func(s *chatsetting.Settings) {
		s.DryMultiplier, s.DryBreakers = 1, slices.Repeat([]string{strings.Repeat("x", chatsetting.Breakers.Bytes)}, chatsetting.Breakers.Most)
	})
	add("the most stop strings", func(s *chatsetting.Settings) {
		s.Stop = slices.Repeat([]string{strings.Repeat("x", chatsetting.Stops.Bytes)}, chatsetting.Stops.Most)
	})
	add("all stages, named", func(s *chatsetting.Settings) { s.Samplers = sample.StageNames() })
	add("one stage", func(s *chatsetting.Settings) { s.Samplers = []string{"typical_p"} })
	for _, word := range []chatsetting.Thinking{chatsetting.ThinkingOn, chatsetting.ThinkingOff, chatsetting.ThinkingLow, chatsetting.ThinkingHigh} {
		add("thinking "+string(word), func(s *chatsetting.Settings) { s.Thinking = word })
	}
	add("JSON", func(s *chatsetting.Settings) { s.OutputFormat.Type = chatsetting.OutputJSON })
	add("a schema", func(s *chatsetting.Settings) {
		s.OutputFormat = chatsetting.OutputFormat{Type: chatsetting.OutputSchema, Schema: `{"type":"object","properties":{"a":{"type":"string"}}}`}
	})
	add("a grammar", func(s *chatsetting.Settings) {
		s.OutputFormat = chatsetting.OutputFormat{Type: chatsetting.OutputGrammar, Grammar: `root ::= "a"`}
	})
	add("a tool", func(s *chatsetting.Settings) { s.Tools = oneTool })
	add("a tool that must be called", func(s *chatsetting.Settings) { s.Tools, s.MustCall = oneTool, 1 })
	return list
}

const oneTool = `[{"type":"function","function":{"name":"weather","description":"The weather of a place.","parameters":{"type":"object","properties":{"place":{"type":"string"}}}}}]`

func TestEverySettingOfThePageIsSentAsTheEngineTakesIt(t *testing.T) {
	for _, engine := range []*strict{llamaServer(true), llamaServer(false), vLLM(), openAI(), m40()} {
		for _, raw := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, raw %v", engine.name, raw), func(t *testing.T) {
				s := engine.serve(t, engine.greets)
				r := routerTo(t, s)
				chats := live.New(r, live.Options{})
				defer chats.Close()
				all := pageSettings()
				for _, name := range slices.Sorted(keys(all)) {
					settings := all[name]
					if err := settings.Validate(); err != nil {
						t.Fatalf("%s: the page does not take it: %v", name, err)
					}
					c, err := chats.Start(t.Context(), access.Local, live.Question{Text: "Hi", Settings: settings, Opening: store.Opening{Model: "m", Raw: raw}}, true)
					if err != nil {
						t.Fatal(err)
					}
					got := lastAnswer(t, c)
					if failure := got.Answer.Error; failure != nil && engine.forcesNothing && settings.MustCall == 1 && !raw && failure.Param == "tool_choice" {
						continue // refused here, by name
					}
					if failure := got.Answer.Error; failure != nil && engine.takesNoGrammar && settings.OutputFormat.Type == chatsetting.OutputGrammar && !raw && failure.Param == "grammar" {
						continue
					}
					if got.Answer.State != live.Done || got.Text != "Hello there" {
						t.Errorf("%s: the answer is %q, %s: %v; sent was %v", name, got.Text, got.Answer.State, got.Answer.Error, s.last())
					}
				}
			})
		}
	}
}

// lastAnswer waits until the answer of a chat has ended, and returns it.
func lastAnswer(t *testing.T, c *live.Chat) (last live.Message) {
	t.Helper()
	eventually(t, "the answer ends", func() bool {
		reader, snapshot, err := c.Subscribe(t.Context(), access.Local, 0)
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		last = snapshot.Messages[len(snapshot.Messages)-1]
		return last.Answer != nil && last.Answer.State != live.Waiting && last.Answer.State != live.Writing
	})
	return last
}
