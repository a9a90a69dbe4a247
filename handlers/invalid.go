package handlers

import "m40-llm/handlers/failure"

// invalidf returns the error of a request whose field param is wrong.
func invalidf(param, format string, args ...any) error {
	return failure.Invalid(param, format, args...)
}
