/*
 * Echo over TCP as a C programmer would write it: the limit that the loops' echo tables are held against.
 *
 * Level-triggered epoll, one thread, one buffer for all connections that stays warm in the cache. What is
 * read is written at once; only where the socket takes less is the rest kept, and EPOLLOUT waited for in
 * EPOLLIN's place, so that a client that does not read is not read from either. Not here: TLS, UDP.
 *
 * Prints `READY <port>` once it listens on a free port of 127.0.0.1; SIGTERM ends it.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room for the largest message of the tables: two reads for one would be no limit. */
#define BUFFER (128 * 1024)
#define EVENTS 256
#define BACKLOG 1024

struct connection {
    int fd;
    char *rest; /* what the socket did not take, or NULL */
    size_t sent, length;
};

static char buffer[BUFFER];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int listen_on_free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, BACKLOG) < 0
        || getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        fail("c_epoll: cannot listen");
    printf("READY %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void wait_for(int epoll, int operation, struct connection *connection, unsigned events) {
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(epoll, operation, connection->fd, &event) < 0)
        fail("c_epoll: epoll_ctl");
}

static void accept_all(int epoll, int listener) {
    int one = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *connection = calloc(1, sizeof *connection);
        if (connection == NULL)
            fail("c_epoll: calloc");
        connection->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        wait_for(epoll, EPOLL_CTL_ADD, connection, EPOLLIN);
    }
    if (errno != EAGAIN)
        fail("c_epoll: accept4");
}

static void drop(struct connection *connection) {
    close(connection->fd); /* which leaves the epoll set as well */
    free(connection->rest);
    free(connection);
}

/* The bytes taken, or -1 where the connection is broken. */
static ssize_t write_some(int fd, const char *data, size_t length) {
    ssize_t taken = send(fd, data, length, MSG_NOSIGNAL);
    return taken < 0 && errno == EAGAIN ? 0 : taken;
}

/* 0, or -1 where the connection is over. */
static int echo(int epoll, struct connection *connection) {
    ssize_t length = recv(connection->fd, buffer, sizeof buffer, 0);
    if (length < 0 && errno == EAGAIN)
        return 0;
    if (length <= 0)
        return -1;
    ssize_t taken = write_some(connection->fd, buffer, (size_t)length);
    if (taken < 0)
        return -1;
    if (taken < length) {
        connection->sent = 0;
        connection->length = (size_t)(length - taken);
        connection->rest = malloc(connection->length);
        if (connection->rest == NULL)
            fail("c_epoll: malloc");
        memcpy(connection->rest, buffer + taken, connection->length);
        wait_for(epoll, EPOLL_CTL_MOD, connection, EPOLLOUT);
    }
    return 0;
}

/* 0, or -1 where the connection is over. */
static int write_rest(int epoll, struct connection *connection) {
    ssize_t taken = write_some(connection->fd, connection->rest + connection->sent,
                               connection->length - connection->sent);
    if (taken < 0)
        return -1;
    connection->sent += (size_t)taken;
    if (connection->sent == connection->length) {
        free(connection->rest);
        connection->rest = NULL;
        wait_for(epoll, EPOLL_CTL_MOD, connection, EPOLLIN);
    }
    return 0;
}

int main(void) {
    struct epoll_event events[EVENTS];
    int listener = listen_on_free_port();
    int epoll = epoll_create1(0);
    struct connection listening = {.fd = listener};
    if (epoll < 0)
        fail("c_epoll: epoll_create1");
    wait_for(epoll, EPOLL_CTL_ADD, &listening, EPOLLIN);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            fail("c_epoll: epoll_wait");
        for (int index = 0; index < count; index++) {
            struct connection *connection = events[index].data.ptr;
            if (connection == &listening)
                accept_all(epoll, listener);
            else if ((connection->rest ? write_rest : echo)(epoll, connection) < 0)
                drop(connection);
        }
    }
}
