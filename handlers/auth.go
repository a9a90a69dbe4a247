package handlers

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"
)

// With an API key, every route asks for it but these: probes, the page's own
// files, and what has a token of its own. Programs send the key as a bearer token or as X-Api-Key;
// a browser exchanges it at /login for a cookie.
var publicRoutes = map[string]bool{
	"/health":   true,
	"/login":    true,
	"/s/:token": true,
	"/static/*": true,
}

// sessionLife is how long a browser is remembered.
const sessionLife = 30 * 24 * time.Hour

// keyring checks credentials. Sessions are signed rather than stored: a new key
// ends them all.
type keyring struct {
	key      [sha256.Size]byte // digest of the API key
	signing  []byte
	cookie   string
	attempts attempts
	now      func() time.Time
}

// newKeyring returns nil if there is no key: then everybody may come in.
func newKeyring(key string) *keyring {
	if key == "" {
		return nil
	}
	signing := sha256.Sum256([]byte("m40-llm session\x00" + key))
	name := sha256.Sum256(signing[:])
	return &keyring{
		key:     sha256.Sum256([]byte(key)),
		signing: signing[:],
		cookie:  "m40_" + hex.EncodeToString(name[:4]), // several servers of one host share a cookie jar
		now:     time.Now,
	}
}

// opens compares digests, so that the time taken tells nothing about the key.
func (k *keyring) opens(key string) bool {
	digest := sha256.Sum256([]byte(key))
	return subtle.ConstantTimeCompare(digest[:], k.key[:]) == 1
}

// session returns the value of a new session's cookie.
func (k *keyring) session() string {
	return k.sign(strconv.FormatInt(k.now().Add(sessionLife).Unix(), 10))
}

func (k *keyring) sign(expiry string) string {
	mac := hmac.New(sha256.New, k.signing)
	mac.Write([]byte(expiry))
	return expiry + "." + hex.EncodeToString(mac.Sum(nil))
}

func (k *keyring) validSession(value string) bool {
	expiry, _, _ := strings.Cut(value, ".")
	if !hmac.Equal([]byte(k.sign(expiry)), []byte(value)) {
		return false
	}
	seconds, err := strconv.ParseInt(expiry, 10, 64)
	return err == nil && k.now().Unix() < seconds
}

// attempts slows down whoever guesses keys.
type attempts struct {
	mu     sync.Mutex
	failed map[netip.Addr]*rate.Limiter
}

const (
	attemptsAtOnce   = 5
	attemptEvery     = 12 * time.Second
	attemptAddresses = 4096 // remembered
)

func (a *attempts) limiter(client string) *rate.Limiter {
	ip, _ := netip.ParseAddr(client)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil || len(a.failed) >= attemptAddresses {
		a.failed = map[netip.Addr]*rate.Limiter{}
	}
	l := a.failed[ip]
	if l == nil {
		l = rate.NewLimiter(rate.Every(attemptEvery), attemptsAtOnce)
		a.failed[ip] = l
	}
	return l
}

// try checks a key that client sent. Only wrong keys count against the client.
func (k *keyring) try(client, key string) error {
	l := k.attempts.limiter(client)
	if l.TokensAt(k.now()) < 1 {
		return &httpError{status: http.StatusTooManyRequests, code: "too_many_attempts", final: true,
			message: fmt.Sprintf("too many wrong API keys; wait %v", attemptEvery)}
	}
	if !k.opens(key) {
		l.AllowN(k.now(), 1)
		return httpErrorf(http.StatusUnauthorized, "invalid_api_key", "the API key is wrong")
	}
	return nil
}

// checkKey lets in who has the key.
func (h *Handlers) checkKey(next echo.HandlerFunc) echo.HandlerFunc {
	if h.keys == nil {
		return next
	}
	return func(c echo.Context) error {
		if publicRoutes[c.Path()] {
			return next(c)
		}
		if err := h.authenticate(c); err != nil {
			return h.refuse(c, err)
		}
		return next(c)
	}
}

// authenticate looks at one credential: the bearer token, or else X-Api-Key, as some clients
// send it, or else the session.
func (h *Handlers) authenticate(c echo.Context) error {
	header := c.Request().Header
	given, keys := header.Values(echo.HeaderAuthorization), header.Values("X-Api-Key")
	switch {
	case len(given) > 1 || len(keys) > 1:
		return httpErrorf(http.StatusBadRequest, "several_credentials", "the request has several Authorization or X-Api-Key headers")
	case len(given) == 1:
		scheme, key, _ := strings.Cut(given[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return httpErrorf(http.StatusUnauthorized, "invalid_api_key", "send the API key as \"Authorization: Bearer KEY\"")
		}
		return h.keys.try(c.RealIP(), strings.TrimSpace(key))
	case len(keys) == 1:
		return h.keys.try(c.RealIP(), strings.TrimSpace(keys[0]))
	}
	if cookie, err := c.Cookie(h.keys.cookieName(c)); err == nil && h.keys.validSession(cookie.Value) {
		return nil
	}
	return httpErrorf(http.StatusUnauthorized, "missing_api_key", "this server asks for an API key: send it as \"Authorization: Bearer KEY\", or log in at /login")
}

// refuse sends people to the login page and programs away.
func (h *Handlers) refuse(c echo.Context, err error) error {
	r := c.Request()
	if asksForPage(r) && r.Method == http.MethodGet && !isWebSocket(r) && describe(err).Status == http.StatusUnauthorized {
		return c.Redirect(http.StatusSeeOther, "/login")
	}
	c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
	return err
}

// cookieName has the prefix that binds a cookie to this host, where browsers
// honour it.
func (k *keyring) cookieName(c echo.Context) string {
	if c.Request().TLS != nil {
		return "__Host-" + k.cookie
	}
	return k.cookie
}

// login answers GET /login with a form.
func (h *Handlers) login(c echo.Context) error {
	if h.keys == nil {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	return loginPage(c, http.StatusOK, "")
}

// submitLogin answers POST /login.
func (h *Handlers) submitLogin(c echo.Context) error {
	if h.keys == nil {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	if err := c.Request().ParseForm(); err != nil {
		return err
	}
	if err := h.keys.try(c.RealIP(), c.Request().PostForm.Get("key")); err != nil {
		f := describe(err)
		return loginPage(c, f.Status, f.Message)
	}
	c.SetCookie(&http.Cookie{
		Name:     h.keys.cookieName(c),
		Value:    h.keys.session(),
		Path:     "/",
		MaxAge:   int(sessionLife.Seconds()),
		Secure:   c.Request().TLS != nil,
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
	return c.Redirect(http.StatusSeeOther, "/")
}
