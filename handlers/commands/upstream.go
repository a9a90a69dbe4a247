package commands

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"m40-llm/handlers/cli"
	"m40-llm/infer/readtext"
	"m40-llm/infer/upstream"
)

// upstreamKeyEnv is the environment variable with the key of the only upstream.
const upstreamKeyEnv = "M40_LLM_UPSTREAM_KEY"

// maxKeys bounds the file of --upstream-keys, in bytes.
const maxKeys = 1 << 20

// withUpstreams returns an engine that passes requests for models of servers to these.
func withUpstreams(local closableEngine, servers []upstream.Address, logger *slog.Logger, log io.Writer) *upstream.Router {
	for _, a := range servers {
		if a.Key != "" && !a.Private() {
			logger.Warn("the key of an upstream is sent without encryption; give its address with https", "upstream", a.Host)
		}
	}
	return upstream.New(upstream.Options{
		Local: local, Servers: servers, Log: logger, Version: version,
		Notice: func(line string) { fmt.Fprintf(log, "m40-llm: upstream %s\n", line) },
	})
}

// remoteModel returns the model and the host that --model names as NAME@HOST, if HOST is one of servers, or
// "upstream" for any of them; else two empty strings.
func (f serveFlags) remoteModel(servers []upstream.Address) (id, host string) {
	at := strings.LastIndexByte(*f.model, '@')
	if at <= 0 {
		return "", ""
	}
	id, host = (*f.model)[:at], (*f.model)[at+1:]
	if len(servers) > 0 && host == "upstream" || slices.ContainsFunc(servers, func(a upstream.Address) bool { return a.Host == host }) {
		return id, host
	}
	return "", ""
}

// addresses returns the upstreams with their keys.
func (f serveFlags) addresses(t *cli.Terminal) ([]upstream.Address, error) {
	var list []upstream.Address
	for _, text := range *f.upstreams {
		a, err := upstream.ParseAddress(text)
		if err != nil {
			return nil, cli.Usagef("--upstream: %v", err)
		}
		if slices.ContainsFunc(list, func(other upstream.Address) bool { return other.Base == a.Base }) {
			return nil, cli.Usagef("--upstream %s was given twice", a.Base)
		}
		list = append(list, a)
	}
	keys, err := f.readUpstreamKeys()
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Key = keys[list[i].Base]
		delete(keys, list[i].Base)
	}
	for base := range keys {
		return nil, cli.Usagef("--upstream-keys has a key of %s, which is no --upstream", base)
	}
	if key := t.Env(upstreamKeyEnv); key != "" {
		if len(list) != 1 {
			return nil, cli.Usagef("%s is the key of one upstream, and there are %d: use --upstream-keys", upstreamKeyEnv, len(list))
		}
		list[0].Key = key
	}
	return list, nil
}

// readUpstreamKeys reads the file of --upstream-keys.
func (f serveFlags) readUpstreamKeys() (map[string]string, error) {
	if *f.upstreamKeys == "" {
		return nil, nil
	}
	text, err := readtext.File(*f.upstreamKeys, maxKeys)
	if err != nil {
		return nil, cli.Usagef("--upstream-keys: %v", err)
	}
	keys, err := upstream.ParseKeys(text)
	if err != nil {
		return nil, cli.Usagef("--upstream-keys %s: %v", *f.upstreamKeys, err)
	}
	return keys, nil
}
