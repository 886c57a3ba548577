package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// serve answers on a free port until ctx ends.
func serve(ctx context.Context, cert, key string) error {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"echo", http3.NextProtoH3},
		MinVersion:   tls.VersionTLS13,
	}
	listener, err := quic.ListenAddr("127.0.0.1:0", config, nil)
	if err != nil {
		return err
	}
	defer listener.Close()
	fmt.Println("READY", listener.Addr().(*net.UDPAddr).Port)
	web := &http3.Server{Handler: handler()}
	for {
		connection, err := listener.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if connection.ConnectionState().TLS.NegotiatedProtocol == "echo" {
			go echoStreams(connection)
			continue
		}
		go func() {
			// The client's close ends it; only what is unexpected is told.
			if err := web.ServeQUICConn(connection); err != nil {
				fmt.Fprintln(os.Stderr, "http3:", err)
			}
		}()
	}
}

func echoStreams(connection *quic.Conn) {
	for {
		stream, err := connection.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go func() {
			if _, err := io.Copy(stream, stream); err != nil {
				fmt.Fprintln(os.Stderr, "echo:", err)
				stream.CancelWrite(1)
				return
			}
			stream.Close()
		}()
	}
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, greeting)
	})
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	})
	return mux
}
