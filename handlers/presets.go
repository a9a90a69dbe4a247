package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/live"
	"m40-llm/infer/sample"
	"m40-llm/web"
)

// Presets: a page to read, compare, rename and delete them, and what the picker beside
// the chat asks. Changes are forms, with their fields as a form or as a JSON object;
// scripts ask for JSON and get the preset, or 204.

// presetFormat names the files of GET /presets/export.json, which POST /presets/import
// takes.
const presetFormat = "m40-llm-presets-1"

// wirePreset is a preset as scripts get it. Its settings have no seed: it is always -1.
type wirePreset struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	About    string        `json:"about,omitempty"`
	System   string        `json:"system,omitempty"`
	Settings live.Settings `json:"settings"`
	Builtin  bool          `json:"builtin,omitempty"`
}

func toWirePreset(p live.Preset) wirePreset {
	return wirePreset{ID: p.ID, Name: p.Name, About: p.About, System: p.System, Settings: p.Settings, Builtin: p.Builtin}
}

// presetsPage answers GET /presets?against=ID&deleted=ID: all presets, and how each
// differs from one of them. Scripts get {"presets":[…]}.
func (h *Handlers) presetsPage(c echo.Context) error {
	list, err := h.Live.Presets(c.Request().Context())
	if err != nil {
		return err
	}
	if wantsJSON(c.Request()) {
		wire := make([]wirePreset, len(list))
		for i, p := range list {
			wire[i] = toWirePreset(p)
		}
		return c.JSON(http.StatusOK, map[string]any{"presets": wire})
	}
	page := web.Presets{Against: list[0].ID}
	base := list[0]
	for _, p := range list {
		if p.ID == c.QueryParam("against") {
			page.Against, base = p.ID, p
		}
	}
	for _, p := range list {
		page.List = append(page.List, presetView(p, base))
	}
	if p, err := h.Live.DeletedPreset(c.QueryParam("deleted")); err == nil {
		page.Deleted = &web.Preset{ID: p.ID, Name: p.Name}
	}
	return render(c, http.StatusOK, web.PresetsPage(page))
}

// presetView puts a preset, and how it differs from another, into words.
func presetView(p, base live.Preset) web.Preset {
	view := web.Preset{ID: p.ID, Name: p.Name, About: p.About, System: p.System, Builtin: p.Builtin, Base: base.Name}
	have, had := settingValues(p.Settings), settingValues(base.Settings)
	for _, param := range params(base.Settings) {
		view.Rows = append(view.Rows, param.Differs(have[param.Key], had[param.Key]))
	}
	lists, were := listValues(p.Settings), listValues(base.Settings)
	for _, l := range textLists {
		view.Rows = append(view.Rows, web.DiffText(l.Label, quotedList(lists[l.Key]), quotedList(were[l.Key])))
	}
	view.Rows = append(view.Rows,
		web.DiffText("Order", chainText(p.Settings.Samplers), chainText(base.Settings.Samplers)),
		web.DiffText("Thinking", string(p.Settings.Thinking), string(base.Settings.Thinking)),
		web.DiffText("System prompt", p.System, base.System))
	return view
}

// settingValues are the settings that are numbers, by their names on the wire.
func settingValues(s live.Settings) map[string]float64 {
	values := map[string]float64{"max_tokens": float64(s.MaxTokens)}
	for _, n := range sample.Numbers() {
		values[n.Name] = n.Get(&s.Params)
	}
	return values
}

// listValues are the settings that are lists of texts.
func listValues(s live.Settings) map[string][]string {
	return map[string][]string{"stop": s.Stop, "banned_strings": s.BannedStrings, "dry_sequence_breakers": s.DryBreakers}
}

// chainText is the order of a chain; empty where it is the one that is used anyhow.
func chainText(samplers []string) string {
	labels := make([]string, len(samplers))
	for i, key := range samplers {
		labels[i] = key
		for _, s := range stages() {
			if s.Key == key {
				labels[i] = s.Label
			}
		}
	}
	return strings.Join(labels, ", ")
}

var textEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`, "\r", `\r`)

// quotedList writes texts as the panel does.
func quotedList(list []string) string {
	written := make([]string, len(list))
	for i, text := range list {
		written[i] = "“" + textEscapes.Replace(text) + "”"
	}
	return strings.Join(written, " ")
}

// presetForm is what changes of presets are made of. From is the id of a preset to
// copy; then nothing else counts.
type presetForm struct {
	Name     string          `json:"name"`
	From     string          `json:"from"`
	System   *string         `json:"system"`
	Settings json.RawMessage `json:"settings"`
}

func readPresetForm(c echo.Context) (presetForm, error) {
	var form presetForm
	if sendsJSON(c) {
		return form, readStrictJSON(c, &form)
	}
	form.Name, form.From = c.FormValue("name"), c.FormValue("from")
	return form, nil
}

// fill sets what a form says of a preset.
func (f presetForm) fill(p *live.Preset) error {
	if f.System != nil {
		p.System = *f.System
	}
	if len(f.Settings) == 0 {
		return nil
	}
	p.Settings = live.DefaultSettings()
	return decodePresetSettings(f.Settings, "settings", &p.Settings)
}

func decodePresetSettings(data []byte, place string, settings *live.Settings) error {
	if err := decodeStrict(data, place, settings); err != nil {
		return err
	}
	if settings.Seed != -1 {
		return invalidf(place+".seed", "%s.seed is %d, but a preset has no seed; leave it out", place, settings.Seed)
	}
	return nil
}

// createPreset answers POST /presets.
func (h *Handlers) createPreset(c echo.Context) error {
	form, err := readPresetForm(c)
	if err != nil {
		return err
	}
	p := live.Preset{Name: form.Name, Settings: live.DefaultSettings()}
	if err := form.fill(&p); err != nil {
		return err
	}
	if form.From != "" {
		p, err = h.Live.CopyPreset(c.Request().Context(), form.From)
	} else {
		p, err = h.Live.CreatePreset(c.Request().Context(), p)
	}
	if err != nil {
		return err
	}
	if wantsJSON(c.Request()) {
		return c.JSON(http.StatusCreated, toWirePreset(p))
	}
	return c.Redirect(http.StatusSeeOther, "/presets#p-"+p.ID)
}

// savePreset answers POST /presets/:id with {system, settings}: both take the place of
// what the preset had.
func (h *Handlers) savePreset(c echo.Context) error {
	var form presetForm
	if err := readStrictJSON(c, &form); err != nil {
		return err
	}
	p := live.Preset{Settings: live.DefaultSettings()}
	if err := form.fill(&p); err != nil {
		return err
	}
	p, err := h.Live.SavePreset(c.Request().Context(), c.Param("id"), p.System, p.Settings)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, toWirePreset(p))
}

func (h *Handlers) renamePreset(c echo.Context) error {
	form, err := readPresetForm(c)
	if err != nil {
		return err
	}
	if err := h.Live.RenamePreset(c.Request().Context(), c.Param("id"), form.Name); err != nil {
		return err
	}
	return changed(c, "/presets#p-"+c.Param("id"))
}

func (h *Handlers) deletePreset(c echo.Context) error {
	if err := h.Live.DeletePreset(c.Request().Context(), c.Param("id")); err != nil {
		return err
	}
	return changed(c, "/presets?deleted="+c.Param("id"))
}

func (h *Handlers) restorePreset(c echo.Context) error {
	if err := h.Live.RestorePreset(c.Request().Context(), c.Param("id")); err != nil {
		return err
	}
	return changed(c, "/presets#p-"+c.Param("id"))
}

// presetFile is a file of presets.
type presetFile struct {
	Format  string           `json:"format"`
	Presets []exportedPreset `json:"presets"`
}

type exportedPreset struct {
	Name     string          `json:"name"`
	System   string          `json:"system,omitempty"`
	Settings json.RawMessage `json:"settings"`
}

// exportPresets answers GET /presets/export.json?id=ID with one preset, or without id
// with all that a person made.
func (h *Handlers) exportPresets(c echo.Context) error {
	ctx, id := c.Request().Context(), c.QueryParam("id")
	var list []live.Preset
	var err error
	title := "presets"
	if id == "" {
		list, err = h.Live.Presets(ctx)
	} else {
		var p live.Preset
		p, err = h.Live.Preset(ctx, id)
		list, title = []live.Preset{p}, p.Name
	}
	if err != nil {
		return err
	}
	file := presetFile{Format: presetFormat, Presets: []exportedPreset{}}
	for _, p := range list {
		if p.Builtin && id == "" {
			continue
		}
		settings, err := json.Marshal(p.Settings)
		if err != nil {
			return err
		}
		file.Presets = append(file.Presets, exportedPreset{Name: p.Name, System: p.System, Settings: settings})
	}
	attach(c, title, "json")
	return c.JSONPretty(http.StatusOK, file, "  ")
}

// importPresets answers POST /presets/import with the file as the body, or in a form as
// "file". All presets of the file are added, or none.
func (h *Handlers) importPresets(c echo.Context) error {
	file, err := importedFile(c)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	list, err := readPresets(data)
	if err != nil {
		return err
	}
	added, err := h.Live.ImportPresets(c.Request().Context(), list)
	if err != nil {
		return err
	}
	if wantsJSON(c.Request()) {
		wire := make([]wirePreset, len(added))
		for i, p := range added {
			wire[i] = toWirePreset(p)
		}
		return c.JSON(http.StatusCreated, map[string]any{"presets": wire})
	}
	return c.Redirect(http.StatusSeeOther, "/presets#p-"+added[0].ID)
}

// readPresets reads a file of presets, which a stranger may have made.
func readPresets(data []byte) ([]live.Preset, error) {
	const export = "export presets as JSON, and import that file"
	if err := checkDepth(data); err != nil {
		return nil, err
	}
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(data) {
		return nil, invalidf("file", "the file is not a JSON object, or was cut short: %s", export)
	}
	var file presetFile
	if err := decodeStrict(data, "", &file); err != nil {
		return nil, err
	}
	if file.Format != presetFormat {
		return nil, invalidf("format", "format is %q, but this program reads %q", shorten(file.Format), presetFormat)
	}
	var list []live.Preset
	for i, in := range file.Presets {
		p := live.Preset{Name: in.Name, System: in.System, Settings: live.DefaultSettings()}
		if len(in.Settings) > 0 {
			if err := decodePresetSettings(in.Settings, fmt.Sprintf("presets[%d].settings", i), &p.Settings); err != nil {
				return nil, err
			}
		}
		list = append(list, p)
	}
	return list, nil
}
