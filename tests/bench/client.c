/* The load of the benchmarks where wrk does not do: when the first token came, and how many streams are open at once.
 *
 *   client PORT CLIENTS STREAMS MS SPREAD_US TOKENS [KEY]
 *
 * CLIENTS connections, begun SPREAD_US microseconds apart, ask for one stream after the other until STREAMS are begun or
 * MS milliseconds are over; what is open then is left. Every stream is read token by token: it is right when its status
 * is 200, it has TOKENS token events, one [DONE], no usage, and its last chunk. No answer is kept, so 5,000 open streams
 * cost next to nothing. "open" is printed once, when every client has had a token of its first stream, and a line of JSON
 * at the end; first token and whole stream are in microseconds from the request's write. SIGTERM ends it early, with the
 * line. Loopback only.
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
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CLIENTS = 16000, MAX_SAMPLES = 2000000, READ_BYTES = 65536, CARRY = 32, MAX_EVENTS = 512, REQUEST = 2048 };

struct client {
    int fd, tokens, done, usage, ok, had_one;
    int64_t began_ns, first_ns;
    int carried;
    char carry[CARRY];
};

static struct client clients[MAX_CLIENTS];
static char request[REQUEST];
static int request_bytes, wanted_tokens, epoll_fd, port;
static long begun, most, right, wrong, open_now, open_most, served_once;
static char first_wrong[80];
static int32_t *first_us, *total_us;
static volatile sig_atomic_t stop;

static const char token[] = "\"content\":\" tok", done[] = "data: [DONE]\n\n", usage[] = "\"usage\"";

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void on_term(int number) {
    (void)number;
    stop = 1;
}

static void leave(struct client *c, const char *why) {
    if (why) {
        wrong++;
        if (!first_wrong[0]) snprintf(first_wrong, sizeof first_wrong, "%s", why);
    }
    close(c->fd);
    c->fd = -1;
    open_now--;
}

static void ask(struct client *c) {
    c->tokens = c->done = c->usage = c->ok = c->carried = 0;
    c->first_ns = 0;
    c->began_ns = now_ns();
    begun++;
    if (send(c->fd, request, (size_t)request_bytes, MSG_NOSIGNAL) != request_bytes) leave(c, "a request could not be sent");
}

static int count(const char *data, size_t size, const char *what, size_t length) {
    int found = 0;
    const char *at = data, *end = data + size;
    while ((at = memmem(at, (size_t)(end - at), what, length))) {
        found++;
        at += length;
    }
    return found;
}

/* Occurrences of `what` in the read and, across its edge, in what was carried over: each is counted once, where it ends. */
static int seen(struct client *c, const char *data, size_t size, const char *what) {
    size_t length = strlen(what), before = (size_t)c->carried < length - 1 ? (size_t)c->carried : length - 1;
    size_t after = size < length - 1 ? size : length - 1;
    char edge[2 * CARRY];
    memcpy(edge, c->carry + c->carried - before, before);
    memcpy(edge + before, data, after);
    return count(edge, before + after, what, length) + count(data, size, what, length);
}

static void carry(struct client *c, const char *data, size_t size) {
    if (size >= CARRY) {
        memcpy(c->carry, data + size - CARRY, CARRY);
        c->carried = CARRY;
        return;
    }
    int keep = c->carried + (int)size > CARRY ? CARRY - (int)size : c->carried;
    memmove(c->carry, c->carry + c->carried - keep, (size_t)keep);
    memcpy(c->carry + keep, data, size);
    c->carried = keep + (int)size;
}

static void whole(struct client *c) {
    const char *why = NULL;
    char text[40];
    if (c->tokens != wanted_tokens) {
        snprintf(text, sizeof text, "%d tokens", c->tokens);
        why = text;
    } else if (c->done != 1) why = "no [DONE]";
    else if (c->usage) why = "usage that nobody asked for";
    if (why) { leave(c, why); return; }
    int64_t now = now_ns();
    if (right < MAX_SAMPLES) {
        first_us[right] = (int32_t)((c->first_ns - c->began_ns) / 1000);
        total_us[right] = (int32_t)((now - c->began_ns) / 1000);
    }
    right++;
    if (begun < most && !stop) ask(c); else leave(c, NULL);
}

static void readable(struct client *c) {
    static char data[READ_BYTES];
    ssize_t n = recv(c->fd, data, sizeof data, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) { leave(c, strerror(errno)); return; }
    if (n == 0) { leave(c, c->ok ? "closed early" : "closed without an answer"); return; }
    size_t size = (size_t)n;
    if (!c->ok) {
        if (size < 13 || memcmp(data, "HTTP/1.1 200 ", 13)) {
            char line[40];
            snprintf(line, sizeof line, "%.*s", (int)(size < 32 ? size : 32), data);
            line[strcspn(line, "\r\n")] = 0;
            leave(c, line);
            return;
        }
        c->ok = 1;
    }
    int got = seen(c, data, size, token);
    if (got && !c->tokens) {
        c->first_ns = now_ns();
        if (!c->had_one) {
            c->had_one = 1;
            served_once++;
        }
    }
    c->tokens += got;
    c->done += seen(c, data, size, done);
    c->usage += seen(c, data, size, usage);
    carry(c, data, size);
    if (c->carried >= 5 && !memcmp(c->carry + c->carried - 5, "0\r\n\r\n", 5)) whole(c);
}

static void begin(struct client *c, uint32_t number) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) fail("socket");
    open_now++;
    if (open_now > open_most) open_most = open_now;
    if (connect(c->fd, (struct sockaddr *)&a, sizeof a)) { begun++; leave(c, strerror(errno)); return; }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = number};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e)) fail("epoll");
    ask(c);
}

static int by_size(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int32_t at(const int32_t *sorted, long n, long percent) {
    return n ? sorted[n * percent / 100 < n ? n * percent / 100 : n - 1] : 0;
}

static void tell(int64_t took_ns) {
    long n = right < MAX_SAMPLES ? right : MAX_SAMPLES;
    qsort(first_us, (size_t)n, sizeof *first_us, by_size);
    qsort(total_us, (size_t)n, sizeof *total_us, by_size);
    for (char *c = first_wrong; *c; c++) if (*c == '"' || *c == '\\' || (unsigned char)*c < 32) *c = '?';
    printf("{\"right\":%ld,\"wrong\":%ld,\"why\":\"%s\",\"open_most\":%ld,\"seconds\":%.6f,\"first_us\":[%d,%d],\"total_us\":[%d,%d]}\n",
           right, wrong, first_wrong, open_most, (double)took_ns / 1e9, at(first_us, n, 50), at(first_us, n, 99),
           at(total_us, n, 50), at(total_us, n, 99));
}

int main(int argc, char **argv) {
    if (argc < 7 || atoi(argv[2]) < 1 || atoi(argv[2]) > MAX_CLIENTS) {
        fprintf(stderr, "usage: client PORT CLIENTS STREAMS MS SPREAD_US TOKENS [KEY] (up to %d clients)\n", MAX_CLIENTS);
        return 2;
    }
    port = atoi(argv[1]);
    int want = atoi(argv[2]), told = 0;
    most = atol(argv[3]);
    int64_t limit_ns = (int64_t)atol(argv[4]) * 1000000, spread_ns = (int64_t)atol(argv[5]) * 1000;
    wanted_tokens = atoi(argv[6]);
    static const char body[] = "{\"model\": \"bench\", \"messages\": [{\"role\": \"user\", \"content\": "
                               "\"Count to sixty-four, please.\"}], \"stream\": true}";
    char key[512] = "";
    if (argc > 7 && argv[7][0]) snprintf(key, sizeof key, "Authorization: Bearer %s\r\n", argv[7]);
    request_bytes = snprintf(request, sizeof request, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                             "Content-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n%s", key, sizeof body - 1, body);
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) { files.rlim_cur = files.rlim_max; setrlimit(RLIMIT_NOFILE, &files); }
    struct sigaction end = {.sa_handler = on_term};
    sigaction(SIGTERM, &end, NULL);
    first_us = calloc(MAX_SAMPLES, sizeof *first_us);
    total_us = calloc(MAX_SAMPLES, sizeof *total_us);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!first_us || !total_us || epoll_fd < 0) fail("start");
    int64_t start = now_ns(), now = start;
    int started = 0;
    static struct epoll_event ready[MAX_EVENTS];
    while (!stop && now - start < limit_ns) {
        while (started < want && begun < most && now - start >= started * spread_ns) {
            begin(&clients[started], (uint32_t)started);
            started++;
            now = now_ns();
        }
        if (!told && served_once == want) {
            told = 1;
            printf("open\n");
            fflush(stdout);
        }
        if (!open_now && (started == want || begun >= most)) break;
        int wait_ms = started < want && begun < most ? 1 : 100;
        int n = epoll_wait(epoll_fd, ready, MAX_EVENTS, wait_ms);
        for (int i = 0; i < n; i++)
            if (clients[ready[i].data.u32].fd >= 0) readable(&clients[ready[i].data.u32]);
        now = now_ns();
    }
    tell(now - start);
    return wrong != 0;
}
