package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/presets"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/infer/readtext"
	"m40-llm/infer/sample"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// The presets page, and the requests of the preset picker in the chat. A change is a POST with
// a form or a JSON object; scripts ask for JSON and get the preset, or 204.

// PresetFormat is the value of format in the files that GET /presets/export.json writes and
// POST /presets/import reads.
const PresetFormat = "m40-llm-presets-1"

// Preset is a preset in JSON. The seed in its settings is always -1.
type Preset struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	About    string           `json:"about,omitempty"`
	System   string           `json:"system,omitempty"`
	Settings setting.Settings `json:"settings"`
	Builtin  bool             `json:"builtin,omitempty"`
}

func newPreset(p presets.Preset) Preset {
	return Preset{ID: p.ID, Name: p.Name, About: p.About, System: p.System, Settings: p.Settings, Builtin: p.Builtin}
}

// presetsPage answers GET /presets?id=ID&against=ID&all=1&chat=ID&deleted=ID with the presets
// and the differences between two of them. With chat, the page was opened from that chat and
// links back to it. Scripts get {"presets":[…]}.
func (h *Handlers) presetsPage(c echo.Context) error {
	if httpio.WantsJSON(c.Request()) {
		list, err := h.Presets.List(c.Request().Context(), principal(c))
		if err != nil {
			return err
		}
		out := make([]Preset, len(list))
		for i, p := range list {
			out[i] = newPreset(p)
		}
		return c.JSON(http.StatusOK, map[string]any{"presets": out})
	}
	page, err := h.presets(c)
	if err != nil {
		return err
	}
	return httpio.Render(c, http.StatusOK, web.PresetsPage(page))
}

// presets returns the page for the parameters of a request: those of its query or, if a form
// was refused, of the form. Without id it shows the preset of the chat, or the first preset.
func (h *Handlers) presets(c echo.Context) (web.Presets, error) {
	list, err := h.Presets.List(c.Request().Context(), principal(c))
	if err != nil {
		return web.Presets{}, err
	}
	id := cmp.Or(c.Param("id"), c.QueryParam("id"))
	page := web.Presets{Open: id != "", All: c.FormValue("all") != ""}
	chosen := ""
	if chat, err := h.Live.Chat(c.Request().Context(), principal(c), c.FormValue("chat")); err == nil {
		snapshot, err := chat.Snapshot(c.Request().Context(), principal(c), 0)
		if err != nil {
			return web.Presets{}, err
		}
		page.Chat, page.Title, chosen = chat.ID(), snapshot.Title, snapshot.Panel.Preset
	}
	find := func(id string) (presets.Preset, bool) {
		i := slices.IndexFunc(list, func(p presets.Preset) bool { return p.ID == id })
		if i < 0 {
			return list[0], false
		}
		return list[i], true
	}
	shown, found := find(id)
	switch {
	case id == "":
		shown, _ = find(chosen)
	case !found:
		return web.Presets{}, presets.ErrNoPreset
	}
	base, _ := find(c.FormValue("against"))
	if i := slices.IndexFunc(list, func(p presets.Preset) bool { return p.ID != shown.ID }); i >= 0 && base.ID == shown.ID {
		base = list[i]
	}
	page.Against, page.Shown = base.ID, presetView(c.Request().Context(), shown, base)
	for _, p := range list {
		page.List = append(page.List, web.Preset{ID: p.ID, Name: p.Name, About: p.About, Builtin: p.Builtin})
	}
	if p, err := h.Presets.Deleted(c.Request().Context(), principal(c), c.QueryParam("deleted")); err == nil {
		page.Deleted = &web.Preset{ID: p.ID, Name: p.Name}
	}
	return page, nil
}

// presetView describes a preset and how it differs from base.
func presetView(ctx context.Context, p, base presets.Preset) web.Preset {
	view := web.Preset{ID: p.ID, Name: p.Name, About: p.About, System: p.System, Builtin: p.Builtin, Base: base.Name}
	values, baseValues := settingValues(p.Settings), settingValues(base.Settings)
	for _, param := range params(base.Settings) {
		view.Rows = append(view.Rows, param.Differs(ctx, values[param.Key], baseValues[param.Key]))
	}
	lists, baseLists := listValues(&p.Settings), listValues(&base.Settings)
	for _, l := range textLists {
		r := web.DiffText(l.Key, l.Label, quotedList(*lists[l.Key]), quotedList(*baseLists[l.Key]), lang.T(ctx, "none"))
		r.Raw, r.Lines, r.Help = escapedLines(*lists[l.Key]), true, lang.T(ctx, "One per line; \\n is a line break, \\t a tab.")
		view.Rows = append(view.Rows, r)
	}
	order := web.DiffText("samplers", lang.Key("Order"), chainText(ctx, p.Settings.Samplers), chainText(ctx, base.Settings.Samplers), lang.T(ctx, "default"))
	order.Help = lang.T(ctx, "Empty for the default: %s", chainText(ctx, sample.StageNames()))
	asTheModel := lang.T(ctx, "as the model does")
	thinking := web.DiffText("thinking", lang.Key("Thinking"), lang.T(ctx, thinkingWords[p.Settings.Thinking]), lang.T(ctx, thinkingWords[base.Settings.Thinking]), asTheModel)
	thinking.Choices = []web.Choice{{Label: asTheModel}}
	for _, t := range []setting.Thinking{setting.ThinkingOn, setting.ThinkingOff, setting.ThinkingLow, setting.ThinkingMedium, setting.ThinkingHigh} {
		thinking.Choices = append(thinking.Choices, web.Choice{Value: string(t), Label: thinkingWords[t]})
	}
	tools := web.DiffText("tools", lang.Key("Tools"), p.Settings.Tools, base.Settings.Tools, lang.T(ctx, "none"))
	tools.Raw, tools.Lines, tools.Help = p.Settings.Tools, true, lang.T(ctx, "A JSON array of functions, as in the API.")
	biases := web.DiffText("token_biases", lang.Key("Biased tokens"), biasText(p.Settings.TokenBiases), biasText(base.Settings.TokenBiases), lang.T(ctx, "none"))
	biases.Raw, biases.Lines, biases.Help = biasText(p.Settings.TokenBiases), true, lang.T(ctx, "One JSON object per line: id, text, model, bias. A bias of -1000 keeps a token out.")
	view.Rows = append(view.Rows, biases, order, thinking)
	view.Rows = append(view.Rows, formatRows(ctx, p.Settings.OutputFormat, base.Settings.OutputFormat)...)
	view.Rows = append(view.Rows, tools)
	return view
}

// thinkingWords are the words for when a model thinks.
var thinkingWords = map[setting.Thinking]string{
	setting.ThinkingOn: lang.Key("on"), setting.ThinkingOff: lang.Key("off"),
	setting.ThinkingLow: lang.Key("low"), setting.ThinkingMedium: lang.Key("medium"), setting.ThinkingHigh: lang.Key("high"),
}

// outputTypes are the words for the kinds of output format.
var outputTypes = []web.Choice{
	{Label: lang.Key("text")}, {Value: string(setting.OutputJSON), Label: "JSON"}, {Value: string(setting.OutputSchema), Label: lang.Key("JSON schema")}, {Value: string(setting.OutputGrammar), Label: "GBNF"},
}

// formatRows compares two output formats.
func formatRows(ctx context.Context, is, was setting.OutputFormat) []web.DiffRow {
	word := func(f setting.OutputFormat) string {
		i := slices.IndexFunc(outputTypes, func(c web.Choice) bool { return c.Value == string(f.Type) })
		return lang.T(ctx, outputTypes[max(0, i)].Label)
	}
	kind := web.DiffText("output_format", lang.Key("Output format"), word(is), word(was), "")
	kind.Raw, kind.Choices = string(is.Type), outputTypes
	schema := web.DiffText("output_schema", lang.Key("JSON schema"), is.Schema, was.Schema, lang.T(ctx, "none"))
	schema.Lines, schema.Help = true, lang.T(ctx, "For the output format JSON schema.")
	grammar := web.DiffText("output_grammar", lang.Key("Grammar"), is.Grammar, was.Grammar, lang.T(ctx, "none"))
	grammar.Lines, grammar.Help = true, lang.T(ctx, "For the output format GBNF.")
	return []web.DiffRow{kind, schema, grammar}
}

// settingValues returns the numeric settings by their names in JSON.
func settingValues(s setting.Settings) map[string]float64 {
	values := map[string]float64{"max_tokens": float64(s.MaxTokens), "thinking_budget": float64(s.ThinkingBudget), "pause_repetition": float64(s.PauseRepetition), "must_call": float64(s.MustCall)}
	for _, n := range sample.Numbers() {
		values[n.Name] = n.Get(&s.Params)
	}
	return values
}

// listValues returns pointers to the settings that are lists of texts, by their names in JSON.
func listValues(s *setting.Settings) map[string]*[]string {
	return map[string]*[]string{"stop": &s.Stop, "banned_strings": &s.BannedStrings, "dry_sequence_breakers": &s.DryBreakers}
}

// biasText writes biases as JSON, one per line.
func biasText(list []setting.TokenBias) string {
	lines := make([]string, len(list))
	for i, b := range list {
		data, _ := json.Marshal(b) // validated settings have finite numbers
		lines[i] = string(data)
	}
	return strings.Join(lines, "\n")
}

// parseBiases reads what biasText writes.
func parseBiases(text string) (list []setting.TokenBias, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var b setting.TokenBias
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

// chainText returns the labels of the stages of a sampler chain; empty for the default order.
func chainText(ctx context.Context, samplers []string) string {
	labels := make([]string, len(samplers))
	for i, key := range samplers {
		labels[i] = key
		for _, s := range stages() {
			if s.Key == key {
				labels[i] = lang.T(ctx, s.Label)
			}
		}
	}
	return strings.Join(labels, ", ")
}

var textEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`, "\r", `\r`)

// quotedList formats texts as the settings panel does.
func quotedList(list []string) string {
	written := make([]string, len(list))
	for i, text := range list {
		written[i] = "“" + textEscapes.Replace(text) + "”"
	}
	return strings.Join(written, " ")
}

// escapedLines formats texts one per line; unescapedLines parses them.
func escapedLines(list []string) string {
	written := make([]string, len(list))
	for i, text := range list {
		written[i] = textEscapes.Replace(text)
	}
	return strings.Join(written, "\n")
}

var textUnescapes = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t", `\r`, "\r")

func unescapedLines(text string) (list []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			list = append(list, textUnescapes.Replace(line))
		}
	}
	return list
}

// stagesOf parses the output of chainText. It keeps unknown names, which are refused when the
// settings are checked.
func stagesOf(ctx context.Context, text string) (keys []string) {
	for _, name := range strings.Split(text, ",") {
		name = strings.TrimSpace(name)
		for _, s := range stages() {
			if strings.EqualFold(lang.T(ctx, s.Label), name) || strings.EqualFold(s.Label, name) {
				name = s.Key
			}
		}
		if name != "" {
			keys = append(keys, name)
		}
	}
	return keys
}

// readSettings sets s from the fields that the form has. wrong maps the names of invalid fields
// to what is wrong with them.
func readSettings(ctx context.Context, form url.Values, s *setting.Settings) (wrong map[string]string) {
	wrong = map[string]string{}
	value := func(key string, whole bool, min, max float64, set func(float64)) {
		if !form.Has(key) {
			return
		}
		text := strings.Replace(strings.TrimSpace(form.Get(key)), ",", ".", 1)
		switch v, err := strconv.ParseFloat(text, 64); {
		case err != nil || math.IsNaN(v) || whole && v != math.Trunc(v):
			wrong[key] = lang.T(ctx, map[bool]string{false: lang.Key("%q is not a number"), true: lang.Key("%q is not a whole number")}[whole], httpio.Shorten(text))
		case v < min || v > max:
			wrong[key] = lang.T(ctx, "%v to %v", min, max)
		default:
			set(v)
		}
	}
	for _, n := range sample.Numbers() {
		value(n.Name, n.Whole, n.Min, n.Max, func(v float64) { n.Set(&s.Params, v) })
	}
	value("max_tokens", true, -1, setting.MaxTokens, func(v float64) { s.MaxTokens = int(v) })
	value("thinking_budget", true, 0, setting.MaxTokens, func(v float64) { s.ThinkingBudget = int(v) })
	value("pause_repetition", true, 0, 1, func(v float64) { s.PauseRepetition = int(v) })
	value("must_call", true, 0, 1, func(v float64) { s.MustCall = int(v) })
	for key, list := range listValues(s) {
		if form.Has(key) {
			*list = unescapedLines(form.Get(key))
		}
	}
	if form.Has("samplers") {
		s.Samplers = stagesOf(ctx, form.Get("samplers"))
		if slices.Equal(s.Samplers, sample.StageNames()) {
			s.Samplers = nil
		}
	}
	if form.Has("thinking") {
		s.Thinking = setting.Thinking(form.Get("thinking"))
	}
	if form.Has("output_format") {
		s.OutputFormat.Type = setting.OutputType(form.Get("output_format"))
	}
	for key, text := range map[string]*string{"output_schema": &s.OutputFormat.Schema, "output_grammar": &s.OutputFormat.Grammar} {
		if form.Has(key) {
			*text = strings.TrimSpace(strings.ReplaceAll(form.Get(key), "\r\n", "\n"))
		}
	}
	if form.Has("token_biases") {
		if list, err := parseBiases(form.Get("token_biases")); err != nil {
			wrong["token_biases"] = lang.T(ctx, "Each line must be a JSON object with id, text, model and bias.")
		} else {
			s.TokenBiases = list
		}
	}
	if form.Has("tools") {
		s.Tools = strings.TrimSpace(form.Get("tools"))
	}
	return wrong
}

// presetForm has the fields of all changes of a preset. If From is set, it is the id of a preset
// to copy, and the other fields are ignored.
type presetForm struct {
	Name     string          `json:"name"`
	From     string          `json:"from"`
	System   *string         `json:"system"`
	Settings json.RawMessage `json:"settings"`
}

func readPresetForm(c echo.Context) (presetForm, error) {
	var form presetForm
	if httpio.SendsJSON(c) {
		return form, httpio.ReadStrictJSON(c, &form)
	}
	form.Name, form.From = c.FormValue("name"), c.FormValue("from")
	return form, nil
}

// fill sets p from the fields that the form has.
func (f presetForm) fill(p *presets.Preset) error {
	if f.System != nil {
		p.System = *f.System
	}
	if len(f.Settings) == 0 {
		return nil
	}
	p.Settings = setting.Default()
	return decodePresetSettings(f.Settings, "settings", &p.Settings)
}

func decodePresetSettings(data []byte, place string, settings *setting.Settings) error {
	if err := httpio.DecodeStrict(data, place, settings); err != nil {
		return err
	}
	if settings.Seed != -1 {
		return fault.Invalid(place+".seed", "%s.seed is %d, but a preset has no seed; omit it", place, settings.Seed)
	}
	return nil
}

// createPreset answers POST /presets.
func (h *Handlers) createPreset(c echo.Context) error {
	form, err := readPresetForm(c)
	if err != nil {
		return err
	}
	p := presets.Preset{Name: form.Name, Settings: setting.Default()}
	if err := form.fill(&p); err != nil {
		return err
	}
	if form.From != "" {
		p, err = h.Presets.Copy(c.Request().Context(), principal(c), form.From)
	} else {
		p, err = h.Presets.Create(c.Request().Context(), principal(c), p)
	}
	if err != nil {
		return err
	}
	if httpio.WantsJSON(c.Request()) {
		return c.JSON(http.StatusCreated, newPreset(p))
	}
	return c.Redirect(http.StatusSeeOther, presetsAfter(c, p.ID))
}

// savePreset answers POST /presets/:id. JSON with {system, settings} replaces both; a form
// replaces the fields that it has.
func (h *Handlers) savePreset(c echo.Context) error {
	if !httpio.SendsJSON(c) {
		return h.savePresetForm(c)
	}
	var form presetForm
	if err := httpio.ReadStrictJSON(c, &form); err != nil {
		return err
	}
	p := presets.Preset{Settings: setting.Default()}
	if err := form.fill(&p); err != nil {
		return err
	}
	p, err := h.Presets.Save(c.Request().Context(), principal(c), c.Param("id"), p.System, p.Settings)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newPreset(p))
}

// savePresetForm saves all fields of the form, or none: then it responds with the form and an
// error next to each invalid field.
func (h *Handlers) savePresetForm(c echo.Context) error {
	ctx, id := c.Request().Context(), c.Param("id")
	form, err := c.FormParams()
	if err != nil {
		return fault.Invalid("", "the form cannot be read: %v", err)
	}
	p, err := h.Presets.Get(ctx, principal(c), id)
	if err != nil {
		return err
	}
	if form.Has("system") {
		p.System = strings.ReplaceAll(form.Get("system"), "\r\n", "\n")
	}
	if form.Has("name") {
		p.Name = form.Get("name")
	}
	wrong := readSettings(ctx, form, &p.Settings)
	if len(wrong) == 0 {
		if err = h.Presets.Replace(ctx, principal(c), p); err == nil {
			return c.Redirect(http.StatusSeeOther, presetsAfter(c, id))
		}
		f := failure.For(ctx, err)
		if f.Param == "" {
			return err
		}
		wrong[strings.TrimPrefix(f.Param, "settings.")] = f.Text
	}
	page, err := h.presets(c)
	if err != nil {
		return err
	}
	page.Shown.Wrong, page.Shown.Name, page.Shown.System = wrong, p.Name, p.System
	page.Shown.Problem = lang.T(ctx, "Nothing was changed. Correct the marked fields.")
	for i := range page.Shown.Rows {
		if r := &page.Shown.Rows[i]; form.Has(r.Key) {
			r.Raw, r.Differs = form.Get(r.Key), true // shown even if equal to the base, because the person entered it
		}
	}
	return httpio.Render(c, http.StatusBadRequest, web.PresetsPage(page))
}

// presetsAfter returns the address of the page of a preset, with the parameters that the page
// of the form had.
func presetsAfter(c echo.Context, id string) string {
	address := web.PresetsAddress(id, c.FormValue("chat"))
	for _, name := range []string{"against", "all"} {
		if value := c.FormValue(name); value != "" {
			address += "&" + url.Values{name: {value}}.Encode()
		}
	}
	return address
}

// usePreset answers POST /presets/:id/use: it copies the preset into the settings of the form's
// chat, or redirects to a new chat with them.
func (h *Handlers) usePreset(c echo.Context) error {
	ctx, chat := c.Request().Context(), c.FormValue("chat")
	if chat != "" {
		if err := h.Presets.Use(ctx, principal(c), chat, c.Param("id")); err != nil {
			return err
		}
		return changed(c, "/c/"+chat)
	}
	p, err := h.Presets.Get(ctx, principal(c), c.Param("id"))
	if err != nil {
		return err
	}
	return changed(c, "/?"+url.Values{"preset": {p.ID}}.Encode())
}

func (h *Handlers) renamePreset(c echo.Context) error {
	form, err := readPresetForm(c)
	if err != nil {
		return err
	}
	if err := h.Presets.Rename(c.Request().Context(), principal(c), c.Param("id"), form.Name); err != nil {
		return err
	}
	return changed(c, presetsAfter(c, c.Param("id")))
}

func (h *Handlers) deletePreset(c echo.Context) error {
	if err := h.Presets.Delete(c.Request().Context(), principal(c), c.Param("id")); err != nil {
		return err
	}
	query := url.Values{"deleted": {c.Param("id")}}
	if chat := c.FormValue("chat"); chat != "" {
		query.Set("chat", chat)
	}
	return changed(c, "/presets?"+query.Encode())
}

func (h *Handlers) restorePreset(c echo.Context) error {
	if err := h.Presets.Restore(c.Request().Context(), principal(c), c.Param("id")); err != nil {
		return err
	}
	return changed(c, presetsAfter(c, c.Param("id")))
}

// PresetFile is a file of presets.
type PresetFile struct {
	Format  string           `json:"format"`
	Presets []ExportedPreset `json:"presets"`
}

// ExportedPreset is a preset in a file.
type ExportedPreset struct {
	Name     string          `json:"name"`
	System   string          `json:"system,omitempty"`
	Settings json.RawMessage `json:"settings"`
}

// exportPresets answers GET /presets/export.json?id=ID with one preset or, without id, with all
// but the built-in ones.
func (h *Handlers) exportPresets(c echo.Context) error {
	ctx, id := c.Request().Context(), c.QueryParam("id")
	var list []presets.Preset
	var err error
	title := "presets"
	if id == "" {
		list, err = h.Presets.List(ctx, principal(c))
	} else {
		var p presets.Preset
		p, err = h.Presets.Get(ctx, principal(c), id)
		list, title = []presets.Preset{p}, p.Name
	}
	if err != nil {
		return err
	}
	file := PresetFile{Format: PresetFormat, Presets: []ExportedPreset{}}
	for _, p := range list {
		if p.Builtin && id == "" {
			continue
		}
		settings, err := json.Marshal(p.Settings)
		if err != nil {
			return err
		}
		file.Presets = append(file.Presets, ExportedPreset{Name: p.Name, System: p.System, Settings: settings})
	}
	attach(c, title, "json")
	return c.JSONPretty(http.StatusOK, file, "  ")
}

// importPresets answers POST /presets/import. The file is the body, or the field "file" of a
// form. It adds all presets of the file, or none.
func (h *Handlers) importPresets(c echo.Context) error {
	file, err := importedFile(c)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	if data, err = readtext.Clean(data); err != nil {
		return fault.Invalid("file", "the file cannot be used: %v", err)
	}
	list, err := readPresets(data)
	if err != nil {
		return err
	}
	added, err := h.Presets.Import(c.Request().Context(), principal(c), list)
	if err != nil {
		return err
	}
	if httpio.WantsJSON(c.Request()) {
		out := make([]Preset, len(added))
		for i, p := range added {
			out[i] = newPreset(p)
		}
		return c.JSON(http.StatusCreated, map[string]any{"presets": out})
	}
	return c.Redirect(http.StatusSeeOther, web.PresetsAddress(added[0].ID, ""))
}

// readPresets parses a file of presets. The file is not trusted.
func readPresets(data []byte) ([]presets.Preset, error) {
	if err := httpio.CheckDepth(data); err != nil {
		return nil, err
	}
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(data) {
		return nil, fault.Invalid("file", "the file is not a JSON object, or is truncated: export presets as JSON, and import that file")
	}
	var file PresetFile
	if err := httpio.DecodeStrict(data, "", &file); err != nil {
		return nil, err
	}
	if file.Format != PresetFormat {
		return nil, fault.Invalid("format", "format is %q, but this program reads %q", httpio.Shorten(file.Format), PresetFormat)
	}
	var list []presets.Preset
	for i, in := range file.Presets {
		p := presets.Preset{Name: in.Name, System: in.System, Settings: setting.Default()}
		if len(in.Settings) > 0 {
			if err := decodePresetSettings(in.Settings, fmt.Sprintf("presets[%d].settings", i), &p.Settings); err != nil {
				return nil, err
			}
		}
		list = append(list, p)
	}
	return list, nil
}
