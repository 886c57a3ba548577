// Command quicgo is quic-go as the interoperability tests' peer: a server and a client that speak
// "echo" (streams sent back) and "h3" (HTTP/3) on one port.
//
//	quicgo server --cert CERT --key KEY            prints READY <port>, runs until SIGTERM
//	quicgo client --port PORT --ca CERT --mode M   M is echo or get; status 0 when every byte is right
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Shared by both roles and by the Python peers.
const (
	streams     = 20
	streamBytes = 1 << 20
	greeting    = "hello over HTTP/3\n"
	timeLimit   = 60 * time.Second
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "quicgo:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("server or client?")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	cert := flags.String("cert", "", "certificate chain, PEM")
	key := flags.String("key", "", "private key, PEM")
	ca := flags.String("ca", "", "trusted certificate, PEM")
	port := flags.Int("port", 0, "the server's port on 127.0.0.1")
	mode := flags.String("mode", "echo", "echo or get")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "server":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return serve(ctx, *cert, *key)
	case "client":
		ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
		defer cancel()
		if *mode == "get" {
			return get(ctx, *port, *ca)
		}
		return echo(ctx, *port, *ca)
	}
	return fmt.Errorf("no such role: %s", args[0])
}

// pattern is the content of one stream: different for each, known to both ends.
func pattern(stream int) []byte {
	data := make([]byte, streamBytes)
	state := uint32(stream + 1)
	for i := range data {
		state = state*1664525 + 1013904223
		data[i] = byte(state >> 24)
	}
	return data
}
