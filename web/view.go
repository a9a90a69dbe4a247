// Package web contains the pages: templ components, their view models, and the embedded style
// sheets, scripts and icons. It imports no package of this program and makes no decisions: its
// callers pass finished values.
package web

import (
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// modules are the scripts of the playground page, fetched at once instead of one after
// the other.
var modules = []string{
	"app.js",
	"chat.js",
	"context.js",
	"drafts.js",
	"edit.js",
	"engine.js",
	"find.js",
	"format.js",
	"html.js",
	"import.js",
	"menu.js",
	"notice.js",
	"order.js",
	"panel.js",
	"params.js",
	"picker.js",
	"presets.js",
	"rail.js",
	"receipt.js",
	"reply.js",
	"request.js",
	"share.js",
	"socket.js",
	"speak.js",
	"textlist.js",
	"toggle.js",
	"transport.js",
}

// Page is the whole playground page.
type Page struct {
	Chat        string // id of the chat shown; empty: a new one
	Title       string // of the chat
	Pinned      bool
	Archived    bool
	Folder      string
	Raw         bool // texts go to the model as they are
	System      string
	Draft       string  // what was written and could not be sent
	Problem     Problem // why
	Once        string  // names the form of the composer: sent twice, it asks once
	Follows     bool    // HereTheAnswerGrows is where the last answer is being written
	Temporary   bool    // not kept, and not in the rail
	Preset      string  // id of the preset that a new chat begins with; empty: what was used last
	Newcomer    bool    // there is no chat on this server yet
	Turns       []Turn
	Older       bool   // there are messages before the first of Turns
	Later       bool   // there are messages behind the last of Turns
	Origin      string // id of the chat that this one was forked from; empty: none
	OriginTitle string
	At          int64 // message that the address leads to; 0: none
	Beside      bool  // that is not in the branch that is shown
	Rail        Rail
	Picker      Picker
	Engine      Engine
	Space       string // what is wrong with the room on the disk
	Params      []Param
	MaxSeed     int64
	Lists       []TextList
	Stages      []Stage
	Presets     []Preset // to choose from: names and ids
}

// Groups of the settings that are folded away. Everyday is what stands in the open.
const (
	Everyday   = ""
	Cutting    = "Cutting"
	Variety    = "Variety"
	Repetition = "Repetition"
	Lists      = "Texts"
)

// groups of the fold, in its order.
var groups = []string{Cutting, Variety, Repetition, Lists}

// TextList is a setting that is a list of texts.
type TextList struct {
	Key       string // name of the setting on the wire
	Label     string
	One       string // what one of the texts is called
	Group     string
	DependsOn string // as in Param
	Most      int    // texts
	Bytes     int    // of one of them
	Default   []string
	About     string // a sentence
}

// Stage is a stage of the sampler chain.
type Stage struct {
	Key, Label string
	Truncates  bool // removes candidates, which mirostat does instead
}

// Problem is what went wrong, why, and what to do.
type Problem struct{ Title, Message string }

// HereTheAnswerGrows stands in a page that Follows in place of its running answer.
const HereTheAnswerGrows = "<!-- here the answer grows -->"

// Turn is a message as the server writes it into the page, for browsers without scripts and
// until the websocket is connected.
type Turn struct {
	ID      int64
	You     bool
	Speaker string // what people call the model that wrote the answer; empty: none did
	At      time.Time
	Text    string // of a question, or of an answer that is shown as it is
	HTML    string // of an answer: rendered and sanitised
	Notes   string // what is to be said about an answer: "stopped by you at 12"
	Error   string // why an answer failed

	Running bool // an answer is being written
	Last    bool // nothing follows it
}

// address is where the composer's form goes.
func (p Page) address() string {
	if p.Chat == "" {
		return "/"
	}
	return "/c/" + p.Chat
}

// earlier and later are the addresses of the messages before and behind those shown.
func (p Page) earlier() string { return p.around(p.Turns[0]) }

func (p Page) later() string { return p.around(p.Turns[len(p.Turns)-1]) }

func (p Page) around(t Turn) string {
	return "/c/" + p.Chat + "?at=" + strconv.FormatInt(t.ID, 10) + "#" + t.anchor()
}

// running reports whether the last answer is being written.
func (p Page) running() bool { return len(p.Turns) > 0 && p.Turns[len(p.Turns)-1].Running }

// Engine is what the page says about the engine. It is sent over the websocket when it changes;
// the scripts copy each field into the elements with its name in data-engine.
type Engine struct {
	State     string `json:"state"`      // loading, ready, writing, failed
	StateText string `json:"state_text"` // "loading, 65 %"
	ID        string `json:"id"`         // what a request calls the model
	Name      string `json:"name"`       // "Guide"
	Tag       string `json:"tag"`        // "demo", or the quantisation
	Demo      bool   `json:"demo"`
	Model     string `json:"model"`    // "Guide, 14 M parameters, Q8_0"
	Device    string `json:"device"`   // "AMD EPYC, 2 threads"
	Hardware  string `json:"hardware"` // "CPU"

	// DeviceNotice says why it is not another one, if that is not plain.
	DeviceNotice string `json:"device_notice"`

	Queue    string  `json:"queue"`   // "nobody waiting, 1 running"
	Cache    string  `json:"cache"`   // "35.7 MB of 4.83 GB planned": memory of the KV cache; empty while nothing is loaded
	Rate     string  `json:"rate"`    // "38.2"; empty while nothing is written
	Summary  string  `json:"summary"` // one line for small screens
	Line     string  `json:"line"`    // all that an empty chat says, once somebody knows the page
	Ready    string  `json:"ready"`   // first line of the first empty chat
	Headline string  `json:"headline"`
	Intro    string  `json:"intro"`
	Context  int     `json:"context"` // positions one answer can use; 0: not known yet
	Loading  float64 `json:"loading"` // percent
	Amount   string  `json:"amount"`  // "3.2 of 4.9 GB"
	Notice   string  `json:"notice"`
	Error    string  `json:"error"`   // why it failed, and what to do
	Trouble  string  `json:"trouble"` // what befell it, and what was done about it

	// What to do about a prompt that is too long for the context, as the first of a chat and
	// as a later one.
	TooLongFirst string `json:"too_long_first"`
	TooLong      string `json:"too_long"`

	// Thinking is how the model can be told whether to think: "switch", "effort", both
	// with a space between them, or nothing.
	Thinking string `json:"thinking"`
}

// rate is what the panel shows where a speed stands while something is written.
func (e Engine) rate() string {
	if e.Rate == "" {
		return "–"
	}
	return e.Rate
}

// Param is one slider with its number field.
type Param struct {
	Key         string // name of the setting on the wire
	Label       string
	Lo, Hi      float64 // ends of the slider
	FieldLo     float64 // least and most the number field takes
	FieldHi     float64
	Step        float64
	Digits      int // decimals shown
	Default     float64
	Logarithmic bool    // the slider's axis; its own scale is then 0 to 1000
	OffAt       float64 // value for which there is a word; the field takes it whatever its ends
	Off         string  // the word
	About       string  // one sentence, without its full stop
	Group       string
	DependsOn   string  // setting that must be on for this one to have an effect; empty: none
	Truncates   bool    // belongs to a stage that removes candidates, which mirostat replaces
	On          float64 // it is a switch: its value if it is on, and 0 if it is off
}

func (p Param) format(v float64) string {
	s := strconv.FormatFloat(v, 'f', p.Digits, 64)
	if p.Digits == 3 {
		s = strings.TrimSuffix(s, "0")
	}
	return s
}

// of returns the parameters of a group.
func (p Page) of(group string) (chosen []Param) {
	for _, param := range p.Params {
		if param.Group == group {
			chosen = append(chosen, param)
		}
	}
	return chosen
}

// listsOf returns the lists of texts of a group.
func (p Page) listsOf(group string) (chosen []TextList) {
	for _, l := range p.Lists {
		if l.Group == group {
			chosen = append(chosen, l)
		}
	}
	return chosen
}

// defaults are the texts that a list begins with, as JSON.
func (l TextList) defaults() string {
	list := l.Default
	if list == nil {
		list = []string{}
	}
	data, _ := json.Marshal(list) // cannot fail
	return string(data)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// position is where v lies on the slider's axis, from 0 to 1.
func (p Param) position(v float64) float64 {
	if p.Logarithmic {
		if p.Off != "" && v == p.OffAt {
			return 1 // no limit
		}
		if v <= p.Lo {
			return 0
		}
		return min(1, math.Log(v/p.Lo)/math.Log(p.Hi/p.Lo))
	}
	return min(1, max(0, (v-p.Lo)/(p.Hi-p.Lo)))
}

func (p Param) percent(v float64) string {
	return strconv.FormatFloat(100*p.position(v), 'f', 2, 64) + "%"
}

// The range input's own numbers: the value itself, or 1000 steps of a logarithm.
func (p Param) inputMin() string {
	if p.Logarithmic {
		return "0"
	}
	return number(p.Lo)
}

func (p Param) inputMax() string {
	if p.Logarithmic {
		return "1000"
	}
	return number(p.Hi)
}

func (p Param) inputStep() string {
	if p.Logarithmic {
		return "1"
	}
	return number(p.Step)
}

func (p Param) inputValue() string {
	if p.Logarithmic {
		return strconv.Itoa(int(math.Round(1000 * p.position(p.Default))))
	}
	return number(p.Default)
}

func (p Param) scale() string {
	if p.Logarithmic {
		return "log"
	}
	return "linear"
}

func (t Turn) who() string {
	if t.You {
		return "You"
	}
	return cmp.Or(t.Speaker, "Answer")
}

// anchor is the part of an address that leads to the message.
func (t Turn) anchor() string { return "m-" + strconv.FormatInt(t.ID, 10) }

func (t Turn) label() string {
	if t.You {
		return "You"
	}
	return "Answer"
}

// kept says what becomes of a chat, under an empty one.
const kept = "Chats are kept in one file on this machine."

// suggestion is a card on the empty page.
type suggestion struct{ text, shows string }

var suggestions = []suggestion{
	{"Tell me a short story about a lighthouse", "shows streaming and the stop button"},
	{"What does temperature do?", "then move the slider and ask again"},
	{"Write a poem about the sea", "ask twice: the seed changes it"},
	{"Count the animals: a fox, two hens", "small models get this wrong"},
}

// shortcut is a line of the keyboard list.
type shortcut struct{ keys, does string }

var shortcuts = []shortcut{
	{"Enter", "send"},
	{"Shift + Enter", "new line"},
	{"Esc", "close what is open, else stop writing"},
	{"/", "search the chats"},
	{"n", "new chat"},
	{"j, k", "next, previous message"},
	{"arrows", "from chat to chat in the list, and to a chat’s menu"},
	{"[, ]", "earlier, later version of it"},
	{"r", "answer again"},
	{"e", "edit the message"},
	{"c", "copy it"},
	{"f", "new chat from there"},
	{"p", "choose a preset"},
	{"?", "this list"},
}

var sliderKeys = []shortcut{
	{"arrows", "one step, with Shift ten"},
	{"Home, End", "least, most"},
	{"Backspace", "back to the preset’s value"},
}

// Counted says how many there are of what: 1 token, 8,192 tokens.
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Thousands(n) + " " + what + "s"
}

// Thousands groups digits: 8,192.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
