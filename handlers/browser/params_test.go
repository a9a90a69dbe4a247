package browser

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/presets"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/sample"
)

// set types a value into a field of the panel.
func (b *browser) set(key, value string) {
	b.t.Helper()
	b.fill("#n-"+key, value)
	b.until("document.querySelector('[data-param=" + key + "] .nf').value === '" + value + "'")
}

func TestEveryParameterReachesTheRequest(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")

	run("the fields of all settings, those folded away too", func(t *testing.T) {
		if got := b.value("document.querySelector('#n-typical_p').checkVisibility()"); got != "false" {
			t.Error("the seldom used settings are not folded away")
		}
		b.unfold()
		for key, value := range map[string]string{
			"temperature": "1.10", "top_k": "7", "top_p": "0.80", "min_p": "0.02", "repeat_penalty": "1.20", "max_tokens": "33", "seed": "8842",
			"typical_p": "0.70", "repeat_last_n": "-1", "presence_penalty": "-0.50", "frequency_penalty": "0.25",
			"top_n_sigma": "1.50", "min_keep": "2", "xtc_probability": "0.50", "dynatemp_range": "0.30", "dry_multiplier": "0.80",
		} {
			if key == "seed" {
				b.fill("#n-seed", value)
				continue
			}
			b.set(key, value)
		}
		if got := b.text("#k-repeat_last_n"); got != "all tokens" {
			t.Errorf("a window of -1 is called %q", got)
		}
		b.click("#p-stop [data-add]")
		b.fill("#p-stop li:nth-child(1) input", `\nYou:`)
		b.press("Enter", 13)
		b.until("document.querySelectorAll('#p-stop li').length === 2")
		b.fill("#p-stop li:nth-child(2) input", `"\\"`+"\u2028")
		b.until("document.querySelector('[data-modified]').innerText === 'modified · 16'")
		if got := b.text("[data-more-note]"); got != "9 modified" {
			t.Errorf("the fold says %q", got)
		}
		for key, value := range map[string]string{"xtc_threshold": "0.20", "dynatemp_exponent": "1.50", "dry_base": "2.00", "dry_allowed_length": "3", "dry_penalty_last_n": "512"} {
			b.set(key, value) // each is shown once the one that it belongs to is on
		}
		b.click("#p-banned_strings [data-add]")
		b.fill("#p-banned_strings li input", "shivers")
		b.click("[data-stage=temperature] [data-move=up]")
		b.click("[data-stage=typical_p] input")
		b.say("All of it.")
		a := engine.Next(t)
		want := sample.DefaultParams()
		want.Temperature, want.TopK, want.TopP, want.MinP, want.TypicalP, want.RepeatPenalty, want.RepeatLastN = 1.1, 7, 0.8, 0.02, 0.7, 1.2, -1
		want.PresencePenalty, want.FrequencyPenalty, want.Seed, want.TopNSigma, want.MinKeep = -0.5, 0.25, 8842, 1.5, 2
		want.XTCProbability, want.XTCThreshold, want.DynatempRange, want.DynatempExponent = 0.5, 0.2, 0.3, 1.5
		want.DryMultiplier, want.DryBase, want.DryAllowedLength, want.DryPenaltyLastN = 0.8, 2, 3, 512
		want.Samplers = []string{"penalties", "dry", "top_n_sigma", "top_k", "top_p", "min_p", "temperature", "xtc"}
		r := a.Request
		if !reflect.DeepEqual(r.Params, want) || r.MaxTokens != 33 {
			t.Errorf("the engine was asked with %+v, %d tokens", r.Params, r.MaxTokens)
		}
		if !reflect.DeepEqual(r.Stop, []string{"\nYou:", `"\"` + "\u2028"}) || !reflect.DeepEqual(r.BannedStrings, []string{"shivers"}) {
			t.Errorf("the engine was asked with stop %q, banned %q", r.Stop, r.BannedStrings)
		}
		a.Finish()
		b.until(idle)
		b.shot("params-more-light")
	})

	run("they are there again after a reload", func(t *testing.T) {
		b.reload()
		b.until("document.querySelectorAll('#p-stop li').length === 2")
		if got := b.value("document.querySelector('#p-stop li input').value"); got != `\nYou:` {
			t.Errorf("the first stop string is shown as %q", got)
		}
		if got := b.value("document.querySelector('#more').open"); got != "true" {
			t.Error("what is modified is folded away")
		}
	})

	run("a stop string that is too long is refused where it stands, and removed with the keyboard", func(t *testing.T) {
		b.script(`const f = document.querySelector('#p-stop li:nth-child(2) input'); f.value = 'é'.repeat(129); f.dispatchEvent(new Event('input'))`)
		b.say("Too long?")
		b.until("document.activeElement === document.querySelector('#p-stop li:nth-child(2) input')")
		if got := b.text("#e-stop"); got != "at most 256 bytes each" {
			t.Errorf("the list says %q", got)
		}
		b.fill("#p-stop li:nth-child(2) input", " ")
		b.press("Backspace", 8)
		b.press("Backspace", 8)
		b.until("document.querySelectorAll('#p-stop li').length === 1 && document.activeElement === document.querySelector('#p-stop li input')")
		b.script(`document.getElementById('message').value = ''`)
	})

	run("no more stop strings can be added than are looked for", func(t *testing.T) {
		b.until("(() => { const add = document.querySelector('#p-stop [data-add]'); if (!add.disabled) add.click(); return add.disabled })()")
		if got := b.value("document.querySelectorAll('#p-stop li').length"); got != "16" {
			t.Errorf("there are %s fields", got)
		}
	})

	run("the keys of a slider move it, and Backspace brings the preset's value back", func(t *testing.T) {
		b.set("temperature", "1.00")
		b.script(`document.querySelector('[data-param=temperature] input[type=range]').focus()`)
		for _, c := range []struct{ key, value string }{{kb.ArrowRight, "1.01"}, {kb.Home, "0.00"}, {kb.End, "2.00"}, {kb.Backspace, "0.70"}} {
			b.do(chromedp.KeyEvent(c.key))
			b.until("document.querySelector('#n-temperature').value === '" + c.value + "'")
		}
		b.script(`document.querySelector('[data-param=top_k] input[type=range]').focus()`)
		for _, c := range []struct {
			key   string
			value string
		}{{kb.ArrowRight, "8"}, {kb.ArrowLeft, "7"}} {
			b.do(chromedp.KeyEvent(c.key))
			b.until("document.querySelector('#n-top_k').value === '" + c.value + "'")
		}
		b.do(chromedp.KeyEvent(kb.ArrowRight, chromedp.KeyModifiers(chromedp.ModifierShift)))
		b.until("document.querySelector('#n-top_k').value === '17'")
	})

	run("mirostat takes the place of what cuts, and says so", func(t *testing.T) {
		if got := b.value("document.querySelector('[data-param=mirostat_tau]').matches('.idle')"); got != "true" {
			t.Error("what belongs to mirostat is not grey while it is off")
		}
		b.click("#n-mirostat")
		b.until("document.querySelector('#n-top_p').disabled && document.querySelector('#k-top_p').innerText === 'mirostat'")
		if got := b.value("document.querySelector('#n-temperature').disabled || document.querySelector('[data-param=mirostat_tau]').matches('.idle')"); got != "false" {
			t.Error("temperature is taken for something that cuts, or mirostat has no target")
		}
		const grey = "[...document.querySelectorAll('.order .replaced')].map(row => row.dataset.stage + ' ' + row.querySelector('.keep').innerText + ' ' + [...row.querySelectorAll('input, button')].every(e => e.disabled)).join()"
		if got := b.value(grey); got != "top_n_sigma mirostat true,top_k mirostat true,top_p mirostat true,min_p mirostat true,xtc mirostat true,typical_p  true" {
			t.Errorf("in the order of the samplers these are grey: %s", got)
		}
		if got := b.text("#p-samplers [data-replaced]"); !strings.HasPrefix(got, "Mirostat is on.") {
			t.Errorf("the order of the samplers says %q", got)
		}
		b.script(`document.querySelector('#p-samplers').scrollIntoView()`)
		b.shot("params-mirostat-order")
		b.click("#n-mirostat")
		b.until("!document.querySelector('#n-top_p').disabled")
		if got := b.value(grey + " + document.querySelectorAll('.order input:disabled').length"); got != "0" {
			t.Errorf("without mirostat the order of the samplers is %s", got)
		}
	})

	run("a stage moves with the keyboard, and the order is said", func(t *testing.T) {
		b.click("#p-samplers .reset")
		b.script(`document.querySelector('[data-stage=dry] [data-move=up]').focus()`)
		b.do(chromedp.KeyEvent(kb.Enter))
		b.until("document.querySelector('.order li').dataset.stage === 'dry' && document.activeElement === document.querySelector('[data-stage=dry] [data-move=down]')")
		if got := b.value("document.querySelector('#p-samplers [role=status]').textContent"); got != "DRY: 1 of 9" {
			t.Errorf("a screen reader hears %q", got)
		}
	})

	run("thinking is offered where the model's template knows it, and sent", func(t *testing.T) {
		b.until("!document.querySelector('#n-thinking').checkVisibility()")
		engine.Set(func(s *infer.Status) { s.TemplateVars = []string{"reasoning_effort", "thinking"} })
		b.until("document.querySelector('#n-thinking').checkVisibility()")
		b.script(`const s = document.querySelector('#n-thinking'); s.value = 'high'; s.dispatchEvent(new Event('change'))`)
		b.say("Think.")
		a := engine.Next(t)
		if got := string(a.Request.TemplateVars["reasoning_effort"]); got != `"high"` {
			t.Errorf("the template gets %s", got)
		}
		a.Finish()
		b.until(idle)
		engine.Set(func(s *infer.Status) { s.TemplateVars = []string{"enable_thinking"} })
		b.until("document.querySelector('#n-thinking option[value=on]').hidden === false")
		if got := b.value("document.querySelector('#n-thinking').value"); got != "high" {
			t.Errorf("a choice that was made is shown as %q", got)
		}
	})

	run("all go back to what they were", func(t *testing.T) {
		b.click("[data-reset-all]")
		b.until("document.querySelector('[data-modified]').innerText === 'unchanged' && document.querySelectorAll('#p-stop li').length === 0")
	})
	b.clean()
}

func TestThePanelFollowsAnotherPageThatChangesIt(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	var named *presets.Service
	server, _ := handlerstest.ServeStored(t, engine, func(c *handlers.Config) { named = c.Presets })
	b := openBrowser(t, server)
	b.open("/")
	b.ask(engine, "Hello", "Hi.")
	other := handlerstest.DialSocket(t, server)
	handlerstest.PanelOf(t, other, strings.TrimPrefix(b.value("location.pathname"), "/c/"))

	other.Do("panel", map[string]any{"settings": map[string]any{"temperature": 1.25, "top_k": 9, "stop": []string{"You:"}, "seed": 7}, "system": "Rhyme.", "preset": "precise"})
	b.until("document.querySelector('#n-temperature').value === '1.25' && document.querySelector('#n-top_k').value === '9'")
	b.until("document.querySelector('#p-stop li input').value === 'You:' && document.querySelector('#n-seed').value === '7' && document.querySelector('[data-seed-note]').innerText === 'pinned'")
	b.until("document.querySelector('#system').value === 'Rhyme.' && document.querySelector('#preset').value === 'precise'")

	b.set("top_k", "11")
	other.Until("the change", func() bool { return other.Panel.Settings != nil && other.Panel.Settings.TopK == 11 })
	if p := other.Panel; p.Settings.Temperature != 1.25 || p.System != "Rhyme." || p.Preset != "precise" {
		t.Errorf("the page has sent %+v", p)
	}

	// Both write at once: whoever was last is shown everywhere.
	for i := range 5 {
		b.script(fmt.Sprintf(`const f = document.querySelector('#n-top_k'); f.value = %d; f.dispatchEvent(new Event('input'))`, 20+i))
		other.Do("panel", map[string]any{"settings": map[string]any{"top_k": 30 + i}})
	}
	b.set("top_k", "40")
	other.Until("the last change", func() bool { return other.Panel.Settings.TopK == 40 })
	b.until("document.querySelector('#n-top_k').value === '40'")

	made, err := named.Create(t.Context(), access.Local, presets.Preset{Name: "Made elsewhere", Settings: setting.Default()})
	if err != nil {
		t.Fatal(err)
	}
	other.Do("panel", map[string]any{"settings": map[string]any{}, "preset": made.ID})
	b.until("document.querySelector('#preset').selectedOptions[0].text === 'Made elsewhere' && document.querySelector('[data-modified]').innerText === 'unchanged'")
	b.clean()
}
