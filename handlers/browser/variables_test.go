package browser

import (
	"os"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
)

func TestThePageAsksForVariables(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	const asked = "document.querySelector('#variables').open"
	answered := func() infer.Request {
		b.t.Helper()
		a := engine.Next(b.t)
		a.Write("Yes.")
		a.Finish()
		b.until(idle)
		return a.Request
	}
	send := func(text string) {
		b.t.Helper()
		b.fill("#message", text)
		b.click("[data-send]")
	}
	last := func(r infer.Request) string { return r.Messages[len(r.Messages)-1].Content }

	run("those of the system prompt and of the message come in one form, and values are literal", func(t *testing.T) {
		b.open("/")
		b.click("[data-system]")
		b.fill("#system", "You are {{role}}. Jinja writes \\{{role}}.")
		send("Hello {{ name }} and {{name}}, {{user.name}}")
		b.until(asked + " && document.activeElement.name === 'name'")
		if got := b.value("[...document.querySelectorAll('#variables textarea')].map(f => f.name).join()"); got != "name,role" {
			t.Errorf("asked for are %s", got)
		}
		if os.Getenv("M40_LLM_AXE") != "" {
			b.look(axe(t), "variables", "label")
		}
		b.fill("#variables [name=name]", "{{role}} $& {% x %}")
		b.fill("#variables [name=role]", "a cat")
		b.press("Enter", 13)
		r := answered()
		if got := last(r); got != "Hello {{role}} $& {% x %} and {{role}} $& {% x %}, {{user.name}}" {
			t.Errorf("the message is %q", got)
		}
		if got := r.Messages[0].Content; got != "You are a cat. Jinja writes {{role}}." {
			t.Errorf("the system prompt is %q", got)
		}
	})

	run("what was sent is not asked for again, also after a reload", func(t *testing.T) {
		b.click(".answer .foot [data-again]")
		if got := answered().Messages[0].Content; got != "You are a cat. Jinja writes {{role}}." {
			t.Errorf("the system prompt is %q", got)
		}
		b.reload()
		b.until("document.querySelectorAll('.turn').length === 2")
		b.say("And now?")
		if got := last(answered()); got != "And now?" {
			t.Errorf("the message is %q", got)
		}
	})

	run("a chat remembers its values, and cancelling sends nothing", func(t *testing.T) {
		send("Bye {{name}}")
		b.until(asked)
		if got := b.value("document.querySelector('#variables [name=name]').value"); got != "{{role}} $& {% x %}" {
			t.Errorf("the value is %q", got)
		}
		b.press("Escape", 27)
		b.until("!" + asked)
		if got := b.value("document.querySelector('#message').value"); got != "Bye {{name}}" {
			t.Errorf("the draft is %q", got)
		}
	})

	run("braces can be sent as they are", func(t *testing.T) {
		b.click("[data-send]")
		b.until(asked)
		b.click("#variables [data-literal]")
		if got := last(answered()); got != "Bye {{name}}" {
			t.Errorf("the message is %q", got)
		}
	})

	run("another chat has its own, and a raw one has none", func(t *testing.T) {
		b.open("/")
		send("{{name}}")
		b.until(asked)
		if got := b.value("document.querySelector('#variables [name=name]').value"); got != "" {
			t.Errorf("the value is %q", got)
		}
		b.press("Escape", 27)
		b.until("!" + asked)
		b.click("[data-raw]")
		b.click("[data-send]")
		if got := answered().Prompt; !strings.Contains(got, "{{name}}") {
			t.Errorf("the text is %q", got)
		}
	})
	b.clean()
}
