package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/quic-go/quic-go/http3"
)

// The constants of tests/interop/web/application.py, and the cases of its clients.
const (
	link    = "</style.css>; rel=preload"
	trailer = "X-Checked"
)

func isWeb(testCase string) bool { return strings.HasPrefix(testCase, "web-") }

// site is the handler of the server of these cases.
func site(www string) http.Handler {
	files := http.FileServer(http.Dir(www))
	mux := http.NewServeMux()
	mux.HandleFunc("/hinted", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", link)
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "hinted")
	})
	mux.HandleFunc("/trailed", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", trailer)
		io.WriteString(w, "trailed")
		w.Header().Set(trailer, "yes")
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Write(make([]byte, 500))
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			io.Copy(w, r.Body)
			return
		}
		files.ServeHTTP(w, r)
	})
	return mux
}

// serveTCP advertises over TCP that HTTP/3 is at this port.
func serveTCP(host string, port int, config *tls.Config, handler http.Handler) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		return err
	}
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	field := fmt.Sprintf(`h3=":%d"; ma=60`, port)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", field)
		handler.ServeHTTP(w, r)
	})}
	go server.Serve(tls.NewListener(listener, config))
	return nil
}

// fetchWeb runs the client of a case.
func fetchWeb(o options, config *tls.Config) error {
	config.NextProtos = nil
	base, err := url.Parse(o.requests[0])
	if err != nil {
		return err
	}
	switch o.testCase {
	case "web-get":
		return visit(o, config, func(client *http.Client) error {
			return fetchEach(client, http.MethodGet, o.requests, o)
		})
	case "web-post":
		return visit(o, config, func(client *http.Client) error { return postEach(client, o) })
	case "web-resumption", "web-zerortt":
		return fetchTwice(o, config)
	case "web-goaway":
		return visit(o, config, func(client *http.Client) error {
			held := base.JoinPath("..", "held", base.Path)
			return fetchEach(client, http.MethodGet, []string{held.String()}, o)
		})
	case "web-trailers":
		return visit(o, config, func(client *http.Client) error {
			return checkTrailers(client, base.JoinPath("..", "trailed").String())
		})
	case "web-hints":
		return visit(o, config, func(client *http.Client) error {
			return checkHints(client, base.JoinPath("..", "hinted").String())
		})
	}
	return fmt.Errorf("%w: %s", errUnsupported, o.testCase)
}

// visit runs one connection.
func visit(o options, config *tls.Config, work func(*http.Client) error) error {
	transport := &http3.Transport{TLSClientConfig: config, QUICConfig: o.quicConfig()}
	defer transport.Close()
	return work(&http.Client{Transport: transport})
}

func fetchTwice(o options, config *tls.Config) error {
	err := visit(o, config, func(client *http.Client) error {
		if err := fetchEach(client, http.MethodGet, o.requests[:1], o); err != nil {
			return err
		}
		select {
		case <-config.ClientSessionCache.(*cache).stored:
			return nil
		case <-time.After(10 * time.Second):
			return errors.New("the server gave no session ticket")
		}
	})
	if err != nil {
		return err
	}
	method := http.MethodGet
	if o.testCase == "web-zerortt" {
		method = http3.MethodGet0RTT
	}
	return visit(o, config, func(client *http.Client) error {
		return fetchEach(client, method, o.requests[1:], o)
	})
}

func fetchEach(client *http.Client, method string, requests []string, o options) error {
	for _, request := range requests {
		asked, err := http.NewRequest(method, request, nil)
		if err != nil {
			return err
		}
		if err := keep(client, asked, o); err != nil {
			return err
		}
	}
	return nil
}

func postEach(client *http.Client, o options) error {
	for _, request := range o.requests {
		content, err := os.Open(filepath.Join(os.Getenv("UPLOADS"), path.Base(request)))
		if err != nil {
			return err
		}
		defer content.Close()
		asked, err := http.NewRequest(http.MethodPost, request, content)
		if err != nil {
			return err
		}
		if err := keep(client, asked, o); err != nil {
			return err
		}
	}
	return nil
}

func keep(client *http.Client, asked *http.Request, o options) error {
	response, err := client.Do(asked)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.Proto != "HTTP/3.0" {
		return fmt.Errorf("%s: %s %s", asked.URL, response.Proto, response.Status)
	}
	return save(response.Body, asked.URL, o.downloads)
}

func checkTrailers(client *http.Client, address string) error {
	response, err := client.Get(address)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if string(content) != "trailed" || response.Trailer.Get(trailer) != "yes" {
		return fmt.Errorf("trailers: %q, %v", content, response.Trailer)
	}
	return nil
}

func checkHints(client *http.Client, address string) error {
	asked, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	hinted := ""
	trace := &httptrace.ClientTrace{Got1xxResponse: func(status int, fields textproto.MIMEHeader) error {
		hinted += fmt.Sprint(status, " ", fields.Get("Link"))
		return nil
	}}
	response, err := client.Do(asked.WithContext(httptrace.WithClientTrace(asked.Context(), trace)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if string(content) != "hinted" || hinted != "103 "+link {
		return fmt.Errorf("hints: %q, %q", content, hinted)
	}
	return nil
}
