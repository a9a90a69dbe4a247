package page

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/visitors"
	"m40-llm/infer/fault"
	"m40-llm/store"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// settingsPage answers GET /settings.
func (h *Handlers) settingsPage(c echo.Context) error {
	return h.showSettings(c, http.StatusOK, func(s *web.Settings) { s.Saved = c.QueryParam("saved") != "" })
}

// showSettings responds with the page, modified by change.
func (h *Handlers) showSettings(c echo.Context, status int, change func(*web.Settings)) error {
	ctx, who := c.Request().Context(), principal(c)
	s := web.Settings{
		Address: gate.OwnAddress(c), NeedsKey: h.Gate.RequiresKey(), Model: cmp.Or(h.Live.Status().Model.Name, "guide"),
		Manages: mayManageModels(c) == nil, Alone: h.Alone, Version: h.Version,
	}
	if l, chosen := gate.ChosenLanguage(c); chosen {
		s.Language = l
	}
	if h.People {
		s.Keys = "/people/" + who.Owner
	}
	if who.Role == access.RoleVisitor {
		s.Visit = h.Left(ctx, who)
		change(&s)
		return httpio.Render(c, status, web.SettingsPage(s))
	}
	if v := h.Visitors; v != nil && s.Manages {
		now := v.Settings()
		s.Visitors = &web.Visitors{Open: now.Open, Answers: strconv.Itoa(now.Answers), Tokens: strconv.Itoa(now.Tokens), Here: v.Number(), Impossible: h.NoVisitors}
	}
	limits, used, err := h.Live.Disk.RowLimits(ctx, who)
	if err != nil {
		return err
	}
	caches, err := h.Live.Disk.KVCaches(who)
	if err != nil {
		return err
	}
	if limits != (store.RowLimits{}) {
		s.Limits = &web.Limits{Days: strconv.Itoa(limits.Days), Megabytes: strconv.Itoa(limits.Megabytes), Rows: lang.Size(ctx, used), Caches: strconv.Itoa(caches.Megabytes)}
		if caches.Stored {
			s.Limits.Cached = lang.Size(ctx, caches.Total)
		}
	}
	if s.Manages {
		infos, err := h.Models.List(ctx)
		if err != nil {
			return err
		}
		var m web.Models
		describeFolder(ctx, &m, h.Models, infos)
		s.Folder, s.Taken, s.Free = m.Folder, m.Taken, m.Free
	}
	change(&s)
	return httpio.Render(c, status, web.SettingsPage(s))
}

// setLanguage answers POST /settings/language. It is stored in the browser, because people read before they log in too.
func (h *Handlers) setLanguage(c echo.Context) error {
	l, ok := lang.Parse(c.FormValue("language"))
	if !ok {
		l = ""
	}
	gate.ChooseLanguage(c, l)
	return c.Redirect(http.StatusSeeOther, "/settings")
}

// setLimits answers POST /settings/limits.
func (h *Handlers) setLimits(c echo.Context) error {
	var limits store.RowLimits
	caches := -1
	for _, field := range []struct {
		name     string
		value    *int
		optional bool
	}{{"days", &limits.Days, false}, {"megabytes", &limits.Megabytes, false}, {"caches", &caches, true}} {
		text := strings.TrimSpace(c.FormValue(field.name))
		if text == "" && field.optional {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return h.refuseSettings(c, fault.Invalid(field.name, "%s is %q, but must be a whole number", field.name, httpio.Shorten(text)))
		}
		*field.value = n
	}
	err := h.Live.Disk.SetRowLimits(c.Request().Context(), principal(c), limits)
	if err == nil && caches >= 0 {
		err = h.Live.Disk.SetKVLimit(c.Request().Context(), principal(c), caches)
	}
	if err != nil {
		return h.refuseSettings(c, err)
	}
	return c.Redirect(http.StatusSeeOther, "/settings?saved=1#h-storage")
}

// setVisitors answers POST /settings/visitors.
func (h *Handlers) setVisitors(c echo.Context) error {
	if h.Visitors == nil {
		return echo.ErrNotFound
	}
	to := visitors.Settings{Open: c.FormValue("open") != ""}
	if to.Open && h.NoVisitors != "" {
		return h.refuseSettings(c, fault.Invalid("open", "%s", h.NoVisitors))
	}
	for name, value := range map[string]*int{"answers": &to.Answers, "tokens": &to.Tokens} {
		text := strings.TrimSpace(c.FormValue(name))
		n, err := strconv.Atoi(text)
		if err != nil {
			return h.refuseSettings(c, fault.Invalid(name, "%s a day is %q, but must be a whole number", name, httpio.Shorten(text)))
		}
		*value = n
	}
	if err := h.Visitors.Set(c.Request().Context(), principal(c), to); err != nil {
		return h.refuseSettings(c, err)
	}
	return c.Redirect(http.StatusSeeOther, "/settings?saved=1#open-house")
}

func (h *Handlers) refuseSettings(c echo.Context, err error) error {
	f := h.Gate.Failed(c, err)
	return h.showSettings(c, f.Status, func(s *web.Settings) { s.Problem = f.Text })
}
