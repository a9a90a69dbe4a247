//go:build !states

package handlers

import "github.com/labstack/echo/v4"

// addStates adds nothing: only make dev has the storybook of package states.
func addStates(*echo.Echo) {}
