package browser

import (
	"fmt"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fixtures"
)

func TestAnswersKeepToAnOutputFormat(t *testing.T) {
	t.Parallel()
	fixtures.NeedCheck(t)
	source := axe(t)
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	ask := func(text string) infer.Request {
		b.t.Helper()
		b.say(text)
		a := engine.Next(b.t)
		a.Write("{}")
		a.Finish()
		b.until(idle)
		return a.Request
	}
	press := func(selector string) {
		b.t.Helper()
		b.script(fmt.Sprintf("document.querySelector(%q).click()", ".output "+selector))
	}
	fill := func(selector, text string) {
		b.t.Helper()
		b.script(fmt.Sprintf("const field = document.querySelector(%q); field.value = %q; field.dispatchEvent(new Event('input'))", ".output "+selector, text))
	}
	choose := func(selector, value string) {
		b.t.Helper()
		b.script(fmt.Sprintf("const select = document.querySelector(%q); select.value = %q; select.dispatchEvent(new Event('change'))", ".output "+selector, value))
	}
	schema := func() string { return b.value("document.querySelector('#n-schema').value.replace(/\\s+/g, '')") }
	b.open("/")
	b.click("[data-section=output] > summary")

	run("any JSON is an object", func(t *testing.T) {
		b.click("[data-format=json]")
		if r := ask("JSON"); string(r.JSONSchema) != `{"type":"object"}` || r.Grammar != "" {
			t.Errorf("the engine was asked with %s, %q", r.JSONSchema, r.Grammar)
		}
	})

	run("the form writes a schema, whose objects and lists have fields of their own", func(t *testing.T) {
		b.click("[data-format=json_schema]")
		b.until("document.querySelectorAll('.output [data-form] > .fields > ul > li').length === 3")
		for range 2 {
			press("[data-form] > .fields > ul > li:last-child [data-remove]")
		}
		fill("[data-form] [data-name]", "people")
		choose("[data-form] select", "list")
		b.until("document.querySelector('.output .items select')")
		choose(".items select", "object")
		press(".items [data-add-field]")
		b.until("document.activeElement.matches('.output .items .fields [data-name]')")
		fill(".items .fields [data-name]", "age")
		choose(".items .fields select", "integer")
		press(".items .fields [data-required]")
		fill(".items .fields [data-description]", "In years")
		want := `{"type":"object","properties":{"people":{"type":"array","items":{"type":"object","properties":{"age":{"description":"Inyears","type":"integer"}},"additionalProperties":false}}},"required":["people"],"additionalProperties":false}`
		if got := schema(); got != want {
			t.Errorf("the schema is %s, want %s", got, want)
		}
		b.click(".output [data-example] summary")
		if got := strings.Join(strings.Fields(b.text(".output pre")), ""); got != `{"people":[{"age":1}]}` {
			t.Errorf("the example is %s", got)
		}
		b.look(source, "the form of a schema", "label")
		if r := ask("A schema"); strings.ReplaceAll(strings.Join(strings.Fields(string(r.JSONSchema)), ""), "\n", "") != want {
			t.Errorf("the engine was asked with %s", r.JSONSchema)
		}
	})

	run("a field without a name is named, and nothing is sent", func(t *testing.T) {
		fill("[data-form] [data-name]", " ")
		b.until("document.querySelector('#e-output_format').innerText === 'Field 1 needs a name'")
		b.fill("#message", "Not now")
		b.click("[data-send]")
		b.until("document.activeElement.matches('.output [data-name]')")
		fill("[data-form] [data-name]", "people")
		b.until("document.querySelector('#e-output_format').hidden")
	})

	run("the text is another view of it, and says where it is wrong", func(t *testing.T) {
		b.click(".output [data-view=text]")
		b.fill("#n-schema", "{\n  \"type\": object}")
		b.until("document.querySelector('#e-output_format').innerText === 'Line 2, column 11: there should be a value here'")
		b.fill("#n-schema", `{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`)
		b.until("document.querySelector('#e-output_format').innerText.includes('#/properties/a/pattern')")
		b.fill("#n-schema", `{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`)
		b.until("document.querySelector('[data-unshown]').innerText.includes('anyOf at #/properties/a')")
		if got := b.value("document.querySelector('.output [data-view=form]').disabled + ' ' + document.querySelector('#e-output_format').hidden"); got != "true true" {
			t.Errorf("the form can be opened, or the schema is refused: %s", got)
		}
		b.look(source, "the text of a schema", "label")
		b.fill("#n-schema", `{"type":"object","properties":{"a":{"type":"string"}}}`)
		b.click(".output [data-view=form]")
		b.until("document.querySelector('.output [data-name]').value === 'a'")
	})

	run("that the grammar is empty is not said of one that was written meanwhile", func(t *testing.T) {
		b.script(`const { send } = WebSocket.prototype
			window.held = []
			WebSocket.prototype.send = function (text) { JSON.parse(text).type === 'panel' ? held.push(() => send.call(this, text)) : send.call(this, text) }
			window.release = () => { WebSocket.prototype.send = send; for (const go of held) go() }`)
		b.click("[data-format=grammar]")
		b.until("held.length > 0")
		b.fill("#n-grammar", `root ::= "yes" | "no"`)
		errors := b.received("error")
		b.script("release()")
		b.until(fmt.Sprintf("underWay.received.error > %d", errors))
		b.settled()
		if got := b.text("#e-output_format"); got != "" {
			t.Errorf("beside the grammar it says %q", got)
		}
	})

	run("a grammar is kept with the chat", func(t *testing.T) {
		if r := ask("A grammar"); r.Grammar != `root ::= "yes" | "no"` || r.JSONSchema != nil {
			t.Errorf("the engine was asked with %s, %q", r.JSONSchema, r.Grammar)
		}
		b.reload()
		b.until("document.querySelector('#n-grammar').value === 'root ::= \"yes\" | \"no\"'")
		if got := b.text("[data-value-of=output]"); got != "GBNF" {
			t.Errorf("the section says %q", got)
		}
		b.click("[data-section=output] > summary")
		b.look(source, "a grammar", "label")
		b.size(390, 844, true)
		b.click("[data-sheet-open]")
		b.script("document.querySelector('[data-section=output]').scrollIntoView()")
		b.look(source, "a grammar on a phone", "label")
		b.click("[data-sheet-close]")
		b.size(1440, 900, false)
	})

	run("a raw chat has none", func(t *testing.T) {
		b.open("/")
		b.click("[data-raw]")
		b.click("[data-section=output] > summary")
		if got := b.text(".output [data-lacking]"); !strings.Contains(got, "raw chat") || b.value("document.querySelector('[data-format=json]').disabled") != "true" {
			t.Errorf("the page says %q, or JSON can be chosen", got)
		}
	})
	b.clean()
}
