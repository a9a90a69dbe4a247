package browser

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/view"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/sample"
)

// stripCase is one comparison of the page's arithmetic with the engine's.
type stripCase struct {
	Candidates *view.Candidates `json:"candidates"`
	Settings   sample.Params    `json:"settings"`
	Order      []string         `json:"order"`
	stages     []sample.Stage
}

func drawStripCase(t testing.TB, random *rand.Rand) stripCase {
	one := func(values ...float64) float64 { return values[random.IntN(len(values))] }
	p := sample.DefaultParams()
	p.Seed = 1
	p.TopK = int(one(0, 1, 2, 7, 40, 200, 300))
	p.TopP = one(0, 0.1031415926, 0.5731415926, 0.9531415926, 1)
	p.MinP = one(0, 0.0131415926, 0.0531415926, 0.31415926, 1)
	p.TypicalP = one(0.2131415926, 0.9531415926, 1, 1)
	p.TopNSigma = one(0, 0, 0, 1.5731415926)
	p.MinKeep = int(one(0, 0, 3))
	p.Temperature = one(0.31, 0.7, 1, 1.9)
	p.RepeatPenalty = one(1, 1.3)
	p.Samplers = sample.StageNames()
	if random.IntN(2) == 0 {
		tail := p.Samplers[2:]
		random.Shuffle(len(tail), func(i, j int) { tail[i], tail[j] = tail[j], tail[i] })
	}
	choice, row := handlerstest.Sampled(t, random, []int{4, 20, 200, 3000}[random.IntN(4)], p)
	return stripCase{Candidates: view.CandidatesOf(row), Settings: p, Order: p.Samplers, stages: choice.Stages}
}

func TestThePageCutsWhatTheSamplersCut(t *testing.T) {
	t.Parallel()
	b := openBrowser(t, handlerstest.Server(t, &handlerstest.FakeEngine{}))
	b.open("/")
	random := rand.New(rand.NewPCG(3, 4))
	count := 200
	if fixtures.Torture() {
		count = 10_000
	}
	cases := make([]stripCase, count)
	for i := range cases {
		cases[i] = drawStripCase(t, random)
	}
	compared := 0
	for i := 0; i < len(cases); i += 100 {
		part := cases[i:min(i+100, len(cases))]
		body, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		b.script(fmt.Sprintf(`window.compared = ''; import(document.querySelector('link[href*="candidates."]').href).then(c => {
			window.compared = JSON.stringify(%s.map(k => Object.fromEntries(Object.entries(c.run(c.decode(k.candidates), k.settings, k.order))
				.filter(([name, s]) => s.after && name !== 'temperature').map(([name, s]) => [name, [s.after.count, s.before.share(s.after)]]))))
		})`, body))
		b.until("window.compared")
		var page []map[string][2]float64
		if err := json.Unmarshal([]byte(b.value("window.compared")), &page); err != nil {
			t.Fatal(err)
		}
		for j, c := range part {
			compared += c.compare(t, page[j])
		}
	}
	if compared < len(cases) {
		t.Errorf("only %d stages of %d rows were compared", compared, len(cases))
	}
	b.clean()
}

// compare compares what the page says of stages with what the chain did, and returns how many stages
// both know.
func (c *stripCase) compare(t *testing.T, page map[string][2]float64) (n int) {
	for _, s := range c.stages {
		got, known := page[s.Name]
		if !known {
			continue
		}
		n++
		if int(got[0]) != s.Kept || got[1] < 1-s.Removed-1e-6 || got[1] > 1-s.Removed+1e-6 {
			t.Fatalf("%s of %+v keeps %v and %g of the probability on the page, %d and %g in the engine", s.Name, c.Settings, got[0], got[1], s.Kept, 1-s.Removed)
		}
	}
	return n
}

func TestSlidersShowWhatTheyCut(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	note := func(key string) string { return b.text("#k-" + key) }
	drawn := func(key, class string) string {
		return "document.querySelector('[data-param=" + key + "] ." + class + "').getAttribute('d')"
	}
	bars := func(key, class string) int { return strings.Count(b.value(drawn(key, class)), "M") }

	run("nothing is drawn before there is a token", func(t *testing.T) {
		if got := bars("top_p", "kept") + bars("top_p", "gone"); got != 0 {
			t.Errorf("%d bars are drawn", got)
		}
	})

	b.say("Go.")
	a := engine.Next(t)
	if !a.Request.Rows {
		t.Error("the engine was not asked for the rows of the tokens")
	}
	p := a.Request.Params
	choices := a.WriteSampled(t, rand.New(rand.NewPCG(5, 6)), "One")
	stages := map[string]sample.Stage{}
	for _, s := range choices[0].Stages {
		stages[s.Name] = s
	}

	run("the bars and the note of the newest token", func(t *testing.T) {
		b.until("document.querySelector('#k-top_p').innerText.startsWith('keeps')")
		for _, key := range []string{"top_p", "min_p"} {
			if want := fmt.Sprintf("keeps %d (", stages[key].Kept); !strings.HasPrefix(note(key), want) {
				t.Errorf("the note of %s is %q, want it to begin with %q", key, note(key), want)
			}
			if got := bars(key, "kept"); got != stages[key].Kept {
				t.Errorf("%s has %d bars that are kept, want %d", key, got, stages[key].Kept)
			}
		}
		if got, want := bars("top_k", "kept")+bars("top_k", "gone"), sample.StoredCandidates; got != want {
			t.Errorf("top_k has %d bars, want %d", got, want)
		}
		if got, want := note("top_k"), fmt.Sprintf("keeps %d (", p.TopK); !strings.HasPrefix(got, want) {
			t.Errorf("the note of top_k is %q, want it to begin with %q", got, want)
		}
	})

	run("a slider cuts while it moves", func(t *testing.T) {
		got := b.value(`(() => {
			const range = document.querySelector('[data-param=top_k] input[type=range]')
			range.value = 0
			range.dispatchEvent(new Event('input'))
			return document.querySelector('#k-top_k').innerText + '; ' + document.querySelector('#k-top_p').innerText
		})()`)
		if !strings.HasPrefix(got, "keeps 1 (") || !strings.HasSuffix(got, " %); keeps 1 (100 %)") {
			t.Errorf("with a top-k of 1 the notes are %q", got)
		}
		if got := bars("top_k", "kept"); got != 1 {
			t.Errorf("%d bars are kept", got)
		}
	})

	run("Alt and an arrow go to the next value that keeps another number", func(t *testing.T) {
		got := b.value(`(() => {
			const range = document.querySelector('[data-param=top_k] input[type=range]')
			range.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', altKey: true, cancelable: true, bubbles: true }))
			return document.querySelector('#k-top_k').innerText
		})()`)
		if !strings.HasPrefix(got, "keeps 2 (") {
			t.Errorf("the note of top_k is %q", got)
		}
	})

	run("the last token stays when the answer has ended, and when the page is loaded anew", func(t *testing.T) {
		a.Finish()
		b.until("!document.querySelector('[data-send]').hidden")
		b.settled() // the server has the value that the slider was moved to
		b.reload()
		b.until("document.querySelector('#k-top_p').innerText.startsWith('keeps')")
		b.until(drawn("top_k", "kept") + ".split('M').length - 1 === 2") // what was set last may arrive after the page
	})
	b.clean()
}
