package browser

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
)

func TestThePageWorksUnderAPathOfAReverseProxy(t *testing.T) {
	t.Parallel()
	server := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t), func(c *handlers.Config) { c.BasePath = "/llm" })
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/llm/") {
			http.Error(w, "another program", http.StatusNotFound)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	b := openBrowser(t, proxy)
	b.open("/llm/")
	b.say("hello")
	b.until(idle)
	b.until("location.pathname.startsWith('/llm/c/') && document.querySelectorAll('.answer').length === 1")
	b.open(b.value("location.pathname"))
	b.until("document.querySelectorAll('.answer').length === 1")
	b.click("[data-tokens]:not([hidden])")
	b.until("document.querySelector('.tok')")
	b.clean()
	b.do(chromedp.Navigate(b.origin+"/llm/models"), chromedp.WaitReady("#models"))
	b.until("[...document.querySelectorAll('a[href]')].every(a => a.getAttribute('href').startsWith('#') || new URL(a.href).pathname.startsWith('/llm'))")
	b.do(chromedp.Navigate(b.origin+"/llm/presets"), chromedp.WaitReady("#presets, .presets, main"))
}
