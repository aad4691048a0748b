/* The engine of the benchmarks: one thread, epoll, next to no work of its own.
 *
 *   engine PORT GAP_US TOKENS
 *
 * Any POST is answered with a server-sent stream: a role event, TOKENS token events GAP_US microseconds apart, a finish
 * event, a usage event if the body asks for `"include_usage":true`, and `data: [DONE]`. Each event is a chunk of its
 * own; what is due at once leaves in one write. GAP_US 0 sends the whole answer at once. Any GET is answered with
 * {"status":"ok"}. PORT 0 takes a free port; "listening PORT" is printed. Requests need a Content-Length (or no body).
 * It listens on loopback only and ends with SIGTERM.
 *
 * All answers are the same bytes, so a stream is two numbers: bytes sent, and events due. All gaps are the same, so a
 * stream that had its turn goes to the end of the queue. The first gap of a stream is a fraction of the others, another
 * one each time: clients begin together and end together, and a gateway that kept them in step would find their tokens
 * in heaps, one that did not would be woken for every token.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FD = 16384, MAX_TOKENS = 4096, REQUEST_BYTES = 65536, MAX_EVENTS = 512, EVENT_BYTES = 320 };

struct answer {
    char *bytes;
    size_t *due;      /* due[k]: bytes that may be out after k gaps */
    size_t size;
};

struct conn {
    int open, streaming;
    struct answer *answer;
    size_t sent;
    int step;                    /* gaps that have passed */
    int64_t next_ns;             /* when the next gap ends */
    int before, after;           /* neighbours in the queue, 0 is none */
    size_t have;
    char *in;
};

static struct conn conns[MAX_FD];
static struct answer plain, with_usage;
static int queue_first, queue_last, epoll_fd, timer_fd, steps;
static int64_t gap_ns;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void add_chunk(struct answer *a, const char *event) {
    a->size += (size_t)sprintf(a->bytes + a->size, "%zx\r\n%s\r\n", strlen(event), event);
}

static const char frame[] = "{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\","
                            "\"created\":1700000000,\"model\":\"bench\",\"choices\":[";

static void build(struct answer *a, int tokens, int usage) {
    char event[EVENT_BYTES];
    a->bytes = malloc((size_t)(tokens + 8) * (EVENT_BYTES + 16));
    a->due = malloc((size_t)(tokens + 2) * sizeof *a->due);
    if (!a->bytes || !a->due) fail("malloc");
    a->size = (size_t)sprintf(a->bytes, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                        "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n");
    snprintf(event, sizeof event, "data: %s{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                                  "\"finish_reason\":null}]}\n\n", frame);
    add_chunk(a, event);
    for (int i = 0; i < tokens; i++) {
        snprintf(event, sizeof event, "data: %s{\"index\":0,\"delta\":{\"content\":\" tok%03d\"},"
                                      "\"finish_reason\":null}]}\n\n", frame, i % 1000);
        add_chunk(a, event);
        a->due[i] = a->size;
    }
    snprintf(event, sizeof event, "data: %s{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n", frame);
    add_chunk(a, event);
    if (usage) {
        snprintf(event, sizeof event, "data: %s],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":%d,"
                                      "\"total_tokens\":%d}}\n\n", frame, tokens, tokens + 12);
        add_chunk(a, event);
    }
    add_chunk(a, "data: [DONE]\n\n");
    a->size += (size_t)sprintf(a->bytes + a->size, "0\r\n\r\n");
    a->due[tokens - 1] = a->size;
}

static void leave_queue(int fd) {
    struct conn *c = &conns[fd];
    if (c->before) conns[c->before].after = c->after; else if (queue_first == fd) queue_first = c->after;
    if (c->after) conns[c->after].before = c->before; else if (queue_last == fd) queue_last = c->before;
    c->before = c->after = 0;
}

/* Behind all that are due before it: at the end, unless this is its first gap. */
static void join_queue(int fd) {
    struct conn *c = &conns[fd];
    int before = queue_last;
    while (before && conns[before].next_ns > c->next_ns) before = conns[before].before;
    c->before = before;
    c->after = before ? conns[before].after : queue_first;
    if (before) conns[before].after = fd; else queue_first = fd;
    if (c->after) conns[c->after].before = fd; else queue_last = fd;
}

/* A first gap: fractions that follow each other by the golden section fill the whole of it evenly. */
static int64_t first_gap(void) {
    static uint32_t turn;
    turn += 2654435769u;
    return (int64_t)((double)gap_ns * (turn / 4294967296.0)) + 1;
}

static void drop(int fd) {
    struct conn *c = &conns[fd];
    if (c->streaming) leave_queue(fd);
    free(c->in);
    memset(c, 0, sizeof *c);
    close(fd);
}

static void serve_next(int fd);

/* Send what is due; what the socket does not take goes with the next gap. */
static void advance(int fd, int64_t now) {
    struct conn *c = &conns[fd];
    leave_queue(fd);
    while (c->step < steps - 1 && c->next_ns <= now) {
        c->step++;
        c->next_ns += gap_ns;
    }
    ssize_t n = send(fd, c->answer->bytes + c->sent, c->answer->due[c->step] - c->sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) {
        c->streaming = 0;
        drop(fd);
        return;
    }
    if (n > 0) c->sent += (size_t)n;
    if (c->sent == c->answer->size) {
        c->streaming = 0;
        serve_next(fd);
        return;
    }
    if (c->next_ns <= now) c->next_ns = now + (gap_ns ? gap_ns : 200000);
    join_queue(fd);
}

/* Length of a whole request at the start of `in`, 0 if it is not whole yet, -1 if it is none. */
static ssize_t request_length(struct conn *c, size_t *head) {
    char *end = memmem(c->in, c->have, "\r\n\r\n", 4);
    if (!end) return c->have >= REQUEST_BYTES ? -1 : 0;
    *head = (size_t)(end - c->in) + 4;
    size_t body = 0;
    for (char *line = memmem(c->in, *head, "\r\n", 2); line && line < end; line = memmem(line + 2, (size_t)(end + 2 - line - 2), "\r\n", 2))
        if (!strncasecmp(line + 2, "content-length:", 15)) body = strtoul(line + 17, NULL, 10);
    if (body > REQUEST_BYTES - *head) return -1;
    return c->have >= *head + body ? (ssize_t)(*head + body) : 0;
}

static void serve_next(int fd) {
    static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}";
    struct conn *c = &conns[fd];
    size_t head = 0;
    ssize_t length;
    while (!c->streaming && (length = request_length(c, &head)) != 0) {
        if (length < 0) { drop(fd); return; }
        int post = !memcmp(c->in, "POST", 4);
        int usage = memmem(c->in + head, (size_t)length - head, "\"include_usage\":true", 20) != NULL;
        c->have -= (size_t)length;
        memmove(c->in, c->in + length, c->have);
        if (!post) {
            if (send(fd, ok, sizeof ok - 1, MSG_NOSIGNAL) != (ssize_t)sizeof ok - 1) { drop(fd); return; }
            continue;
        }
        c->answer = usage ? &with_usage : &plain;
        c->sent = 0;
        c->step = gap_ns ? 0 : steps - 1;
        c->streaming = 1;
        int64_t now = now_ns();
        c->next_ns = now + (gap_ns ? first_gap() : 0);
        join_queue(fd);
        advance(fd, now);
        return;
    }
}

static void readable(int fd) {
    struct conn *c = &conns[fd];
    for (;;) {
        if (c->have >= REQUEST_BYTES) { drop(fd); return; }
        ssize_t n = recv(fd, c->in + c->have, REQUEST_BYTES - c->have, 0);
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) { drop(fd); return; }
        c->have += (size_t)n;
        if (c->have < REQUEST_BYTES) break;
    }
    serve_next(fd);
}

static void accept_all(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        if (fd >= MAX_FD) { close(fd); continue; }
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        memset(&conns[fd], 0, sizeof conns[fd]);
        conns[fd].open = 1;
        conns[fd].in = malloc(REQUEST_BYTES);
        struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
        if (!conns[fd].in || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e)) drop(fd);
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 4096)) fail("listen");
    getsockname(fd, (struct sockaddr *)&a, &size);
    printf("listening %d\n", ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

static void set_timer(int64_t now) {
    static int64_t armed;
    int64_t at = queue_first ? conns[queue_first].next_ns : 0;
    if (at && at <= now) at = now + 1;
    if (at == armed) return;
    struct itimerspec t = {.it_value = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000}};
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
    armed = at;
}

int main(int argc, char **argv) {
    if (argc != 4 || atoi(argv[3]) < 1 || atoi(argv[3]) > MAX_TOKENS || atoi(argv[2]) < 0) {
        fprintf(stderr, "usage: engine PORT GAP_US TOKENS (1 to %d)\n", MAX_TOKENS);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) { files.rlim_cur = files.rlim_max; setrlimit(RLIMIT_NOFILE, &files); }
    gap_ns = (int64_t)atoi(argv[2]) * 1000;
    steps = atoi(argv[3]);
    build(&plain, steps, 0);
    build(&with_usage, steps, 1);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int listener = listen_on(atoi(argv[1]));
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, t = {.events = EPOLLIN, .data.fd = timer_fd};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &e) || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &t)) fail("epoll");
    static struct epoll_event ready[MAX_EVENTS];
    for (;;) {
        set_timer(now_ns());
        int n = epoll_wait(epoll_fd, ready, MAX_EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            uint64_t ticks;
            if (fd == listener) accept_all(listener);
            else if (fd == timer_fd) { if (read(timer_fd, &ticks, sizeof ticks) < 0) continue; }
            else if (conns[fd].open) readable(fd);
        }
        int64_t now = now_ns();
        while (queue_first && conns[queue_first].next_ns <= now) advance(queue_first, now);
    }
}
