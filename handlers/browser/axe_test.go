package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
)

// axe is axe-core, which finds what people cannot use who do not see the page, do
// not point or do not tell its colours apart. M40_LLM_AXE is the path of axe.min.js.
func axe(t testing.TB) string {
	t.Helper()
	path := os.Getenv("M40_LLM_AXE")
	if path == "" {
		fixtures.Skip(t, "M40_LLM_AXE is not set, so there is no axe-core to look at the page with")
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// violation is a rule of axe-core and where the page breaks it.
type violation struct {
	ID     string
	Impact string
	Help   string
	Nodes  []struct {
		HTML           string
		FailureSummary string
	}
}

func (v violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s", v.ID, v.Impact, v.Help)
	for _, node := range v.Nodes {
		fmt.Fprintf(&b, "\n\t%.200s: %s", node.HTML, strings.ReplaceAll(node.FailureSummary, "\n", " "))
	}
	return b.String()
}

// look has axe-core look at the page in both themes and fails for what is serious or critical,
// and for the rules named. The themes differ in colours alone, so the dark one is held to the
// rules of colours, and to all under M40_LLM_TORTURE=1.
func (b *browser) look(axe, state string, rules ...string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.frames()
		b.shot(strings.ReplaceAll(state, " ", "-") + "-" + scheme)
		var only []string
		if scheme == "dark" && !fixtures.Torture() {
			only = colourRules
		}
		for _, v := range b.violations(axe, only...) {
			if slices.Contains([]string{"serious", "critical"}, v.Impact) || slices.Contains(rules, v.ID) {
				b.t.Errorf("%s, %s: %v", state, scheme, v)
			} else {
				b.t.Logf("%s, %s: %v", state, scheme, v)
			}
		}
	}
}

var colourRules = []string{"color-contrast", "link-in-text-block"}

// violations returns what axe-core has to say of the page as it is, by the rules named, or by
// all. It comes in by the debugger, so that the page's own policy stays in force.
func (b *browser) violations(axe string, rules ...string) (found []violation) {
	b.t.Helper()
	if b.value("typeof globalThis.axe") == "undefined" {
		b.do(chromedp.Evaluate[chromedp.Void](axe))
	}
	only := ""
	if len(rules) > 0 {
		only = ", runOnly: ['" + strings.Join(rules, "', '") + "']"
	}
	report, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](
		`axe.run(document, {resultTypes: ['violations']`+only+`}).then(r => JSON.stringify(r.violations))`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("axe-core failed: %v", err)
	}
	if err := json.Unmarshal([]byte(report), &found); err != nil {
		b.t.Fatalf("axe-core reported %.200q: %v", report, err)
	}
	return found
}

const richAnswer = "# A heading\n\nText with *emphasis*, a [link](https://b.example/) and `code`.\n\n" +
	"```go\n// Add adds.\nfunc Add(a, b int) int { return a + b + 0x10 } // \"text\"\n```\n\n" +
	"```diff\n@@ -1 +1 @@\n-old\n+new\n```\n\n" +
	"| Card | Bandwidth | A long line of notes that does not fit |\n|:--|--:|--|\n| M40 | 288 GB/s | averyveryverylongwordthatcannotbebrokenanywhereatall |\n\n" +
	"- [x] read\n- [ ] write\n\n1. one\n2. two\n\n> A quote with $E = mc^2$.\n\n$$\n\\sum_{i=1}^n x_i^2 = \\frac{a + \\sqrt{b}}{2} \\le \\begin{pmatrix} 1 & 0 \\\\ 0 & 1 \\end{pmatrix} \\int_0^\\infty e^{-x}\\,dx\n$$\n\n```\na\u202eb\n```\n"

// TestEverybodyCanUseThePage looks at the page's states in both themes.
func TestEverybodyCanUseThePage(t *testing.T) {
	t.Parallel()
	fixtures.NeedCheck(t)
	source := axe(t)
	engine := handlerstest.NewScript()
	b := openBrowser(t, handlerstest.Serve(t, engine))
	looked := 0
	look := func(state string) {
		t.Helper()
		b.look(source, state)
		looked++
	}

	b.open("/")
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
	look("the first screen")

	b.say("Show me everything.")
	answer := engine.Next(t)
	answer.Send(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 737, Total: 1440}})
	b.until("document.querySelector('.wait')?.hidden === false")
	look("an answer that is waited for")
	answer.Write(richAnswer, "The rest is")
	b.until("document.querySelector('.answer .tail')?.innerText === 'The rest is'")
	look("an answer that is being written")
	answer.Finish()
	b.until("document.querySelector('.answer:last-child .why .chip').innerText !== ''")
	if got := b.value("document.querySelectorAll('.prose :is(.code .k, .code .gd, .table table, input:disabled, .ctl)').length >= 6"); got != "true" {
		t.Error("the answer does not show everything there is to look at")
	}
	look("a chat")

	b.click("[data-help].icon")
	b.until("document.querySelector('#help').open")
	look("the list of keys")
	b.press("Escape", 27)
	b.until("!document.querySelector('#help').open")

	b.size(390, 844, true)
	look("a chat on a phone")
	b.click("[data-sheet-open]")
	b.until("document.querySelector('[data-sheet-open]').ariaExpanded === 'true'")
	look("the parameters on a phone")
	b.click("[data-sheet-close]")
	b.click("[data-rail-open]")
	b.until("document.querySelector('[data-rail-open]').ariaExpanded === 'true'")
	look("the chats on a phone")
	b.click("[data-rail-close]")
	b.size(1440, 900, false)

	b.say("Too long")
	engine.Next(t).Fail(&fault.Error{Code: fault.CodeContext, Message: "too long", PromptTokens: 8822, ContextLength: 8192})
	b.until("document.querySelector('.answer:last-child .errbox')?.hidden === false")
	look("a failure")

	locked := handlerstest.Server(t, engine, func(c *handlers.Config) { handlerstest.Lock(t, c, "open sesame") })
	b.do(chromedp.Navigate(locked.URL+"/login"), chromedp.WaitReady("#key"))
	look("the login")

	if looked != 10 {
		t.Errorf("axe-core looked at %d states", looked)
	}
	for _, c := range []struct {
		name, tag, style, rule string
		rules                  []string
	}{
		{"a button without a name", "button", "", "button-name", nil},
		{"text that is nearly as dark as what is behind it", "p", "color: #777; background: #888", "color-contrast", colourRules},
	} {
		b.script(fmt.Sprintf("const el = document.createElement(%q); el.style = %q; document.body.replaceChildren(el); if (el.matches('p')) el.textContent = 'text'", c.tag, c.style))
		if !slices.ContainsFunc(b.violations(source, c.rules...), func(v violation) bool { return v.ID == c.rule }) {
			t.Errorf("axe-core does not see %s", c.name)
		}
	}
}
