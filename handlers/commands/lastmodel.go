package commands

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/hub"
	"m40-llm/store"
)

// lastModel is the name of the setting for the model that was loaded last.
const lastModel = "last_model"

// usedModel is the value of that setting. The path finds files outside of the models folder.
type usedModel struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
}

// saveModelUsed stores in db which model engine has loaded, each time that changes, until
// ctx ends. It polls the engine's status, because a worker does not report such changes.
func saveModelUsed(ctx context.Context, engine interface{ Status() infer.Status }, db *store.Store, logger *slog.Logger) {
	const every = 2 * time.Second
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var saved usedModel
	for more := true; more; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			more = false
		}
		status := engine.Status()
		now := usedModel{status.Model.Name, status.Model.Path}
		if status.State != infer.StateReady || now == saved {
			continue
		}
		value, err := json.Marshal(now)
		if err == nil {
			err = db.SetSetting(context.WithoutCancel(ctx), store.OwnerID, lastModel, value)
		}
		if err != nil {
			logger.Warn("failed to save which model was loaded last", "error", err)
		}
		saved = now
	}
}

// modelUsedLast returns the name or path of the model that was loaded last, or the built-in
// model if there was none or it can no longer be opened.
func modelUsedLast(ctx context.Context, catalog *hub.Hub, db *store.Store, logger *slog.Logger) string {
	value, err := db.Setting(ctx, store.OwnerID, lastModel)
	if errors.Is(err, store.ErrNotFound) {
		return guideName
	}
	var last usedModel
	if err == nil {
		err = json.Unmarshal(value, &last)
	}
	if err != nil {
		logger.Warn("failed to read which model was loaded last; loading "+guideName, "error", err)
		return guideName
	}
	model := last.Name
	path, err := pathOf(catalog, model)
	known, _ := errors.AsType[*fault.Error](err)
	missing := known != nil && known.Code == fault.CodeNotFound
	if last.Path != "" && (missing || err == nil && path != last.Path) {
		if name, gone := catalog.AllowPath(last.Path); gone == nil { // it was a file outside of the models folder
			model = last.Path
			_, err = pathOf(catalog, name)
		}
	}
	if err != nil {
		logger.Warn("the model that was loaded last can no longer be opened; loading "+guideName, "model", last.Name, "error", err)
		return guideName
	}
	return model
}

// pathOf returns the path of a model's file, or an error if the model cannot be opened.
func pathOf(catalog *hub.Hub, name string) (path string, err error) {
	file, info, err := catalog.Open(name)
	if err != nil {
		return "", err
	}
	return info.Path, file.Close()
}
