// Command webtransportgo is a WebTransport server on webtransport-go for the browser tests. The
// table in tests/browser/servers/__init__.py lists its behaviour by path.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"
)

func main() {
	certificate := flag.String("certificate", "", "PEM file of the certificate")
	key := flag.String("key", "", "PEM file of its key")
	port := flag.Int("port", 0, "UDP port")
	flag.Parse()
	if err := run(*certificate, *key, *port); err != nil {
		fmt.Fprintln(os.Stderr, "webtransportgo:", err)
		os.Exit(1)
	}
}

func run(certificate, key string, port int) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return err
	}
	configuration := http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}})
	server := &webtransport.Server{
		H3:          &http3.Server{TLSConfig: configuration},
		CheckOrigin: func(*http.Request) bool { return true },
	}
	server.H3.Handler = routes(server)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(socket) }()
	tell(map[string]any{"port": socket.LocalAddr().(*net.UDPAddr).Port})
	select {
	case err := <-ended:
		return err
	case <-asked:
		return server.Close()
	}
}

var telling sync.Mutex

func tell(what map[string]any) {
	telling.Lock()
	defer telling.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(what)
}

type handler func(ctx context.Context, session *webtransport.Session, request *http.Request)

func routes(server *webtransport.Server) http.Handler {
	mux := http.NewServeMux()
	for path, handle := range map[string]handler{
		"/echo": echo, "/opens": opens, "/lengths": lengths, "/headers": headers, "/cookie": echo,
		"/close": closes, "/stops": stops, "/resets": resets, "/record": record,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if path == "/cookie" {
				w.Header().Set("set-cookie", "foo=bar")
			}
			session, err := server.Upgrade(w, r)
			if err != nil {
				fmt.Fprintln(os.Stderr, "webtransportgo:", err)
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			handle(session.Context(), session, r)
			<-session.Context().Done()
		})
	}
	mux.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(number(r, "status"))
	})
	return mux
}

func number(request *http.Request, name string) int {
	var value int
	_, _ = fmt.Sscan(request.URL.Query().Get(name), &value)
	return value
}
