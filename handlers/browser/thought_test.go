package browser

import (
	"testing"

	"m40-llm/handlers/handlerstest"
)

func TestThoughtsInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	b := openBrowser(t, handlerstest.Serve(t, engine))
	run := steps(t, b)
	const folded = "document.querySelector('.answer:last-child .thought:not([open])')"

	run("a thought is folded while it is written, and says how long it is", func(t *testing.T) {
		b.open("/")
		b.say("Why?")
		answer := engine.Next(t)
		answer.Think("Let me see. ", "It rains")
		b.until(folded + ".innerText.trim() === 'Thinking, 5 words'")
		b.shot("thinking")
		b.click(".thought summary")
		b.until("document.querySelector('.thought[open] p').innerText === 'Let me see. It rains'")
		answer.Think(".\n\nOften.")
		answer.Write("Because it **rains**.")
		b.until("[...document.querySelectorAll('.thought[open] p')].map(p => p.innerText).join('|') === 'Let me see. It rains.|Often.'")
		b.shot("thought-open")
		if got := b.value("[...document.querySelectorAll('.chip')].filter(chip => chip.checkVisibility() && !chip.textContent.trim()).length"); got != "0" {
			t.Errorf("%s chips that say nothing are shown", got)
		}
		answer.Finish()
		b.until(idle)
		b.until("document.querySelector('.thought[open] summary').innerText === 'Thinking, 6 words'")
		b.reload()
		b.until(folded + ".innerText.trim() === 'Thinking, 6 words'")
		b.shot("thought")
	})

	run("the answer is copied without it", func(t *testing.T) {
		b.script(`navigator.clipboard.writeText = text => { globalThis.copied = text; return Promise.resolve() }`)
		b.click(".answer:last-child [data-copy]")
		b.until("globalThis.copied === 'Because it **rains**.'")
	})
	run("what an answer says about the tags of thoughts is text", func(t *testing.T) {
		b.say("How?")
		answer := engine.Next(t)
		answer.Write("<think>", " opens it, ", "</think> ends it.")
		answer.Finish()
		b.until(idle)
		const said = "document.querySelector('.answer:last-child .prose').innerText === '<think> opens it, </think> ends it.' && !document.querySelector('.answer:last-child .thought')"
		b.until(said)
		b.reload()
		b.until(said)
	})
	b.clean()
}

func TestAnAnswerOfHarmonyInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	const thought, said = "document.querySelector('.answer:last-child .thought:not([open]) summary').innerText", "document.querySelector('.answer:last-child .prose > p').innerText"
	b.open("/")
	b.say("Hi?")
	answer := handlerstest.HarmonyFamily.Writer(engine.Next(t))
	answer.Write("<|channel|>", "analysis", "<|message|>", "The user wants", " a greeting")
	b.until(thought + " === 'Thinking, 5 words'")
	b.shot("harmony-thinking")
	answer.Write(".\n\nSo.", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Hello", " **there**.")
	b.until(said + " === 'Hello **there**.'")
	answer.Finish()
	b.until(idle)
	whole := thought + " === 'Thinking, 6 words' && " + said + " === 'Hello there.' && !document.querySelector('.answer:last-child').innerText.includes('analysis')"
	b.until(whole)
	b.shot("harmony")
	b.reload()
	b.until(whole)

	b.say("And?")
	next := engine.Next(t)
	if was := next.Request.Messages[1]; was.ReasoningContent != "The user wants a greeting.\n\nSo." || was.Content != "Hello **there**." {
		t.Errorf("the next prompt has %+v", was)
	}
	answer = handlerstest.HarmonyFamily.Writer(next)
	answer.Write("<|channel|>", "analysis", "<|message|>", "Hm")
	b.until(thought + " === 'Thinking, 1 word'")
	b.click("[data-stop]")
	b.until(idle)
	b.until(thought + " === 'Thinking, 1 word'")
	b.shot("harmony-stopped")
	b.click(".answer:last-child [data-continue]")
	next = engine.Next(t)
	if last := next.Request.Messages[3]; !next.Request.Continue || last.ReasoningContent != "Hm" || last.Content != "" || len(next.Request.ContinuedTokens) != 4 {
		t.Errorf("the thought goes on behind %+v, %d", last, next.Request.ContinuedTokens)
	}
	b.until(thought + " === 'Thinking, 1 word'")
	answer.ScriptedAnswer = next // it goes on where it was
	answer.Write(", yes.", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Bye.")
	answer.Finish()
	b.until(idle)
	b.until(thought + " === 'Thinking, 2 words' && " + said + " === 'Bye.'")
	b.clean()
}

func TestThinkingIsStoppedAndTheAnswerGoesOn(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	b.say("Why?")
	a := engine.Next(t)
	if b.value("document.querySelector('[data-stop-thinking]').checkVisibility()") != "false" {
		t.Error("thinking can be stopped before it begins")
	}
	a.Think("Hm, ", "so.")
	b.until("document.querySelector('[data-stop-thinking]').checkVisibility()")
	b.shot("stop-thinking")
	b.click("[data-stop-thinking]")
	a = engine.Next(t)
	if r := a.Request; !r.Continue || r.ReasoningBudget == nil || *r.ReasoningBudget != 0 {
		t.Errorf("the engine is asked to go on with the budget %v", r.ReasoningBudget)
	}
	a.Write("Because.")
	b.until("document.querySelector('.answer .prose').innerText.endsWith('Because.')") // between both requests the chat is idle, too
	b.until("!document.querySelector('[data-stop-thinking]').checkVisibility()")
	a.Finish()
	b.until(idle)
	if got := b.value("document.querySelectorAll('.turn').length + document.querySelector('.answer .prose').innerText"); got != "2Thinking, 2 words\n\nBecause." {
		t.Errorf("the chat has %q", got)
	}
	b.clean()
}
