package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

func trusting(ca string, protocols ...string) (*tls.Config, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", ca)
	}
	return &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: protocols}, nil
}

// echo sends every stream's pattern at once and compares what comes back.
func echo(ctx context.Context, port int, ca string) error {
	config, err := trusting(ca, "echo")
	if err != nil {
		return err
	}
	connection, err := quic.DialAddr(ctx, fmt.Sprintf("127.0.0.1:%d", port), config, nil)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	defer connection.CloseWithError(0, "done")
	results := make(chan error, streams)
	for number := range streams {
		go func() { results <- echoOne(ctx, connection, number) }()
	}
	for range streams {
		if err := <-results; err != nil {
			return err
		}
	}
	fmt.Println("OK", streams, "streams of", streamBytes, "bytes each way")
	return nil
}

func echoOne(ctx context.Context, connection *quic.Conn, number int) error {
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	sent := pattern(number)
	written := make(chan error, 1)
	go func() {
		if _, err := stream.Write(sent); err != nil {
			written <- err
			return
		}
		written <- stream.Close()
	}()
	received, err := io.ReadAll(stream)
	if err != nil {
		return fmt.Errorf("stream %d: %w", number, err)
	}
	if err := <-written; err != nil {
		return fmt.Errorf("stream %d: %w", number, err)
	}
	if !bytes.Equal(received, sent) {
		return fmt.Errorf("stream %d: %d bytes came back, not the %d sent", number, len(received), len(sent))
	}
	return nil
}

// get asks for the greeting, then posts a pattern and compares the answer.
func get(ctx context.Context, port int, ca string) error {
	config, err := trusting(ca, http3.NextProtoH3)
	if err != nil {
		return err
	}
	transport := &http3.Transport{TLSClientConfig: config}
	defer transport.Close()
	client := &http.Client{Transport: transport}
	base := fmt.Sprintf("https://127.0.0.1:%d", port)
	answer, err := fetch(ctx, client, http.MethodGet, base+"/", nil)
	if err != nil {
		return err
	}
	if string(answer) != greeting {
		return fmt.Errorf("GET / answered %q", answer)
	}
	sent := pattern(0)
	answer, err = fetch(ctx, client, http.MethodPost, base+"/echo", sent)
	if err != nil {
		return err
	}
	if !bytes.Equal(answer, sent) {
		return fmt.Errorf("POST /echo answered %d bytes, not the %d sent", len(answer), len(sent))
	}
	fmt.Println("OK GET and POST over", http3.NextProtoH3)
	return nil
}

func fetch(ctx context.Context, client *http.Client, method, url string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.Proto != "HTTP/3.0" {
		return nil, fmt.Errorf("%s %s: %s %s", method, url, response.Proto, response.Status)
	}
	return io.ReadAll(response.Body)
}
