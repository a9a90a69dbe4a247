package page

import (
	"cmp"
	"context"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/models"
	"m40-llm/handlers/view"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/units"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// The models page. Every change is a form that POSTs to /models/…. The response is a redirect
// to the page, or the page with an error. The page's scripts send the same forms and copy the
// parts of the response into the open page.

// ModelsPage answers GET /models?show=&delete=.
func (h *Handlers) ModelsPage(c echo.Context) error {
	return h.showModels(c, http.StatusOK, func(*web.Models) {})
}

// showModels responds with the page in its current state, modified by change.
func (h *Handlers) showModels(c echo.Context, status int, change func(m *web.Models)) error {
	ctx := c.Request().Context()
	engine := h.Live.Status()
	m := web.Models{Engine: view.Engine(ctx, engine), Picker: h.picker(c, ""), Manages: mayManageModels(c) == nil}
	m.Rows, m.Problem = m.Picker.Rows, m.Picker.Problem
	infos, err := h.Models.List(c.Request().Context())
	if err == nil && m.Manages {
		describeFolder(ctx, &m, h.Models, infos)
		m.Suggestions = h.suggestions(c, infos)
	}
	list, err := h.Models.Downloads()
	if err != nil {
		h.Log.WarnContext(c.Request().Context(), "failed to list the downloads", "error", err)
	}
	if m.Manages {
		for _, d := range list {
			m.Downloads = append(m.Downloads, view.Download(ctx, d))
		}
	}
	name := c.QueryParam("show")
	m.Open = name != ""
	if name == "" {
		name = engine.Model.Name
	}
	h.showDetails(ctx, &m, name)
	for i := range m.Rows {
		m.Rows[i].Deletable = m.Manages && m.Rows[i].Where == "" && h.Models.Deletable(m.Rows[i].Name) == nil
	}
	m.Memory = memoryView(ctx, engine)
	if m.Shown != nil {
		m.Shown.Loads = m.Manages && h.Models.Loads() && m.Shown.Where == "" && m.Shown.Error == ""
		if loaded := engine.Of(m.Shown.Name); loaded != nil {
			for _, use := range loaded.Memory {
				m.Shown.Facts = append(m.Shown.Facts, web.Fact{Name: lang.T(ctx, "In memory"), Value: use.Device + ": " + memoryFacts(ctx, use)})
			}
		}
		m.Shown.Deleting = c.QueryParam("delete") != ""
		m.Shown.Template = m.Manages && m.Shown.Error == "" && !m.Shown.Embeds && !m.Shown.Ranks
		if !m.Manages {
			m.Shown.Locked = lang.T(ctx, "Only the owner of this server can delete it.")
		}
	} else if m.Open {
		m.Open, m.Problem, status = false, lang.T(ctx, "There is no model called “%s” on this machine any more.", httpio.Shorten(name)), http.StatusNotFound
	}
	if m.Manages && h.Models.Reloads() {
		m.Setup = setupView(ctx, engine)
	}
	change(&m)
	return httpio.Render(c, status, web.ModelsPage(m))
}

// memoryView returns the memory of each device with the models that take of it.
func memoryView(ctx context.Context, engine infer.Status) (list []web.DeviceMemory) {
	for _, d := range engine.Devices {
		if d.Total <= 0 {
			continue
		}
		free := max(0, d.Total-d.Taken)
		v := memoryBar{whole: d.Total + d.Other}
		v.Device, v.Taken = d.Device, lang.T(ctx, "%s of %s are taken by models or planned for them, %s are free", lang.Size(ctx, d.Taken), lang.Size(ctx, d.Total), lang.Size(ctx, free))
		for _, loaded := range engine.Loaded() {
			for _, use := range loaded.Memory {
				if use.Device != d.Device {
					continue
				}
				for _, part := range memoryParts(ctx, use) {
					v.add(part.kind, part.bytes, loaded.Model.Name+": "+part.says)
				}
				v.gap()
				v.Models = append(v.Models, web.LoadedMemory{Name: loaded.Model.Name, Facts: memoryFacts(ctx, use)})
			}
		}
		if d.Other > 0 {
			v.Taken += lang.T(ctx, "; other programs have %s", lang.Size(ctx, d.Other))
			v.at = max(v.at, 1-float64(d.Other)/float64(v.whole)) // at the end, after what is free
			v.add("other", d.Other, lang.T(ctx, "other programs: %s", lang.Size(ctx, d.Other)))
		}
		list = append(list, v.DeviceMemory)
	}
	return list
}

// memoryBar is a bar that is filled from the left.
type memoryBar struct {
	web.DeviceMemory
	whole int64   // bytes
	at    float64 // where the next part begins
}

// add adds a part. One that was planned for more than there is ends with the bar.
func (b *memoryBar) add(kind string, bytes int64, title string) {
	if share := min(float64(bytes)/float64(b.whole), 1-b.at); share > 0 {
		b.Parts = append(b.Parts, web.MemoryPart{Kind: kind, From: b.at, Share: share, Title: title})
		b.at += share
	}
}

// gap ends the parts of a model.
func (b *memoryBar) gap() {
	const width = 0.002
	b.Parts = append(b.Parts, web.MemoryPart{Kind: "gap", From: max(0, b.at-width), Share: width})
}

// memoryPart is what a model takes of a device for one thing.
type memoryPart struct {
	kind  string // as in web.MemoryPart
	bytes int64
	says  string
}

// memoryParts returns what a model takes of a device.
func memoryParts(ctx context.Context, use infer.MemoryUse) (parts []memoryPart) {
	for _, part := range []memoryPart{{"weights", use.Weights, lang.Key("%s of weights")}, {"cache", use.Cache, lang.Key("up to %s of KV cache")}, {"work", use.Work, lang.Key("%s of workspace")}, {"work", use.Pictures, lang.Key("%s to encode pictures")}} {
		if part.bytes > 0 {
			part.says = lang.T(ctx, part.says, lang.Size(ctx, part.bytes))
			parts = append(parts, part)
		}
	}
	return parts
}

// memoryFacts says what a model takes of a device.
func memoryFacts(ctx context.Context, use infer.MemoryUse) string {
	var facts []string
	for _, part := range memoryParts(ctx, use) {
		facts = append(facts, part.says)
	}
	return strings.Join(facts, ", ")
}

// refuseModels responds with the page and the error err.
func (h *Handlers) refuseModels(c echo.Context, err error) error {
	f := h.Gate.Failed(c, err)
	return h.showModels(c, f.Status, func(m *web.Models) { m.Problem = f.Text })
}

// findModel answers POST /models/find.
func (h *Handlers) findModel(c echo.Context) error {
	name := strings.TrimSpace(c.FormValue("name"))
	d, err := h.Models.Find(c.Request().Context(), name)
	if err != nil {
		f := h.Gate.Failed(c, err)
		return h.showModels(c, f.Status, func(m *web.Models) {
			m.Find = web.Find{Query: name, Problem: f.Text}
		})
	}
	infos, err := h.Models.List(c.Request().Context())
	if err != nil {
		return err
	}
	return h.showModels(c, http.StatusOK, func(m *web.Models) {
		found := foundView(c.Request().Context(), d, infos)
		for _, other := range m.Downloads {
			found.Running = found.Running || other.File == d.File && other.State == string(models.Running)
		}
		m.Find = web.Find{Query: name, Found: &found}
	})
}

// pullModel answers POST /models/pull.
func (h *Handlers) pullModel(c echo.Context) error {
	size, err := strconv.ParseInt(c.FormValue("size"), 10, 64)
	if err != nil {
		return h.refuseModels(c, fault.Invalid("size", "look the model up first"))
	}
	return h.changeModels(c, h.Models.Start(c.Request().Context(), c.FormValue("name"), size))
}

func (h *Handlers) pauseDownload(c echo.Context) error {
	return h.changeModels(c, h.Models.Pause(c.Request().Context(), c.FormValue("file")))
}

func (h *Handlers) resumeDownload(c echo.Context) error {
	return h.changeModels(c, h.Models.Resume(c.Request().Context(), c.FormValue("file")))
}

func (h *Handlers) cancelDownload(c echo.Context) error {
	return h.changeModels(c, h.Models.Cancel(c.Request().Context(), c.FormValue("file")))
}

// setUpModels answers POST /models/setup.
func (h *Handlers) setUpModels(c echo.Context) error {
	var s infer.Setup
	for _, field := range []struct {
		name  string
		value *int
	}{{"context", &s.ContextLength}, {"threads", &s.Threads}} {
		text := strings.TrimSpace(c.FormValue(field.name))
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return h.refuseModels(c, fault.Invalid(field.name, "%q is not a whole number; leave the field empty for the default", httpio.Shorten(text)))
		}
		*field.value = n
	}
	s.CacheType, s.Draft = c.FormValue("cache"), strings.TrimSpace(c.FormValue("draft"))
	return h.changeModels(c, h.Models.Reload(c.Request().Context(), s))
}

// setupView describes how models are loaded.
func setupView(ctx context.Context, s infer.Status) *web.Setup {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	caches := infer.CacheTypes
	if !slices.Contains(caches, s.Setup.CacheType) {
		caches = append(slices.Clip(caches), s.Setup.CacheType)
	}
	v := &web.Setup{Context: number(s.Setup.ContextLength), Cache: s.Setup.CacheType, Caches: caches, Threads: number(s.Setup.Threads), Draft: s.Setup.Draft}
	if s.ContextLength > 0 {
		v.Now = lang.T(ctx, "The context is %s tokens now.", lang.Count(ctx, s.ContextLength))
		if n := s.Device.Threads; n > 0 {
			v.Now = lang.N(ctx, n, "The context is %s tokens now, on %d thread.", "The context is %s tokens now, on %d threads.", lang.Count(ctx, s.ContextLength), n)
		}
	}
	switch {
	case s.KeepAliveS == 0:
		v.KeepAlive = lang.T(ctx, "A model stays in memory until another one needs the room; --keep-alive unloads it earlier.")
	case s.State == infer.StateUnloaded:
		v.KeepAlive = lang.T(ctx, "The model was unloaded, as nobody used it for %s. The next message loads it.", units.Roughly(s.KeepAliveS))
	default:
		v.KeepAlive = lang.T(ctx, "A model that nobody uses for %s is unloaded (--keep-alive).", units.Roughly(s.KeepAliveS))
	}
	if n := s.Running; n > 0 {
		v.Warning = lang.N(ctx, n, "%d answer is being written: the model is loaded again when it has ended, and new ones wait for it.", "%d answers are being written: the model is loaded again when they have ended, and new ones wait for it.", n)
	}
	switch {
	case s.Reload != nil:
		v.Warning = lang.T(ctx, "The model is loaded again as soon as the running answers have ended.")
	case s.SetupNotice != "":
		v.Problem = lang.T(ctx, "The last change was undone: %s", failure.Sentence(ctx, s.SetupNotice))
	}
	return v
}

// changeMemory answers POST /models/memory, which loads, unloads, pins or unpins a model.
func (h *Handlers) changeMemory(c echo.Context) error {
	ctx, name := c.Request().Context(), c.FormValue("name")
	switch do := c.FormValue("do"); do {
	case "load":
		return h.changeModels(c, h.Models.Load(ctx, name))
	case "unload":
		return h.changeModels(c, h.Models.Unload(ctx, name))
	case "pin", "unpin":
		return h.changeModels(c, h.Models.Pin(ctx, name, do == "pin"))
	default:
		return h.refuseModels(c, fault.Invalid("do", "%q is none of load, unload, pin and unpin", httpio.Shorten(do)))
	}
}

func (h *Handlers) deleteModel(c echo.Context) error {
	return h.changeModels(c, h.Models.Delete(c.FormValue("name")))
}

// changeModels responds to a change: with a redirect to the page, or with err on the page.
func (h *Handlers) changeModels(c echo.Context, err error) error {
	if err != nil {
		return h.refuseModels(c, err)
	}
	return c.Redirect(http.StatusSeeOther, "/models")
}

// picker returns the menu of models. For a new chat, the selected model is that of the query
// or, without one, the model that the person chose last, if it can be used, else that of people who have chosen none.
func (h *Handlers) picker(c echo.Context, chat string) web.Picker {
	engine := h.Live.Status()
	p := web.Picker{Version: h.Models.Version(), Chat: chat, Loaded: engine.Model.Name}
	if chat == "" {
		p.Chosen = c.QueryParam("model")
	}
	infos, err := h.Models.List(c.Request().Context())
	if err != nil {
		p.Problem = failure.For(c.Request().Context(), err).Text
		return p
	}
	for _, info := range infos {
		row := modelRow(c.Request().Context(), info, engine)
		if info.Upstream != nil {
			row.Lacks = p.AddLacks(view.Lacks(c.Request().Context(), info.Upstream, func(key string) string { return panelLabel(c.Request().Context(), key) }))
		}
		p.Rows = append(p.Rows, row)
	}
	preferred, err := h.Live.Choice.Model(c.Request().Context(), principal(c))
	if err != nil {
		h.Log.WarnContext(c.Request().Context(), "failed to read which model was chosen last", "error", err)
	}
	if !p.Offers(preferred) {
		preferred = h.Live.Choice.First(c.Request().Context(), preferred)
	}
	if p.Offers(preferred) {
		p.Preferred = preferred
	}
	if chat == "" {
		p.Chosen = cmp.Or(p.Chosen, p.Preferred)
	}
	return p
}

func modelRow(ctx context.Context, info infer.ModelInfo, engine infer.Status) web.ModelRow {
	row := web.ModelRow{
		Name: info.Name, Family: info.Architecture, Experts: expertsInWords(ctx, info), Parameters: view.Quantity(ctx, info.Parameters), Quant: info.Quant,
		Size: lang.Size(ctx, info.Size), Error: lang.Message(ctx, info.Error), Continues: info.Continues, Embeds: info.Embedding > 0, Ranks: info.Ranks, Good: view.GoodAt(ctx, info),
	}
	switch {
	case info.Vision:
		row.Sight = "true"
	case models.Sees(&info):
		row.Sight = "maybe"
	}
	if info.TemplateProblem != "" {
		row.Problem = failure.Sentence(ctx, info.TemplateProblem)
	}
	if info.ContextTrain > 0 {
		row.Context = lang.Count(ctx, info.ContextTrain)
	}
	if up := info.Upstream; up != nil {
		row.Where, row.Engine, row.Problem, row.Thinking = strings.Join(up.Servers, ", "), up.Engine, lang.Message(ctx, up.Problem), view.ThinkingKinds(up.TemplateVars)
		row.Size = ""
		if up.ContextLength > 0 {
			row.Context = lang.Count(ctx, up.ContextLength)
		}
		return row
	}
	now := engine.Of(info.Name)
	if row.InMemory = now != nil; now == nil {
		now = &infer.Status{}
	}
	row.Pinned = now.Pinned
	if info.LoadS > 0 {
		row.Loads = lang.T(ctx, "a load takes about %s", units.Roughly(info.LoadS))
	}
	if info.Path == "" {
		row.Idle = "built in"
	}
	row.State = cmp.Or(view.MemoryState(now), row.Idle)
	return row
}

// expertsInWords says how many experts of a mixture a token uses; "" for a dense model.
func expertsInWords(ctx context.Context, info infer.ModelInfo) string {
	if info.ExpertsInWords() == "" {
		return ""
	}
	return lang.T(ctx, "%d of %d experts", info.ExpertsUsed, info.Experts)
}

// suggestions describes models to download, if only the built-in one is here and the person may
// download others.
func (h *Handlers) suggestions(c echo.Context, here []infer.ModelInfo) (views []web.Suggestion) {
	if mayManageModels(c) != nil {
		return nil
	}
	list, err := h.Models.Suggestions(here)
	if err != nil {
		h.Log.WarnContext(c.Request().Context(), "failed to choose suggestions", "error", err)
		return nil
	}
	ctx := c.Request().Context()
	for _, s := range list {
		v := web.Suggestion{Name: s.Name, Title: s.Title, Facts: view.Joined(" · ", s.Family, lang.T(ctx, "%s parameters", s.Parameters), s.Quant, lang.Size(ctx, s.Size), s.License)}
		switch {
		case s.Fit.Context == 0:
			v.Fits = lang.T(ctx, "does not fit: it needs %s, and %s are free", lang.Size(ctx, s.Fit.Needs), lang.Size(ctx, s.Fit.Free))
		default:
			v.Fits = lang.T(ctx, "fits with a context of %s, on the %s", lang.Count(ctx, s.Fit.Context), lang.Message(ctx, s.Fit.On))
		}
		views = append(views, v)
	}
	return views
}

func describeFolder(ctx context.Context, m *web.Models, service *models.Service, infos []infer.ModelInfo) {
	dir, free := service.Folder()
	if dir == "" {
		return
	}
	m.Folder = dir
	files, taken := 0, int64(0)
	for _, info := range infos {
		if strings.HasPrefix(info.Path, dir+string(filepath.Separator)) {
			files++
			taken += info.Size
		}
	}
	if files > 0 {
		m.Taken = lang.N(ctx, files, "%s in %d file", "%s in %d files", lang.Size(ctx, taken), files)
	}
	if free > 0 {
		m.Free = lang.T(ctx, "%s free", lang.Size(ctx, free))
	}
}

// showDetails adds the details of the model called name to the page, if it exists.
func (h *Handlers) showDetails(ctx context.Context, m *web.Models, name string) {
	for _, row := range m.Rows {
		if row.Name != name {
			continue
		}
		d := web.ModelDetails{ModelRow: row}
		info, err := h.Models.Details(name)
		if err != nil {
			d.Error = failure.For(ctx, err).Text
		} else {
			describeDetails(ctx, &d, info)
		}
		if err := h.Models.Deletable(name); err != nil {
			d.Locked = failure.For(ctx, err).Text
		}
		m.Shown = &d
		return
	}
}

func describeDetails(ctx context.Context, d *web.ModelDetails, info infer.ModelDetails) {
	fact := func(name, value string) {
		if value != "" {
			d.Facts = append(d.Facts, web.Fact{Name: lang.T(ctx, name), Value: value})
		}
	}
	file := info.Path
	if file == "" {
		file = lang.T(ctx, "inside this program")
	}
	quant := info.Quant
	if info.Parameters > 0 && quant != "" {
		quant += lang.T(ctx, ", %.2f bits per weight", 8*float64(info.Size)/float64(info.Parameters))
	}
	template := lang.T(ctx, "none: the model continues text, conversations become ChatML")
	switch {
	case !info.Writes():
		template = "" // it has no use for one
	case info.Template != nil:
		template = lang.T(ctx, "%s bytes, SHA-256 %.8s…", lang.Count(ctx, info.Template.Bytes), info.Template.SHA256)
	}
	fact(lang.Key("Name in requests"), info.Name)
	fact(lang.Key("File"), file)
	fact(lang.Key("Size"), lang.Size(ctx, info.Size))
	fact(lang.Key("Architecture"), info.Architecture)
	fact(lang.Key("Experts"), expertsInWords(ctx, info.ModelInfo))
	fact(lang.Key("Parameters"), view.Quantity(ctx, info.Parameters))
	fact(lang.Key("Quantisation"), quant)
	if info.ContextTrain > 0 {
		fact(lang.Key("Trained context"), lang.Count(ctx, info.ContextTrain))
	}
	if info.Fit != nil {
		fact(lang.Key("Memory"), failure.Sentence(ctx, info.Fit.String()))
		fact(lang.Key("Runs on"), lang.Message(ctx, info.Fit.On))
		fact(lang.Key("Pictures on"), info.Fit.Pictures)
	}
	fact(lang.Key("Chat template"), template)
	fact(lang.Key("Licence"), info.License)
	for _, t := range info.Types {
		d.Types = append(d.Types, web.TensorType{Type: t.Type, Tensors: strconv.Itoa(t.Tensors), Weights: view.Quantity(ctx, t.Elements), Size: lang.Size(ctx, t.Bytes)})
	}
	for _, kv := range info.Metadata {
		d.Metadata = append(d.Metadata, web.Fact{Name: kv.Key, Value: kv.Value})
	}
}

// foundView describes the file that was found for a name.
func foundView(ctx context.Context, d infer.Download, infos []infer.ModelInfo) web.Found {
	f := web.Found{
		Name: d.Name, File: path.Base(d.File), Quant: d.Quant, Size: lang.Size(ctx, d.Size), Bytes: strconv.FormatInt(d.Size, 10),
		Verified: d.Verifiable(), Fits: true,
	}
	if n := len(d.Parts); n > 0 {
		f.File = lang.T(ctx, "%s in %d files", d.Title(), n)
	}
	if d.Partial > 0 {
		f.Partial = lang.Size(ctx, d.Partial)
	}
	if d.Notice != "" {
		f.Notice = failure.Sentence(ctx, d.Notice)
	}
	repository, quant, _ := strings.Cut(d.Name, ":")
	switch {
	case len(d.Choices) > 0:
		f.Choices = choicesView(ctx, d.Choices)
	case quant != "" && strings.Contains(repository, "/") && !strings.HasPrefix(d.File, "from-"):
		f.All = repository
	}
	for _, quant := range d.Works {
		f.Works = append(f.Works, repository+":"+quant)
	}
	if d.Present {
		for _, info := range infos {
			if info.Error == "" && strings.HasSuffix(filepath.ToSlash(info.Path), "/"+d.File) {
				f.Here = info.Name
			}
		}
	}
	memory := compareSpace(ctx, lang.T(ctx, "memory, for the weights alone"), d.Size, d.MemoryFree)
	if d.Fit != nil {
		memory = compareSpace(ctx, lang.T(ctx, "memory, with the context"), d.Fit.Needs, d.Fit.Free)
	}
	disk := compareSpace(ctx, lang.T(ctx, "disk, with 1.1 GB left free"), d.DiskNeed, d.DiskFree)
	for _, s := range []web.Sum{memory, disk} {
		if s.Free != "" {
			f.Sums = append(f.Sums, s)
		}
	}
	switch {
	case d.Problem != "":
		f.Fits, f.Verdict, f.Off = false, lang.T(ctx, "cannot be used"), failure.Sentence(ctx, d.Problem)
	case disk.Over:
		f.Fits, f.Verdict, f.Off = false, lang.T(ctx, "does not fit"), lang.T(ctx, "The disk of the models folder has too little room. Delete models that you do not need, or choose another disk with --models.")
	case d.Fit != nil:
		f.Fits, f.Verdict = d.Fit.Context > 0, lang.T(ctx, "fits")
		f.Notice = view.Joined(" ", f.Notice, failure.Sentence(ctx, "it "+d.Fit.String()))
		switch {
		case d.Fit.InFile:
			f.Verdict = lang.T(ctx, "fits, slowly")
		case !f.Fits:
			f.Verdict = lang.T(ctx, "does not fit")
			f.Notice += " " + lang.T(ctx, "A smaller quantisation or model needs less.")
		}
	case memory.Over:
		f.Fits, f.Verdict = false, lang.T(ctx, "does not fit")
		f.Notice = view.Joined(" ", f.Notice, lang.T(ctx, "It needs more memory than is free now; a smaller quantisation or model needs less."))
	case d.MemoryFree == 0:
		f.Verdict = lang.T(ctx, "fits on the disk")
	default:
		f.Verdict = lang.T(ctx, "the weights fit")
		f.Notice = view.Joined(" ", f.Notice, lang.T(ctx, "The memory for the context is known after the download."))
	}
	return f
}

func choicesView(ctx context.Context, list []infer.Quantisation) (views []web.Quantisation) {
	for _, q := range list {
		v := web.Quantisation{Name: q.Name, Quant: q.Quant, Size: lang.Size(ctx, q.Size), On: q.On, Chosen: q.Chosen, Problem: lang.Message(ctx, q.Problem)}
		switch {
		case q.Fit == nil:
		case q.Fit.Context == 0:
			v.Problem = lang.T(ctx, "does not fit: needs %s, and %s are free", lang.Size(ctx, q.Fit.Needs), lang.Size(ctx, q.Fit.Free))
		default:
			v.Context = lang.Count(ctx, q.Fit.Context)
		}
		if q.TokensPerSecond > 0 {
			v.Speed = lang.T(ctx, "about %s", lang.Figure(ctx, units.TokenRate(q.TokensPerSecond)))
		}
		views = append(views, v)
	}
	return views
}

// compareSpace compares the bytes that a model needs of memory or disk with those that are
// free; free is 0 if that is unknown.
func compareSpace(ctx context.Context, of string, needs, free int64) web.Sum {
	if free <= 0 {
		return web.Sum{Of: of}
	}
	return web.Sum{
		Of: of, Needs: lang.Size(ctx, needs), Free: lang.Size(ctx, free), Over: needs > free,
		Share: float64(min(1000, 1000*needs/free)) / 10,
	}
}
