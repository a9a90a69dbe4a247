package web

import (
	"context"

	"m40-llm/web/lang"
)

// Settings is the page of what holds for all chats.
type Settings struct {
	Address  string // of the program, without a slash at the end
	Model    string // for examples
	NeedsKey bool   // requests of programs on other machines must have a key
	Keys     string // address of the page on which keys are created; empty: there are none

	Language lang.Language // that the browser chose; empty: none

	Manages bool // the person may change limits
	Limits  *Limits
	Problem string // why a change was refused
	Saved   bool

	Folder, Taken, Free string // of the models; empty: unknown

	Visit    string    // what a visitor may still use today; empty: it is a page of a person
	Visitors *Visitors // nil: who looks at it cannot let visitors in

	Alone   bool   // other machines do not reach the server
	Version string // of the program
}

// Visitors are those that the owner lets in without a login.
type Visitors struct {
	Open            bool
	Answers, Tokens string // of one of them a day
	Here            int    // there are so many now
	Impossible      string // why visitors cannot be let in; empty: they can
}

// Limits are those of what is stored alongside the texts of chats.
type Limits struct {
	Days, Megabytes string // of the candidates of tokens
	Rows            string // bytes that these take
	Caches          string // megabytes for KV caches of chats
	Cached          string // bytes that these take; empty: none are stored here
}

// themes and textSizes are the choices of the page; early.js applies them before the first paint. An empty value is the default.
var (
	themes    = []choiceOf{{"", lang.Key("System")}, {"light", lang.Key("Light")}, {"dark", lang.Key("Dark")}}
	textSizes = []choiceOf{{"small", lang.Key("Small")}, {"", lang.Key("Normal")}, {"large", lang.Key("Large")}, {"larger", lang.Key("Larger")}}
	languages = []choiceOf{{"", lang.Key("System")}, {string(lang.English), "English"}, {string(lang.German), "Deutsch"}}
	enters    = []choiceOf{{"sends", lang.Key("Enter sends")}, {"line", lang.Key("Ctrl Enter sends")}}
)

type choiceOf struct{ value, text string }

// example is a request to the API in one language.
type example struct{ name, text string }

func (s Settings) examples() []example {
	key := "none"
	header, curlKey := "", ""
	if s.NeedsKey {
		key = "YOUR_KEY"
		curlKey = " \\\n  -H \"Authorization: Bearer YOUR_KEY\""
		header = ", Authorization: 'Bearer YOUR_KEY'"
	}
	return []example{
		{"curl", "curl " + s.Address + "/v1/chat/completions" + curlKey + " \\\n  -d '{\"model\": \"" + s.Model + "\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'"},
		{"Python", "from openai import OpenAI\n\nclient = OpenAI(base_url=\"" + s.Address + "/v1\", api_key=\"" + key + "\")\nanswer = client.chat.completions.create(\n    model=\"" + s.Model + "\",\n    messages=[{\"role\": \"user\", \"content\": \"Hello\"}],\n)\nprint(answer.choices[0].message.content)"},
		{"JavaScript", "const response = await fetch('" + s.Address + "/v1/chat/completions', {\n  method: 'POST',\n  headers: { 'Content-Type': 'application/json'" + header + " },\n  body: JSON.stringify({ model: '" + s.Model + "', messages: [{ role: 'user', content: 'Hello' }] }),\n})\nconsole.log((await response.json()).choices[0].message.content)"},
	}
}

// number says how many visitors there are.
func (v Visitors) number(ctx context.Context) string {
	if v.Here == 0 {
		return lang.T(ctx, "Nobody is here now.")
	}
	return lang.N(ctx, v.Here, "%s visitor is here now.", "%s visitors are here now.", lang.Count(ctx, v.Here))
}
