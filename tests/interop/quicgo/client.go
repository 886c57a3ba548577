package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// fetchAll runs the client of a case.
func fetchAll(ctx context.Context, o options, log io.Writer) error {
	roots, err := o.authority()
	if err != nil {
		return err
	}
	if len(o.requests) == 0 {
		return errors.New("REQUESTS is empty")
	}
	config := &tls.Config{
		RootCAs:            roots,
		ServerName:         "localhost",
		NextProtos:         []string{o.protocol()},
		KeyLogWriter:       log,
		ClientSessionCache: newCache(),
	}
	if isWeb(o.testCase) {
		return fetchWeb(o, config)
	}
	switch o.testCase {
	case "http3":
		return fetchHTTP3(o, config)
	case "datagram", "closecodes":
		return probeServer(ctx, o, config)
	case "multiconnect", "handshakeloss", "handshakecorruption":
		for _, request := range o.requests {
			if err := session(ctx, o, config, []string{request}, false); err != nil {
				return err
			}
		}
		return nil
	case "resumption", "zerortt":
		if err := session(ctx, o, config, o.requests[:1], false); err != nil {
			return err
		}
		return session(ctx, o, config, o.requests[1:], true)
	}
	return session(ctx, o, config, o.requests, false)
}

// cache signals the arrival of a ticket.
type cache struct {
	tls.ClientSessionCache
	stored chan struct{}
}

func newCache() *cache {
	return &cache{tls.NewLRUClientSessionCache(1), make(chan struct{}, 16)}
}

func (c *cache) Put(key string, state *tls.ClientSessionState) {
	c.ClientSessionCache.Put(key, state)
	select {
	case c.stored <- struct{}{}:
	default:
	}
}

// session is one connection with its files.
func session(ctx context.Context, o options, config *tls.Config, requests []string, resume bool) error {
	target, err := url.Parse(requests[0])
	if err != nil {
		return err
	}
	dial := quic.DialAddr
	if resume && o.testCase == "zerortt" {
		dial = quic.DialAddrEarly
	}
	if o.testCase == "migrate" {
		dial = dialWithIDs
	}
	connection, err := dial(ctx, target.Host, config, o.quicConfig())
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	defer connection.CloseWithError(0, "")
	results := make(chan error, len(requests))
	for _, request := range requests {
		go func() { results <- fetchFile(ctx, connection, request, o.downloads) }()
	}
	if o.testCase == "migrate" {
		if err := migrate(ctx, connection); err != nil {
			return fmt.Errorf("migration: %w", err)
		}
	}
	for range requests {
		if err := <-results; err != nil {
			return err
		}
	}
	<-connection.HandshakeComplete()
	state := connection.ConnectionState()
	if resume && !state.TLS.DidResume {
		return errors.New("the second connection was not resumed")
	}
	if resume && o.testCase == "zerortt" && !state.Used0RTT {
		return errors.New("the server did not accept 0-RTT")
	}
	if o.testCase == "resumption" || o.testCase == "zerortt" {
		select {
		case <-config.ClientSessionCache.(*cache).stored:
		case <-time.After(10 * time.Second):
			if !resume {
				return errors.New("the server gave no session ticket")
			}
		}
	}
	return nil
}

// socket returns a transport whose connections have IDs of their own: without them quic-go cannot
// assign packets at a second socket to a connection.
func socket() (*quic.Transport, error) {
	bound, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	return &quic.Transport{Conn: bound, ConnectionIDLength: 8}, nil
}

func dialWithIDs(ctx context.Context, address string, tls *tls.Config, config *quic.Config) (*quic.Conn, error) {
	target, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	transport, err := socket()
	if err != nil {
		return nil, err
	}
	return transport.Dial(ctx, target, tls, config)
}

// migrate moves the connection to another socket, once the server has responded there.
func migrate(ctx context.Context, connection *quic.Conn) error {
 // The handshake has to be confirmed, and connection IDs have to be available.
	time.Sleep(200 * time.Millisecond)
	transport, err := socket()
	if err != nil {
		return err
	}
	way, err := connection.AddPath(transport)
	if err != nil {
		return err
	}
	if err := way.Probe(ctx); err != nil {
		return err
	}
	return way.Switch()
}

func fetchFile(ctx context.Context, connection *quic.Conn, request, downloads string) error {
	target, err := url.Parse(request)
	if err != nil {
		return err
	}
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stream, "GET %s\r\n", target.Path); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	return save(stream, target, downloads)
}

func save(body io.Reader, target *url.URL, downloads string) error {
	file, err := os.Create(filepath.Join(downloads, path.Base(target.Path)))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, body)
	return err
}

func fetchHTTP3(o options, config *tls.Config) error {
	transport := &http3.Transport{TLSClientConfig: config, QUICConfig: o.quicConfig()}
	defer transport.Close()
	client := &http.Client{Transport: transport}
	for _, request := range o.requests {
		target, err := url.Parse(request)
		if err != nil {
			return err
		}
		response, err := client.Get(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK || response.Proto != "HTTP/3.0" {
			return fmt.Errorf("%s: %s %s", request, response.Proto, response.Status)
		}
		err = save(response.Body, target, o.downloads)
		response.Body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// The constants of tests/interop/peers/probe.py.
const (
	datagrams     = 100
	datagramBytes = 1000
	codeReset     = 0x2a
	codeStop      = 0x3fff
	codeClose     = 0x1234567
)

func probeServer(ctx context.Context, o options, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	target, err := url.Parse(o.requests[0])
	if err != nil {
		return err
	}
	connection, err := quic.DialAddr(ctx, target.Host, config, o.quicConfig())
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	defer connection.CloseWithError(0, "")
	if o.testCase == "datagram" {
		return probeDatagrams(ctx, connection)
	}
	return probeCodes(ctx, connection)
}

func probeDatagrams(ctx context.Context, connection *quic.Conn) error {
	for number := range datagrams {
		sent := make([]byte, datagramBytes)
		binary.BigEndian.PutUint32(sent, uint32(number))
		if err := connection.SendDatagram(sent); err != nil {
			return err
		}
		received, err := connection.ReceiveDatagram(ctx)
		if err != nil {
			return fmt.Errorf("datagram %d: %w", number, err)
		}
		if !bytes.Equal(received, sent) {
			return fmt.Errorf("datagram %d came back changed", number)
		}
	}
	return nil
}

func probeCodes(ctx context.Context, connection *quic.Conn) error {
	stream, err := order(ctx, connection, fmt.Sprintf("RESET %d", codeReset))
	if err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	var streamError *quic.StreamError
	if _, err := io.ReadAll(stream); !errors.As(err, &streamError) || streamError.ErrorCode != codeReset {
		return fmt.Errorf("RESET_STREAM: %w", err)
	}
	if stream, err = order(ctx, connection, fmt.Sprintf("STOP %d\n", codeStop)); err != nil {
		return err
	}
	<-stream.Context().Done()
	if err := context.Cause(stream.Context()); !errors.As(err, &streamError) || streamError.ErrorCode != codeStop {
		return fmt.Errorf("STOP_SENDING: %w", err)
	}
	if stream, err = order(ctx, connection, fmt.Sprintf("CLOSE %d", codeClose)); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	<-connection.Context().Done()
	var closed *quic.ApplicationError
	err = context.Cause(connection.Context())
	if !errors.As(err, &closed) || closed.ErrorCode != codeClose || closed.ErrorMessage != "as asked" {
		return fmt.Errorf("CONNECTION_CLOSE: %w", err)
	}
	return nil
}

func order(ctx context.Context, connection *quic.Conn, line string) (*quic.Stream, error) {
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(stream, line)
	return stream, err
}
