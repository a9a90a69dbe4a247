package web

import (
	"context"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/a-h/templ"

	"m40-llm/web/lang"
)

// Presets is the page of presets: all of them, and one that is shown.
type Presets struct {
	List    []Preset // names and ids alone
	Shown   Preset
	Open    bool   // on a small screen Shown takes the place of the list
	Against string // id of the one that Shown is compared with
	All     bool   // settings that do not differ are shown too
	Chat    string // id of the chat that the page was opened from; empty: none
	Title   string // of that chat
	Deleted *Preset
}

// Preset is one of them, alongside the one that it is compared with.
type Preset struct {
	ID, Name string
	About    string // what a built-in one is for
	System   string
	Builtin  bool
	Base     string // name of the one that it is compared with
	Rows     []DiffRow
	Problem  string            // why it was not saved
	Wrong    map[string]string // field of the form: what is wrong with it
}

// own reports whether a person has made presets.
func (p Presets) own() bool { return len(p.group(false)) > 0 }

// group returns the built-in presets, or the others.
func (p Presets) group(builtin bool) (list []Preset) {
	for _, preset := range p.List {
		if preset.Builtin == builtin {
			list = append(list, preset)
		}
	}
	return list
}

// PresetsAddress is the page with a preset shown, opened from a chat; both may be empty.
func PresetsAddress(id, chat string) string {
	return Presets{Chat: chat}.address(id, "", false)
}

func (p Presets) address(id, against string, all bool) string {
	query := url.Values{}
	for name, value := range map[string]string{"id": id, "against": against, "chat": p.Chat} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if all {
		query.Set("all", "1")
	}
	if len(query) == 0 {
		return "/presets"
	}
	return "/presets?" + query.Encode()
}

// back is where the page was opened from.
func (p Presets) back() string {
	if p.Chat == "" {
		return "/"
	}
	return "/c/" + p.Chat
}

// rows are those that the page shows.
func (p Presets) rows() (shown []DiffRow) {
	for _, r := range p.Shown.Rows {
		if p.All || r.Differs || p.Shown.Wrong[r.Key] != "" {
			shown = append(shown, r)
		}
	}
	return shown
}

// differing counts the settings that are worth reading.
func (p Preset) differing() (n int) {
	for _, r := range p.Rows {
		if r.Differs {
			n++
		}
	}
	return n
}

func (p Preset) note(ctx context.Context) string {
	if n := p.differing(); n > 0 {
		return lang.N(ctx, n, "%s setting differs from %s", "%s settings differ from %s", lang.Count(ctx, n), p.Base)
	}
	return lang.T(ctx, "The same as %s", p.Base)
}

// invalid are the attributes of a field with which something is wrong.
func (p Preset) invalid(key string) templ.Attributes {
	if p.Wrong[key] == "" {
		return nil
	}
	return templ.Attributes{"aria-invalid": "true", "aria-describedby": "e-" + key}
}

// purpose returns what a built-in preset is for, as a sentence.
func (p Preset) purpose(ctx context.Context) string {
	first, size := utf8.DecodeRuneInString(lang.T(ctx, p.About))
	return string(unicode.ToUpper(first)) + lang.T(ctx, p.About)[size:] + "."
}

// DiffRow is one setting of two presets.
type DiffRow struct {
	Key     string // name of its field
	Label   string
	Is, Was string
	Raw     string // what its field has
	Differs bool
	Scaled  bool    // At and From are where the two lie on the slider's axis
	At      float64 // 0 to 1
	From    float64
	Lines   bool     // its field has a text a line
	Choices []Choice // of which it is one; empty: it is written
	Help    string   // how it is written
}

// Choice is a value that a setting can have.
type Choice struct{ Value, Label string }

// Differs compares two values of a parameter.
func (p Param) Differs(ctx context.Context, is, was float64) DiffRow {
	r := DiffRow{Key: p.Key, Label: p.Label, Is: p.word(ctx, is), Was: p.word(ctx, was), Raw: p.format(is), Differs: is != was, Scaled: true, At: p.position(is), From: p.position(was)}
	if p.On != 0 {
		r.Raw, r.Choices = number(is), []Choice{{"0", lang.Key("off")}, {number(p.On), lang.Key("on")}}
	}
	if p.Off != "" && p.On == 0 {
		r.Help = lang.T(ctx, "%s is “%s”", p.format(p.OffAt), lang.T(ctx, p.Off))
	}
	return r
}

// DiffText compares two texts. empty is the word for one that is empty.
func DiffText(key, label, is, was, empty string) DiffRow {
	word := func(text string) string {
		if strings.TrimSpace(text) == "" {
			return empty
		}
		return text
	}
	return DiffRow{Key: key, Label: label, Is: word(is), Was: word(was), Raw: is, Differs: is != was}
}

// word returns a value as the panel shows it.
func (p Param) word(ctx context.Context, v float64) string {
	if p.On != 0 && v == p.On {
		return lang.T(ctx, "on")
	}
	if p.Off != "" && v == p.OffAt {
		return lang.T(ctx, p.Off)
	}
	return p.format(v)
}

func share(v float64) string { return number(100*v) + "%" }

// begin and length draw the bar between the two values.
func (r DiffRow) begin() string  { return share(min(r.At, r.From)) }
func (r DiffRow) length() string { return share(max(r.At, r.From) - min(r.At, r.From)) }
