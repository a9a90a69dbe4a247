package browser

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/view"
	"m40-llm/infer/sample"
)

func TestTokensOfAnAnswerHaveTheProbabilitiesOfTheModel(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.say("Go.")
	a := engine.Next(t)
	texts := make([]string, 70) // more than are saved together
	for i := range texts {
		texts[i] = fmt.Sprintf("word%d ", i)
	}
	choices := a.WriteSampled(t, rand.New(rand.NewPCG(7, 8)), texts...)
	a.Finish()
	b.until(idle)
	chat := strings.TrimPrefix(b.value("location.pathname"), "/c/")
	answer := b.value("document.querySelector('.turn:last-child').dataset.id")

	get := func(t *testing.T, path string, status int, into any) {
		t.Helper()
		response, err := http.Get(server.URL + "/c/" + chat + "/tokens/" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != status {
			t.Fatalf("GET %s: status %d, want %d", path, response.StatusCode, status)
		}
		if into != nil {
			if err := json.NewDecoder(response.Body).Decode(into); err != nil {
				t.Fatal(err)
			}
		}
	}

	run("all tokens, by the API of the page", func(t *testing.T) {
		var got struct {
			Tokens []view.Token
			Total  int
		}
		get(t, answer, http.StatusOK, &got)
		if got.Total != len(choices) || len(got.Tokens) != len(choices) {
			t.Fatalf("got %d tokens of %d, want %d", len(got.Tokens), got.Total, len(choices))
		}
		for i, c := range choices {
			if token := got.Tokens[i]; token.ID != c.ID || !token.Known || token.AtMost || token.Rank != c.Rank || !near(token.P, c.LogProb) || token.Entropy < c.Entropy-1e-9 || token.Entropy > c.Entropy+1e-9 {
				t.Errorf("token %d is %+v, want %+v", i, token, c)
			}
		}
	})

	run("one token with its alternatives", func(t *testing.T) {
		for path, i := range map[string]int{"/0": 0, "/64": 64, "/69": 69} {
			var got view.TokenDetail
			get(t, answer+path, http.StatusOK, &got)
			if got.ID != choices[i].ID || len(got.Alternatives) != sample.StoredCandidates || got.Candidates == nil {
				t.Fatalf("%s is token %d with %d alternatives, want %d with %d", path, got.ID, len(got.Alternatives), choices[i].ID, sample.StoredCandidates)
			}
			if alternative := got.Alternatives[choices[i].Rank]; alternative.ID != got.ID || !near(alternative.P, choices[i].LogProb) {
				t.Errorf("%s: alternative %d is %+v", path, choices[i].Rank, alternative)
			}
		}
	})

	run("wrong tokens and answers", func(t *testing.T) {
		for path, status := range map[string]int{answer + "/70": 400, answer + "/x": 400, answer + "/-1": 400, "99999": 400, "x": 400, answer + "?from=x": 400} {
			get(t, path, status, nil)
		}
	})

	run("the page colours them", func(t *testing.T) {
		b.click("[data-tokens]:not([hidden])")
		b.until("document.querySelectorAll('.toks .tok').length === 70")
		for by, want := range map[string]func(c sample.Choice) string{
			"p": func(c sample.Choice) string {
				for i, bound := range []float64{-0.10536051565782628, -0.6931471805599453, -1.6094379124341003, -2.995732273553991, -4.605170185988091} {
					if c.LogProb >= bound {
						return class("p", i)
					}
				}
				return class("p", 5)
			},
			"entropy": func(c sample.Choice) string {
				n := 0
				for _, bound := range []float64{0.3, 0.9, 1.6, 2.4, 3.2} {
					if c.Entropy >= bound {
						n++
					}
				}
				return class("e", n)
			},
		} {
			b.click("[data-by=" + by + "]")
			for i, c := range choices {
				if got := b.value(fmt.Sprintf("document.querySelectorAll('.toks .tok')[%d].className", i)); got != want(c) {
					t.Fatalf("by %s, token %d (log probability %g, entropy %g) has the class %q, want %q", by, i, c.LogProb, c.Entropy, got, want(c))
				}
			}
		}
	})

	run("a token opens its candidates, arrows walk, Escape closes", func(t *testing.T) {
		b.script("document.querySelectorAll('.toks .tok')[3].click()")
		b.until("document.querySelector('.token [data-place]')?.innerText === 'token 4 of 70'")
		if got := b.value("document.querySelector('.alt.chosen .mono').innerText"); got == "" {
			t.Error("the chosen token is not among the alternatives")
		}
		b.until("document.querySelector('[data-strips]').innerText.startsWith('Bars: token 4,')")
		b.press("ArrowRight", 39)
		b.until("document.querySelector('.token [data-place]')?.innerText === 'token 5 of 70'")
		b.click("[data-all]")
		if got, _ := strconv.Atoi(b.value("document.querySelectorAll('.alt').length")); got != sample.StoredCandidates {
			t.Errorf("%d alternatives are listed, want %d", got, sample.StoredCandidates)
		}
		b.press("Escape", 27)
		b.until("!document.querySelector('.token')")
		least := 0
		for i, c := range choices {
			if c.Entropy > choices[least].Entropy {
				least = i
			}
		}
		b.until(fmt.Sprintf("document.querySelector('[data-strips]').innerText === 'Bars: [%d], least certain of 70 tokens'", choices[least].ID))
	})

	run("a slider strikes out what it would have removed", func(t *testing.T) {
		b.set("top_k", "1")
		b.until("document.querySelector('.judged').innerText.includes('would be impossible')")
		for i, c := range choices {
			gone := b.value(fmt.Sprintf("document.querySelectorAll('.toks .tok')[%d].classList.contains('gone')", i))
			if want := fmt.Sprint(c.Rank > 0); gone != want {
				t.Fatalf("token %d of rank %d is struck out: %s", i, c.Rank, gone)
			}
		}
		b.set("top_k", "40")
		b.until("document.querySelectorAll('.tok.gone').length === 0")
		b.set("repeat_penalty", "1.20")
		b.until("document.querySelector('.judged').innerText.includes('Only a new answer can show')")
		b.set("repeat_penalty", "1.00")
		b.until("!document.querySelector('.judged').innerText.includes('Only a new answer can show')")
	})

	run("the first time, hints are ticked off by what is done, and hidden for good", func(t *testing.T) {
		const done = "[...document.querySelectorAll('.hints li')].map(li => li.dataset.step + ('done' in li.dataset) + (li.ariaCurrent ?? '')).join()"
		if got := b.value(done); got != "picktrue,inspectfalsestep,judgetrue" {
			t.Errorf("the hints are %s", got)
		}
		b.click(".hints [data-hide]")
		if got := b.value("String(!document.querySelector('.hints')) + localStorage['m40.hints']"); got != "truedone" {
			t.Errorf("hidden, they are %s", got)
		}
	})

	run("a long answer comes in parts", func(t *testing.T) {
		b.say("More.")
		a := engine.Next(t)
		a.WriteSampled(t, rand.New(rand.NewPCG(9, 10)), texts[:3]...)
		a.Write(make([]string, 1100)...)
		a.Finish()
		b.until(idle)
		b.script("document.querySelector('.turn:last-child [data-tokens]').click()")
		b.until("document.querySelectorAll('.turn:last-child .toks .tok').length === 1103")
		b.click("[data-more-tokens]")
		b.until("document.querySelector('#token-menu').matches(':popover-open')")
		if got := b.text("[data-sum]"); !strings.HasPrefix(got, "1,103 tokens, perplexity ") || !strings.HasSuffix(got, " 1,100 without stored probabilities") {
			t.Errorf("the figures are %q", got)
		}
		b.press("Escape", 27)
		b.script("document.querySelector('.turn:last-child [data-tokens]').click()")
	})

	run("a click shows the text again", func(t *testing.T) {
		b.script("document.querySelector('[data-tokens][aria-pressed=true]').click()")
		b.until("!document.querySelector('.toks') && document.querySelector('.turn:last-child .prose').checkVisibility()")
	})
	b.clean()
}

// class returns the class of a token at step n of a scale.
func class(family string, n int) string {
	if n == 0 {
		return "tok"
	}
	return fmt.Sprintf("tok %s%d", family, n)
}

// near reports whether p is the probability with this logarithm.
func near(p, logProb float64) bool { return math.Abs(p-math.Exp(logProb)) < 1e-9 }
