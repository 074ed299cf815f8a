/*
 * A load generator that is never the bottleneck: one thread, epoll, requests built once and only patched.
 *
 *   load send  HOST PORT CONNECTIONS DEPTH SECONDS TOPIC QUEUES BODY_BYTES [TAGS]
 *                                                                            SEND_MESSAGE_V2 (310), JSON header; with
 *                                                                            TAGS they take turns: TagA and kind 0, ...
 *   load pull  HOST PORT CONNECTIONS DEPTH SECONDS TOPIC QUEUES MESSAGES [TYPE EXPRESSION]
 *                                                                            PULL_MESSAGE (11), offsets go round
 *   load route HOST PORT CONNECTIONS DEPTH SECONDS TOPIC_PREFIX TOPICS       GET_ROUTEINFO_BY_TOPIC (105)
 *   load deliver HOST PORT RATE DEPTH SECONDS TOPIC QUEUES BODY_BYTES        RATE sends a second on one connection, and
 *                                                                            on another a reader of the new topic that
 *                                                                            waits at each queue; DEPTH is QUEUES
 *   load null  HOST PORT                                                     a server that does nothing: the ceiling
 *
 * CONNECTIONS x DEPTH requests are in flight all the time. The first tenth of SECONDS warms up and is not counted.
 * In the environment:
 *   LOAD_COUNT=n    the run ends after n answers instead (to fill a broker), all of them counted
 *   LOAD_TOPICS=n   sends go to TOPIC0 ... TOPICn-1 in turn
 *   LOAD_DUE_MS=t   messages sent are timers: the first is due at t, each later one a millisecond after the one before
 *
 * Prints one JSON object: messages, handled (messages with those of the warm-up), seconds, rate (messages/s),
 * latency in microseconds (p50, p90, p99, max; of a delivery from the send to the message at its reader), errors (answers whose code is not 0) and cpu (seconds this
 * process used).
 *
 * An opaque number is ten digits, 1000000000 + n, so that a request is patched in place. n is the slot (which of
 * the requests in flight on this connection), so the answer to it names the slot to use again.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { OPAQUE_BASE = 1000000000, OPAQUE_DIGITS = 10, BUFFER_BYTES = 4 * 1024 * 1024, EVENTS = 256 };
enum { BUCKETS_PER_DOUBLING = 64, DOUBLINGS = 32 };
enum { DUE_DIGITS = 13, RECORD_BODY_AT = 88, LINGER_MS = 15000 };
enum { PULL_NOT_FOUND = 19, PULL_RETRY = 20, PULL_OFFSET_MOVED = 21 };

typedef enum { SEND, PULL, ROUTE, DELIVER } Mode;

typedef struct {
    char *bytes;
    size_t length;
    size_t opaque_at;  /* where the ten digits lie */
    size_t key_at;     /* where eight digits of the unique key lie; 0 = none */
    size_t due_at;     /* where a timer's time lies; 0 = none */
    size_t body_at;
} Template;

typedef struct {
    int64_t sent_ns;
    int64_t pull_offset;
} Slot;

typedef struct {
    int fd;
    int number;
    char *in;
    size_t in_length;
    char *out;
    size_t out_length, out_done;
    int wants_write;
    Slot *slots;
} Connection;

static Mode mode;
static int depth;
static Template *templates;
static int template_count;
static unsigned template_next;
static const char *pull_topic;
static const char *pull_type = "TAG", *pull_expression = "*";
static int pull_queues, pull_messages;

static uint64_t histogram[DOUBLINGS * BUCKETS_PER_DOUBLING];
static int64_t latency_max_ns;
static uint64_t messages, handled, answers, errors, issued, issue_limit;
static int counting, stopping;
static uint32_t key_counter;
static uint64_t due_ms;

static uint64_t from_environment(const char *name, uint64_t missing) {
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 10) : missing;
}

static void fail(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* ---- latency: 64 buckets for every doubling, so percentiles are right within 1.6 % ---- */

static void record_latency(int64_t ns) {
    if (ns > latency_max_ns)
        latency_max_ns = ns;
    uint64_t us16 = (uint64_t)ns / 62;  /* about 1/16 microsecond */
    if (us16 < BUCKETS_PER_DOUBLING) {
        histogram[us16]++;
        return;
    }
    int doubling = 63 - __builtin_clzll(us16) - 5;  /* us16 >> doubling is in 32..63 */
    size_t bucket = (size_t)doubling * BUCKETS_PER_DOUBLING + (us16 >> doubling);
    if (bucket >= sizeof histogram / sizeof *histogram)
        bucket = sizeof histogram / sizeof *histogram - 1;
    histogram[bucket]++;
}

static double percentile_us(double share) {
    uint64_t total = 0, seen = 0;
    for (size_t i = 0; i < sizeof histogram / sizeof *histogram; i++)
        total += histogram[i];
    for (size_t i = 0; i < sizeof histogram / sizeof *histogram; i++) {
        seen += histogram[i];
        if (total && seen >= share * total) {
            uint64_t doubling = i / BUCKETS_PER_DOUBLING;
            uint64_t us16 = doubling ? (i - doubling * BUCKETS_PER_DOUBLING) << doubling : i;
            return us16 * 0.062;
        }
    }
    return 0;
}

/* ---- requests ---- */

static Template build(const char *header, const char *body, size_t body_length) {
    Template made;
    size_t header_length = strlen(header);
    made.length = 8 + header_length + body_length;
    made.bytes = malloc(made.length);
    uint32_t prefix[2] = {htonl((uint32_t)(4 + header_length + body_length)), htonl((uint32_t)header_length)};
    memcpy(made.bytes, prefix, 8);
    memcpy(made.bytes + 8, header, header_length);
    memcpy(made.bytes + 8 + header_length, body, body_length);
    made.opaque_at = 8 + (size_t)(strstr(header, "\"opaque\":") - header) + 9;
    const char *key = strstr(header, "COUNTING");
    made.key_at = key ? 8 + (size_t)(key - header) : 0;
    const char *due = strstr(header, "DUE_IN_MILLIS");
    made.due_at = due ? 8 + (size_t)(due - header) : 0;
    made.body_at = 8 + header_length;
    return made;
}

static void build_sends(const char *topic, int queues, int body_bytes, int tags) {
    char *body = malloc(body_bytes);
    char header[2048];
    srand(7);
    for (int i = 0; i < body_bytes; i++)
        body[i] = (char)(rand() >> 7);
    int topics = (int)from_environment("LOAD_TOPICS", 0);
    int kinds = queues * tags;
    due_ms = from_environment("LOAD_DUE_MS", 0);
    template_count = kinds * (topics ? topics : 1);
    templates = calloc(template_count, sizeof *templates);
    for (int i = 0; i < template_count; i++) {
        char kind[32] = "", number[16] = "";
        int tag = i % kinds / queues;
        if (tags > 1)
            snprintf(kind, sizeof kind, "kind\\u0001%d\\u0002", tag);
        if (topics)
            snprintf(number, sizeof number, "%d", i / kinds);
        snprintf(header, sizeof header,
                 "{\"code\":310,\"extFields\":{\"a\":\"bench_producers\",\"b\":\"%s%s\",\"c\":\"TBW102\",\"d\":\"4\","
                 "\"e\":\"%d\",\"f\":\"0\",\"g\":\"%lld000\",\"h\":\"0\","
                 "\"i\":\"%sUNIQ_KEY\\u00017F0000010000A4714E0E2F2ACOUNTING\\u0002WAIT\\u0001true\\u0002%sTAGS\\u0001Tag%c\\u0002\","
                 "\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":1000000000,"
                 "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":407}",
                 topic, number, i % queues, (long long)time(NULL),
                 due_ms ? "TIMER_DELIVER_MS\\u0001DUE_IN_MILLIS\\u0002" : "", kind, 'A' + tag);
        templates[i] = build(header, body, body_bytes);
    }
}

static void build_routes(const char *prefix, int topics) {
    char header[512];
    templates = calloc(topics, sizeof *templates);
    template_count = topics;
    for (int i = 0; i < topics; i++) {
        snprintf(header, sizeof header,
                 "{\"code\":105,\"extFields\":{\"topic\":\"%s%d\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":1000000000,"
                 "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":407}",
                 prefix, i);
        templates[i] = build(header, "", 0);
    }
}

static size_t write_pull(char *at, Connection *connection, int slot) {
    int queue = (connection->number * depth + slot) % pull_queues;
    int length = sprintf(at + 8,
                         "{\"code\":11,\"extFields\":{\"queueId\":\"%d\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"%d\","
                         "\"suspendTimeoutMillis\":\"%d\",\"commitOffset\":\"0\",\"topic\":\"%s\",\"queueOffset\":\"%lld\","
                         "\"expressionType\":\"%s\",\"subVersion\":\"0\",\"consumerGroup\":\"bench_consumers\","
                         "\"subscription\":\"%s\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
                         "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":407}",
                         queue, pull_messages, mode == DELIVER ? 6 : 4, mode == DELIVER ? LINGER_MS : 0, pull_topic,
                         (long long)connection->slots[slot].pull_offset, pull_type, pull_expression,
                         OPAQUE_BASE + slot);
    uint32_t prefix[2] = {htonl(4 + length), htonl(length)};
    memcpy(at, prefix, 8);
    return 8 + length;
}

static void put_digits(char *at, uint64_t number, int digits) {
    while (digits--) {
        at[digits] = (char)('0' + number % 10);
        number /= 10;
    }
}

static void write_send(Connection *connection, int slot) {
    Template *template = &templates[template_next++ % (unsigned)template_count];
    char *at = connection->out + connection->out_length;
    memcpy(at, template->bytes, template->length);
    put_digits(at + template->opaque_at, (uint64_t)(OPAQUE_BASE + slot), OPAQUE_DIGITS);
    if (template->key_at)
        put_digits(at + template->key_at, key_counter++ % 100000000u, 8);
    if (template->due_at)
        put_digits(at + template->due_at, due_ms++, DUE_DIGITS);
    if (mode == DELIVER) {
        int64_t now = now_ns();
        memcpy(at + template->body_at, &now, sizeof now);
    }
    connection->out_length += template->length;
}

static void issue(Connection *connection, int slot, int64_t now) {
    if (mode == PULL || mode == DELIVER)
        connection->out_length += write_pull(connection->out + connection->out_length, connection, slot);
    else
        write_send(connection, slot);
    connection->slots[slot].sent_ns = now;
    issued++;
}

/* ---- answers ---- */

static long long number_after(const char *header, size_t length, const char *name, long long missing) {
    const char *found = memmem(header, length, name, strlen(name));
    if (!found)
        return missing;
    found += strlen(name);
    return strtoll(*found == '"' ? found + 1 : found, NULL, 10);
}

static int count_records(const char *body, size_t length) {
    int count = 0;
    while (length >= 4) {
        uint32_t size;
        memcpy(&size, body, 4);
        size = ntohl(size);
        if (size < 4 || size > length) {
            errors++;
            break;
        }
        body += size;
        length -= size;
        count++;
    }
    return count;
}

/* Each message carries the moment it was sent; records begin with 84 bytes of numbers and the body's length. */
static void count_deliveries(const char *body, size_t length, int64_t now) {
    while (length > RECORD_BODY_AT + sizeof now) {
        uint32_t size;
        int64_t sent_ns;
        memcpy(&size, body, 4);
        memcpy(&sent_ns, body + RECORD_BODY_AT, sizeof sent_ns);
        if (counting) {
            messages++;
            record_latency(now - sent_ns);
        }
        handled++;
        body += ntohl(size);
        length -= ntohl(size);
    }
}

static void take_of_delivery(Connection *connection, int slot, long long code, const char *header, size_t header_length,
                             size_t body_length, int64_t now) {
    int is_reader = connection->number == 1;
    if (code != 0 && !(is_reader && (code == PULL_NOT_FOUND || code == PULL_RETRY)) && errors++ == 0)
        fprintf(stderr, "load: first error: %.*s\n", (int)header_length, header);
    if (is_reader) {
        Slot *used = &connection->slots[slot];
        count_deliveries(header + header_length, body_length, now);
        used->pull_offset = number_after(header, header_length, "\"nextBeginOffset\":", used->pull_offset);
        issue(connection, slot, now);
    }
}

static void take_answer(Connection *connection, const char *frame, size_t frame_length, int64_t now) {
    uint32_t header_length;
    memcpy(&header_length, frame + 4, 4);
    header_length = ntohl(header_length) & 0xffffff;
    const char *header = frame + 8;
    int slot = (int)(number_after(header, header_length, "\"opaque\":", -1) - OPAQUE_BASE);
    long long code = number_after(header, header_length, "\"code\":", -1);
    if (slot < 0 || slot >= depth)
        return;  /* a request of the server's own: not ours to answer */
    if (mode == DELIVER) {
        take_of_delivery(connection, slot, code, header, header_length, frame_length - 8 - header_length, now);
        return;
    }
    int got = 1;
    Slot *used = &connection->slots[slot];
    if (mode == PULL) {
        got = count_records(header + header_length, frame_length - 8 - header_length);
        used->pull_offset = code == 0 || code == PULL_RETRY ? number_after(header, header_length, "\"nextBeginOffset\":", 0) : 0;
    }
    answers++;
    handled += got;
    if (counting) {
        messages += got;
        record_latency(now - used->sent_ns);
        if (code != 0 && !(mode == PULL && (code == PULL_NOT_FOUND || code == PULL_RETRY || code == PULL_OFFSET_MOVED))) {
            if (errors++ == 0)
                fprintf(stderr, "load: first error: %.*s\n", (int)header_length, header);
        }
    }
    if (!stopping && (!issue_limit || issued < issue_limit))
        issue(connection, slot, now);
}

static void read_some(Connection *connection) {
    ssize_t got = read(connection->fd, connection->in + connection->in_length, BUFFER_BYTES - connection->in_length);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        fprintf(stderr, "load: the server closed connection %d\n", connection->number);
        exit(1);
    }
    if (got < 0)
        return;
    connection->in_length += got;
    size_t at = 0;
    int64_t now = now_ns();
    while (connection->in_length - at >= 8) {
        uint32_t length;
        memcpy(&length, connection->in + at, 4);
        length = ntohl(length);
        if (length > BUFFER_BYTES - 4) {
            fprintf(stderr, "load: an answer of %u bytes\n", length);
            exit(1);
        }
        if (connection->in_length - at < 4 + (size_t)length)
            break;
        take_answer(connection, connection->in + at, 4 + (size_t)length, now);
        at += 4 + (size_t)length;
    }
    memmove(connection->in, connection->in + at, connection->in_length - at);
    connection->in_length -= at;
}

static void write_some(Connection *connection, int poll) {
    while (connection->out_done < connection->out_length) {
        ssize_t put = write(connection->fd, connection->out + connection->out_done,
                            connection->out_length - connection->out_done);
        if (put < 0 && errno == EAGAIN)
            break;
        if (put < 0)
            fail("write");
        connection->out_done += put;
    }
    if (connection->out_done == connection->out_length)
        connection->out_done = connection->out_length = 0;
    int wants = connection->out_length > 0;
    if (wants != connection->wants_write) {
        struct epoll_event event = {.events = wants ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = connection};
        epoll_ctl(poll, EPOLL_CTL_MOD, connection->fd, &event);
        connection->wants_write = wants;
    }
}

/* ---- runs ---- */

static struct sockaddr_in address_of(const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        fail("HOST must be an IPv4 address");
    return address;
}

static void open_connection(Connection *connection, int number, struct sockaddr_in *address, int poll) {
    int yes = 1;
    size_t request_bytes = mode == PULL || mode == DELIVER ? 1024 : 0;
    for (int i = 0; i < template_count; i++)
        if (templates[i].length > request_bytes)
            request_bytes = templates[i].length;
    connection->number = number;
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection->fd, (struct sockaddr *)address, sizeof *address) < 0)
        fail("connect");
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    connection->in = malloc(BUFFER_BYTES);
    connection->out = malloc(request_bytes * depth * 2 + 4096);
    connection->slots = calloc(depth, sizeof(Slot));
    for (int slot = 0; slot < depth; slot++)
        connection->slots[slot].pull_offset = (number * depth + slot) / (pull_queues ? pull_queues : 1) * 97;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    epoll_ctl(poll, EPOLL_CTL_ADD, connection->fd, &event);
}

static void print_result(double seconds) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    printf("{\"messages\":%llu,\"handled\":%llu,\"seconds\":%.4f,\"rate\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,"
           "\"max\":%.1f,\"errors\":%llu,\"cpu\":%.3f}\n",
           (unsigned long long)messages, (unsigned long long)handled, seconds, seconds > 0 ? messages / seconds : 0,
           percentile_us(0.5), percentile_us(0.9), percentile_us(0.99), latency_max_ns / 1000.0, (unsigned long long)errors, cpu);
}

static void run(char **arguments) {
    struct sockaddr_in address = address_of(arguments[2], arguments[3]);
    int count = atoi(arguments[4]);
    double seconds = atof(arguments[6]);
    int poll = epoll_create1(0);
    issue_limit = from_environment("LOAD_COUNT", 0);
    Connection *connections = calloc(count, sizeof *connections);
    for (int i = 0; i < count; i++) {
        if (i >= 200 && i % 100 == 0)
            usleep(250000);  /* a broker takes some hundred new connections a second from one host, not more */
        open_connection(&connections[i], i, &address, poll);
    }
    int64_t start = now_ns(), counted_from = start, deadline = start + (int64_t)(seconds * 1e9);
    counting = issue_limit > 0;
    for (int i = 0; i < count; i++) {
        for (int slot = 0; slot < depth && (!issue_limit || issued < issue_limit); slot++)
            issue(&connections[i], slot, now_ns());
        write_some(&connections[i], poll);
    }
    struct epoll_event events[EVENTS];
    int64_t now = start;
    while (issue_limit ? answers < issue_limit : now < deadline) {
        int ready = epoll_wait(poll, events, EVENTS, 100);
        for (int i = 0; i < ready; i++) {
            Connection *connection = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                read_some(connection);
            if (connection->out_length)
                write_some(connection, poll);
        }
        now = now_ns();
        if (!counting && now - start > (int64_t)(seconds * 1e8)) {
            counting = 1;
            counted_from = now;
        }
        if (issue_limit && now > deadline) {
            fprintf(stderr, "load: only %llu of %llu answers in time\n", (unsigned long long)answers,
                    (unsigned long long)issue_limit);
            exit(1);
        }
    }
    print_result((now - counted_from) / 1e9);
}

/* The sender does not wait for answers, so that a slow broker is not asked less often. */
static void run_deliveries(char **arguments) {
    struct sockaddr_in address = address_of(arguments[2], arguments[3]);
    int64_t interval = 1000000000 / atoi(arguments[4]);
    double seconds = atof(arguments[6]);
    int poll = epoll_create1(0), clock = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    Connection sender = {0}, reader = {0};
    open_connection(&sender, 0, &address, poll);
    open_connection(&reader, 1, &address, poll);
    free(sender.out);
    sender.out = malloc(BUFFER_BYTES);
    for (int slot = 0; slot < depth; slot++) {
        reader.slots[slot].pull_offset = 0;
        issue(&reader, slot, now_ns());
    }
    write_some(&reader, poll);
    struct itimerspec ticks = {{0, interval}, {0, interval}};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    timerfd_settime(clock, 0, &ticks, NULL);
    epoll_ctl(poll, EPOLL_CTL_ADD, clock, &event);
    int64_t start = now_ns(), counted_from = start, now = start;
    while (now - start < (int64_t)(seconds * 1e9)) {
        int ready = epoll_wait(poll, events, EVENTS, 100);
        for (int i = 0; i < ready; i++) {
            Connection *connection = events[i].data.ptr;
            uint64_t due = 0;
            if (!connection && read(clock, &due, sizeof due) == sizeof due)
                for (; due && sender.out_length + templates[0].length + 64 < BUFFER_BYTES; due--)
                    write_send(&sender, 0);
            else if (connection && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                read_some(connection);
        }
        write_some(&sender, poll);
        write_some(&reader, poll);
        now = now_ns();
        if (!counting && now - start > (int64_t)(seconds * 1e8)) {
            counting = 1;
            counted_from = now;
        }
    }
    print_result((now - counted_from) / 1e9);
}

/* ---- a server that does nothing but answer ---- */

static void answer_all(Connection *connection) {
    static const char reply[] =
        "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"msgId\":\"7F0000010000A4710000000000000000\",\"queueOffset\":\"0\"},"
        "\"flag\":1,\"language\":\"JAVA\",\"opaque\":1000000000,\"version\":407}";
    static size_t opaque_at;
    if (!opaque_at)
        opaque_at = (size_t)(strstr(reply, "\"opaque\":") - reply) + 9;
    size_t at = 0, reply_length = sizeof reply - 1;
    while (connection->in_length - at >= 8) {
        uint32_t length, header_length;
        memcpy(&length, connection->in + at, 4);
        length = ntohl(length);
        if (connection->in_length - at < 4 + (size_t)length)
            break;
        memcpy(&header_length, connection->in + at + 4, 4);
        const char *header = connection->in + at + 8;
        const char *opaque = memmem(header, ntohl(header_length) & 0xffffff, "\"opaque\":", 9);
        uint32_t prefix[2] = {htonl((uint32_t)(4 + reply_length)), htonl((uint32_t)reply_length)};
        char *out = connection->out + connection->out_length;
        memcpy(out, prefix, 8);
        memcpy(out + 8, reply, reply_length);
        if (opaque)
            memcpy(out + 8 + opaque_at, opaque + 9, OPAQUE_DIGITS);
        connection->out_length += 8 + reply_length;
        at += 4 + (size_t)length;
    }
    memmove(connection->in, connection->in + at, connection->in_length - at);
    connection->in_length -= at;
}

static void serve_nothing(char **arguments) {
    struct sockaddr_in address = address_of(arguments[2], arguments[3]);
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1, poll = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 1024) < 0)
        fail("listen");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            Connection *connection = events[i].data.ptr;
            if (!connection) {
                connection = calloc(1, sizeof *connection);
                connection->fd = accept(listener, NULL, NULL);
                setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                connection->in = malloc(BUFFER_BYTES);
                connection->out = malloc(BUFFER_BYTES);
                struct epoll_event readable = {.events = EPOLLIN, .data.ptr = connection};
                epoll_ctl(poll, EPOLL_CTL_ADD, connection->fd, &readable);
                continue;
            }
            ssize_t got = read(connection->fd, connection->in + connection->in_length, 65536);
            if (got <= 0) {
                close(connection->fd);
                free(connection->in);
                free(connection->out);
                free(connection);
                continue;
            }
            connection->in_length += got;
            connection->out_length = 0;
            answer_all(connection);
            for (size_t done = 0; done < connection->out_length;) {
                ssize_t put = write(connection->fd, connection->out + done, connection->out_length - done);
                if (put < 0)
                    break;
                done += put;
            }
        }
    }
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    if (count == 4 && strcmp(arguments[1], "null") == 0) {
        serve_nothing(arguments);
        return 0;
    }
    if (count < 9) {
        fprintf(stderr, "usage: load send|pull|route|deliver HOST PORT CONNECTIONS DEPTH SECONDS TOPIC ... (see load.c)\n");
        return 2;
    }
    depth = atoi(arguments[5]);
    if (strcmp(arguments[1], "send") == 0 && (count == 10 || count == 11)) {
        mode = SEND;
        build_sends(arguments[7], atoi(arguments[8]), atoi(arguments[9]), count == 11 ? atoi(arguments[10]) : 1);
    } else if (strcmp(arguments[1], "pull") == 0 && (count == 10 || (count == 12 && strlen(arguments[11]) < 256))) {
        mode = PULL;
        pull_topic = arguments[7];
        pull_queues = atoi(arguments[8]);
        pull_messages = atoi(arguments[9]);
        if (count == 12) {
            pull_type = arguments[10];
            pull_expression = arguments[11];
        }
    } else if (strcmp(arguments[1], "deliver") == 0 && count == 10) {
        mode = DELIVER;
        pull_topic = arguments[7];
        pull_queues = depth;
        pull_messages = 32;
        build_sends(arguments[7], atoi(arguments[8]), atoi(arguments[9]), 1);
        run_deliveries(arguments);
        return 0;
    } else if (strcmp(arguments[1], "route") == 0 && count == 9) {
        mode = ROUTE;
        build_routes(arguments[7], atoi(arguments[8]));
    } else {
        fprintf(stderr, "load: unknown mode or wrong number of arguments\n");
        return 2;
    }
    run(arguments);
    return 0;
}
