// Package page serves the pages of the chat, the models and the presets, and the requests of
// their forms and scripts. The pages work without scripts; package stream keeps them up to date
// with scripts.
package page

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/compare"
	"m40-llm/handlers/document"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/live"
	"m40-llm/handlers/models"
	"m40-llm/handlers/presets"
	"m40-llm/handlers/visitors"
)

// Handlers serves the pages. All fields must be set.
type Handlers struct {
	Live         *live.Service
	Presets      *presets.Service
	Compare      *compare.Service
	Inspect      *inspect.Service
	Guests       *guest.Service
	Models       *models.Service
	Activity     *activity.Service
	Gate         *gate.Gate
	Log          *slog.Logger
	Documents    *document.Reader                                     // nil: this server makes no text of PDF and DOCX files
	PingInterval time.Duration                                        // after so long without an event, a growing page gets a comment
	Version      string                                               // of this program
	Alone        bool                                                 // other machines do not reach the server
	Left         func(ctx context.Context, who live.Principal) string // what a person may still use today; empty: there is no limit
	Visitors     *visitors.Service                                    // who is let in without a login; nil: no one can be
	NoVisitors   string                                               // why visitors cannot be let in; empty: they can
	People       bool                                                 // there are pages of people, with their devices and keys

	asked   sentForms
	imports imports
}

// Routes adds the routes of the pages to e.
func (h *Handlers) Routes(e *echo.Echo) {
	getOrHead := []string{http.MethodGet, http.MethodHead}
	e.Match(getOrHead, "/", h.newChatPage)
	e.Match(getOrHead, "/c/:id", h.chatPage)
	e.Match(getOrHead, "/rail", h.railFragment)
	e.POST("/", h.ask)
	e.POST("/c/:id", h.ask)
	e.POST("/c/:id/stop", h.stop)
	e.POST("/c/:id/answer", h.answerQuestion)
	e.POST("/c/:id/show", h.showMessage)
	e.POST("/c/:id/rename", changeChat(h.renameChat))
	e.POST("/c/:id/model", changeChat(h.setChatModel))
	e.POST("/c/:id/move", changeChat(h.moveChat))
	e.POST("/c/:id/pin", changeChat(h.pinChat))
	e.POST("/c/:id/archive", changeChat(h.archiveChat))
	e.POST("/c/:id/copy", h.copyChat)
	e.POST("/c/:id/delete", h.deleteChat)
	e.POST("/c/:id/restore", h.restoreChat)
	e.GET("/c/:id/pictures/:hash", h.chatPicture)
	e.GET("/c/:id/export.json", h.exportJSON)
	e.GET("/c/:id/export.md", h.exportMarkdown)
	e.GET("/c/:id/code/:answer", h.answerCode)
	e.GET("/c/:id/tree", h.chatTree)
	e.GET("/c/:id/tokens/:answer", h.answerTokens)
	e.GET("/c/:id/tokens/:answer/unsure", h.leastCertain)
	e.GET("/c/:id/tokens/:answer/:index", h.answerToken)
	e.GET("/c/:id/tokens/:answer/:index/stages", h.tokenStages)
	e.POST("/c/:id/tokens/:answer/:index/stages", h.tokenStages)
	e.POST("/c/:id/tokens/:answer/judge", h.judgeAnswer)
	e.POST("/c/:id/score/:answer", h.scorePrompt)
	e.GET("/c/:id/score/:answer/:index", h.scoredToken)
	e.GET("/c/:id/looked/:answer/:index", h.pictureSight)
	e.POST("/c/:id/looked/:answer/:index", h.lookAtPicture)
	e.GET("/c/:id/cache", h.chatCache)
	e.POST("/c/:id/cache/remove", h.removeChatCache)
	e.POST("/caches", managesModels(h.setCacheLimit))
	e.Match(getOrHead, "/c/:id/sheet", h.sheetPage)
	e.POST("/c/:id/sheet", h.startSheet)
	e.POST("/c/:id/sheet/stop", h.stopSheet)
	e.POST("/c/:id/sheet/keep", h.keepCell)
	e.GET("/c/:id/sheet/events", h.sheetEvents)
	e.GET("/candidates", h.candidateLimits)
	e.POST("/candidates", managesModels(h.setCandidateLimits))
	e.POST("/folders/rename", h.renameFolder)
	e.POST("/import", h.importChat)
	e.POST("/count", h.countDraft)
	e.POST("/documents", h.readDocument)
	e.POST("/pictures", h.addPicture)
	e.GET("/pictures/:hash", h.uploadedPicture)

	e.Match(getOrHead, "/activity", h.activityPage)
	e.POST("/activity/:answer/stop", h.stopAnswer)

	e.Match(getOrHead, "/settings", h.settingsPage)
	e.Match(getOrHead, "/help", h.helpPage)
	e.Match(getOrHead, "/help/:name", h.helpPage)
	e.POST("/settings/language", h.setLanguage)
	e.POST("/settings/limits", managesModels(h.setLimits))
	e.POST("/settings/visitors", managesModels(h.setVisitors))

	e.POST("/models/find", managesModels(h.findModel))
	e.POST("/models/pull", managesModels(h.pullModel))
	e.POST("/models/pause", managesModels(h.pauseDownload))
	e.POST("/models/resume", managesModels(h.resumeDownload))
	e.POST("/models/cancel", managesModels(h.cancelDownload))
	e.POST("/models/setup", managesModels(h.setUpModels))
	e.Match(getOrHead, "/models/template", managesModels(h.templatePage))
	e.POST("/models/template", managesModels(h.changeTemplate))
	e.POST("/models/memory", managesModels(h.changeMemory))
	e.POST("/models/delete", managesModels(h.deleteModel))

	e.Match(getOrHead, "/blind", h.blindPage)
	e.POST("/blind", h.startPair)
	e.POST("/blind/stop", h.stopPair)
	e.POST("/blind/vote", h.vote)
	e.POST("/blind/keep", h.keepOfPair)
	e.POST("/blind/reset", h.resetVotes)
	e.GET("/blind/events", h.pairEvents)
	e.GET("/blind/export.json", h.exportVotes)

	e.Match(getOrHead, "/presets", h.presetsPage)
	e.POST("/presets", h.createPreset)
	e.GET("/presets/export.json", h.exportPresets)
	e.POST("/presets/import", h.importPresets)
	e.POST("/presets/:id", h.savePreset)
	e.POST("/presets/:id/rename", h.renamePreset)
	e.POST("/presets/:id/use", h.usePreset)
	e.POST("/presets/:id/delete", h.deletePreset)
	e.POST("/presets/:id/restore", h.restorePreset)
}

// principal returns on whose behalf a request is carried out.
func principal(c echo.Context) live.Principal { return access.PrincipalOf(c.Request().Context()) }

// managesModels is a route that the owner of the server alone may use.
func managesModels(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := mayManageModels(c); err != nil {
			return err
		}
		return next(c)
	}
}

func mayManageModels(c echo.Context) error {
	return access.Authorize(principal(c), access.ActionManage, access.Object{Kind: access.KindModel})
}
