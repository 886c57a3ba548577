// Command webtransportgo is webtransport-go as an endpoint of the interoperability tests: it
// implements both ends of tests/interop/webtransport.
//
// webtransportgo server --certs DIR --host HOST --port PORT    prints READY <port>, ends on SIGTERM
// webtransportgo client --certs DIR                            plays $TESTCASE with the server of
// $REQUESTS
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

const probePath = "/probe"

type options struct {
	certs, host string
	port        int
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "webtransportgo:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("server or client?")
	}
	o, unused := options{}, ""
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&o.certs, "certs", "/certs", "cert.pem, priv.key, ca.pem")
	flags.StringVar(&o.host, "host", "::", "the server's address")
	flags.IntVar(&o.port, "port", 443, "the server's port")
	flags.StringVar(&unused, "www", "", "not used")
	flags.StringVar(&unused, "downloads", "", "not used")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "server" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return serve(ctx, o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	target, err := url.Parse(strings.Fields(os.Getenv("REQUESTS"))[0])
	if err != nil {
		return err
	}
	return play(ctx, o, target.Host)
}

func quicConfig() *quic.Config {
	return &quic.Config{EnableDatagrams: true, EnableStreamResetPartialDelivery: true}
}

func (o options) identity() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(o.certs, "cert.pem"), filepath.Join(o.certs, "priv.key"))
	return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h3"}}, err
}

func (o options) trust() (*tls.Config, error) {
	pem, err := os.ReadFile(filepath.Join(o.certs, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("ca.pem holds no certificate")
	}
	return &tls.Config{RootCAs: roots, NextProtos: []string{"h3"}}, nil
}
