// Package web contains the pages: templ components, their view models, and the embedded style
// sheets, scripts and icons. It imports no package of this program and makes no decisions: its
// callers pass finished values.
package web

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"m40-llm/web/lang"
)

// Page is the whole playground page.
type Page struct {
	Chat        string // id of the chat; empty: a new one
	Title       string // of the chat
	Pinned      bool
	Archived    bool
	Folder      string
	Raw         bool // the chat is sent to the model without a chat template
	System      string
	Draft       string       // text that could not be sent
	Detail      string       // in which the model should read the pictures that could not be sent; empty: in full
	Problem     Problem      // why it could not be sent
	Once        string       // id of the composer's form, so that submitting it twice sends one message
	Follows     bool         // the page contains GrowingAnswerMark in place of the running answer
	Asks        int          // requests to write that wait
	Temporary   bool         // not stored and not listed in the rail
	Preset      string       // id of the preset for a new chat; empty: the settings used last
	Suggestions []Suggestion // models for this machine; none if others than the built-in one are here
	Newcomer    bool         // the server has no chat yet
	Turns       []Turn
	Older       bool   // the chat has messages before the first of Turns
	Later       bool   // the chat has messages after the last of Turns
	Origin      string // id of the chat from which this one was forked; empty: none
	OriginTitle string
	At          int64 // id of the message in the address; 0: none
	OffBranch   bool  // the message At is not in the active branch
	Rail        Rail
	Picker      Picker
	Engine      Engine
	Space       string // warning about too little free disk space; empty: none
	Left        string // what the person may still use today; empty: there is no limit
	Params      []Param
	MaxSeed     int64
	Lists       []TextList
	Stages      []Stage
	Presets     []Preset // for the menu; only names and ids are set
}

// Groups of settings. Everyday is always visible; Lists and Tools are sections of their own, and the others are together
// below More samplers.
var (
	Everyday   = ""
	Thoughts   = lang.Key("Thoughts")
	Cutting    = lang.Key("Cutting")
	Variety    = lang.Key("Variety")
	Repetition = lang.Key("Repetition")
	Lists      = lang.Key("Texts")
	Tools      = lang.Key("Tools")
)

// groups are those below More samplers, in display order.
var groups = []string{Thoughts, Cutting, Variety, Repetition}

// TextList is a setting that is a list of strings.
type TextList struct {
	Key       string // JSON name of the setting
	Label     string
	One       string // name for one of the strings
	Add       string // label of the button that adds one
	Group     string
	DependsOn string // as in Param
	Most      int    // maximum number of strings
	Bytes     int    // maximum length of one string
	Default   []string
	About     string // one sentence of help
}

// Stage is a stage of the sampler chain.
type Stage struct {
	Key, Label string
	Truncates  bool // removes candidates; mirostat replaces these stages
}

// Problem is an error as the page shows it: what failed, and why and what to do.
type Problem struct{ Title, Message string }

// GrowingAnswerMark marks the position of the running answer in a page with Follows.
const GrowingAnswerMark = "<!-- here the answer grows -->"

// Turn is a message as the server writes it into the page, for browsers without scripts and
// until the websocket is connected.
type Turn struct {
	ID      int64
	You     bool
	Result  bool   // it is the result of a call, which a person gave
	Speaker string // display name of the model that generated the answer; empty: none
	Author  string // name of the reader who wrote the question; empty: the owner of the chat
	At      time.Time
	Text    string // of a question or of an unrendered answer
	HTML    string // of an answer: rendered and sanitised
	Notes   string // about an answer: "stopped by you at 12"
	Error   string // why an answer failed

	Pictures []Picture // of a question

	Running bool // an answer is being written
	Last    bool // it is the last message
}

// Limits of the pictures of a message, as the page says them before the server does.
const (
	MaxPictures     = 16
	MaxPictureBytes = 20 << 20 // of a file
)

// PictureTypes are the media types of pictures that a message can have.
const PictureTypes = "image/png,image/jpeg,image/webp,image/gif,image/bmp"

// address returns the action of the composer's form.
func (p Page) address() string {
	if p.Chat == "" {
		return "/"
	}
	return "/c/" + p.Chat
}

// earlier and later return the addresses of the messages before and after those shown.
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
	ID        string `json:"id"`         // of the model in API requests
	Name      string `json:"name"`       // "guide"
	Tag       string `json:"tag"`        // "demo", or the quantisation
	Demo      bool   `json:"demo"`
	Model     string `json:"model"`    // "guide, 14 M parameters, Q8_0"
	Device    string `json:"device"`   // "AMD EPYC, 2 threads"
	Hardware  string `json:"hardware"` // "CPU"

	// DeviceNotice is the reason why another device is not used, if the user could expect it, and
	// which weights the device has in another format than the file.
	DeviceNotice string `json:"device_notice"`

	Queue    string  `json:"queue"`    // "2 waiting, 1 running"
	Cache    string  `json:"cache"`    // "35.7 MB of 4.83 GB used": memory of the KV cache; empty while nothing is loaded
	Saves    int     `json:"saves"`    // changes when the KV cache of a chat was stored
	Rate     string  `json:"rate"`     // tokens per second, "38.2"; empty while nothing is generated
	Summary  string  `json:"summary"`  // one line for small screens
	Ready    string  `json:"ready"`    // of an empty chat: whether the model can answer
	Headline string  `json:"headline"` // of an empty chat: the model, or what becomes of it
	Intro    string  `json:"intro"`    // what it is good at
	Loaded   string  `json:"loaded"`   // a line for each model in memory: its state (loading, loaded, in use), a tab, its name
	Context  int     `json:"context"`  // positions one answer can use; 0: not known yet
	Loading  float64 `json:"loading"`  // percent
	Amount   string  `json:"amount"`   // "3.2 of 4.9 GB"
	Notice   string  `json:"notice"`
	Error    string  `json:"error"`   // why the engine failed, and what to do
	Trouble  string  `json:"trouble"` // last failure of the engine, and how the server reacted

	// RecurrentState is the memory of recurrent state, "309 MB"; empty: the model has none.
	RecurrentState string `json:"recurrent_state"`

	// Decode is how a GPU runs steps of few tokens, "graph" or "persistent"; empty: no GPU does.
	Decode string `json:"decode"`

	// Packing is how much of the weights is copied into the layout that is faster to read, "43 %"; empty: all of them.
	Packing string `json:"packing"`

	// Ahead says how many tokens the device drew itself, "1,024 tokens, 0.3 % wrong"; empty: it draws none.
	Ahead string `json:"ahead"`

	// Advice about a prompt that is too long for the context: for the first prompt of a chat, and
	// for a later one.
	TooLongFirst string `json:"too_long_first"`
	TooLong      string `json:"too_long"`

	// Thinking lists how the user can control the model's thinking: "switch", "effort", both
	// separated by a space, or "".
	Thinking string `json:"thinking"`
}

// rate returns the text for the speed in the panel.
func (e Engine) rate() string {
	if e.Rate == "" {
		return "–"
	}
	return e.Rate
}

// Param is one slider with its number field.
type Param struct {
	Key         string // JSON name of the setting
	Label       string
	Lo, Hi      float64 // ends of the slider
	FieldLo     float64 // limits of the number field
	FieldHi     float64
	Step        float64
	Digits      int // decimals shown
	Default     float64
	Logarithmic bool    // the axis is logarithmic; the range input then has 0 to 1000
	OffAt       float64 // value shown as the word Off; accepted even outside the limits
	Off         string  // the word; empty: none
	About       string  // one sentence, without its full stop
	Group       string
	DependsOn   string  // key of the setting that must be on for this one to have an effect; empty: none
	Truncates   bool    // belongs to a stage that removes candidates, which mirostat replaces
	On          float64 // of a switch: the value when it is on (off is 0); 0: not a switch
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

// defaults returns the default strings as JSON.
func (l TextList) defaults() string {
	list := l.Default
	if list == nil {
		list = []string{}
	}
	data, _ := json.Marshal(list) // cannot fail
	return string(data)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// position returns the position of v on the slider's axis, from 0 to 1.
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

// The attributes of the range input: the value itself, or 0 to 1000 if the axis is logarithmic.
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

func (t Turn) who(ctx context.Context) string {
	if t.Result {
		return lang.T(ctx, "Result")
	}
	if t.You {
		return lang.T(ctx, "You")
	}
	return cmp.Or(t.Speaker, lang.T(ctx, "Answer"))
}

// anchor returns the id of the element, which is the fragment of an address of the message.
func (t Turn) anchor() string { return "m-" + strconv.FormatInt(t.ID, 10) }

func (t Turn) label(ctx context.Context) string {
	if t.Author != "" {
		return lang.T(ctx, "%s, guest", t.Author)
	}
	if t.You {
		return t.who(ctx)
	}
	return lang.T(ctx, "Answer")
}

// storageNotice returns the text in an empty chat about where chats are stored.
func storageNotice(ctx context.Context) string {
	if isVisitor(ctx) {
		return lang.T(ctx, "Your chats end with your browser.")
	}
	return lang.T(ctx, "Chats are kept on this server.")
}

// lesson is a prompt in an empty chat. When its answer has ended, the page opens a view of it: its tokens, a contact
// sheet, or its tokens and the slider of a setting.
type lesson struct{ title, prompt, opens, shows string }

// lessons have prompts to which even the built-in model gives other answers with other seeds.
var lessons = []lesson{
	{lang.Key("See how sure it was of each word"), lang.Key("Tell me a short story about a lighthouse"), "tokens", lang.Key("Opens the tokens of the answer")},
	{lang.Key("Twelve answers at once"), lang.Key("Tell me a joke"), "sheet", lang.Key("Opens the contact sheet")},
	{lang.Key("Move top-p and watch words disappear"), lang.Key("Tell me a story about a fox"), "top_p", lang.Key("Opens the tokens beside the slider")},
}

// shortcut is a line in the list of keyboard shortcuts.
type shortcut struct{ keys, does string }

var shortcuts = []shortcut{
	{"Enter", lang.Key("send")},
	{lang.Key("Shift + Enter"), lang.Key("new line")},
	{lang.Key("Esc"), lang.Key("close what is open, else stop writing, else leave the empty message")},
	{lang.Key("/, Ctrl + K"), lang.Key("search the chats")},
	{"n", lang.Key("new chat")},
	{"j, k", lang.Key("next, previous message")},
	{lang.Key("arrows"), lang.Key("from chat to chat in the list, and to a chat’s menu")},
	{"[, ]", lang.Key("earlier, later version of it")},
	{"r", lang.Key("answer again")},
	{"e", lang.Key("edit the message")},
	{"c", lang.Key("copy it")},
	{"f", lang.Key("new chat from there")},
	{"g", lang.Key("contact sheet: many answers to it side by side")},
	{"t", lang.Key("its tokens and their probabilities")},
	{"m", lang.Key("what each sampler did, at a token")},
	{lang.Key("1 to 9"), lang.Key("go on with that candidate of a token instead")},
	{"u", lang.Key("next token at which the model was unsure, with Shift the one before")},
	{"b", lang.Key("branches of the chat")},
	{"p", lang.Key("choose a preset")},
	{"?", lang.Key("this list")},
}

var sliderKeys = []shortcut{
	{lang.Key("arrows"), lang.Key("one step, with Shift ten")},
	{lang.Key("Alt + arrows"), lang.Key("to the next value that cuts another candidate")},
	{lang.Key("Home, End"), lang.Key("least, most")},
	{lang.Key("Backspace"), lang.Key("back to the preset’s value")},
}
