package handlers

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"m40-llm/handlers/gate"
)

// NewServer returns an HTTP server with the time and size limits that suit
// handler. There is no limit on a whole response: answers take as long as they
// take, and the gate watches each write.
func NewServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:                      handler,
		ReadHeaderTimeout:            5 * time.Second,
		IdleTimeout:                  2 * time.Minute,
		MaxHeaderBytes:               gate.MaxHeader,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" passes the same checks as everything else
		ErrorLog:                     slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// LimitListener bounds the connections that l has open, and encrypts them, as gate.Limit does.
func LimitListener(l net.Listener, trusted []netip.Prefix, encryption *tls.Config) net.Listener {
	return gate.Limit(l, trusted, encryption)
}
