package store

import (
	"errors"
	"testing"

	"m40-llm/infer/fault"
)

func TestInvalidError_TellsClientsWhichFieldIsWrong(t *testing.T) {
	err := newStore(t).SetRowLimits(t.Context(), RowLimits{Days: 0, Megabytes: 1})
	told, ok := errors.AsType[*fault.Error](err)
	if !ok || told.Code != fault.CodeInvalid || told.Param != "days" || told.Message != "the days must be from 1 to 3650, not 0" {
		t.Errorf("got %v, of which clients are told %+v", err, told)
	}
}
