package gate

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/web/lang"
)

// languageCookie has the language that a browser chose in Settings. Without it the page follows Accept-Language.
const languageCookie = "m40_language"

// speak puts the language of a page into the context of its request. Responses of the API are English.
func (g *Gate) speak(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if IsAPI(r.URL.Path) {
			return next(c)
		}
		l, chosen := ChosenLanguage(c)
		if !chosen {
			l = lang.Match(r.Header.Get("Accept-Language"))
		}
		c.SetRequest(r.WithContext(lang.With(r.Context(), l)))
		return next(c)
	}
}

// ChosenLanguage returns the language that the browser of c chose, and whether it chose one.
func ChosenLanguage(c echo.Context) (lang.Language, bool) {
	cookie, err := c.Cookie(languageCookie)
	if err != nil {
		return "", false
	}
	return lang.Parse(cookie.Value)
}

// ChooseLanguage makes the browser of c send the language with its requests. Without a language it sends none.
func ChooseLanguage(c echo.Context, l lang.Language) {
	cookie := &http.Cookie{Name: languageCookie, Value: string(l), Path: "/", MaxAge: 400 * 24 * 60 * 60, Secure: isSecure(c), HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if l == "" {
		cookie.MaxAge = -1
	}
	c.SetCookie(cookie)
}
